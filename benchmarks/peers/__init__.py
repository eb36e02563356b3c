"""Servers that Passline is compared with. `benchmarks.servers` starts a module; it answers POST /v1/inspect."""
