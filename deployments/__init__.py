"""How and where Passline runs: local stack, command line, work pools, demo."""
