"""Fingerprints of data: short texts that show whether a resumed run has the same data as before."""

import hashlib
from typing import Any

import jax
import numpy as np

from rpgssm.data import Sequences

from .optimizer import path_name

WHOLE = 2**28  # bytes of the largest array that is hashed as a whole
BLOCK, BLOCKS = 2**20, 64  # size in bytes, and number, of the random blocks of a larger one


def data_identity(data: Sequences, validation: Sequences | None) -> dict[str, str]:
    """The fingerprints of the arrays of a training."""
    told = fingerprint(data, "data")
    return told if validation is None else told | fingerprint(validation, "validation")


def fingerprint(data: Sequences, prefix: str) -> dict[str, str]:
    """Shape, dtype and hash of each array, and scales. Above 256 MB the hash is of blocks drawn with a fixed seed."""
    leaves = jax.tree_util.tree_leaves_with_path(data)
    scales = {name: m.scale for name, m in data.modalities.items() if m.scale != 1.0}
    told = {f"{prefix}.{path_name(path)}": _one(np.asarray(leaf)) for path, leaf in leaves}
    return told | {f"{prefix}.modalities.{name}.scale": f"{scale:g}" for name, scale in scales.items()}


def _one(array: np.ndarray) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for block in _blocks(array):
        digest.update(np.ascontiguousarray(block).view(np.uint8).data)
    return f"{array.dtype}{list(array.shape)} {digest.hexdigest()}"


def _blocks(array: np.ndarray) -> Any:
    if array.nbytes <= WHOLE:
        return [array.reshape(-1)]
    rows = max(1, BLOCK // max(1, array.nbytes // len(array)))
    starts = np.random.default_rng(0).integers(0, max(1, len(array) - rows + 1), BLOCKS)
    return (array[start : start + rows].reshape(-1) for start in np.sort(starts))
