"""The gate report: one page per candidate that says what was decided, on which numbers, and shows the worst faults."""
