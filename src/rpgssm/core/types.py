"""Chains, potentials, Gaussians and posteriors: immutable pytrees of arrays, batch first (batch, time, latent)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class StationaryChain(eqx.Module):
    """The canonical prior: z_1 ~ N(0, I), z_t | z_{t-1} ~ N(A z_{t-1}, I - AA'), so that every z_t ~ N(0, I).

    All singular values of A must be below 1; `project_singular_values` ensures it.
    """

    A: Float[Array, "k k"]

    @property
    def latent_dim(self) -> int:
        return self.A.shape[-1]


class GaussianChain(eqx.Module):
    """A general chain: z_1 ~ N(m1, Q1), z_{t+1} | z_t ~ N(A_t z_t + b_t, Q_t), for t = 1..T-1.

    A leading batch axis on *every* array gives each sequence its own chain (controls); without it all share one chain.
    Q1 and Q_t may be singular, and A_t unstable.
    """

    m1: Float[Array, "*batch k"]
    Q1: Float[Array, "*batch k k"]
    A: Float[Array, "*batch steps k k"]
    b: Float[Array, "*batch steps k"]
    Q: Float[Array, "*batch steps k k"]

    @property
    def latent_dim(self) -> int:
        return self.A.shape[-1]

    @property
    def batched(self) -> bool:
        return self.m1.ndim == 2

    @classmethod
    def time_invariant(
        cls,
        m1: Float[Array, " k"],
        Q1: Float[Array, "k k"],
        A: Float[Array, "k k"],
        b: Float[Array, " k"],
        Q: Float[Array, "k k"],
        length: int,
    ) -> "GaussianChain":
        """The chain of `length` frames with the same transition at all times."""

        def repeat(x):
            return jnp.broadcast_to(x, (length - 1, *x.shape))

        return cls(m1, Q1, repeat(A), repeat(b), repeat(Q))


Chain = StationaryChain | GaussianChain


class Precision(eqx.Module):
    """The precision Λ of recognition potentials; `shared` and `diagonal` state its structure.

    | shared | diagonal | shape of value       |
    |--------|----------|----------------------|
    | yes    | yes      | (latent,)            |
    | yes    | no       | (latent, latent)     |
    | no     | yes      | (batch, time, latent)         |
    | no     | no       | (batch, time, latent, latent) |
    """

    value: Float[Array, "..."]
    shared: bool = eqx.field(static=True)
    diagonal: bool = eqx.field(static=True)

    def dense(self) -> Float[Array, "*lead k k"]:
        """As matrices: (latent, latent) if shared, else (batch, time, latent, latent)."""
        if not self.diagonal:
            return self.value
        return self.value[..., None] * jnp.eye(self.value.shape[-1], dtype=self.value.dtype)


class Potentials(eqx.Module):
    """Recognition potentials fΔ(z_t | x_t) = exp(-½ z'Λz + h'z) of one modality for a batch of sequences.

    `mask` is True where there is an observation; elsewhere h and Λ are ignored, even NaN. None: all observed.
    """

    h: Float[Array, "batch time k"]
    precision: Precision
    mask: Bool[Array, "batch time"] | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        batch, time, k = self.h.shape
        return batch, time, k

    def masked_h(self) -> Float[Array, "batch time k"]:
        return self.h if self.mask is None else jnp.where(self.mask[..., None], self.h, 0)

    def masked_precision(self) -> Float[Array, "batch time k k"]:
        """Precision matrices frame by frame, zero where masked."""
        L = self.precision.dense()
        if self.mask is None:
            return jnp.broadcast_to(L, (*self.h.shape[:2], *L.shape[-2:]))
        return jnp.where(self.mask[..., None, None], L, 0)


class Natural(eqx.Module):
    """Gaussians in natural parameters, exp(-½ z'Λz + h'z) up to a constant."""

    h: Float[Array, "*lead k"]
    precision: Float[Array, "*plead k k"]


class Moments(eqx.Module):
    """Gaussians by mean and covariance."""

    mean: Float[Array, "*lead k"]
    cov: Float[Array, "*clead k k"]


class Posterior(eqx.Module):
    """Marginals of z_t given the frames, and the log-normaliser of each sequence.

    Covariances shared by all sequences (shared precision, no masks) have a batch axis of length 1. `cross[:, t]` is
    Cov(z_t, z_{t+1}), on request.
    """

    log_z: Float[Array, " batch"]
    mean: Float[Array, "batch time k"]
    cov: Float[Array, "cbatch time k k"]
    cross: Float[Array, "cbatch steps k k"] | None = None


def as_potentials(potentials: "Potentials | tuple[Potentials, ...]") -> tuple[Potentials, ...]:
    """A tuple of the potentials of all modalities."""
    return potentials if isinstance(potentials, tuple) else (potentials,)


def standard_normal(k: int, dtype) -> Natural:
    return Natural(jnp.zeros((k,), dtype), jnp.eye(k, dtype=dtype))
