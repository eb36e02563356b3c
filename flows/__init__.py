"""Wiring only: which step follows which, and on which side."""
