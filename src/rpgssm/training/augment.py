"""Augmentations: random changes of training batches. Validation batches are never changed."""

from abc import abstractmethod
from dataclasses import replace

import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, PRNGKeyArray, Shaped

from rpgssm.data import Modality, Sequences
from rpgssm.settings import Behaviour

_KEY = 7  # folded into the key of a batch, which the objective uses, too


class Augmentation(Behaviour, abstract=True):
    """A random change of a batch, another one at every training step."""

    @abstractmethod
    def __call__(self, batch: Sequences, key: PRNGKeyArray) -> Sequences:
        """The changed batch. Runs inside of the compiled training step."""


class RandomFlips(Augmentation):
    """Flip all images of a batch in the same random way: left-right, up-down and, if square, along the diagonal.

    For scenes without a preferred direction. Other modalities stay as they are.
    """

    def __call__(self, batch: Sequences, key: PRNGKeyArray) -> Sequences:
        flips = jr.bernoulli(jr.fold_in(key, _KEY), 0.5, (3,))
        return replace(batch, modalities={name: _flipped(m, flips) for name, m in batch.modalities.items()})


def _flipped(modality: Modality, flips: Array) -> Modality:
    values: Shaped[Array, "n t *frame"] = jnp.asarray(modality.values)
    if values.ndim < 4:
        return modality
    for axis, flip in zip((2, 3), flips, strict=False):
        values = lax.cond(flip, lambda x, axis=axis: jnp.flip(x, axis), lambda x: x, values)
    if values.shape[2] == values.shape[3]:
        values = lax.cond(flips[2], lambda x: jnp.swapaxes(x, 2, 3), lambda x: x, values)
    return replace(modality, values=values)
