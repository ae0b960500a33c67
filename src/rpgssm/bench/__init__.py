"""Benchmarks: how fast the library is on this machine, against other implementations of the same mathematics."""
