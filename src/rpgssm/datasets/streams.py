"""Random numbers: one independent stream per seed, split and purpose.

Each purpose (first angle, process noise, pixel noise, choice of background ...) has its own stream, drawn sequence by
sequence. So a smaller data set is a prefix of a larger one, and a new background does not change the motion.
"""

import zlib

import numpy as np


def stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """The generator for one purpose, e.g. `stream(0, "pendulum", "train", "pixels")`."""
    if seed < 0:
        raise ValueError(f"seed must not be negative, but is {seed}")
    words = [part if isinstance(part, int) else zlib.crc32(part.encode()) for part in purpose]
    return np.random.default_rng(np.random.SeedSequence([seed, *words]))
