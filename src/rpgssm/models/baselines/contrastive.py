"""What contrastive models share: an embedding of each frame, and the InfoNCE loss.

InfoNCE asks which of several candidates is the right one. With scores s the loss is -log softmax(s) at the right one,
the positive, which is itself among the candidates. Nothing is reconstructed, so nothing that does not help to tell the
candidates apart needs to be in the embedding.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from rpgssm.data import Sequences
from rpgssm.models.layers import Dense, split

FAR_BELOW = -1e30  # the score of what is no candidate; finite, so that gradients stay so


class FrameEmbedding(eqx.Module):
    """One vector per frame: an encoder and a dense layer for each modality, added up.

    Missing frames are seen as zeros, whatever the array holds in their place.
    """

    encoders: dict[str, Any]
    dense: dict[str, Dense]

    def __init__(self, encoders: dict[str, Any], dim: int, *, key: PRNGKeyArray, dtype=jnp.float32):
        self.encoders = dict(encoders)
        keys = zip(sorted(encoders), split(key, len(encoders)), strict=True)
        self.dense = {name: Dense(encoders[name].out_dim, dim, key=k, gain=1.0, dtype=dtype) for name, k in keys}

    def __call__(self, batch: Sequences) -> tuple[Float[Array, "n t e"], Bool[Array, "n t"]]:
        """The embeddings, and where there was anything to be seen."""
        if missing := set(self.encoders) ^ set(batch.modalities):
            raise ValueError(f"the model and the data do not have the same modalities: {', '.join(sorted(missing))}")
        total, seen = None, None
        for name in sorted(self.encoders):
            modality = batch.modalities[name]
            frames = modality.frames()
            n, t, *frame = frames.shape
            mask = jnp.ones((n, t), bool) if modality.mask is None else jnp.asarray(modality.mask)
            if modality.mask is not None:
                frames = jnp.where(mask.reshape(n, t, *[1] * len(frame)), frames, jnp.zeros_like(frames))
            embedded = self._of(name, frames.reshape(n * t, *frame)).reshape(n, t, -1)
            total = embedded if total is None else total + embedded
            seen = mask if seen is None else seen | mask
        assert total is not None
        assert seen is not None
        return total, seen

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
    """log softmax of the positive's score among those of all candidates, of which it must be one.

    `candidates` says which scores count; it is broadcast against them.
    """
    return positive - jax.nn.logsumexp(jnp.where(candidates, scores, FAR_BELOW), axis=-1)


def contrastive_loss(
    log_p: Float[Array, "n ..."], best: Bool[Array, "n ..."], valid: Bool[Array, "n ..."]
) -> tuple[Float[Array, ""], dict[str, Any]]:
    """Minus the mean of log_p over what is valid, and its terms.

    `best` says where the positive had the highest score: their share is the accuracy.
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
