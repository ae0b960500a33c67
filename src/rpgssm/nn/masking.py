"""Self-supervised masking: frames hidden from the model, drawn anew for each sequence at each step.

`mask_size` frames of every sequence are hidden, a contiguous window with a uniformly drawn start or that many frames at
random, but never more than half of a sequence. The loss still covers all frames. Models that take missing frames get
`as_missing`, others get `zeroed`.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from rpgssm.data import Modality, Sequences
from rpgssm.settings import setting

MaskMode = Literal["window", "random"]
MODES = ("window", "random")


def mask_size_setting() -> Any:
    """Declare the setting `mask_size` of a method."""
    return setting(
        20,
        "Frames of each sequence that are hidden from the network at each step but count in the loss (at most half of "
        "the sequence). 0: none.",
        least=0,
    )


def mask_mode_setting() -> Any:
    """Declare the setting `mask_mode` of a method."""
    return setting("window", "'window' hides frames that follow each other, 'random' frames anywhere.")


def draw_hidden(key: PRNGKeyArray, batch: Sequences, size: int, mode: MaskMode = "window") -> Bool[Array, "n t"] | None:
    """A mask of frames to hide: True for at most `size` existing frames of each sequence. None if size is 0."""
    if mode not in MODES:
        raise ValueError(f"mask_mode is {mode!r}: it must be one of {', '.join(map(repr, MODES))}")
    if size == 0:
        return None
    n, time = len(batch), batch.time
    lengths = jnp.full((n,), time, jnp.int32) if batch.lengths is None else jnp.asarray(batch.lengths).astype(jnp.int32)
    count = jnp.minimum(size, lengths // 2)
    frames = jnp.arange(time, dtype=jnp.int32)[None]
    if mode == "window":
        start = jax.random.randint(key, (n,), 0, lengths - count + 1, dtype=jnp.int32)
        return (frames >= start[:, None]) & (frames < (start + count)[:, None])
    noise = jax.random.uniform(key, (n, time))
    noise = jnp.where(frames < lengths[:, None], noise, jnp.full_like(noise, jnp.inf))
    rank = jnp.argsort(jnp.argsort(noise, axis=1), axis=1).astype(jnp.int32)
    return rank < count[:, None]


def as_missing(batch: Sequences, hidden: Bool[Array, "n t"] | None) -> Sequences:
    """The same data with hidden frames not observed, in any modality."""
    if hidden is None:
        return batch

    def without(m: Modality) -> Modality:
        return Modality(m.values, ~hidden if m.mask is None else jnp.asarray(m.mask) & ~hidden, m.scale)

    return Sequences({name: without(m) for name, m in batch.modalities.items()}, batch.controls, batch.lengths)


def zeroed(batch: Sequences, hidden: Bool[Array, "n t"] | None) -> Sequences:
    """The same data with hidden frames zero. Masks stay as they are, so that the frames count in the loss."""
    if hidden is None:
        return batch

    def blank(m: Modality) -> Modality:
        values = jnp.asarray(m.values)
        where = hidden.reshape(*hidden.shape, *[1] * (values.ndim - 2))
        return Modality(jnp.where(where, jnp.zeros_like(values), values), m.mask, m.scale)

    return Sequences({name: blank(m) for name, m in batch.modalities.items()}, batch.controls, batch.lengths)
