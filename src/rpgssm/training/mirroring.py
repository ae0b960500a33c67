"""Batches seen in mirrors: as many backgrounds again, where a scene has no preferred direction."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, PRNGKeyArray, Shaped

from rpgssm.data import Modality, Sequences

_KEY = 7  # folded into the key of a batch, which serves for other things too


def mirrored(batch: Sequences, key: PRNGKeyArray) -> Sequences:
    """The batch with its pictures mirrored at random, all of them alike: left-right, up-down, and along the diagonal
    if they are square. Other modalities stay as they are."""
    flips = jr.bernoulli(jr.fold_in(key, _KEY), 0.5, (3,))
    return replace(batch, modalities={name: _mirror(m, flips) for name, m in batch.modalities.items()})


def before_mirrors(objective: Callable[..., Any]) -> Callable[..., Any]:
    """An objective that sees every batch mirrored at random."""
    return lambda model, batch, key: objective(model, mirrored(batch, key), key)


def _mirror(modality: Modality, flips: Array) -> Modality:
    values: Shaped[Array, "n t *frame"] = jnp.asarray(modality.values)
    if values.ndim < 4:
        return modality
    for axis, flip in zip((2, 3), flips, strict=False):
        values = lax.cond(flip, lambda x, axis=axis: jnp.flip(x, axis), lambda x: x, values)
    if values.shape[2] == values.shape[3]:
        values = lax.cond(flips[2], lambda x: jnp.swapaxes(x, 2, 3), lambda x: x, values)
    return replace(modality, values=values)
