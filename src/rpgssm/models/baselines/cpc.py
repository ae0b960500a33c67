"""Contrastive predictive coding.

Each frame is embedded, e_t; a recurrent network (GRU) sums up the embeddings so far in a context c_t; and for each
horizon k a bilinear form e_{t+k}' W_k c_t scores how well a frame k steps ahead fits the context. The score of the
sequence's own frame is compared with those of the other sequences of the batch at the same time (InfoNCE).

The context is the representation. There is no model of how it moves on, hence no forecast, and no probability: it comes
without uncertainty.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from rpgssm.data import Sequences
from rpgssm.models.layers import split, variance_scaling

from .contrastive import FrameEmbedding, contrastive_loss, log_softmax_of_positive
from .generative import Marginals
from .masking import MaskMode, draw_hidden
from .recurrent import GRU

INITIAL_GAIN = 0.1  # of the scores: in the beginning all candidates are about as likely


class CPCModel(eqx.Module):
    """The parameters: embedding, recurrent network, and one bilinear form W_k for each horizon."""

    embedding: FrameEmbedding
    recurrent: GRU
    W: Float[Array, "horizons e k"]

    def __init__(
        self,
        encoders: dict[str, Any],
        latent_dim: int,
        embedding_dim: int = 64,
        horizons: int = 12,
        *,
        key: PRNGKeyArray,
        dtype=jnp.float32,
    ):
        first, second, third = split(key, 3)
        self.embedding = FrameEmbedding(encoders, embedding_dim, key=first, dtype=dtype)
        self.recurrent = GRU(embedding_dim, latent_dim, key=second, dtype=dtype)
        W = variance_scaling(third, (latent_dim, horizons * embedding_dim), INITIAL_GAIN, dtype)
        self.W = W.reshape(latent_dim, horizons, embedding_dim).transpose(1, 2, 0)

    @property
    def latent_dim(self) -> int:
        return self.recurrent.hidden

    def filter(self, batch: Sequences) -> Marginals:
        """The contexts c_t: what the frames up to t say. A missing frame is seen as zeros."""
        return Marginals(self.recurrent(self.embedding(batch)[0]), None)

    def smooth(self, batch: Sequences) -> Marginals:
        """The same: a context never looks ahead."""
        return self.filter(batch)


def objective(
    model: CPCModel, batch: Sequences, key: Any = None, *, mask_size: int = 0, mask_mode: MaskMode = "window"
) -> tuple[Float[Array, ""], dict[str, Any]]:
    """InfoNCE per pair of a context and an observed frame after it, and its terms.

    `mask_size` frames of each sequence are zeros for the recurrent network, and are still to be told from others. A key
    of None hides none.
    """
    e, seen = model.embedding(batch)
    hidden = None if key is None else draw_hidden(key, batch, mask_size, mask_mode)
    shown = e if hidden is None else jnp.where(hidden[..., None], model.embedding.blank(batch), e)
    c = model.recurrent(shown)
    horizons = min(model.W.shape[0], batch.time - 1)
    if horizons < 1:
        raise ValueError("CPC compares frames with those after them: sequences need at least 2 frames")

    def one(W, k):
        """Scores of the context at t against all sequences' frames at t + k; both as if time were a circle."""
        ahead, there = jnp.roll(e, -k, axis=1), jnp.roll(seen, -k, axis=1)
        scores = jnp.einsum("ntk,ek,mte->ntm", c, W, ahead)
        positive = jnp.einsum("ntn->nt", scores)
        candidates = there.T[None]
        log_p = log_softmax_of_positive(positive, scores, candidates)
        best = jnp.where(candidates, scores, -jnp.inf).max(-1) <= positive
        return log_p, best, there & (jnp.arange(batch.time) + k < batch.time)[None]

    log_p, best, valid = (jnp.moveaxis(x, 0, 1) for x in jax.vmap(one)(model.W[:horizons], jnp.arange(1, horizons + 1)))
    return contrastive_loss(log_p, best, valid)
