"""Helpers for the tests of conversion."""

import numpy as np

from rpgssm.data import Modality

RNG = np.random.default_rng(0)


def real(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def only(sequences) -> Modality:
    (modality,) = sequences.modalities.values()
    return modality
