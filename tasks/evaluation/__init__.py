"""What `tasks.evaluate` is made of: results, average precision, operating point, intervals, comparison."""
