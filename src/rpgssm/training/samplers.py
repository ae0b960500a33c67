"""Samplers: which sequences, and which windows of them, make up each batch.

An epoch is one random permutation of the items (sequences, or windows of sequences), cut into batches. Items left over
are dropped until the next permutation. The permutation and the places of the windows are functions of the random key
and the number of the epoch alone, so the order of the data needs no storage beyond the step.

A `Sampler` is a setting: it plans the items of a training (`plan`) and of its validation (`validation`). Shuffling and
cutting batches by a plan happens on the device.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from rpgssm.data import Modality, Sequences
from rpgssm.settings import Behaviour, setting


class Plan(eqx.Module):
    """The items of batches: item i is window number `slot[i]` of sequence `sequence[i]`.

    The windows of sequence n can be shifted by up to `play[n]` frames. Without windows items are sequences. `near[i]`
    are the nearest neighbours of item i, if batches consist of neighbours.
    """

    sequence: Int[np.ndarray, " items"]
    slot: Int[np.ndarray, " items"]
    play: Int[np.ndarray, " n"]
    near: Int[np.ndarray, "items near"] | None
    batch_size: int = eqx.field(static=True)
    batches: int = eqx.field(static=True)
    window: int | None = eqx.field(static=True)


class Order(eqx.Module):
    """The order of the items in one epoch, and the shift of each sequence's windows."""

    items: Int[Array, " items"]
    shift: Int[Array, " n"]


class Sampler(Behaviour, abstract=True):
    """Which sequences, or windows of sequences, make up each batch."""

    @abstractmethod
    def plan(self, data: Sequences, batch_size: int, window: int | None) -> Plan:
        """The items of training."""

    @abstractmethod
    def validation(self, data: Sequences, batch_size: int, window: int | None) -> Plan:
        """The items of validation: the same at every call, each used at least once."""


class RandomWindows(Sampler):
    """Random sequences, or one window of each at a random place.

    If there are fewer sequences than a batch needs (a single long recording), each gives as many windows as fit side by
    side with half a window of play. Windows of one epoch never overlap, so no frame is in a batch twice.
    """

    def plan(self, data: Sequences, batch_size: int, window: int | None) -> Plan:
        _check(data, "data")
        window, lengths = _window_and_lengths(data, window)
        counts = np.ones_like(lengths)
        if window is None:
            play = np.zeros_like(lengths)
        else:
            if len(data) < batch_size:
                counts = np.maximum((lengths - window // 2) // window, 1)
            play = np.maximum(lengths - counts * window, 0)
        return _plan(counts, play, batch_size, window)

    def validation(self, data: Sequences, batch_size: int, window: int | None) -> Plan:
        """Windows side by side from the first frame. Items of the batch before fill up the last one."""
        counts, window = _side_by_side(data, "validation", window)
        return _plan(counts, np.zeros_like(counts), batch_size, window, filled=True)


class SimilarWindows(Sampler):
    """Similar windows: each batch is drawn from the nearest neighbours of one item, by their mean frames.

    For a background that is predictable itself, such as a film. In a random batch it suffices to tell frames apart, and
    the model learns nothing else; among similar sequences it does not suffice. Windows lie side by side from the first
    frame. Each epoch takes the neighbours of random items, each at most once.
    """

    spare: float = setting(1.5, "Neighbours of an item for each place in a batch, so that batches differ.", least=1)
    side: int = setting(8, "Pictures are compared at this many pixels a side.", least=1)

    def plan(self, data: Sequences, batch_size: int, window: int | None) -> Plan:
        counts, window = _side_by_side(data, "data", window)
        plan = _plan(counts, np.zeros_like(counts), batch_size, window)
        near = self.neighbours(data, plan.sequence, plan.slot, window, plan.batch_size)
        return Plan(plan.sequence, plan.slot, plan.play, near, plan.batch_size, plan.batches, window)

    def validation(self, data: Sequences, batch_size: int, window: int | None) -> Plan:
        """The neighbours of items at equal distances."""
        counts, window = _side_by_side(data, "validation", window)
        plan = _plan(counts, np.zeros_like(counts), batch_size, window, filled=True)
        near = self.neighbours(data, plan.sequence, plan.slot, window, plan.batch_size)
        items = near[np.arange(plan.batches) * plan.batch_size, : plan.batch_size].reshape(-1)
        sequence, slot = plan.sequence[items], plan.slot[items]
        return Plan(sequence, slot, plan.play, None, plan.batch_size, plan.batches, window)

    def neighbours(
        self,
        data: Sequences,
        sequence: Int[np.ndarray, " items"],
        slot: Int[np.ndarray, " items"],
        window: int | None,
        batch_size: int,
    ) -> Int[np.ndarray, "items near"]:
        """The nearest neighbours of every item (window number `slot` of a sequence), itself among them."""
        from sklearn.neighbors import NearestNeighbors

        length = data.time if window is None else window
        start = np.minimum(slot * length, data.time - length)
        means = [_mean_frames(m, sequence, start, length, self.side) for _, m in sorted(data.modalities.items())]
        rows = np.concatenate(means, axis=1)
        count = min(len(sequence), round(self.spare * batch_size))
        return NearestNeighbors(n_neighbors=count).fit(rows).kneighbors(rows, return_distance=False).astype(np.int32)


def window_for(window: int | str | None, data: Sequences, batch_size: int) -> int | None:
    """Frames per training window; None for whole sequences. "auto" chooses windows if there are few sequences."""
    if not isinstance(window, str):
        return None if window is None or window >= data.time else int(window)
    count = len(data)
    if count >= min(batch_size, 16):
        return None
    frames = count * data.time if data.lengths is None else int(np.sum(data.lengths))
    length = int(np.clip(frames // batch_size, 20, 100))
    return length if length < data.time else None


def shuffle(plan: Plan, key: PRNGKeyArray, epoch: Int[Array, ""]) -> Order:
    """The order of an epoch."""
    permute, shift = jr.split(jr.fold_in(key, epoch))
    items = jr.permutation(permute, jnp.arange(len(plan.sequence), dtype=jnp.int32))
    if plan.near is not None:
        near = jnp.asarray(plan.near)[items[: plan.batches]]
        items = jr.permutation(shift, near, axis=1, independent=True)[:, : plan.batch_size].reshape(-1)
    if not plan.play.any():
        return Order(items, jnp.zeros(plan.play.shape, jnp.int32))
    return Order(items, jr.randint(shift, plan.play.shape, 0, jnp.asarray(plan.play) + 1, dtype=jnp.int32))


def in_order(plan: Plan) -> Order:
    """The order without shuffling and shifts."""
    return Order(jnp.arange(len(plan.sequence), dtype=jnp.int32), jnp.zeros(plan.play.shape, jnp.int32))


def batch_at(
    data: Sequences, plan: Plan, order: Order, index: Int[Array, ""]
) -> tuple[Sequences, Int[Array, " batch"]]:
    """Batch number `index` of an epoch, and the places of its sequences in the data."""
    items = jax.lax.dynamic_slice_in_dim(order.items, index * plan.batch_size, plan.batch_size)
    sequence = jnp.asarray(plan.sequence)[items]
    if plan.window is None:
        return data.take(sequence), sequence
    start = order.shift[sequence] + jnp.asarray(plan.slot)[items] * plan.window
    return data.window(start, plan.window, sequence), sequence


def _check(data: Sequences, name: str) -> None:
    if len(data) == 0:
        raise ValueError(f"There are no sequences in `{name}`.")


def _window_and_lengths(data: Sequences, window: int | None) -> tuple[int | None, np.ndarray]:
    if data.lengths is None:
        lengths = np.full(len(data), data.time, np.int32)
    else:
        lengths = np.asarray(data.lengths).astype(np.int32)
    return (None if window is None or window >= data.time else window), lengths


def _side_by_side(data: Sequences, name: str, window: int | None) -> tuple[np.ndarray, int | None]:
    """The number of windows of each sequence, one after the other from the first frame; and their length."""
    _check(data, name)
    window, lengths = _window_and_lengths(data, window)
    return np.ones_like(lengths) if window is None else np.maximum(lengths // window, 1), window


def _plan(counts: np.ndarray, play: np.ndarray, batch_size: int, window: int | None, filled: bool = False) -> Plan:
    """A plan with this number of windows of each sequence. With `filled` the last batch may be incomplete."""
    sequence = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    slot = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
    batch_size = min(batch_size, len(sequence))
    batches = -(-len(sequence) // batch_size) if filled else len(sequence) // batch_size
    return Plan(sequence, slot, play, None, batch_size, batches, window)


def _mean_frames(
    modality: Modality, sequence: np.ndarray, start: np.ndarray, length: int, side: int
) -> Float[np.ndarray, "items f"]:
    """The mean frame of every window, small, in units of the standard deviation over all numbers."""
    rows = []
    for n, t in zip(sequence, start, strict=True):
        frames = np.asarray(modality.values[n, t : t + length], np.float32)
        if modality.mask is not None:
            frames = frames[np.asarray(modality.mask[n, t : t + length])]
        rows.append(_small(frames.mean(0), side) if len(frames) else None)
    blank = np.zeros_like(next((row for row in rows if row is not None), np.zeros(1, np.float32)))
    means = np.stack([blank if row is None else row for row in rows])
    means = means - means.mean(0)
    return means / max(float(means.std()), 1e-12) / np.sqrt(np.float32(means.shape[1]))


def _small(frame: np.ndarray, side: int) -> np.ndarray:
    """A frame as one vector; an image as the means of at most side×side blocks."""
    for axis in range(2 if frame.ndim >= 2 else 0):
        size = frame.shape[axis]
        if size > side:
            edges = np.arange(side) * size // side
            counts = np.diff(np.append(edges, size)).astype(frame.dtype)
            others = [i for i in range(frame.ndim) if i != axis]
            frame = np.add.reduceat(frame, edges, axis) / np.expand_dims(counts, others)
    return frame.reshape(-1)
