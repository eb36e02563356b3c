"""What `tasks.splits` is made of: units, drawing, shares, and the record that makes splits sticky."""
