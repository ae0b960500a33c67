"""Shared parts of contrastive models: an embedding of each frame, and the InfoNCE loss.

InfoNCE classifies which of several candidates is the right one, the positive. With scores s the loss is -log softmax(s)
at the positive, which is itself among the candidates. Nothing is reconstructed: the embedding needs only what tells the
candidates apart.
"""

from functools import reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from rpgssm.data import Sequences
from rpgssm.estimator import GradientEstimator
from rpgssm.nn.layers import Dense, split

FAR_BELOW = -1e30  # the score of a frame that is no candidate; finite, for finite gradients


class FrameEmbedding(eqx.Module):
    """One vector per frame: the sum over modalities of an encoder and a dense layer. Missing frames count as zeros."""

    encoders: dict[str, Any]
    dense: dict[str, Dense]

    def __init__(self, encoders: dict[str, Any], dim: int, *, key: PRNGKeyArray, dtype=jnp.float32):
        self.encoders = dict(encoders)
        keys = zip(sorted(encoders), split(key, len(encoders)), strict=True)
        self.dense = {name: Dense(encoders[name].out_dim, dim, key=k, gain=1.0, dtype=dtype) for name, k in keys}

    def __call__(self, batch: Sequences) -> tuple[Float[Array, "n t e"], Bool[Array, "n t"]]:
        """The embeddings, and a mask of the frames with an observation in any modality."""
        batch.check_modalities(self.encoders)
        embedded, seen = [], []
        for name, modality in sorted(batch.modalities.items()):
            n, t, *frame = modality.values.shape
            mask = modality.device_mask()
            seen.append(jnp.ones((n, t), bool) if mask is None else mask)
            embedded.append(self._of(name, modality.zero_filled().reshape(n * t, *frame)).reshape(n, t, -1))
        return reduce(jnp.add, embedded), reduce(jnp.logical_or, seen)

    def blank(self, batch: Sequences) -> Float[Array, " e"]:
        """The embedding of a frame of zeros in all modalities."""
        shapes, dtype = batch.frame_shapes, next(iter(self.dense.values())).bias.dtype
        return sum(self._of(name, jnp.zeros((1, *shapes[name]), dtype))[0] for name in sorted(self.encoders))  # pyright: ignore[reportReturnType]

    def _of(self, name: str, rows: Float[Array, "r *frame"]) -> Float[Array, "r e"]:
        dense = self.dense[name]
        return dense(self.encoders[name](rows).astype(dense.weight.dtype))


def log_softmax_of_positive(
    positive: Float[Array, "*anchors"], scores: Float[Array, "*anchors c"], candidates: Bool[Array, "..."]
) -> Float[Array, "*anchors"]:
    """log softmax of the positive's score among the scores of all candidates; the positive must be one of them.

    `candidates` is True where a score counts; it is broadcast against the scores.
    """
    return positive - jax.nn.logsumexp(jnp.where(candidates, scores, FAR_BELOW), axis=-1)


def contrastive_loss(
    log_p: Float[Array, "n ..."], best: Bool[Array, "n ..."], valid: Bool[Array, "n ..."]
) -> tuple[Float[Array, ""], dict[str, Any]]:
    """Minus the mean of valid log_p, and its terms.

    `best` is True where the positive had the highest score; the fraction of these is the accuracy.
    """
    axes = tuple(range(1, log_p.ndim))
    per_sequence = jnp.where(valid, log_p, jnp.zeros_like(log_p)).sum(axes)
    count = valid.sum(axes).astype(log_p.dtype)
    everything = jnp.maximum(count.sum(), 1)
    accuracy = (best & valid).sum().astype(log_p.dtype) / everything
    return -per_sequence.sum() / everything, {
        "accuracy": accuracy,
        "per_sequence": {"log_score": per_sequence, "count": count},
    }


class ContrastiveEstimator(GradientEstimator):
    """An estimator of a contrastive model. Its latents do not depend on later frames, and have no covariances."""

    learning_rate: float = 1e-3

    def _score(self, data: Sequences) -> float:
        """Minus the loss, with nothing hidden."""
        return self._compared_score(self._in_windows(data), "log_score", lambda _, found: found["count"])

    def _networks(self, name: str) -> str:
        return f", {type(self.model_.embedding.encoders[name]).__name__}"
