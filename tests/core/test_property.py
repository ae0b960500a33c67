"""Robustness in float32: whatever the chain and the potentials, nothing overflows and every covariance is one.

Chains come close to singular (singular values of A up to 1 - 1e-3, normal and non-normal), precisions span twelve
orders of magnitude from frame to frame and from direction to direction, frames and whole sequences are missing. All
results and all gradients must be finite, and covariances symmetric and positive definite.
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


def random_potentials(rng, batch: int, time: int, k: int, shared: bool, decades: float):
    """Log-uniform precisions of so many decades each way, isotropic, diagonal or rotated; h = Λz + noise of cov. Λ."""
    kind = rng.integers(3)
    lead = () if shared else (batch, time)
    eigenvalues = 10 ** rng.uniform(-decades, decades, (*lead, 1 if kind == 0 else k)) * np.ones(k)
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


def random_settings(seed: int, settings: int, batch: int, time: int, k: int, shared: bool, decades: float = 6):
    """(A, h, Λ, mask), with an axis of settings in front of each."""
    rng = np.random.default_rng(seed)
    draws = []
    for _ in range(settings):
        A = random_transition(rng, k)
        draws.append((A, *random_potentials(rng, batch, time, k, shared, decades), random_mask(rng, batch, time)))
    A, h, Λ, mask = (np.stack(x) for x in zip(*draws, strict=True))
    return (*(jnp.asarray(x, jnp.float32) for x in (A, h, Λ)), jnp.asarray(mask))


# ---------------------------------------------------------------------------------------------------------------------
# what is computed and checked

KINDS = {  # (general chain, shared precision, masked)
    "shared": (False, True, False),
    "shared, masked": (False, True, True),
    "dependent": (False, False, True),
    "general, shared": (True, True, False),
    "general, dependent": (True, False, True),
}


def pack(kind: str, A, h, Λ, mask):
    """Chain and potentials of one setting. The general chain is the stationary one in disguise."""
    general, shared, masked = KINDS[kind]
    chain = StationaryChain(A)
    if general:
        k = len(A)
        I, zero = jnp.eye(k, dtype=A.dtype), jnp.zeros(k, A.dtype)
        chain = GaussianChain.time_invariant(zero, I, A, zero, I - A @ A.T, h.shape[1])
    return chain, Potentials(h, Precision(Λ, shared, False), mask if masked else None)


def everything(A, h, Λ, mask, *, kind: str, method: str):
    """Posteriors, free energy and the gradients of both for one setting."""

    def functional(*x):
        s = smooth(*pack(kind, *x, mask), cross=True, method=method)
        return sum(jnp.sum(y) for y in jax.tree.leaves(s)), s

    def loss(*x):
        return free_energy(*pack(kind, *x, mask), method=method)

    return {
        "filter": filter(*pack(kind, A, h, Λ, mask), method=method),
        "smooth": jax.value_and_grad(functional, argnums=(0, 1, 2), has_aux=True)(A, h, Λ),
        "free energy": jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)(A, h, Λ),
    }


def assert_sound(results) -> None:
    """Everything finite; covariances symmetric, positive definite, and not larger than the prior's."""
    for path, x in jax.tree.leaves_with_path(results):
        bad = ~np.isfinite(x)
        assert not bad.any(), f"{jax.tree_util.keystr(path)} is not finite, first at {np.argwhere(bad)[0]}"
    for name, cov in (("smooth", results["smooth"][0][1].cov), ("filter", results["filter"].cov)):
        np.testing.assert_array_equal(cov, np.swapaxes(cov, -1, -2), err_msg=f"{name}: not symmetric")
        eigenvalues = np.linalg.eigvalsh(cov.astype(np.float64))
        assert np.all(eigenvalues > 0), f"{name}: {eigenvalues.min()} at {np.argwhere(eigenvalues <= 0)[0]}"
        # the prior is N(0, I), and rounding alone makes eigenvalues of Λ as low as about -0.1
        assert np.all(eigenvalues < 2), f"{name}: {eigenvalues.max()} at {np.argwhere(eigenvalues >= 2)[0]}"


def check(kind: str, method: str, latent: int, time: int, seed: int = 0, jit=quick_jit) -> None:
    shared = KINDS[kind][1]
    batch = 32 if kind == "shared" else 8
    settings = max(4, min(128, 40_000 // (time * latent**2)))
    if time > 1000:
        settings, batch = 2, 2
    arguments = random_settings(seed, settings, batch, time, latent, shared)
    run = jit(jax.vmap(partial(everything, kind=kind, method=method)))
    assert_sound(jax.tree.map(np.asarray, run(*arguments)))


# ---------------------------------------------------------------------------------------------------------------------
# tests

CASES = [  # the others are for the slow run
    ("shared", "sequential", 3, 100),
    ("shared, masked", "sequential", 32, 2),
    ("dependent", "parallel", 2, 7),
    ("dependent", "sequential", 4, 1000),
]
SHAPES = [
    (1, 1),
    (8, 1),
    (1, 30),
    (2, 2),
    (2, 100),
    (3, 7),
    (3, 1000),
    (4, 10_000),
    (5, 7),
    (5, 30),
    (8, 7),
    (8, 100),
    (16, 30),
    (32, 2),
    (32, 30),
]
MORE = [(kind, method, *shape) for kind in KINDS for method in ("sequential", "parallel") for shape in SHAPES]


@pytest.mark.parametrize(("kind", "method", "latent", "time"), CASES)
def test_sound(kind, method, latent, time):
    check(kind, method, latent, time)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "method", "latent", "time"), MORE)
def test_sound_everywhere(kind, method, latent, time):
    check(kind, method, latent, time, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_sound_with_optimising_compiler(kind):
    check(kind, "sequential", 5, 30, seed=2, jit=jax.jit)


@pytest.mark.parametrize("kind", ["shared", "dependent", "general, dependent"])
def test_accurate(kind):
    """Float32 finds the means of float64 to within a fraction of the prior's standard deviation.

    Not better: rounding a rotated Λ of norm 1e6 to float32 adds information of order 0.1 in all directions. The general
    chain goes through moments on its way forward, where rounding costs ten times more: it can do with Λ up to 1e5.
    """
    general, shared, _ = KINDS[kind]
    A, h, Λ, mask = random_settings(3, 64, 8, 30, 4, shared, decades=5 if general else 6)
    run = quick_jit(jax.vmap(lambda *x: smooth(*pack(kind, *x))))
    single = run(A, h, Λ, mask)
    double = run(*(x.astype(jnp.float64) for x in (A, h, Λ)), mask)
    error = np.max(np.abs(np.asarray(single.mean) - np.asarray(double.mean)), (1, 2, 3))
    assert np.all(error < 0.5), f"setting {error.argmax()} is wrong by {error.max()}"


@pytest.mark.parametrize("kind", KINDS)
def test_accurate_for_moderate_precisions(kind):
    """With precisions from 1e-4 to 1e4 float32 is good for two digits of means and covariances (prior N(0, I))."""
    A, h, Λ, mask = random_settings(3, 64, 8, 30, 4, KINDS[kind][1], decades=4)
    run = quick_jit(jax.vmap(lambda *x: smooth(*pack(kind, *x))))
    single = run(A, h, Λ, mask)
    double = run(*(x.astype(jnp.float64) for x in (A, h, Λ)), mask)
    for name, tolerance in (("mean", 0.05), ("cov", 0.01)):
        error = np.abs(np.asarray(getattr(single, name)) - np.asarray(getattr(double, name))).reshape(64, -1).max(1)
        assert np.all(error < tolerance), f"{name} of setting {error.argmax()} is wrong by {error.max()}"
