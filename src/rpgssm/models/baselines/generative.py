"""What the generative baselines share: the prior chain, the emission, divergences between chains, and the objective.

All of them have latents z with a prior chain z_1 ~ N(m1, Q1), z_{t+1} ~ N(A z_t + b, Q), and frames
x_t ~ N(μ(z_t), ν²I) with a network μ and a fixed ν. They differ in the approximate posterior q, and are trained on the
evidence lower bound (ELBO), E_q log p(x|z) - KL(q‖p), with one sample of q.
"""

from math import log, pi, prod
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from rpgssm.core import GaussianChain, Posterior, Potentials, project_singular_values
from rpgssm.core.general import prior_covariances, prior_means, time_first
from rpgssm.core.linalg import eye_like, mm, mv, spd_inverse, transpose
from rpgssm.data import Sequences
from rpgssm.models.decoder import Decoder, MLPDecoder, make_decoder
from rpgssm.models.priors import JITTER, LIMIT, FreePrior, factor_of

from .masking import MaskMode, draw_hidden

FLOOR = 1e-4  # smallest variance of the prior
ANGLE = pi / 20  # of the rotation that A starts as
Output = Literal["sigmoid", "linear"]


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


class Emission(eqx.Module):
    """x ~ N(μ(z), ν²I), in the units of the data. With a sigmoid, means are between 0 and 1."""

    decoder: Decoder
    noise: float = eqx.field(static=True)
    output: Output = eqx.field(static=True, default="linear")

    def mean(self, latents: Float[Array, "*lead k"]) -> Float[Array, "*out"]:
        """The expected frames."""
        d = self.decoder
        if self.output == "linear":
            return d.mean(latents)
        rows = latents.astype(d.standardise.shift.dtype).reshape(-1, latents.shape[-1])
        # without the network's say, the mean frame of the data
        usual = jnp.clip(jax.lax.stop_gradient(d.standardise.shift), 0.02, 0.98)
        usual = jnp.broadcast_to(jnp.log(usual) - jnp.log1p(-usual), d.frame_shape)
        return jax.nn.sigmoid(d.network(rows) + usual[None]).reshape(*latents.shape[:-1], *d.frame_shape)

    def log_likelihood(
        self,
        latents: Float[Array, "n t k"],
        frames: Shaped[Array, "n t *frame"],
        mask: Bool[Array, "n t"] | None = None,
    ) -> Float[Array, "n t"]:
        """log p(x_t | z_t), 0 where nothing was observed."""
        means = self.mean(latents)
        squared = ((frames.astype(means.dtype) - means) ** 2).reshape(*means.shape[:2], -1).sum(-1)
        pixels = prod(self.decoder.frame_shape)
        value = -0.5 * squared / self.noise**2 - 0.5 * pixels * (log(2 * pi) + 2 * log(self.noise))
        return value if mask is None else jnp.where(mask, value, jnp.zeros_like(value))


def make_emission(
    spec: Any,
    latent_dim: int,
    frame_shape: tuple[int, ...],
    *,
    key: PRNGKeyArray,
    noise: float,
    output: Output = "linear",
    shift: Any = 0.0,
    scale: Any = 1.0,
    dtype=jnp.float32,
) -> Emission:
    """The emission with the decoder that `spec` names: "linear", "conv-paper", or one that `make_decoder` knows."""
    given: dict[str, Any] = {"key": key, "shift": shift, "scale": scale, "dtype": dtype}
    if spec == "linear":
        decoder: Decoder = MLPDecoder(latent_dim, frame_shape, depth=0, **given)
    elif spec == "conv-paper":
        from .paper_decoder import PaperDecoder

        decoder = PaperDecoder(latent_dim, frame_shape, **given)
    else:
        decoder = make_decoder(spec, latent_dim, frame_shape, **given)
    return Emission(decoder, float(noise), output)


class Bound(eqx.Module):
    """The terms of the ELBO of each sequence."""

    reconstruction: Float[Array, " n"]
    kl: Float[Array, " n"]


class Marginals(eqx.Module):
    """Latents of a model that has no exact posterior: what `core.Posterior` is for one that has."""

    mean: Float[Array, "n t k"]
    cov: Float[Array, "n t k k"] | None
    log_z: None = None


def reconstruction(
    emissions: dict[str, Emission], latents: Float[Array, "n t k"], batch: Sequences
) -> Float[Array, " n"]:
    """log p(x | z) of each sequence, over all that was observed."""
    total = jnp.zeros(len(batch), latents.dtype)
    for name, emission in sorted(emissions.items()):
        m = batch.modalities[name]
        mask = None if m.mask is None else jnp.asarray(m.mask)
        total = total + emission.log_likelihood(latents, m.frames(), mask).sum(1)
    return total


def objective(
    model: Any, batch: Sequences, key: PRNGKeyArray, *, mask_size: int = 0, mask_mode: MaskMode = "window"
) -> tuple[Float[Array, ""], dict[str, Any]]:
    """Minus the ELBO per observed frame, and its terms. `model.bound(batch, key, hidden)` gives a `Bound`."""
    for_mask, for_sample = jax.random.split(key)
    bound = model.bound(batch, for_sample, draw_hidden(for_mask, batch, mask_size, mask_mode))
    count = jnp.maximum(jnp.asarray(batch.observed()), 1).astype(bound.kl.dtype)
    terms = {"reconstruction": bound.reconstruction, "kl": bound.kl}
    info: dict[str, Any] = {name: term.sum() / count for name, term in terms.items()}
    return info["kl"] - info["reconstruction"], info | {"per_sequence": terms}


def exists(batch: Sequences) -> Bool[Array, "n t"] | None:
    """Which frames are not padding; None if there is none."""
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
    """Expected divergence between Gaussians whose means differ by a Gaussian variable of this mean and covariance."""
    precision, log_p = spd_inverse(Q_p)
    total = Q_q if spread is None else Q_q + spread
    quadratic = jnp.sum(difference * mv(precision, difference), -1)
    trace = jnp.sum(precision * total, (-2, -1))
    return 0.5 * (quadratic + trace - difference.shape[-1] - spd_inverse(Q_q)[1] + log_p)
