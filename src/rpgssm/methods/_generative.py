"""Shared parts of the generative methods: the prior chain, divergences between chains, the ELBO, and settings.

All of them have latents z with a prior chain z_1 ~ N(m1, Q1), z_{t+1} ~ N(A z_t + b, Q), and frames
x_t ~ N(μ(z_t), ν²I) with a network μ and a fixed ν (`Emission`). They differ in the approximate posterior q, and are
trained on the evidence lower bound (ELBO), E_q log p(x|z) - KL(q‖p), with one sample of q.
"""

from dataclasses import dataclass
from functools import partial
from math import pi
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from rpgssm.core import GaussianChain, Posterior, Potentials, project_singular_values
from rpgssm.core.general import prior_covariances, prior_means, time_first
from rpgssm.core.linalg import eye_like, mm, mv, spd_inverse, transpose
from rpgssm.data import Sequences
from rpgssm.estimator import DataInfo, GradientEstimator, in_batches
from rpgssm.model import Model
from rpgssm.nn.build import Keys, standards
from rpgssm.nn.emission import Emission, make_emission
from rpgssm.nn.masking import MaskMode, draw_hidden, mask_mode_setting, mask_size_setting
from rpgssm.nn.priors import JITTER, LIMIT, FreePrior, factor_of
from rpgssm.settings import setting

FLOOR = 1e-4  # smallest variance of the prior
ANGLE = pi / 20  # of the rotation that A starts as


class ChainPrior(eqx.Module):
    """The free chain of the library with a higher floor under its covariances."""

    free: FreePrior

    @property
    def latent_dim(self) -> int:
        return self.free.latent_dim

    @property
    def A(self) -> Float[Array, "k k"]:
        return self.free.A

    @property
    def Q1(self) -> Float[Array, "k k"]:
        return self.free.Q1 + (FLOOR - JITTER) * eye_like(self.free.A)

    @property
    def Q(self) -> Float[Array, "k k"]:
        return self.free.Q + (FLOOR - JITTER) * eye_like(self.free.A)

    def chain(self, length: int) -> GaussianChain:
        return GaussianChain.time_invariant(self.free.m1, self.Q1, self.free.A, self.free.b, self.Q, length)

    def project(self, limit: float = LIMIT) -> "ChainPrior":
        return ChainPrior(self.free.project(limit))


def make_chain_prior(latent_dim: int, seed: int, *, angle: float = ANGLE, dtype=jnp.float32) -> ChainPrior:
    """A prior to start from: A a rotation by `angle` in a random plane, no biases, all noise of variance 1."""
    eye, zero = np.eye(latent_dim), jnp.zeros((latent_dim,), dtype)
    A = np.array(project_singular_values(jnp.asarray(plane_rotation(latent_dim, angle, seed), dtype), LIMIT))
    factor = jnp.asarray(factor_of((1 - FLOOR + JITTER) * eye), dtype)
    return ChainPrior(FreePrior(zero, factor, jnp.asarray(A, dtype), zero, factor))


def plane_rotation(k: int, angle: float, seed: int) -> Float[np.ndarray, "k k"]:
    """The rotation by `angle` in a random plane of k dimensions, the identity on the rest (and for k = 1)."""
    if k < 2:
        return np.eye(k)
    u, v = np.linalg.qr(np.random.default_rng(seed).standard_normal((k, 2)))[0].T
    return (
        np.eye(k)
        + (np.cos(angle) - 1) * (np.outer(u, u) + np.outer(v, v))
        + np.sin(angle) * (np.outer(v, u) - np.outer(u, v))
    )


class Bound(eqx.Module):
    """The terms of the ELBO of each sequence."""

    reconstruction: Float[Array, " n"]
    kl: Float[Array, " n"]


def reconstruction(
    emissions: dict[str, Emission], latents: Float[Array, "n t k"], batch: Sequences
) -> Float[Array, " n"]:
    """log p(x | z) of each sequence, over its observed frames."""
    total = jnp.zeros(len(batch), latents.dtype)
    for name, emission in sorted(emissions.items()):
        m = batch.modalities[name]
        total = total + emission.log_likelihood(latents, m.frames(), m.device_mask()).sum(1)
    return total


class HasEmissions(Model):
    """A model with an emission from latents to the frames of each modality."""

    emissions: eqx.AbstractVar[dict[str, Any]]

    def decode(self, latents: Float[Array, "*lead k"]) -> dict[str, Float[Array, "..."]]:
        """The expected frames, by modality."""
        return {name: emission.mean(latents) for name, emission in self.emissions.items()}


@dataclass(frozen=True)
class ELBO:
    """The objective: minus the evidence lower bound `model.bound(batch, key, hidden)`, per observed frame.

    `mask_size` frames of each sequence are hidden from the model but count in the bound.
    """

    mask_size: int = 0
    mask_mode: MaskMode = "window"

    def __call__(self, model: Any, batch: Sequences, key: PRNGKeyArray) -> tuple[Float[Array, ""], dict[str, Any]]:
        for_mask, for_sample = jax.random.split(key)
        bound = model.bound(batch, for_sample, draw_hidden(for_mask, batch, self.mask_size, self.mask_mode))
        count = jnp.maximum(jnp.asarray(batch.observed()), 1).astype(bound.kl.dtype)
        terms = {"reconstruction": bound.reconstruction, "kl": bound.kl}
        info: dict[str, Any] = {name: term.sum() / count for name, term in terms.items()}
        return info["kl"] - info["reconstruction"], info | {"per_sequence": terms}


class GenerativeEstimator(GradientEstimator):
    """An estimator of a model with emissions."""

    score_weight: ClassVar[float | None] = None  # of the reconstruction, if training uses another weight

    decoder: Literal["auto", "linear", "mlp", "conv", "conv-paper"] = setting(
        "auto",
        "Network from latents to frames: 'conv', 'mlp', 'linear', or 'conv-paper' (the larger one of the published "
        "comparisons). 'auto': conv for images, mlp for vectors.",
    )
    output: Literal["auto", "sigmoid", "linear"] = setting(
        "auto", "'sigmoid' for frames between 0 and 1, 'linear' for any. 'auto': a sigmoid for integer images."
    )
    noise: float = setting(
        0.1,
        "Standard deviation of a pixel or number around its mean, in the units of the data. Not learned; the smaller "
        "it is, the more is reconstructed: try 1, 0.1 and 0.001.",
        above=0,
    )
    mask_size: int = mask_size_setting()
    mask_mode: MaskMode = mask_mode_setting()
    learning_rate: float = 1e-3

    def objective(self) -> Any:
        return ELBO(int(self.mask_size), self.mask_mode)

    def build_emissions(
        self, info: DataInfo, data: Sequences | None, keys: Keys, latent_dim: int
    ) -> dict[str, Emission]:
        emissions = {}
        for key, (name, shape) in zip(keys, sorted(info.frame_shapes.items()), strict=True):
            shift, scale = standards(shape, None if data is None else data.modalities[name])
            output: Any = self.output
            if output == "auto":  # only integer images are certain to be between 0 and 1
                output = "sigmoid" if info.scales[name] != 1.0 else "linear"
            given: dict[str, Any] = {"noise": float(self.noise), "output": output, "shift": shift, "scale": scale}
            emissions[name] = make_emission(self.decoder, latent_dim, shape, key=key, **given)
        return emissions

    def _score(self, data: Sequences) -> float:
        """The ELBO per observed frame, by one sample that is the same at every call."""
        total = in_batches(partial(_elbo, self.model_, self.score_weight), data, key=self._key(None))
        return float(np.sum(total, dtype=np.float64) / max(int(data.observed()), 1))

    def _form(self) -> str:
        return f", noise {self.noise:g}"

    def _networks(self, name: str) -> str:
        of = getattr(self.model_, "encoders", None)
        encoder = of[name] if of is not None else self.model_.recognition[name].encoder
        return f", {type(encoder).__name__} and {type(self.model_.emissions[name].decoder).__name__}"


@eqx.filter_jit
def _elbo(model: Any, weight: float | None, batch: Sequences, key: PRNGKeyArray | None) -> Any:
    bound = model.bound(batch, key) if weight is None else model.bound(batch, key, weight=weight)
    return bound.reconstruction - bound.kl


def exists(batch: Sequences) -> Bool[Array, "n t"] | None:
    """True for frames that are not padding; None without padding."""
    if batch.lengths is None:
        return None
    lengths = jnp.asarray(batch.lengths)
    return jnp.arange(batch.time, dtype=lengths.dtype) < lengths[:, None]


def over_time(x: Float[Array, "n t"], batch: Sequences) -> Float[Array, " n"]:
    """The sum over the frames that exist."""
    there = exists(batch)
    return jnp.sum(x if there is None else jnp.where(there, x, jnp.zeros_like(x)), 1)


def potential_kl(posterior: Posterior, potentials: tuple[Potentials, ...]) -> Float[Array, " n"]:
    """KL(q‖p) for q ∝ p Π_t ψ_t with ψ_t = exp(-½z'Λz + h'z): log q/p is Σ_t log ψ_t - log Z, to be averaged over q.

    Biases and means of the prior enter through the marginals of q and through log Z.
    """
    mean, expected = posterior.mean, -posterior.log_z
    for p in potentials:
        L = p.masked_precision()
        quadratic = jnp.sum(mv(L, mean) * mean, -1) + jnp.sum(L * posterior.cov, (-2, -1))
        expected = expected + jnp.sum(jnp.sum(p.masked_h() * mean, -1) - 0.5 * quadratic, 1)
    return expected


def chain_kl(q: GaussianChain, p: GaussianChain) -> Float[Array, "n t"]:
    """KL(q‖p) between chains, a term for each frame: the expected divergence of q(z_t|z_{t-1}) from p(z_t|z_{t-1}).

    q has a chain for each sequence. With D = A_q - A_p, δ = D E z_{t-1} + b_q - b_p and V the covariance of z_{t-1},
    all under q, a term is ½ [δ'Q_p⁻¹δ + tr(Q_p⁻¹(Q_q + D V D')) - K - log|Q_q| + log|Q_p|].
    """
    of_q, of_p = time_first(q), time_first(p)
    first = conditional_kl(of_q.m1 - of_p.m1, of_q.Q1, of_p.Q1)
    mean = prior_means(of_q.m1, of_q.A, of_q.b)[:-1]
    V = prior_covariances(of_q.Q1, of_q.A, of_q.Q)[:-1]
    D = of_q.A - of_p.A
    rest = conditional_kl(mv(D, mean) + of_q.b - of_p.b, of_q.Q, of_p.Q, mm(mm(D, V), transpose(D)))
    return jnp.moveaxis(jnp.concatenate([first[None], rest]), 0, 1)


def conditional_kl(
    difference: Float[Array, "*n k"],
    Q_q: Float[Array, "*q k k"],
    Q_p: Float[Array, "*p k k"],
    spread: Float[Array, "*s k k"] | None = None,
) -> Float[Array, "*n"]:
    """Expected divergence between Gaussians. The difference of their means is Gaussian: `difference` and `spread`."""
    precision, log_p = spd_inverse(Q_p)
    total = Q_q if spread is None else Q_q + spread
    quadratic = jnp.sum(difference * mv(precision, difference), -1)
    trace = jnp.sum(precision * total, (-2, -1))
    return 0.5 * (quadratic + trace - difference.shape[-1] - spd_inverse(Q_q)[1] + log_p)
