"""Which windows look alike: what batches are made of that compare frames with others before the same background.

A batch of random sequences is told apart by whatever differs most, and if that is predictable (a film behind the thing
of interest), nothing else is learned. Among sequences that look alike it says little, and the rest has to.
"""

import numpy as np
from jaxtyping import Float, Int

from rpgssm.data import Modality, Sequences

SIDE = 8  # pictures are compared at this many pixels a side
SPARE = 1.5  # neighbours of an item for each place in a batch, so that batches differ


def neighbours(
    data: Sequences,
    sequence: Int[np.ndarray, " items"],
    slot: Int[np.ndarray, " items"],
    window: int | None,
    batch_size: int,
) -> Int[np.ndarray, "items near"]:
    """For every item (window number `slot` of a sequence) the items that look most like it, itself among them."""
    from sklearn.neighbors import NearestNeighbors

    length = data.time if window is None else window
    start = np.minimum(slot * length, data.time - length)
    looks = np.concatenate([_look(m, sequence, start, length) for _, m in sorted(data.modalities.items())], axis=1)
    count = min(len(sequence), round(SPARE * batch_size))
    return NearestNeighbors(n_neighbors=count).fit(looks).kneighbors(looks, return_distance=False).astype(np.int32)


def _look(modality: Modality, sequence: np.ndarray, start: np.ndarray, length: int) -> Float[np.ndarray, "items f"]:
    """The mean frame of every window, small, in units of the standard deviation over all numbers."""
    rows = []
    for n, t in zip(sequence, start, strict=True):
        frames = np.asarray(modality.values[n, t : t + length], np.float32)
        if modality.mask is not None:
            frames = frames[np.asarray(modality.mask[n, t : t + length])]
        rows.append(_small(frames.mean(0)) if len(frames) else None)
    blank = np.zeros_like(next((row for row in rows if row is not None), np.zeros(1, np.float32)))
    looks = np.stack([blank if row is None else row for row in rows])
    looks = looks - looks.mean(0)
    return looks / max(float(looks.std()), 1e-12) / np.sqrt(np.float32(looks.shape[1]))


def _small(frame: np.ndarray) -> np.ndarray:
    """A picture as the means of at most SIDE×SIDE blocks; anything else as it is. As one vector."""
    for axis in range(2 if frame.ndim >= 2 else 0):
        size = frame.shape[axis]
        if size > SIDE:
            edges = np.arange(SIDE) * size // SIDE
            counts = np.diff(np.append(edges, size)).astype(frame.dtype)
            frame = np.add.reduceat(frame, edges, axis) / np.expand_dims(
                counts, [i for i in range(frame.ndim) if i != axis]
            )
    return frame.reshape(-1)
