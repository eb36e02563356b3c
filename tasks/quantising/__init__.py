"""What `tasks.quantise` is made of: the head, calibration, the quantised file, its gate, the search."""
