"""Dynamics contrastive learning: an encoder y_t and explicit dynamics, trained together without a decoder.

The next embedding is predicted, ŷ_{t+1} = A y_t, and -‖ŷ_{t+1} - y‖² scores how well a frame fits the prediction. The
true next frame is compared with all frames of the batch, itself included (InfoNCE).

With several matrices the dynamics switch. The matrix that predicts the next embedding best gets the largest weight:
ŷ = Σ_m w_m A_m y_t, with w a softmax of (-‖A_m y_t - y_{t+1}‖² + g_m) / temperature. In training g is Gumbel noise.
Then w is a relaxed draw of one matrix, with probabilities ∝ exp(-‖A_m y_t - y_{t+1}‖²) at any temperature; the lower
the temperature, the closer w is to one-hot. Otherwise g is 0.

Each frame is encoded by itself: the embedding is no filter or smoother, and has no uncertainty. A missing frame gets
the prediction from the last observed one.

A does not always converge to the true matrix. The best score is log p(y_{t+1} | y_t) - log p(y_{t+1}) up to a function
of y_t; if embeddings are spread evenly the second term is constant and A is right. For a stationary chain
y_{t+1} ~ N(By_t, I - BB') it is not: the quadratic forms in y_{t+1} leave Q⁻¹ - I with Q = I - BB', so A = (Q⁻¹ - I)⁻¹
Q⁻¹B = (I - Q)⁻¹B = B'⁻¹. Modes that decay in truth grow in the model, at the same frequencies.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from rpgssm.data import Sequences
from rpgssm.data.form import form_of, in_form
from rpgssm.estimator import DataInfo, in_batches, timescales
from rpgssm.model import Marginals, Model, last_frames
from rpgssm.nn.build import build_encoders, keys_for
from rpgssm.nn.layers import split
from rpgssm.settings import setting

from ._contrastive import ContrastiveEstimator, FrameEmbedding, contrastive_loss, log_softmax_of_positive


class Track(NamedTuple):
    """Embeddings with gaps filled, and the matrix of the step to the next frame."""

    y: Float[Array, "n t k"]
    mode: Int[Array, "n t"]


class PointForecast(eqx.Module):
    """A forecast without uncertainty."""

    mean: Float[Array, "n steps k"]
    cov: None = None
    samples: None = None


class DCLModel(Model):
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
        """All matrices start at I; several of them with noise of size `spread`, or they would stay equal."""
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
        """A_m y for each matrix."""
        return jnp.einsum("mij,...j->...mi", self.A, y)

    def track(self, batch: Sequences) -> Track:
        """Embeddings of all frames; missing ones predicted by the matrix that acted last.

        Before the first observed frame they are 0. A mode belongs to the step from its frame to the next; across a gap
        and after the last frame it does not change.
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

    def forecast(
        self, batch: Sequences, steps: int, controls: None = None, samples: int = 0, key: PRNGKeyArray | None = None
    ) -> PointForecast:
        """The embeddings of the frames after the last, all by the matrix that acted last."""
        del controls, key  # no noise
        if samples:
            raise ValueError("DCL has no noise: there are no trajectories to sample, leave samples= out")
        n, found, last = len(batch), self.track(batch), last_frames(batch)
        A = self.A[found.mode[jnp.arange(n), last]]

        def step(y, _):
            y = jnp.einsum("nij,nj->ni", A, y)
            return y, y

        y = lax.scan(step, found.y[jnp.arange(n), last], None, length=steps)[1]
        return PointForecast(jnp.swapaxes(y, 0, 1))


@dataclass(frozen=True)
class InfoNCEOfSuccessors:
    """The objective: InfoNCE per pair of neighbouring frames that are both observed.

    With `negatives` each successor is compared with that many random frames of the batch, the same for all; else with
    all frames. A key of None leaves the noise out, and takes evenly spaced frames.
    """

    temperature: float = 1.0
    negatives: int | None = None

    def __call__(
        self, model: DCLModel, batch: Sequences, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, ""], dict[str, Any]]:
        if batch.time < 2:
            raise ValueError("DCL compares frames with those before them: sequences need at least 2 frames")
        y, seen = model.embedding(batch)
        n, t, k = y.shape
        predicted = _predict(model, y[:, :-1], y[:, 1:], self.temperature, key).reshape(-1, k)
        rows, there = y.reshape(-1, k), seen.reshape(-1)
        own = jnp.arange(n * t).reshape(n, t)[:, 1:].reshape(-1)
        positive = -jnp.sum((predicted - y[:, 1:].reshape(-1, k)) ** 2, -1)
        negatives = self.negatives
        if negatives is None or negatives >= n * t:
            scores, candidates = _scores(predicted, rows), there[None]
        else:
            # spaced evenly from a random start: no frame twice, and all equally likely
            shift = 0 if key is None else jax.random.randint(jax.random.fold_in(key, 1), (), 0, n * t)
            drawn = (jnp.arange(negatives) * (n * t) // negatives + shift) % (n * t)
            scores = jnp.concatenate([positive[:, None], _scores(predicted, rows[drawn])], -1)
            others = there[drawn][None] & (drawn[None] != own[:, None])
            candidates = jnp.concatenate([jnp.ones((len(own), 1), bool), others], -1)
        log_p = log_softmax_of_positive(positive, scores, candidates)
        best = jnp.where(candidates, scores, -jnp.inf).max(-1) <= positive + 1e-4 * jnp.abs(positive)
        shape = (n, t - 1)
        return contrastive_loss(log_p.reshape(shape), best.reshape(shape), seen[:, :-1] & seen[:, 1:])


def _predict(model: DCLModel, y, following, temperature: float, key: PRNGKeyArray | None) -> Float[Array, "n s k"]:
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


class DCL(ContrastiveEstimator):
    """Dynamics contrastive learning: an encoder with linear dynamics, or with several matrices to switch between.

    Gives a representation of each frame by itself, dynamics, and forecasts without uncertainty. On stationary data the
    dynamics have the true frequencies, but modes that decay in truth grow in the model (see `rpgssm.methods.dcl`), so
    forecasts are good for a few steps.

    Attributes
    ----------
    transitions_ : the matrices, (modes, K, K).
    """

    model_type = DCLModel
    title = "DCL"

    modes: int = setting(1, "Number of transition matrices; more than 1 for switching dynamics.", least=1)
    temperature: float = setting(
        1.0, "Temperature of the choice between them in training; the lower, the harder the choice.", above=0
    )
    negatives: int | None = setting(
        None,
        "Frames of the batch that each frame's successor is compared with, drawn anew at each step. None: all.",
        least=1,
    )

    def objective(self) -> InfoNCEOfSuccessors:
        return InfoNCEOfSuccessors(float(self.temperature), self.negatives)

    def build(self, info: DataInfo, data: Sequences | None, seed: int) -> DCLModel:
        key, *keys = keys_for(seed, 1 + len(info.frame_shapes))
        encoders = build_encoders(self.encoder, info.frame_shapes, data, keys)
        return DCLModel(encoders, int(self.latent_dim), int(self.modes), key=key)

    @property
    def transitions_(self) -> np.ndarray:
        """The matrices A, (modes, K, K)."""
        self._check_fitted()
        return np.array(self.model_.A)

    @property
    def transition_(self) -> np.ndarray:
        """The matrix A."""
        if self.modes > 1:
            raise AttributeError("these dynamics switch: there are several matrices, in transitions_")
        return self.transitions_[0]

    def infer_modes(self, X: object, *, mask: object = None) -> Any:
        """The matrix that best predicts the next embedding from each frame's, (N, T) integers."""
        data, _ = self._convert(X, mask, None)
        modes = in_batches(partial(_modes, self.model_), data)
        return in_form(form_of(X, data), modes, data.lengths)

    def _form(self) -> str:
        return ", linear dynamics" if self.modes == 1 else f", dynamics that switch between {self.modes} matrices"

    def _dynamics(self) -> list[str]:
        lines = []
        for i, A in enumerate(self.transitions_):
            lines += [f"dynamics (eigenvalues of {'A' if self.modes == 1 else f'matrix {i}'})", *timescales(A)]
        return lines


@eqx.filter_jit
def _modes(model: DCLModel, batch: Sequences) -> Int[Array, "n t"]:
    return model.track(batch).mode
