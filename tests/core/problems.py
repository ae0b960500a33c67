"""Random chains, potentials and directions for the tests of the inference core, and small helpers to run them."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rpgssm.core.free_energy import free_energy
from rpgssm.core.types import GaussianChain, Potentials, Precision, StationaryChain

from . import oracles

CHAINS = ("stationary", "general", "batched")
PRECISIONS = ("shared diagonal", "shared full", "dependent diagonal", "dependent full")

# ---------------------------------------------------------------------------------------------------------------------
# random problems


class Problem(NamedTuple):
    """A chain and the potentials of its modalities: what `smooth`, `filter` and `free_energy` take."""

    chain: StationaryChain | GaussianChain
    potentials: tuple[Potentials, ...]


def spd(rng, *shape: int, low: float = 0.2, high: float = 5.0, rank: int | None = None) -> np.ndarray:
    """Random symmetric matrices of the given shape with log-uniform eigenvalues, all but `rank` of them zero."""
    U = np.linalg.qr(rng.standard_normal(shape))[0]
    eigenvalues = np.exp(rng.uniform(np.log(low), np.log(high), shape[:-1]))
    if rank is not None:
        eigenvalues[..., rank:] = 0
    M = np.einsum("...ij,...j,...kj->...ik", U, eigenvalues, U)
    return (M + np.swapaxes(M, -1, -2)) / 2


def contraction(rng, k: int, low: float = 0.3, high: float = 0.95) -> np.ndarray:
    """A = U diag(s) V' with singular values between low and high."""
    U, V = np.linalg.qr(rng.standard_normal((2, k, k)))[0]
    return U * rng.uniform(low, high, k) @ V.T


def random_chain(rng, kind: str, batch: int, time: int, k: int):
    """A chain of one of the CHAINS, or "singular": a general one whose covariances all lack one rank."""
    if kind == "stationary":
        return StationaryChain(jnp.asarray(contraction(rng, k)))
    lead = (batch,) if kind == "batched" else ()
    steps = (*lead, time - 1)
    rank = k - 1 if kind == "singular" else None
    arrays = (
        rng.standard_normal((*lead, k)),
        spd(rng, *lead, k, k, rank=rank),
        rng.standard_normal((*steps, k, k)) * 0.7 / np.sqrt(k),
        rng.standard_normal((*steps, k)),
        spd(rng, *steps, k, k, rank=rank),
    )
    return GaussianChain(*map(jnp.asarray, arrays))


def random_mask(rng, batch: int, time: int) -> np.ndarray:
    """Two frames of three observed; nothing of the first sequence, and nothing at the middle frame if T > 2."""
    mask = rng.random((batch, time)) < 2 / 3
    mask[1, 0] = True
    mask[0] = False
    if time > 2:
        mask[:, time // 2] = False
    return mask


def random_potentials(rng, kind: str, masked: bool, batch: int, time: int, k: int) -> Potentials:
    """Potentials of one of the PRECISIONS."""
    shared, diagonal = kind.startswith("shared"), kind.endswith("diagonal")
    Λ = spd(rng, k, k) if shared else spd(rng, batch, time, k, k)
    value = np.diagonal(Λ, axis1=-2, axis2=-1).copy() if diagonal else Λ
    h = jnp.asarray(2 * rng.standard_normal((batch, time, k)))
    mask = jnp.asarray(random_mask(rng, batch, time)) if masked else None
    return Potentials(h, Precision(jnp.asarray(value), shared, diagonal), mask)


def random_problem(
    seed: int,
    chain: str = "stationary",
    *precisions: str,
    masked: bool | tuple[bool, ...] = False,
    batch: int = 4,
    time: int = 5,
    latent: int = 3,
    dtype=jnp.float64,
) -> Problem:
    """A problem with one modality for each kind of precision named."""
    rng = np.random.default_rng(seed)
    masked = masked if isinstance(masked, tuple) else (masked,) * len(precisions)
    c = random_chain(rng, chain, batch, time, latent)
    modalities = zip(precisions, masked, strict=True)
    return as_dtype(
        Problem(c, tuple(random_potentials(rng, kind, m, batch, time, latent) for kind, m in modalities)), dtype
    )


def as_dtype(tree, dtype):
    """The tree with all its floating-point arrays in one dtype."""
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree)


# ---------------------------------------------------------------------------------------------------------------------
# directions in the space of problems


def symmetric(tree: Problem) -> Problem:
    """The part of a gradient or direction that means something: matrices that must be symmetric are symmetrised."""

    def sym(x):
        return (x + np.swapaxes(x, -1, -2)) / 2

    chain, potentials = tree
    if isinstance(chain, GaussianChain):
        chain = eqx.tree_at(lambda c: (c.Q1, c.Q), chain, (sym(chain.Q1), sym(chain.Q)))
    potentials = tuple(
        p if p.precision.diagonal else eqx.tree_at(lambda p: p.precision.value, p, sym(p.precision.value))
        for p in potentials
    )
    return Problem(chain, potentials)


def random_direction(rng, problem: Problem) -> Problem:
    """Small enough that steps along it leave everything positive definite."""
    floats = eqx.filter(jax.tree.map(np.asarray, problem), lambda x: np.issubdtype(x.dtype, np.floating))
    return symmetric(jax.tree.map(lambda x: 0.3 * rng.standard_normal(x.shape), floats))


def moved(problem: Problem, direction: Problem, step: float) -> Problem:
    """The problem a step further, in NumPy."""
    move = lambda d, x: x if d is None else np.asarray(x, np.float64) + step * d  # noqa: E731
    return jax.tree.map(move, direction, problem, is_leaf=lambda x: x is None)


def inner(gradient: Problem, direction: Problem) -> float:
    products = jax.tree.map(lambda g, d: np.sum(np.asarray(g, np.float64) * d), gradient, direction)
    return sum(jax.tree.leaves(products))


# ---------------------------------------------------------------------------------------------------------------------
# running


@functools.cache
def quick_options() -> dict[str, Any]:
    """What makes XLA compile for the CPU four times faster, into slower code; nothing if this XLA does not know it."""
    options = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(lambda x: x, compiler_options=options)(0.0)
    except jax.errors.JaxRuntimeError:
        return {}
    return options


def quick_jit(f: Callable) -> Callable:
    """`jax.jit` that compiles quickly rather than well, for programs that run once."""
    return jax.jit(f, compiler_options=quick_options())


@functools.cache
def compiled_value_and_gradient(f: Callable) -> Callable:
    """Of f(problem, *others) -> (value, aux) with respect to the problem, as a function of its two parts and others."""

    def split(floats, rest, *others):
        return f(eqx.combine(floats, rest), *others)

    return quick_jit(jax.value_and_grad(split, has_aux=True))


def value_and_gradient(f: Callable, problem: Problem, *others) -> tuple[Any, Problem, Any]:
    """(value, gradient, aux) of f(problem, *others) -> (value, aux), compiled once for each f and shape."""
    (value, aux), gradient = compiled_value_and_gradient(f)(*eqx.partition(problem, eqx.is_inexact_array), *others)
    return jax.tree.map(np.asarray, (value, gradient, aux))


@functools.cache
def loss_function(**options) -> Callable:
    """`free_energy` with these options, as a function of problem and reference: the loss, and the oracle's record."""

    def loss(problem, reference):
        value, info = free_energy(*problem, reference=reference, **options)
        return value, oracles.Terms(*(getattr(info, name) for name in oracles.Terms._fields))

    return loss


def evaluate(problem: Problem, reference=None, **options) -> tuple[Any, Problem, oracles.Terms]:
    """Loss, gradient and terms of the free energy."""
    return value_and_gradient(loss_function(**options), problem, reference)


def assert_trees_close(actual, expected, rtol: float, what: str = "") -> None:
    """Each array within rtol of the largest entry of its counterpart."""
    pairs = zip(jax.tree.leaves_with_path(actual), jax.tree.leaves(expected), strict=True)
    for (path, a), e in pairs:
        assert np.all(np.isfinite(a)), f"{what} {jax.tree_util.keystr(path)}: not finite"
        scale = max(1.0, np.max(np.abs(e), initial=0.0))
        np.testing.assert_allclose(a, e, rtol=0, atol=rtol * scale, err_msg=f"{what} {jax.tree_util.keystr(path)}")
