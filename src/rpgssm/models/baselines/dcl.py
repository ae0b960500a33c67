"""Dynamics contrastive learning: an encoder y_t and explicit dynamics, trained together without a decoder.

The next embedding is predicted, ŷ_{t+1} = A y_t, and -‖ŷ_{t+1} - y‖² scores how well a frame fits the prediction. The
frame that did follow is compared with all frames of the batch, itself included (InfoNCE).

With several matrices the dynamics switch. Which of them acts is told by how well each predicts the embedding that
follows: ŷ = Σ_m w_m A_m y_t, with w a softmax of (-‖A_m y_t - y_{t+1}‖² + g_m) / temperature. In training g is Gumbel
noise, so that w is a relaxed draw of one matrix, with probabilities ∝ exp(-‖A_m y_t - y_{t+1}‖²) whatever the
temperature, which says how nearly one alone is drawn; otherwise g is 0.

Each frame is encoded by itself: the embedding is no filter or smoother, and has no uncertainty. A missing frame gets
what the dynamics predict from the last one seen.

What A converges to is not always the true matrix. The best score is log p(y_{t+1} | y_t) - log p(y_{t+1}) up to a
function of y_t; if embeddings are spread evenly the second term is constant and A is right. For a stationary chain
y_{t+1} ~ N(By_t, I - BB') it is not: the quadratic forms in y_{t+1} leave Q⁻¹ - I with Q = I - BB', so A = (Q⁻¹ - I)⁻¹
Q⁻¹B = (I - Q)⁻¹B = B'⁻¹. What decays in truth grows in the model, at the same frequencies.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from rpgssm.data import Sequences
from rpgssm.models.layers import split

from .contrastive import FrameEmbedding, contrastive_loss, log_softmax_of_positive
from .generative import Marginals


class Track(NamedTuple):
    """Embeddings with gaps filled, and which matrix led to the next frame."""

    y: Float[Array, "n t k"]
    mode: Int[Array, "n t"]


class DCLModel(eqx.Module):
    """The parameters: embedding and transition matrices (one, or several if the dynamics switch)."""

    embedding: FrameEmbedding
    A: Float[Array, "modes k k"]

    def __init__(
        self,
        encoders: dict[str, Any],
        latent_dim: int,
        modes: int = 1,
        spread: float = 0.05,
        *,
        key: PRNGKeyArray,
        dtype=jnp.float32,
    ):
        """All matrices start at I; if there are several, with noise of size `spread`, without which they stay alike."""
        first, second = split(key, 2)
        self.embedding = FrameEmbedding(encoders, latent_dim, key=first, dtype=dtype)
        noise = jax.random.normal(second, (modes, latent_dim, latent_dim), dtype)
        self.A = jnp.eye(latent_dim, dtype=dtype)[None] + (spread if modes > 1 else 0.0) * noise

    @property
    def latent_dim(self) -> int:
        return self.A.shape[-1]

    @property
    def modes(self) -> int:
        return self.A.shape[0]

    def each_prediction(self, y: Float[Array, "*lead k"]) -> Float[Array, "*lead modes k"]:
        """What each matrix makes of y."""
        return jnp.einsum("mij,...j->...mi", self.A, y)

    def track(self, batch: Sequences) -> Track:
        """Embeddings of all frames; missing ones predicted by the matrix that acted last.

        Before the first frame seen they are 0. A mode is that of the step from its frame to the next; across a gap
        and after the last frame it stays what it was.
        """
        y, seen = self.embedding(batch)

        def step(carry, now):
            y_last, seen_last, mode = carry
            y_now, seen_now = now
            each = self.each_prediction(y_last)
            found = jnp.argmin(jnp.sum((each - y_now[:, None]) ** 2, -1), -1).astype(mode.dtype)
            mode = jnp.where(seen_last & seen_now, found, mode)
            predicted = jnp.take_along_axis(each, mode[:, None, None], 1)[:, 0]
            y_now = jnp.where(seen_now[:, None], y_now, predicted)
            return (y_now, seen_now, mode), (y_now, mode)

        n = y.shape[0]
        start = jnp.zeros_like(y[:, 0]), jnp.zeros((n,), bool), jnp.zeros((n,), jnp.int32)
        (_, _, last), (y, mode) = lax.scan(step, start, (jnp.swapaxes(y, 0, 1), seen.T))
        mode = jnp.concatenate([mode[1:], last[None]])
        return Track(jnp.swapaxes(y, 0, 1), mode.T)

    def filter(self, batch: Sequences) -> Marginals:
        """The embeddings, with gaps filled."""
        return Marginals(self.track(batch).y, None)

    def smooth(self, batch: Sequences) -> Marginals:
        """The same: an embedding never looks ahead."""
        return self.filter(batch)

    def forecast(self, batch: Sequences, steps: int) -> Float[Array, "n steps k"]:
        """The embeddings of the frames after the last, if the matrix that acted last goes on to act."""
        n, found = len(batch), self.track(batch)
        last = jnp.full((n,), batch.time - 1) if batch.lengths is None else jnp.asarray(batch.lengths) - 1
        A = self.A[found.mode[jnp.arange(n), last]]

        def step(y, _):
            y = jnp.einsum("nij,nj->ni", A, y)
            return y, y

        return jnp.swapaxes(lax.scan(step, found.y[jnp.arange(n), last], None, length=steps)[1], 0, 1)


def objective(
    model: DCLModel, batch: Sequences, key: Any = None, *, temperature: float = 1.0, negatives: int | None = None
) -> tuple[Float[Array, ""], dict[str, Any]]:
    """InfoNCE per pair of neighbouring frames that are both observed, and its terms.

    With `negatives` each frame is compared with that many frames of the batch, the same for all, drawn at random and
    its own successor; without, with all frames. A key of None leaves the noise out and draws evenly.
    """
    if batch.time < 2:
        raise ValueError("DCL compares frames with those before them: sequences need at least 2 frames")
    y, seen = model.embedding(batch)
    n, t, k = y.shape
    predicted = _predict(model, y[:, :-1], y[:, 1:], temperature, key).reshape(-1, k)
    rows, there = y.reshape(-1, k), seen.reshape(-1)
    own = jnp.arange(n * t).reshape(n, t)[:, 1:].reshape(-1)
    positive = -jnp.sum((predicted - y[:, 1:].reshape(-1, k)) ** 2, -1)
    if negatives is None or negatives >= n * t:
        scores, candidates = _scores(predicted, rows), there[None]
    else:
        # spaced evenly from a random start: no frame twice, and each as likely as any other
        shift = 0 if key is None else jax.random.randint(jax.random.fold_in(key, 1), (), 0, n * t)
        drawn = (jnp.arange(negatives) * (n * t) // negatives + shift) % (n * t)
        scores = jnp.concatenate([positive[:, None], _scores(predicted, rows[drawn])], -1)
        others = there[drawn][None] & (drawn[None] != own[:, None])
        candidates = jnp.concatenate([jnp.ones((len(own), 1), bool), others], -1)
    log_p = log_softmax_of_positive(positive, scores, candidates)
    best = jnp.where(candidates, scores, -jnp.inf).max(-1) <= positive + 1e-4 * jnp.abs(positive)
    shape = (n, t - 1)
    return contrastive_loss(log_p.reshape(shape), best.reshape(shape), seen[:, :-1] & seen[:, 1:])


def _predict(model: DCLModel, y, following, temperature: float, key: Any) -> Float[Array, "n s k"]:
    each = model.each_prediction(y)
    if model.modes == 1:
        return each[..., 0, :]
    fit = -jnp.sum((each - following[..., None, :]) ** 2, -1)
    if key is not None:
        fit = fit + jax.random.gumbel(key, fit.shape, fit.dtype)
    return jnp.einsum("ntm,ntmk->ntk", jax.nn.softmax(fit / temperature, -1), each)


def _scores(predicted: Float[Array, "a k"], rows: Float[Array, "c k"]) -> Float[Array, "a c"]:
    """-‖ŷ - y‖² of all pairs, by one matrix product."""
    squares = jnp.sum(predicted**2, -1)[:, None] + jnp.sum(rows**2, -1)[None]
    return 2 * jnp.matmul(predicted, rows.T, precision=lax.Precision.HIGHEST) - squares
