"""The classical linear Gaussian state space model, learned by expectation maximisation (EM).

    z_1 ~ N(m1, Q1),  z_{t+1} ~ N(A z_t + b, Q),  y_t ~ N(C z_t + d, diag(r))

y is the frame, or its principal components if a frame has many numbers (images). The emission is a potential on z with
h = C'(y - d)/r and Λ = C'(C/r), so the core's smoother does the E-step. The M-step is a linear regression of z_{t+1} on
z_t, and one of y_t on z_t for each modality, from expected sums of products (`Statistics`). Batches compute them in the
precision of the model; their sum is in double precision.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from rpgssm.core import GaussianChain, Potentials, Precision, smooth
from rpgssm.core.linalg import mv, sym
from rpgssm.data import Sequences
from rpgssm.estimator import FRAMES, DataInfo, Estimator, Prepared, in_batches
from rpgssm.model import ChainModel, Controls
from rpgssm.settings import setting
from rpgssm.training import History, Report, Trained

from ._generative import HasEmissions, exists

SMALLEST = 1e-6  # variance, relative to that of the data
VALIDATE_EVERY = 10  # iterations


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


class LinearGaussianModel(ChainModel, HasEmissions):
    """The parameters: the chain, and an emission for each modality."""

    prior: LinearChain
    emissions: dict[str, LinearEmission]

    @property
    def latent_dim(self) -> int:
        return self.prior.A.shape[-1]

    def chain(self, length: int, controls: Controls | None = None) -> GaussianChain:
        del controls
        p = self.prior
        return GaussianChain.time_invariant(p.m1, p.Q1, p.A, p.b, p.Q, length)

    def potentials(self, batch: Sequences) -> tuple[Potentials, ...]:
        out = []
        for name, m in sorted(batch.modalities.items()):
            e = self.emissions[name]
            weights = e.C / e.r[:, None]
            h = mv(weights.T, e.reduced(m.frames()) - e.d)
            precision = Precision(sym(weights.T @ e.C), shared=True, diagonal=False)
            out.append(Potentials(h, precision, m.device_mask()))
        return tuple(out)

    def log_likelihood(self, batch: Sequences, log_z: Float[Array, " n"]) -> Float[Array, " n"]:
        """log p(y) of each sequence from log Z, plus the factors of N(y | Cz + d, r) that the potentials leave out."""
        total = log_z
        for name, m in sorted(batch.modalities.items()):
            e = self.emissions[name]
            apart = e.reduced(m.frames()) - e.d
            rest = -0.5 * jnp.sum(apart**2 / e.r + jnp.log(2 * jnp.pi * e.r), -1)
            total = total + (rest if m.mask is None else jnp.where(m.mask, rest, jnp.zeros_like(rest))).sum(1)
        return total


class Regression(eqx.Module):
    """Sums over frames of products of the response y and the regressors (z, 1)."""

    yz: Any  # (d, k + 1)
    zz: Any  # (k + 1, k + 1)
    yy: Any  # (d,) or (d, d)


class Statistics(eqx.Module):
    """Expected sums for the M-step, and the log-likelihood."""

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
    """The M-step: the parameters with the highest expected log-likelihood. `s` is on the host, in float64."""
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
    return LinearGaussianModel(prior=prior, emissions=emissions)


def _solve(s: Regression) -> np.ndarray:
    """The coefficients of the regression, the constant last."""
    zz = np.asarray(s.zz)
    return np.linalg.solve(zz + 1e-12 * np.trace(zz) * np.eye(len(zz)), np.asarray(s.yz).T).T


def _positive(M: np.ndarray) -> np.ndarray:
    """Make a matrix symmetric, with no eigenvalue below a small fraction of the largest."""
    values, vectors = np.linalg.eigh(0.5 * (M + M.T))
    return (vectors * np.maximum(values, SMALLEST * max(values.max(), SMALLEST))) @ vectors.T


def blank_model(latent_dim: int, frames: dict[str, tuple[tuple[int, ...], int]], dtype=jnp.float32) -> Any:
    """A model of the right shapes. `frames` gives the shape of frames and the number of components of each modality."""
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
    prior = LinearChain(zeros(k), eye, 0.9 * eye, zeros(k), 0.19 * eye)
    return LinearGaussianModel(prior=prior, emissions=emissions)


class LinearGaussianSSM(Estimator):
    """Linear Gaussian state space model, learned by expectation maximisation (EM): the classical model.

    It starts from principal components. The loss in its history is minus the log-likelihood per frame (of the principal
    components of a frame, if `components` reduces it). It keeps no checkpoints.
    """

    model_type = LinearGaussianModel
    title = "Linear Gaussian state space model"
    command_name = "linear-gaussian"

    components: int = setting(
        50, "Frames of more numbers than this (images) are reduced to as many principal components.", least=1
    )
    iterations: int = setting(200, "Iterations of EM at most.", least=1, effect="end")
    tolerance: float = setting(
        1e-5, "Stop when the log-likelihood per frame grows by less than this in an iteration.", effect="end"
    )

    @property
    def total_steps(self) -> int:
        return int(self.iterations)

    def build(self, info: DataInfo, data: Sequences | None, seed: int) -> LinearGaussianModel:
        from ._lgssm_start import start_model

        most = int(self.components)
        if data is not None:
            return start_model(int(self.latent_dim), data, most, seed)
        sizes = {name: (shape, min(int(np.prod(shape)), most)) for name, shape in info.frame_shapes.items()}
        return blank_model(int(self.latent_dim), sizes)

    def _learn(
        self,
        prepared: Prepared,
        start: LinearGaussianModel | None = None,
        *,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callable[[Report], None]] = (),
    ) -> Trained[Any]:
        del overwrite  # nothing is written
        if resume:
            raise ValueError("EM keeps no checkpoints: leave resume= out, and use partial_fit to go on")
        data, held_out = prepared.data, prepared.held_out
        model = self.build(prepared.info, data, int(self.random_state)) if start is None else start
        began, aside, before, stopped = time.perf_counter(), 0.0, -np.inf, "max_steps"
        names = ("step", "loss", "validation_loss", "seconds") if held_out is not None else ("step", "loss", "seconds")
        history = History(names)
        for step in range(1, int(self.iterations) + 1):
            s = expectations(model, data)
            value = float(s.log_likelihood) / max(int(data.observed()), 1)
            if not np.isfinite(value):
                raise ValueError(f"the log-likelihood is not finite in iteration {step}: try a smaller latent_dim")
            row = {"step": float(step), "loss": -value, "seconds": time.perf_counter() - began - aside}
            if held_out is not None and step % VALIDATE_EVERY == 1:
                row["validation_loss"] = -_mean_log_likelihood(model, held_out)
            history.append(row)
            if self.verbose and step % VALIDATE_EVERY == 1:
                print(f"EM {step}: log-likelihood per frame {value:.5g}", flush=True)
            paused = time.perf_counter()
            for callback in callbacks:
                callback(Report(step, [row], history, model))
            aside += time.perf_counter() - paused
            if value - before < float(self.tolerance):
                stopped = "converged"
                break
            model, before = maximise(model, s), value
        return Trained(model, model, len(history), len(history), history, stopped)

    def _score(self, data: Sequences) -> float:
        """The log-likelihood per observed frame (of its principal components, if `components` reduces it)."""
        return _mean_log_likelihood(self.model_, data)

    def _form(self) -> str:
        return ", by EM"

    def _networks(self, name: str) -> str:
        e = self.model_.emissions[name]
        return ", as they are" if e.components is None else f", {len(e.components)} principal components"


def expectations(model: LinearGaussianModel, data: Sequences) -> Statistics:
    """The E-step on all sequences, in batches; sums in double precision on the host."""
    size = min(len(data), max(1, FRAMES // data.time))
    total = None
    for start in range(0, len(data), size):
        stop = min(start + size, len(data))
        part = jax.device_get(_statistics(model, data.take(np.arange(start, stop))))
        part = jax.tree.map(lambda x: np.asarray(x, np.float64), part)
        total = part if total is None else jax.tree.map(np.add, total, part)
    assert total is not None
    return total


def _mean_log_likelihood(model: LinearGaussianModel, data: Sequences) -> float:
    values = in_batches(partial(_log_likelihood, model), data)
    return float(np.sum(values, dtype=np.float64) / max(int(data.observed()), 1))


_statistics = eqx.filter_jit(statistics)


@eqx.filter_jit
def _log_likelihood(model: LinearGaussianModel, batch: Sequences) -> Float[Array, " n"]:
    return model.log_likelihood(batch, model.filter(batch).log_z)
