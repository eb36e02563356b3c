"""Watching a training: its progress, curves, sample pictures and the load that it puts on the machine."""
