"""A training as a process of its own: what it is told, what it reports, and how it is brought back."""
