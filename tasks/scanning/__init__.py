"""What `tasks.scan` is made of: reading files and pictures, keeping tables, near duplicates."""
