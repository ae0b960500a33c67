"""The classical linear Gaussian state space model, learned by expectation maximisation (EM).

    z_1 ~ N(m1, Q1),  z_{t+1} ~ N(A z_t + b, Q),  y_t ~ N(C z_t + d, diag(r))

y is the frame, or its principal components where a frame has many numbers (images). The emission is a potential on z
with h = C'(y - d)/r and Λ = C'(C/r), so smoothing, and with it the E-step, is the core's. The M-step is a linear
regression of z_{t+1} on z_t, and one of y_t on z_t for each modality, from expected sums of products (`Statistics`),
which are taken in the precision of the model and added up in double precision.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from rpgssm.core import GaussianChain, Potentials, Precision, smooth
from rpgssm.core.linalg import mv
from rpgssm.data import Sequences

from .generative import exists

SMALLEST = 1e-6  # variance, relative to that of the data


class LinearChain(eqx.Module):
    """The chain, with matrices as they are."""

    m1: Float[Array, " k"]
    Q1: Float[Array, "k k"]
    A: Float[Array, "k k"]
    b: Float[Array, " k"]
    Q: Float[Array, "k k"]


class LinearEmission(eqx.Module):
    """y = W (x - centre) ~ N(C z + d, diag(r)), W the principal components, or None for y = x - centre."""

    C: Float[Array, "d k"]
    d: Float[Array, " d"]
    r: Float[Array, " d"]
    centre: Float[Array, " x"]
    components: Float[Array, "d x"] | None
    frame_shape: tuple[int, ...] = eqx.field(static=True)

    def reduced(self, frames: Float[Array, "n t *frame"]) -> Float[Array, "n t d"]:
        x = frames.reshape(*frames.shape[:2], -1).astype(self.centre.dtype) - self.centre[None, None]
        return x if self.components is None else mv(self.components, x)

    def mean(self, latents: Float[Array, "*lead k"]) -> Float[Array, "*out"]:
        """The expected frames."""
        y = mv(self.C, latents.astype(self.C.dtype)) + self.d
        x = y if self.components is None else mv(self.components.T, y)
        return (x + self.centre).reshape(*latents.shape[:-1], *self.frame_shape)


class LinearGaussianModel(eqx.Module):
    """The parameters: the chain, and an emission for each modality."""

    prior: LinearChain
    emissions: dict[str, LinearEmission]

    @property
    def latent_dim(self) -> int:
        return self.prior.A.shape[-1]

    def chain(self, length: int, controls: Any = None) -> GaussianChain:
        del controls  # there are none
        p = self.prior
        return GaussianChain.time_invariant(p.m1, p.Q1, p.A, p.b, p.Q, length)

    def potentials(self, batch: Sequences) -> tuple[Potentials, ...]:
        """One set of potentials per modality, in alphabetical order."""
        out = []
        for name, m in sorted(batch.modalities.items()):
            e = self.emissions[name]
            weights = e.C / e.r[:, None]
            h = mv(weights.T, e.reduced(m.frames()) - e.d)
            precision = Precision(_symmetric(weights.T @ e.C), shared=True, diagonal=False)
            out.append(Potentials(h, precision, None if m.mask is None else jnp.asarray(m.mask)))
        return tuple(out)

    def log_likelihood(self, batch: Sequences, log_z: Float[Array, " n"]) -> Float[Array, " n"]:
        """log p(y) of each sequence from log Z: what the potentials leave out of N(y | Cz + d, r) is added."""
        total = log_z
        for name, m in sorted(batch.modalities.items()):
            e = self.emissions[name]
            apart = e.reduced(m.frames()) - e.d
            rest = -0.5 * jnp.sum(apart**2 / e.r + jnp.log(2 * jnp.pi * e.r), -1)
            rest = rest if m.mask is None else jnp.where(jnp.asarray(m.mask), rest, jnp.zeros_like(rest))
            total = total + rest.sum(1)
        return total


class Regression(eqx.Module):
    """Sums over frames of products of what is regressed, y, and of what it is regressed on, (z, 1)."""

    yz: Any  # (d, k + 1)
    zz: Any  # (k + 1, k + 1)
    yy: Any  # (d,) or (d, d)


class Statistics(eqx.Module):
    """All that the M-step needs, and the log-likelihood of each sequence."""

    log_likelihood: Any
    count: Any
    first: Any  # Σ E z_1
    first_square: Any  # Σ E z_1z_1'
    steps: Regression
    emissions: dict[str, Regression]


def statistics(model: LinearGaussianModel, batch: Sequences) -> Statistics:
    """The E-step on a batch."""
    p = smooth(model.chain(batch.time), model.potentials(batch), cross=True)
    mean = p.mean
    assert p.cross is not None
    n = len(mean)
    square = mean[..., :, None] * mean[..., None, :] + p.cov
    ones = jnp.ones((n, batch.time), mean.dtype)
    there = exists(batch)
    w = ones[:, 1:] if there is None else there[:, 1:].astype(mean.dtype)
    pair = mean[:, 1:, :, None] * mean[:, :-1, None, :] + jnp.swapaxes(p.cross, -1, -2)
    steps = Regression(
        _bordered(_weighted(w, pair), _weighted(w, mean[:, 1:])[:, None]),
        _moments(w, square[:, :-1], mean[:, :-1]),
        _weighted(w, square[:, 1:]),
    )
    emissions = {}
    for name, m in batch.modalities.items():
        y = model.emissions[name].reduced(m.frames())
        o = ones if m.mask is None else jnp.asarray(m.mask).astype(mean.dtype)
        y = y * o[..., None]
        yz = jnp.einsum("ntd,ntk->dk", y, mean, precision="highest")
        yz = _bordered(yz, y.sum((0, 1))[:, None])
        emissions[name] = Regression(yz, _moments(o, square, mean), jnp.sum(y**2, (0, 1)))
    ll = model.log_likelihood(batch, p.log_z)
    return Statistics(ll.sum(), jnp.asarray(n), mean[:, 0].sum(0), square[:, 0].sum(0), steps, emissions)


def _weighted(w: Float[Array, "n t"], x: Float[Array, "n t *s"]) -> Float[Array, "*s"]:
    return jnp.sum(w.reshape(*w.shape, *[1] * (x.ndim - 2)) * x, (0, 1))


def _moments(w: Float[Array, "n t"], square: Float[Array, "n t k k"], mean: Float[Array, "n t k"]):
    """Σ E (z, 1)(z, 1)'."""
    z = _weighted(w, mean)
    below = jnp.concatenate([z, w.sum()[None]])[None]
    return jnp.concatenate([_bordered(_weighted(w, square), z[:, None]), below])


def _bordered(matrix: Float[Array, "d k"], column: Float[Array, "d 1"]) -> Float[Array, "d k1"]:
    return jnp.concatenate([matrix, column], 1)


def maximise(model: LinearGaussianModel, s: Statistics) -> LinearGaussianModel:
    """The M-step: the parameters at which the expected log-likelihood is highest. `s` on the host, in float64."""
    dtype, k = model.prior.A.dtype, model.latent_dim

    def array(x):
        return jnp.asarray(x, dtype)

    m1 = s.first / s.count
    Q1 = _positive(s.first_square / s.count - np.outer(m1, m1))
    steps = s.steps.zz[-1, -1]
    AB = _solve(s.steps)
    Q = _positive((s.steps.yy - AB @ s.steps.yz.T) / max(steps, 1.0)) if steps > 0 else np.asarray(model.prior.Q)
    prior = LinearChain(array(m1), array(Q1), array(AB[:, :k]), array(AB[:, k]), array(Q))
    emissions = {}
    for name, old in model.emissions.items():
        e = s.emissions[name]
        count = max(e.zz[-1, -1], 1.0)
        Cd = _solve(e)
        total = e.yy / count - (e.yz[:, -1] / count) ** 2
        r = np.maximum((e.yy - np.sum(Cd * e.yz, 1)) / count, SMALLEST * max(total.max(), 1e-30))
        emissions[name] = LinearEmission(
            array(Cd[:, :k]), array(Cd[:, k]), array(r), old.centre, old.components, old.frame_shape
        )
    return LinearGaussianModel(prior, emissions)


def _solve(s: Regression) -> np.ndarray:
    """The coefficients of the regression, of which the last is the constant."""
    zz = np.asarray(s.zz)
    return np.linalg.solve(zz + 1e-12 * np.trace(zz) * np.eye(len(zz)), np.asarray(s.yz).T).T


def _positive(M: np.ndarray) -> np.ndarray:
    """Symmetric, and with no variance below a small part of the largest."""
    values, vectors = np.linalg.eigh(0.5 * (M + M.T))
    return (vectors * np.maximum(values, SMALLEST * max(values.max(), SMALLEST))) @ vectors.T


def _symmetric(M: Float[Array, "k k"]) -> Float[Array, "k k"]:
    return 0.5 * (M + M.T)


def blank_model(latent_dim: int, frames: dict[str, tuple[tuple[int, ...], int]], dtype=jnp.float32) -> Any:
    """A model of the right shapes: of each modality the shape of frames, and how many components are kept of them."""
    k = latent_dim

    def zeros(*shape: int) -> Array:
        return jnp.zeros(shape, dtype)

    emissions = {}
    for name, (shape, count) in frames.items():
        size = int(np.prod(shape))
        components = zeros(count, size) if count < size else None
        ones = jnp.ones((count,), dtype)
        emissions[name] = LinearEmission(zeros(count, k), zeros(count), ones, zeros(size), components, tuple(shape))
    eye = jnp.eye(k, dtype=dtype)
    return LinearGaussianModel(LinearChain(zeros(k), eye, 0.9 * eye, zeros(k), 0.19 * eye), emissions)
