"""The Kalman variational autoencoder (KVAE): a code for each frame, and a linear Gaussian model of the codes.

An encoder gives a code a_t ~ N(μ, σ²), with σ² at most 0.03, and a decoder the frame from the code. The codes are the
observations of a linear Gaussian state space model with latents z, whose matrices change with time: a recurrent network
(LSTM) over the codes so far gives weights α_t, and A_t = Σ_k α_tk A^(k), C_t = Σ_k α_tk C^(k). The loss is
-[w log p(x|a) + log p(a) - log q(a|x)] with one sample of the codes.

log p(a) is exact. With R the noise of the codes, N(a | Cz, R) is a potential on z with h = C'R⁻¹a and Λ = C'R⁻¹C, times
exp(-½a'R⁻¹a) |2πR|^-½; so log p(a) is log Z of the chain under these potentials, and a constant.

A missing frame has no code. The recurrent network is then fed the code that the model predicts from the frames before,
for which the filter runs along. A hidden frame is missing, and reconstructed from the code that the smoothed latent
stands for.

Training has two phases: in the first `warmup_steps` the recurrent network and the weights are left as they start
(nearly equal). How many steps were done is counted in the model itself (`steps`), by the projection after each step.
"""

from math import log, pi
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from rpgssm import core
from rpgssm.core import GaussianChain, OnlineState, Posterior, Potentials, Precision, online_step
from rpgssm.core.linalg import mm, mv, transpose
from rpgssm.data import Modality, Sequences
from rpgssm.models.layers import Dense, split, zeros

from .generative import Bound, Emission
from .masking import as_missing
from .recurrent import LSTM

LARGEST_VARIANCE = 0.03  # of a code
CODE_NOISE, STATE_NOISE, FIRST_VARIANCE = 0.03, 0.08, 20.0  # R, Q and the variance of z_1
LSTM_DIM = 50


class Codes(eqx.Module):
    """Mean and variance of the codes, and where there is one."""

    mean: Float[Array, "n t a"]
    variance: Float[Array, "n t a"]
    seen: Bool[Array, "n t"] | None


class KVAEModel(eqx.Module):
    """The parameters. `A` and `C` are the matrices to be mixed."""

    encoders: dict[str, Any]
    to_code: Dense
    A: Float[Array, "m k k"]
    C: Float[Array, "m a k"]
    mixture: tuple[LSTM, Dense]
    emissions: dict[str, Emission]
    steps: Float[Array, ""]
    warmup_steps: int = eqx.field(static=True)
    weight: float = eqx.field(static=True)

    def __init__(
        self,
        encoders: dict[str, Any],
        emissions: dict[str, Emission],
        latent_dim: int,
        code_dim: int,
        mixtures: int = 3,
        *,
        weight: float = 0.3,
        warmup_steps: int = 0,
        key: PRNGKeyArray,
        dtype=jnp.float32,
    ):
        first, second, third, fourth = split(key, 4)
        features = sum(encoder.out_dim for encoder in encoders.values())
        self.encoders, self.emissions = encoders, emissions
        self.to_code = Dense(features, 2 * code_dim, key=first, gain=1.0, dtype=dtype)
        self.A = jnp.broadcast_to(jnp.eye(latent_dim, dtype=dtype), (mixtures, latent_dim, latent_dim))
        self.C = 0.05 * jax.random.normal(second, (mixtures, code_dim, latent_dim), dtype)
        self.mixture = (
            LSTM(code_dim, LSTM_DIM, key=third, dtype=dtype),
            Dense(LSTM_DIM, mixtures, key=fourth, gain=1.0, dtype=dtype),
        )
        self.steps = zeros((), dtype)
        self.warmup_steps, self.weight = warmup_steps, weight

    @property
    def latent_dim(self) -> int:
        return self.A.shape[-1]

    @property
    def code_dim(self) -> int:
        return self.C.shape[-2]

    def codes(self, batch: Sequences) -> Codes:
        """q(a_t | x_t) of all frames. A frame of which no modality was observed has no code."""
        parts, seen = [], None
        for name, m in sorted(batch.modalities.items()):
            frames = m.frames()
            n, t, *frame = frames.shape
            if m.mask is not None:
                mask = jnp.asarray(m.mask)
                frames = jnp.where(mask.reshape(n, t, *[1] * len(frame)), frames, jnp.zeros_like(frames))
                seen = mask if seen is None else seen | mask
            parts.append(self.encoders[name](frames.reshape(n * t, *frame)))
        if any(m.mask is None for m in batch.modalities.values()):
            seen = None
        out = self.to_code(jnp.concatenate(parts, -1)).reshape(len(batch), batch.time, -1)
        mean, raw = jnp.split(out, 2, axis=-1)
        return Codes(mean, LARGEST_VARIANCE * jax.nn.sigmoid(raw), seen)

    def _weights(self, state: Float[Array, "*lead h"]) -> Float[Array, "*lead m"]:
        """α, without a gradient in the first phase."""
        dense = self.mixture[1]
        α = jax.nn.softmax(dense(state.reshape(-1, state.shape[-1])), -1).reshape(*state.shape[:-1], -1)
        return jnp.where(self.steps < self.warmup_steps, lax.stop_gradient(α), α)

    def mixing(self, a: Float[Array, "n t a"], seen: Bool[Array, "n t"] | None) -> Float[Array, "n t m"]:
        """α_t of all frames, from the codes before them; predicted ones where there are none."""
        lstm, n = self.mixture[0], a.shape[0]
        if seen is None:
            out = lstm(a)
            return self._weights(jnp.concatenate([jnp.zeros_like(out[:, :1]), out[:, :-1]], 1))

        # carried: the network, the matrices' weights and the latent at frame t as predicted from the frames before
        def step(carry, inputs):
            state, α, m, P = carry
            a, seen = inputs
            C = self._mixed(α)[1]
            h, L = _potential(C, a)
            h, L = jnp.where(seen[:, None], h, jnp.zeros_like(h)), jnp.where(seen[:, None, None], L, jnp.zeros_like(L))
            a = jnp.where(seen[:, None], a, mv(C, m))
            state = lstm.step(state, lstm.inputs(a))
            after = self._weights(state[0])
            now = OnlineState(m, P, jnp.zeros((n,), m.dtype), jnp.zeros((), jnp.int32))
            moved, _ = online_step(_one_step(self._mixed(after)[0]), now, h, L)
            return (state, after, moved.a, moved.C), α

        k, dtype = self.latent_dim, a.dtype
        P = jnp.broadcast_to(FIRST_VARIANCE * jnp.eye(k, dtype=dtype), (n, k, k))
        state = lstm.start(n)
        start = (state, self._weights(state[0]), jnp.zeros((n, k), dtype), P)
        inputs = jnp.moveaxis(a, 1, 0), jnp.moveaxis(seen, 1, 0)
        return jnp.moveaxis(lax.scan(step, start, inputs)[1], 0, 1)

    def _mixed(self, α: Float[Array, "*lead m"]) -> tuple[Float[Array, "*lead k k"], Float[Array, "*lead a k"]]:
        return jnp.einsum("...m,mij->...ij", α, self.A), jnp.einsum("...m,mij->...ij", α, self.C)

    def state_space(
        self, a: Float[Array, "n t a"], seen: Bool[Array, "n t"] | None
    ) -> tuple[GaussianChain, Potentials, Float[Array, "n t a k"]]:
        """The chain of each sequence, the potentials of its codes, and C_t."""
        A, C = self._mixed(self.mixing(a, seen))
        n, t, k = len(a), a.shape[1], self.latent_dim
        eye, dtype = jnp.eye(k, dtype=a.dtype), a.dtype
        chain = GaussianChain(
            jnp.zeros((n, k), dtype),
            jnp.broadcast_to(FIRST_VARIANCE * eye, (n, k, k)),
            A[:, 1:],
            jnp.zeros((n, t - 1, k), dtype),
            jnp.broadcast_to(STATE_NOISE * eye, (n, t - 1, k, k)),
        )
        h, L = _potential(C, a)
        return chain, Potentials(h, Precision(L, shared=False, diagonal=False), seen), C

    def smooth(self, batch: Sequences) -> Posterior:
        """The latents given all codes, at their means.

        `log_z` is that of the codes' potentials: log p(a) but for a term that depends on the codes, not for comparing
        sequences.
        """
        codes = self.codes(batch)
        chain, potentials, _ = self.state_space(codes.mean, codes.seen)
        return core.smooth(chain, potentials)

    def filter(self, batch: Sequences) -> Posterior:
        """The latents given the codes so far. The matrices, too, depend on codes so far only."""
        codes = self.codes(batch)
        chain, potentials, _ = self.state_space(codes.mean, codes.seen)
        return core.filter(chain, potentials)

    def sample_posterior(self, key: PRNGKeyArray, batch: Sequences, samples: int) -> Float[Array, "s n t k"]:
        codes = self.codes(batch)
        chain, potentials, _ = self.state_space(codes.mean, codes.seen)
        return core.sample_posterior(key, chain, potentials, samples)

    def expected_codes(self, batch: Sequences) -> Float[Array, "n t a"]:
        """C_t E z_t: the codes that the smoothed latents stand for."""
        codes = self.codes(batch)
        chain, potentials, C = self.state_space(codes.mean, codes.seen)
        return mv(C, core.smooth(chain, potentials).mean)

    def forecast(self, batch: Sequences, steps: int, *, samples: int = 0, key: Any = None) -> core.Forecast:
        """The frames to come are missing frames: the filter goes on without them."""
        longer, n = _extended(batch, steps), len(batch)
        codes = self.codes(longer)
        chain, potentials, _ = self.state_space(codes.mean, codes.seen)
        filtered = core.filter(chain, potentials)
        last = jnp.full((n,), batch.time - 1) if batch.lengths is None else jnp.asarray(batch.lengths) - 1
        rows, ahead = jnp.arange(n)[:, None], last[:, None] + jnp.arange(steps)
        future = GaussianChain(chain.m1, chain.Q1, *(x[rows, ahead] for x in (chain.A, chain.b, chain.Q)))
        now = core.Moments(filtered.mean[rows[:, 0], last], filtered.cov[rows[:, 0], last])
        return core.forecast(future, now, steps, samples=samples, key=key)

    def bound(
        self,
        batch: Sequences,
        key: PRNGKeyArray,
        hidden: Bool[Array, "n t"] | None = None,
        weight: float | None = None,
    ) -> Bound:
        """w log p(x|a) and log q(a|x) - log p(a), which takes the place of the divergence."""
        codes = self.codes(as_missing(batch, hidden))
        noise = jax.random.normal(key, codes.mean.shape, codes.mean.dtype)
        a = codes.mean + jnp.sqrt(codes.variance) * noise
        chain, potentials, C = self.state_space(a, codes.seen)
        constant = log(2 * pi * CODE_NOISE)
        log_q = -0.5 * jnp.sum(noise**2 + jnp.log(2 * pi * codes.variance), -1)
        alone = -0.5 * jnp.sum(a**2 / CODE_NOISE + constant, -1)
        terms = log_q - alone
        decoded = a
        if codes.seen is None:
            log_z = core.filter(chain, potentials).log_z
        else:
            smoothed = core.smooth(chain, potentials)
            log_z = smoothed.log_z
            terms = jnp.where(codes.seen, terms, jnp.zeros_like(terms))
            decoded = jnp.where(codes.seen[..., None], a, mv(C, smoothed.mean))
        w = self.weight if weight is None else weight
        total = jnp.zeros(len(batch), a.dtype)
        for name, emission in sorted(self.emissions.items()):
            m = batch.modalities[name]
            mask = None if m.mask is None else jnp.asarray(m.mask)
            total = total + emission.log_likelihood(decoded, m.frames(), mask).sum(1)
        return Bound(w * total, terms.sum(1) - log_z)

    def project(self) -> "KVAEModel":
        """Counts the steps."""
        return eqx.tree_at(lambda m: m.steps, self, self.steps + 1)


def _potential(C: Float[Array, "*lead a k"], a: Float[Array, "*lead a"]):
    """What the codes say of the latents."""
    return mv(transpose(C), a) / CODE_NOISE, mm(transpose(C), C) / CODE_NOISE


def _one_step(A: Float[Array, "n k k"]) -> GaussianChain:
    n, k, _ = A.shape
    zero = jnp.zeros((n, k), A.dtype)
    Q = jnp.broadcast_to(STATE_NOISE * jnp.eye(k, dtype=A.dtype), (n, k, k))
    return GaussianChain(zero, Q, A[:, None], zero[:, None], Q[:, None])


def _extended(batch: Sequences, steps: int) -> Sequences:
    """The same sequences with `steps` missing frames after them."""

    def longer(m: Modality) -> Modality:
        values = jnp.asarray(m.values)
        mask = jnp.ones(values.shape[:2], bool) if m.mask is None else jnp.asarray(m.mask)
        widths = [(0, 0), (0, steps), *[(0, 0)] * (values.ndim - 2)]
        return Modality(jnp.pad(values, widths), jnp.pad(mask, widths[:2]), m.scale)

    return Sequences({name: longer(m) for name, m in batch.modalities.items()}, None, batch.lengths)
