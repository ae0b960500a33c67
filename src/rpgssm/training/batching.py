"""Which sequences, and which windows of them, make up each batch.

An epoch is one random permutation of the items (sequences, or windows of sequences), cut into batches; what is left
over is dropped and has its chance in the next permutation. The permutation and the places of the windows are functions
of the random key and the number of the epoch alone, so the order of the data needs no storage beyond the step.

With windows, each sequence gives one window per epoch, at a random place. If there are fewer sequences than a batch
needs (a single long recording), each gives as many windows as fit side by side with half a window of play: windows of
one epoch never overlap, so no frame meets itself in a batch.

Batches of items that look alike (`likeness.py`): each is drawn from the neighbours of an item, and the items that are
first are a permutation. Windows then lie side by side from the first frame.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from rpgssm.data import Sequences

from .likeness import neighbours


class Plan(eqx.Module):
    """The items that batches are made of: item i is window number `slot[i]` of sequence `sequence[i]`.

    `play[n]` is by how many frames the windows of sequence n can be shifted. Without windows items are sequences.
    `near[i]` are the items that look like item i, where batches are made of these.
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


def training_plan(data: Sequences, batch_size: int, window: int | None, alike: bool = False) -> Plan:
    """Items for training: with windows, one per sequence, or several where sequences are few or batches are alike."""
    _check(data, "data")
    window, lengths = _window_and_lengths(data, window)
    if window is None or alike:
        counts = np.ones_like(lengths) if window is None else np.maximum(lengths // window, 1)
        play = np.zeros_like(lengths)
    else:
        counts = np.ones_like(lengths)
        if len(data) < batch_size:
            counts = np.maximum((lengths - window // 2) // window, 1)
        play = np.maximum(lengths - counts * window, 0)
    sequence, slot = _items(counts)
    batch_size = min(batch_size, len(sequence))
    near = neighbours(data, sequence, slot, window, batch_size) if alike else None
    return Plan(sequence, slot, play, near, batch_size, len(sequence) // batch_size, window)


def validation_plan(data: Sequences, batch_size: int, window: int | None, alike: bool = False) -> Plan:
    """Items for validation: the same at every call, with windows side by side from the first frame.

    All items are used: the last batch is filled up with items of the one before. Batches that are alike are those of
    every so many-th item and its nearest neighbours.
    """
    _check(data, "validation")
    window, lengths = _window_and_lengths(data, window)
    counts = np.ones_like(lengths) if window is None else np.maximum(lengths // window, 1)
    sequence, slot = _items(counts)
    batch_size = min(batch_size, len(sequence))
    batches, play = -(-len(sequence) // batch_size), np.zeros_like(lengths)
    if alike:
        near = neighbours(data, sequence, slot, window, batch_size)
        items = near[np.arange(batches) * batch_size, :batch_size].reshape(-1)
        sequence, slot = sequence[items], slot[items]
    return Plan(sequence, slot, play, None, batch_size, batches, window)


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
    """The items as they come."""
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


def _items(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    sequence = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    slot = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
    return sequence, slot
