"""Recurrent Kalman network: a filter in a latent space where all covariances are kept as vectors.

The state has two halves, upper u and lower l, of equal size. Each frame is encoded as an observation of u alone, with a
diagonal precision; l can hold quantities that a frame does not show, such as velocities. The covariance has three
diagonals: var(u), var(l), and the covariance s of each u_i with its l_i. So the update needs no matrices: with the
observation's natural parameters h and λ (elementwise),

    r = (h - λu) / (1 + λ var(u)),   u ← u + var(u) r,   l ← l + s r,   and, with g = λ / (1 + λ var(u)),
    var(l) ← var(l) - g s²,   s ← s - g var(u) s,   var(u) ← var(u) - g var(u)²,

which is the Kalman update for such a covariance. It has the usual gains var(u) / (var(u) + 1/λ) and s / (var(u) + 1/λ),
written so that λ = 0, a missing frame, changes nothing.

The transition is a mixture of banded matrices with a softmax of the state as weights: z ← A(z) z. Its covariance is
again reduced to the three diagonals. A decoder from the filtered mean to the frame gives the loss.

The state can grow without bound along a sequence. With `max_gain` the matrices are scaled after every training step so
that none stretches a vector by more; then a mixture of them does not either.
"""

from dataclasses import dataclass
from math import log
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from rpgssm.core import Forecast
from rpgssm.core.linalg import cholesky_psd
from rpgssm.data import Sequences
from rpgssm.estimator import DataInfo
from rpgssm.model import Marginals, last_frames
from rpgssm.nn.build import build_recognition, keys_for
from rpgssm.nn.emission import Emission
from rpgssm.nn.heads import Diagonal, Recognition, precision_setting, recognise
from rpgssm.nn.layers import Dense, split
from rpgssm.nn.masking import MaskMode, as_missing, draw_hidden
from rpgssm.settings import setting

from ._generative import GenerativeEstimator, HasEmissions, reconstruction

INITIAL_TURN = 0.2  # initial weight of each half in the next value of the other
NOISE_FLOOR = 1e-4
START = 1.0  # of precisions


class FactorisedState(NamedTuple):
    """Means of both halves, and the three diagonals of their covariance."""

    u: Float[Array, "*n m"]
    l: Float[Array, "*n m"]
    var_u: Float[Array, "*n m"]
    var_l: Float[Array, "*n m"]
    cov: Float[Array, "*n m"]

    def mean(self) -> Float[Array, "*n k"]:
        return jnp.concatenate([self.u, self.l], -1)

    def dense(self) -> Float[Array, "*n k k"]:
        """The covariance as a matrix."""
        eye = jnp.eye(self.u.shape[-1], dtype=self.u.dtype)
        a, b, c = (x[..., None] * eye for x in (self.var_u, self.cov, self.var_l))
        return jnp.concatenate([jnp.concatenate([a, b], -1), jnp.concatenate([b, c], -1)], -2)


def update(state: FactorisedState, h: Float[Array, "*n m"], lam: Float[Array, "*n m"]) -> FactorisedState:
    """Condition on an observation of u with natural parameters h and λ; all zero if there is none."""
    u, l, var_u, var_l, s = state
    scale = 1 / (1 + lam * var_u)
    r, g = (h - lam * u) * scale, lam * scale
    # var(u) - g var(u)² = var(u) scale, and s - g var(u) s = s scale
    return FactorisedState(u + var_u * r, l + s * r, var_u * scale, var_l - g * s**2, s * scale)


def move(state: FactorisedState, A: Float[Array, "*n k k"], noise: Float[Array, " k"]) -> FactorisedState:
    """z ← A z + noise of these variances, with the three diagonals of the covariance."""
    m = state.u.shape[-1]
    z = jnp.einsum("...ij,...j->...i", A, state.mean())
    uu, ul, lu, ll = A[..., :m, :m], A[..., :m, m:], A[..., m:, :m], A[..., m:, m:]

    def diagonal(p, q, r, t):
        """The diagonal of [p q] Σ [r t]'."""
        on = lambda a, v: jnp.einsum("...ij,...j->...i", a, v)  # noqa: E731
        return on(p * r, state.var_u) + on(p * t + q * r, state.cov) + on(q * t, state.var_l)

    var_u, var_l = diagonal(uu, ul, uu, ul) + noise[:m], diagonal(lu, ll, lu, ll) + noise[m:]
    return FactorisedState(z[..., :m], z[..., m:], var_u, var_l, diagonal(uu, ul, lu, ll))


class RKNModel(HasEmissions):
    """The parameters. `basis` holds the matrices to mix; entries off their bands are not used."""

    recognition: dict[str, Recognition]
    emissions: dict[str, Emission]
    basis: Float[Array, "mixed k k"]
    weights: Dense
    raw_noise: Float[Array, " k"]
    bandwidth: int = eqx.field(static=True)
    initial_variance: float = eqx.field(static=True)
    max_gain: float | None = eqx.field(static=True)

    def __init__(
        self,
        recognition: dict[str, Recognition],
        emissions: dict[str, Emission],
        latent_dim: int,
        mixed: int = 15,
        bandwidth: int = 3,
        initial_variance: float = 10.0,
        initial_noise: float = 0.1,
        max_gain: float | None = None,
        *,
        key: PRNGKeyArray,
        dtype=jnp.float32,
    ):
        if latent_dim < 2 or latent_dim % 2:
            raise ValueError(f"latent_dim is {latent_dim}: an RKN's state has two halves, so it must be even")
        m = latent_dim // 2
        first, second = split(key, 2)
        eye = np.eye(m)
        start = np.block([[eye, INITIAL_TURN * eye], [-INITIAL_TURN * eye, eye]])
        # the matrices must differ, or their gradients would be the same for ever
        self.basis = jnp.asarray(start, dtype)[None] + 0.05 * jax.random.normal(first, (mixed, *start.shape), dtype)
        self.recognition, self.emissions = recognition, emissions
        self.weights = Dense(latent_dim, mixed, key=second, gain=0.1, dtype=dtype)
        self.raw_noise = jnp.full((latent_dim,), log(np.expm1(initial_noise - NOISE_FLOOR)), dtype)
        self.bandwidth, self.initial_variance, self.max_gain = bandwidth, float(initial_variance), max_gain

    @property
    def latent_dim(self) -> int:
        return self.basis.shape[-1]

    @property
    def noise(self) -> Float[Array, " k"]:
        return NOISE_FLOOR + jax.nn.softplus(self.raw_noise)

    def banded(self) -> Float[Array, "mixed k k"]:
        """The matrices to mix. Each of their four blocks has `bandwidth` diagonals on either side of the main one."""
        place = np.arange(self.latent_dim // 2)
        band = np.abs(place[:, None] - place) <= self.bandwidth
        return self.basis * jnp.asarray(np.tile(band, (2, 2)), self.basis.dtype)

    def project(self) -> "RKNModel":
        """The model whose matrices have a gain (largest singular value) of at most `max_gain`."""
        if self.max_gain is None:
            return self
        gain = jnp.linalg.norm(self.banded(), ord=2, axis=(-2, -1), keepdims=True)
        scale = jnp.minimum(1.0, self.max_gain / jnp.maximum(gain, 1e-6)).astype(gain.dtype)
        return eqx.tree_at(lambda m: m.basis, self, self.basis * scale)

    def predict(self, state: FactorisedState, banded: Float[Array, "mixed k k"]) -> FactorisedState:
        """The state at the next frame, before conditioning on it."""
        return move(state, jnp.einsum("nb,bij->nij", self._mixture(state.mean()), banded), self.noise)

    def _mixture(self, z: Float[Array, "n k"]) -> Float[Array, "n mixed"]:
        return jax.nn.softmax(self.weights(z), -1)

    def start(self, n: int) -> FactorisedState:
        zero = jnp.zeros((n, self.latent_dim // 2), self.basis.dtype)
        wide = jnp.full_like(zero, self.initial_variance)
        return FactorisedState(zero, zero, wide, wide, zero)

    def filter(self, batch: Sequences) -> Marginals:
        """Means and covariances of the states."""
        states = self.states(batch)
        return Marginals(states.mean(), states.dense())

    def smooth(self, batch: Sequences) -> Marginals:
        """The same: an RKN never looks ahead."""
        return self.filter(batch)

    def states(self, batch: Sequences) -> FactorisedState:
        """The state at each frame, given the frames up to it; arrays are (n, t, m)."""
        h, lam = self._observations(batch)
        banded = self.banded()

        def step(state, now):
            state = update(state, *now)
            return self.predict(state, banded), state

        along = jnp.moveaxis(h, 1, 0), jnp.moveaxis(lam, 1, 0)
        states = lax.scan(step, self.start(len(batch)), along)[1]
        return FactorisedState(*(jnp.moveaxis(x, 0, 1) for x in states))

    def _observations(self, batch: Sequences) -> tuple[Float[Array, "n t m"], Float[Array, "n t m"]]:
        """The observations of u by all modalities, as natural parameters; zero where nothing was observed."""
        total_h = total_lam = jnp.zeros((len(batch), batch.time, self.latent_dim // 2), self.basis.dtype)
        for p in recognise(self.recognition, batch):
            lam = jnp.broadcast_to(p.precision.value, p.h.shape)
            total_h = total_h + p.masked_h()
            total_lam = total_lam + (lam if p.mask is None else jnp.where(p.mask[..., None], lam, jnp.zeros_like(lam)))
        return total_h, total_lam

    def forecast(
        self, batch: Sequences, steps: int, controls: None = None, samples: int = 0, key: PRNGKeyArray | None = None
    ) -> Forecast:
        """The states of the frames after the last, and trajectories: the last state drawn, then moved with noise."""
        del controls
        n, states, at = len(batch), self.states(batch), last_frames(batch)
        last = FactorisedState(*(x[jnp.arange(n), at] for x in states))
        banded = self.banded()

        def step(state, _):
            state = self.predict(state, banded)
            return state, state

        ahead = FactorisedState(*(jnp.moveaxis(x, 0, 1) for x in lax.scan(step, last, None, length=steps)[1]))
        drawn = self._draw(last, banded, steps, samples, key) if samples and key is not None else None
        return Forecast(ahead.mean(), ahead.dense(), drawn)

    def _draw(self, last: FactorisedState, banded, steps: int, samples: int, key: PRNGKeyArray):
        n, m = last.u.shape
        noise = jax.random.normal(key, (steps + 1, samples, n, 2 * m), last.u.dtype)
        L = cholesky_psd(last.dense())
        z = last.mean()[None] + jnp.einsum("nij,snj->sni", L, noise[0])

        def step(z, eps):
            A = jnp.einsum("sb,bij->sij", self._mixture(z.reshape(-1, 2 * m)), banded)
            z = jnp.einsum("sij,sj->si", A, z.reshape(-1, 2 * m)).reshape(z.shape) + jnp.sqrt(self.noise) * eps
            return z, z

        return jnp.moveaxis(lax.scan(step, z, noise[1:])[1], 0, 2)


@dataclass(frozen=True)
class FilteredLikelihood:
    """The objective: minus the log-likelihood of the frames given the filtered means, per observed frame.

    `mask_size` frames of each sequence are missing for the filter but count in the loss; a key of None hides none.
    """

    mask_size: int = 0
    mask_mode: MaskMode = "window"

    def __call__(
        self, model: RKNModel, batch: Sequences, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, ""], dict[str, Any]]:
        hidden = None if key is None else draw_hidden(key, batch, self.mask_size, self.mask_mode)
        mean = model.states(as_missing(batch, hidden)).mean()
        per_sequence = reconstruction(model.emissions, mean, batch)
        masks = (m.mask for m in batch.modalities.values())
        full = jnp.full((len(batch),), batch.time, mean.dtype)
        count = sum((full if m is None else jnp.sum(jnp.asarray(m), 1).astype(mean.dtype) for m in masks), 0 * full)
        loss = -per_sequence.sum() / jnp.maximum(count.sum(), 1)
        return loss, {"per_sequence": {"log_score": per_sequence, "count": count}}


class RKN(GenerativeEstimator):
    """Recurrent Kalman network: a filter with elementwise gains between an encoder and a decoder.

    Gives filtered latents, forecasts and reconstructions. Its covariances weigh new frames against the past; training
    does not make them agree with the errors of the latents. `smooth` is the same as `filter`. The number of latent
    dimensions is even: frames show the first half of the state only.
    """

    model_type = RKNModel
    title = "RKN"

    mixed: int = setting(
        15, "Number of transition matrices that are mixed, with weights that depend on the state.", least=1
    )
    bandwidth: int = setting(3, "Diagonals on either side of the main one, in each quarter of these matrices.", least=0)
    precision: Diagonal = precision_setting(Diagonal(data_dependent=True))
    start_variance: float = setting(10.0, "Variance of the state before the first frame; stays fixed.", above=0)
    max_gain: float | None = setting(
        None,
        "The transition matrices are scaled after each step so that none stretches a vector by more. None: no limit. 1 "
        "keeps states from growing without bound: for training that diverges.",
        above=0,
    )

    def objective(self) -> FilteredLikelihood:
        return FilteredLikelihood(int(self.mask_size), self.mask_mode)

    def build(self, info: DataInfo, data: Sequences | None, seed: int) -> RKNModel:
        k, count = int(self.latent_dim), len(info.frame_shapes)
        if k % 2:
            raise ValueError(f"latent_dim is {k}: the state of an RKN has two halves, so it must be even")
        key, *keys = keys_for(seed, 1 + 3 * count)
        shapes, half = info.frame_shapes, k // 2
        return RKNModel(
            build_recognition(
                self.encoder, shapes, data, keys[: 2 * count], precision=self.precision, latent_dim=half, start=START
            ),
            self.build_emissions(info, data, keys[2 * count :], k),
            k,
            mixed=int(self.mixed),
            bandwidth=int(self.bandwidth),
            initial_variance=float(self.start_variance),
            max_gain=None if self.max_gain is None else float(self.max_gain),
            key=key,
        )

    def _score(self, data: Sequences) -> float:
        """The log-likelihood of a frame given its filtered mean, with nothing hidden."""
        return self._compared_score(data, "log_score", lambda _, found: found["count"])

    def _form(self) -> str:
        return f", {self.mixed} mixed transitions{super()._form()}"
