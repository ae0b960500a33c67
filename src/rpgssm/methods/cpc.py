"""Contrastive predictive coding.

Each frame is embedded, e_t. A recurrent network (GRU) maps the embeddings so far to a context c_t. For each horizon k a
bilinear form e_{t+k}' W_k c_t scores how well a frame k steps ahead fits the context. The score of the sequence's own
frame is compared with the scores of the other sequences of the batch at the same time (InfoNCE).

The context is the representation. It has no dynamics, hence no forecasts, and no uncertainty.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from rpgssm.data import Sequences
from rpgssm.estimator import DataInfo
from rpgssm.model import Marginals, Model
from rpgssm.nn.build import build_encoders, keys_for
from rpgssm.nn.layers import split, variance_scaling
from rpgssm.nn.masking import MaskMode, draw_hidden, mask_mode_setting, mask_size_setting
from rpgssm.nn.recurrent import GRU
from rpgssm.settings import setting

from ._contrastive import ContrastiveEstimator, FrameEmbedding, contrastive_loss, log_softmax_of_positive

INITIAL_GAIN = 0.1  # of the scores: at first all candidates are about as likely


class CPCModel(Model):
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
        """The contexts c_t, functions of the frames up to t. A missing frame counts as zeros."""
        return Marginals(self.recurrent(self.embedding(batch)[0]), None)

    def smooth(self, batch: Sequences) -> Marginals:
        """The same: a context never looks ahead."""
        return self.filter(batch)


@dataclass(frozen=True)
class InfoNCE:
    """The objective: InfoNCE per pair of a context and an observed frame after it.

    `mask_size` frames of each sequence are zeros for the recurrent network but stay candidates. A key of None hides
    none.
    """

    mask_size: int = 0
    mask_mode: MaskMode = "window"

    def __call__(
        self, model: CPCModel, batch: Sequences, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, ""], dict[str, Any]]:
        e, seen = model.embedding(batch)
        hidden = None if key is None else draw_hidden(key, batch, self.mask_size, self.mask_mode)
        shown = e if hidden is None else jnp.where(hidden[..., None], model.embedding.blank(batch), e)
        c = model.recurrent(shown)
        horizons = min(model.W.shape[0], batch.time - 1)
        if horizons < 1:
            raise ValueError("CPC compares frames with those after them: sequences need at least 2 frames")

        def one(W, k):
            """Scores of the context at t against all sequences' frames at t + k, with time modulo its length."""
            ahead, there = jnp.roll(e, -k, axis=1), jnp.roll(seen, -k, axis=1)
            scores = jnp.einsum("ntk,ek,mte->ntm", c, W, ahead)
            positive = jnp.einsum("ntn->nt", scores)
            candidates = there.T[None]
            log_p = log_softmax_of_positive(positive, scores, candidates)
            best = jnp.where(candidates, scores, -jnp.inf).max(-1) <= positive
            return log_p, best, there & (jnp.arange(batch.time) + k < batch.time)[None]

        log_p, best, valid = (
            jnp.moveaxis(x, 0, 1) for x in jax.vmap(one)(model.W[:horizons], jnp.arange(1, horizons + 1))
        )
        return contrastive_loss(log_p, best, valid)


class CPC(ContrastiveEstimator):
    """Contrastive predictive coding: a recurrent summary of the past, trained to recognise the frames that come next.

    Gives a representation of the past at each frame; no dynamics, hence no forecasts, and no uncertainty.
    """

    model_type = CPCModel
    title = "CPC"

    embedding_dim: int = setting(64, "Size of the embedding of a frame.", least=1)
    horizons: int = setting(12, "Frames ahead that are to be recognised, from 1 to this many.", least=1)
    mask_size: int = mask_size_setting()
    mask_mode: MaskMode = mask_mode_setting()

    def objective(self) -> InfoNCE:
        return InfoNCE(int(self.mask_size), self.mask_mode)

    def build(self, info: DataInfo, data: Sequences | None, seed: int) -> CPCModel:
        key, *keys = keys_for(seed, 1 + len(info.frame_shapes))
        encoders = build_encoders(self.encoder, info.frame_shapes, data, keys)
        return CPCModel(encoders, int(self.latent_dim), int(self.embedding_dim), int(self.horizons), key=key)

    def _form(self) -> str:
        return f", {self.horizons} horizons"
