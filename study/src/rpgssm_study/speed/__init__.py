"""Measurements of speed: the core beside other implementations of the same mathematics, and training steps."""
