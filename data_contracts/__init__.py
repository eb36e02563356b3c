"""What both sides of Passline agree on: data that crosses a boundary and the arithmetic that gives it meaning."""
