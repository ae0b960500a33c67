"""Every path of the smoother and the filter against the dense joint Gaussian, in value and gradient.

The dense oracle is the same for all paths of a problem, so each path is also compared with every other.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.core.smoother import filter, smooth

from . import oracles
from .problems import (
    CHAINS,
    Problem,
    assert_trees_close,
    inner,
    moved,
    random_direction,
    random_problem,
    symmetric,
    value_and_gradient,
)

# What the modalities of a problem are like: kinds of precision, and which of them are masked.
STRUCTURES = {
    "shared": (("shared full",), False),
    "shared diagonal, masked": (("shared diagonal",), True),
    "shared, masked": (("shared full",), True),
    "dependent diagonal": (("dependent diagonal",), False),
    "dependent, masked": (("dependent full",), True),
    "two shared": (("shared diagonal", "shared full"), False),
    "three mixed": (("shared full", "dependent diagonal", "dependent full"), (True, False, True)),
}


def paths(chain: str, structure: str, thorough: bool = False):
    """(method, covariance) of the distinct ways to run a problem; all of them if thorough."""
    ways = [("sequential", "auto"), ("parallel", "auto")]
    if chain != "batched" and structure in ("shared", "two shared"):  # else "auto" is "general"
        ways += [("sequential", "general")]
        ways += [("parallel", "general")] * thorough
    return ways


def results(problem: Problem, method, covariance) -> tuple[jax.Array, oracles.Smoothed]:
    """log Z of the filter, and all else that `smooth` and `filter` return, with a full batch axis on covariances."""
    batch = len(problem.potentials[0].h)
    s = smooth(*problem, cross=True, method=method, covariance=covariance)
    f = filter(*problem, method=method, covariance=covariance)
    full = lambda x: jnp.broadcast_to(x, (batch, *x.shape[1:]))  # noqa: E731
    return f.log_z, oracles.Smoothed(s.log_z, s.mean, full(s.cov), full(s.cross), f.mean, full(f.cov))


def random_weights(rng, problem: Problem) -> oracles.Smoothed:
    """Weights of a linear functional of all results; those of the covariances are symmetric."""
    batch, time, k = problem.potentials[0].h.shape
    weights = (rng.standard_normal((batch, time, k, k)) for _ in range(2))
    cov, filtered_cov = ((w + np.swapaxes(w, -1, -2)) / 2 for w in weights)
    vectors = rng.standard_normal((2, batch, time, k))
    cross = rng.standard_normal((batch, time - 1, k, k))
    return oracles.Smoothed(rng.standard_normal(batch), vectors[0], cov, cross, vectors[1], filtered_cov)


def check(problem: Problem, runs, rtol: float, slope_rtol: float, rng) -> None:
    """All runs (method, covariance) of one problem: values, gradients along random directions, and whole gradients."""
    dtype = problem.potentials[0].h.dtype
    expected = oracles.smoothed(*problem)
    weights = random_weights(rng, problem)

    def functional(result):
        return sum(np.sum(w * np.asarray(r)) for w, r in zip(weights, result, strict=True))

    directions = [random_direction(rng, problem) for _ in range(2)]
    slopes = [oracles.slope(lambda e, d=d: functional(oracles.smoothed(*moved(problem, d, e)))) for d in directions]
    first = None
    for way in runs:

        def loss(problem, way=way):
            log_z, result = results(problem, *way)
            terms = (jnp.sum(jnp.asarray(w, dtype) * r) for w, r in zip(weights, result, strict=True))
            return sum(terms), (log_z, result)

        _, gradient, (filter_log_z, result) = value_and_gradient(loss, problem)
        assert_trees_close(result, expected, rtol, str(way))
        assert_trees_close(filter_log_z, expected.log_z, rtol, f"{way} log Z of the filter")
        gradient = symmetric(gradient)
        first = gradient if first is None else first
        assert_trees_close(gradient, first, 10 * rtol, f"{way} gradient")
        for direction, slope in zip(directions, slopes, strict=True):
            sizes = inner(*(jax.tree.map(np.abs, x) for x in (gradient, direction)))  # before cancellation
            np.testing.assert_allclose(
                inner(gradient, direction), slope, rtol=0, atol=slope_rtol * sizes, err_msg=str(way)
            )


def run(chain: str, structure: str, time: int, latent: int, thorough: bool = False) -> None:
    precisions, masked = STRUCTURES[structure]
    problem = random_problem(1, chain, *precisions, masked=masked, time=time, latent=latent)
    check(problem, paths(chain, structure, thorough), 1e-9, 1e-8, np.random.default_rng(2))


# One of each chain, and no structure twice. All combinations, other lengths and dimensions are for the slow run.
CASES = [
    ("stationary", "shared", 6, 3),
    ("general", "dependent, masked", 6, 3),
    ("batched", "three mixed", 1, 1),
    ("singular", "shared, masked", 3, 3),
]
EVERYTHING = set(itertools.product((*CHAINS, "singular"), STRUCTURES, (1, 2, 13), (1, 3, 5)))


@pytest.mark.parametrize(("chain", "structure", "time", "latent"), CASES)
def test_against_dense_joint(chain, structure, time, latent):
    run(chain, structure, time, latent)


@pytest.mark.slow
@pytest.mark.parametrize(("chain", "structure", "time", "latent"), sorted(EVERYTHING))
def test_against_dense_joint_everywhere(chain, structure, time, latent):
    run(chain, structure, time, latent, thorough=True)


@pytest.mark.parametrize(
    ("chain", "structure"),
    [
        ("stationary", "shared"),
        pytest.param("batched", "three mixed", marks=pytest.mark.slow),
    ],
)
def test_float32(chain, structure):
    precisions, masked = STRUCTURES[structure]
    problem = random_problem(3, chain, *precisions, masked=masked, time=5, latent=3, dtype=jnp.float32)
    check(problem, paths(chain, structure)[:2], 2e-5, 2e-4, np.random.default_rng(4))


def test_chain_of_the_wrong_length():
    _, potentials = random_problem(5, "general", "shared full", time=5)
    shorter, _ = random_problem(5, "general", "shared full", time=4)
    with pytest.raises(ValueError, match="3 transitions but 5 frames need 4"):
        smooth(shorter, potentials)


def test_shared_covariances_cannot_be_forced():
    problem = random_problem(6, "stationary", "dependent full")
    with pytest.raises(ValueError, match="covariance='shared' needs precisions that are the same"):
        smooth(*problem, covariance="shared")
