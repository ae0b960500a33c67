"""Robustness in float32: whatever the chain and the potentials, nothing overflows and every covariance is one.

Chains come close to singular (singular values of A up to 1 - 1e-3, normal and non-normal), precisions span twelve orders
of magnitude from frame to frame and from direction to direction, frames and whole sequences are missing. All results and
all gradients must be finite, and covariances symmetric and positive definite.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.core.free_energy import free_energy
from rpgssm.core.smoother import filter, smooth
from rpgssm.core.types import GaussianChain, Potentials, Precision, StationaryChain

from .problems import quick_jit

LARGEST = 1 - 1e-3  # singular value of A

# ---------------------------------------------------------------------------------------------------------------------
# random settings


def orthogonal(rng, *shape):
    return np.linalg.qr(rng.standard_normal(shape))[0]


def random_transition(rng, k: int) -> np.ndarray:
    """Non-normal or normal, with singular values anywhere, all but one, or all at the limit."""
    kind = rng.integers(4)
    s = 1 - 10 ** rng.uniform(-3, 0, k)
    if kind == 0:  # rotation and shrinking
        return orthogonal(rng, k, k) * LARGEST
    if kind == 1:  # some directions forget at once, others never
        s = np.where(rng.random(k) < 0.5, LARGEST, 10 ** rng.uniform(-8, 0, k) * LARGEST)
    U = orthogonal(rng, k, k)
    V = U if kind == 2 else orthogonal(rng, k, k)
    return U * np.minimum(s, LARGEST) @ V.T


def random_potentials(rng, batch: int, time: int, k: int, shared: bool):
    """Precisions log-uniform in 1e-6 .. 1e6 (isotropic, diagonal or rotated) and h = Λz + noise of covariance Λ."""
    kind = rng.integers(3)
    lead = () if shared else (batch, time)
    eigenvalues = 10 ** rng.uniform(-6, 6, (*lead, 1 if kind == 0 else k)) * np.ones(k)
    U = orthogonal(rng, *lead, k, k) if kind == 2 else np.broadcast_to(np.eye(k), (*lead, k, k))
    Λ = (U * eigenvalues[..., None, :]) @ np.swapaxes(U, -1, -2)
    z, noise = rng.standard_normal((2, batch, time, k))
    h = np.einsum("...ij,...j->...i", Λ, z) + np.einsum("...ij,...j->...i", U, np.sqrt(eigenvalues) * noise)
    return h, (Λ + np.swapaxes(Λ, -1, -2)) / 2


def random_mask(rng, batch: int, time: int) -> np.ndarray:
    """Any fraction observed; nothing at all of the first sequence."""
    mask = rng.random((batch, time)) < rng.choice([0.05, 0.5, 0.95, 1.0])
    mask[0] = False
    return mask


def random_settings(seed: int, settings: int, batch: int, time: int, k: int, shared: bool):
    """(A, h, Λ, mask), with an axis of settings in front of each."""
    rng = np.random.default_rng(seed)
    draws = []
    for _ in range(settings):
        A = random_transition(rng, k)
        draws.append((A, *random_potentials(rng, batch, time, k, shared), random_mask(rng, batch, time)))
    A, h, Λ, mask = (np.stack(x) for x in zip(*draws, strict=True))
    return (*(jnp.asarray(x, jnp.float32) for x in (A, h, Λ)), jnp.asarray(mask))


# ---------------------------------------------------------------------------------------------------------------------
# what is computed and checked


def everything(A, h, Λ, mask, *, shared: bool, masked: bool, general: bool, method: str):
    """Posteriors, free energy and the gradients of both for one setting."""
    time, k = h.shape[1:]

    def pack(A, h, Λ):
        chain = StationaryChain(A)
        if general:
            I, zero = jnp.eye(k, dtype=A.dtype), jnp.zeros(k, A.dtype)
            chain = GaussianChain.time_invariant(zero, I, A, zero, I - A @ A.T, time)
        return chain, Potentials(h, Precision(Λ, shared, False), mask if masked else None)

    def functional(*x):
        s = smooth(*pack(*x), cross=True, method=method)
        return sum(jnp.sum(y) for y in jax.tree.leaves(s)), s

    def loss(*x):
        return free_energy(*pack(*x), method=method)

    posterior = jax.value_and_grad(functional, argnums=(0, 1, 2), has_aux=True)(A, h, Λ)
    causal = filter(*pack(A, h, Λ), method=method)
    return {"smooth": posterior, "filter": causal, "free energy": jax.value_and_grad(loss, (0, 1, 2), True)(A, h, Λ)}


def check(results) -> None:
    for path, x in jax.tree.leaves_with_path(results):
        bad = ~np.isfinite(x)
        assert not bad.any(), f"{jax.tree_util.keystr(path)} is not finite, first at {np.argwhere(bad)[0]}"
    for name, cov in (("smooth", results["smooth"][0][1].cov), ("filter", results["filter"].cov)):
        np.testing.assert_array_equal(cov, np.swapaxes(cov, -1, -2), err_msg=f"{name}: not symmetric")
        smallest = np.linalg.eigvalsh(cov.astype(np.float64))[..., 0]
        assert np.all(smallest > 0), f"{name}: eigenvalue {smallest.min()} at {np.argwhere(smallest <= 0)[0]}"
