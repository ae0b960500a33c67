"""The Kalman variational autoencoder (KVAE): a code for each frame, and a linear Gaussian model of the codes.

An encoder gives a code a_t ~ N(μ, σ²), with σ² at most 0.03, and a decoder the frame from the code. The codes are the
observations of a linear Gaussian state space model with latents z, whose matrices change with time: a recurrent network
(LSTM) over the codes so far gives weights α_t, and A_t = Σ_k α_tk A^(k), C_t = Σ_k α_tk C^(k). The loss is
-[w log p(x|a) + log p(a) - log q(a|x)] with one sample of the codes.

log p(a) is exact. With R the noise of the codes, N(a | Cz, R) is a potential on z with h = C'R⁻¹a and Λ = C'R⁻¹C, times
exp(-½a'R⁻¹a) |2πR|^-½; so log p(a) is log Z of the chain under these potentials, and a constant.

A missing frame has no code. The recurrent network then gets the code that the model predicts from the frames before;
for that the filter runs along. A hidden frame is missing, and reconstructed from the code Cz of the smoothed latent.

Training has two phases. In the first `warmup_steps` the recurrent network and the weights keep their initial values
(nearly equal). The model itself counts the steps (`steps`), by the projection after each step.
"""

from functools import reduce
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
from rpgssm.estimator import DataInfo
from rpgssm.model import Fixed, Model, last_frames
from rpgssm.nn.build import build_encoders, keys_for
from rpgssm.nn.emission import Emission
from rpgssm.nn.layers import Dense, split, zeros
from rpgssm.nn.masking import as_missing
from rpgssm.nn.recurrent import LSTM
from rpgssm.settings import setting

from ._generative import Bound, GenerativeEstimator, reconstruction

LARGEST_VARIANCE = 0.03  # of a code
CODE_NOISE, STATE_NOISE, FIRST_VARIANCE = 0.03, 0.08, 20.0  # R, Q and the variance of z_1
LSTM_DIM = 50


class Codes(eqx.Module):
    """Mean and variance of the codes; `seen` is False where a frame has none."""

    mean: Float[Array, "n t a"]
    variance: Float[Array, "n t a"]
    seen: Bool[Array, "n t"] | None


class Count(Fixed):
    """A number of steps, counted in the model itself."""

    value: Float[Array, ""]


class KVAEModel(Model):
    """The parameters. `A` and `C` are the matrices to mix."""

    encoders: dict[str, Any]
    to_code: Dense
    A: Float[Array, "m k k"]
    C: Float[Array, "m a k"]
    mixture: tuple[LSTM, Dense]
    emissions: dict[str, Emission]
    steps: Count
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
        self.steps = Count(zeros((), dtype))
        self.warmup_steps, self.weight = warmup_steps, weight

    @property
    def latent_dim(self) -> int:
        return self.A.shape[-1]

    @property
    def code_dim(self) -> int:
        return self.C.shape[-2]

    def codes(self, batch: Sequences) -> Codes:
        """q(a_t | x_t) of all frames. A frame of which no modality was observed has no code."""
        parts, masks = [], []
        for name, m in sorted(batch.modalities.items()):
            n, t, *frame = m.values.shape
            parts.append(self.encoders[name](m.zero_filled().reshape(n * t, *frame)))
            masks += [] if m.mask is None else [m.device_mask()]
        seen = reduce(jnp.logical_or, masks) if len(masks) == len(parts) else None
        out = self.to_code(jnp.concatenate(parts, -1)).reshape(len(batch), batch.time, -1)
        mean, raw = jnp.split(out, 2, axis=-1)
        return Codes(mean, LARGEST_VARIANCE * jax.nn.sigmoid(raw), seen)

    def _weights(self, state: Float[Array, "*lead h"]) -> Float[Array, "*lead m"]:
        """α, without a gradient in the first phase."""
        dense = self.mixture[1]
        α = jax.nn.softmax(dense(state.reshape(-1, state.shape[-1])), -1).reshape(*state.shape[:-1], -1)
        return jnp.where(self.steps.value < self.warmup_steps, lax.stop_gradient(α), α)

    def mixing(self, a: Float[Array, "n t a"], seen: Bool[Array, "n t"] | None) -> Float[Array, "n t m"]:
        """α_t of all frames, from the codes before them; from predicted codes where there are none."""
        lstm, n = self.mixture[0], a.shape[0]
        if seen is None:
            out = lstm(a)
            return self._weights(jnp.concatenate([jnp.zeros_like(out[:, :1]), out[:, :-1]], 1))

        # carried: the network's state, the weights, and the moments of z_t predicted from the frames before
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

        `log_z` belongs to the potentials of the codes. It is log p(a) without a term that depends on the codes, so it
        does not compare sequences.
        """
        chain, potentials, _ = self._at_means(batch)
        return core.smooth(chain, potentials)

    def _at_means(self, batch: Sequences) -> tuple[GaussianChain, Potentials, Float[Array, "n t a k"]]:
        """`state_space` with the codes at their means."""
        codes = self.codes(batch)
        return self.state_space(codes.mean, codes.seen)

    def filter(self, batch: Sequences) -> Posterior:
        """The latents given the codes so far. The matrices, too, depend on codes so far only."""
        chain, potentials, _ = self._at_means(batch)
        return core.filter(chain, potentials)

    def sample_posterior(self, key: PRNGKeyArray, batch: Sequences, samples: int) -> Float[Array, "s n t k"]:
        chain, potentials, _ = self._at_means(batch)
        return core.sample_posterior(key, chain, potentials, samples)

    def reconstruct(self, batch: Sequences) -> dict[str, Float[Array, "..."]]:
        """The expected frames for C_t E z_t, the codes of the smoothed latents."""
        chain, potentials, C = self._at_means(batch)
        expected = mv(C, core.smooth(chain, potentials).mean)
        return {name: emission.mean(expected) for name, emission in self.emissions.items()}

    def forecast(
        self, batch: Sequences, steps: int, controls: None = None, samples: int = 0, key: PRNGKeyArray | None = None
    ) -> core.Forecast:
        """Forecast with the matrices of the filter, which takes the frames to come as missing."""
        del controls
        chain, potentials, _ = self._at_means(_extended(batch, steps))
        filtered = core.filter(chain, potentials)
        last = last_frames(batch)
        rows, ahead = jnp.arange(len(batch))[:, None], last[:, None] + jnp.arange(steps)
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
        """The terms w log p(x|a), and log q(a|x) - log p(a) in place of the divergence."""
        codes = self.codes(as_missing(batch, hidden))
        noise = jax.random.normal(key, codes.mean.shape, codes.mean.dtype)
        a = codes.mean + jnp.sqrt(codes.variance) * noise
        chain, potentials, C = self.state_space(a, codes.seen)
        log_q = -0.5 * jnp.sum(noise**2 + jnp.log(2 * pi * codes.variance), -1)
        alone = -0.5 * jnp.sum(a**2 / CODE_NOISE + log(2 * pi * CODE_NOISE), -1)
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
        return Bound(w * reconstruction(self.emissions, decoded, batch), terms.sum(1) - log_z)

    def project(self) -> "KVAEModel":
        """Count the step."""
        return eqx.tree_at(lambda m: m.steps.value, self, self.steps.value + 1)


def _potential(C: Float[Array, "*lead a k"], a: Float[Array, "*lead a"]):
    """N(a | Cz, R) as a potential on z: h and Λ."""
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


class KVAE(GenerativeEstimator):
    """Kalman variational autoencoder: a code for each frame, and a linear Gaussian model of the codes.

    `noise` is the noise of frames around the decoded code. The dynamics of the latents depend on the codes so far:
    there is no prior to sample from, and no decoder of latents alone.
    """

    model_type = KVAEModel
    title = "KVAE"
    score_weight = 1.0

    code_dim: int | None = setting(
        None, "Numbers in the code of a frame. None: half the latent dimensions, at least 2.", least=1
    )
    mixtures: int = setting(3, "Number of matrices to mix, for the transition and for the emission of codes.", least=1)
    reconstruction_weight: float = setting(
        0.3, "Weight of the frames' likelihood in training; it is 1 in `score`.", above=0
    )
    warmup_steps: int = setting(500, "Steps before the weights of the mixture begin to learn.", least=0)

    def build(self, info: DataInfo, data: Sequences | None, seed: int) -> KVAEModel:
        count, k = len(info.frame_shapes), int(self.latent_dim)
        code = max(2, k // 2) if self.code_dim is None else int(self.code_dim)
        first, *keys = keys_for(seed, 1 + 2 * count)
        return KVAEModel(
            build_encoders(self.encoder, info.frame_shapes, data, keys[:count]),
            self.build_emissions(info, data, keys[count:], code),
            k,
            code,
            int(self.mixtures),
            weight=float(self.reconstruction_weight),
            warmup_steps=int(self.warmup_steps),
            key=first,
        )

    def _form(self) -> str:
        return f", codes of {self.model_.code_dim}, {self.mixtures} mixed matrices{super()._form()}"
