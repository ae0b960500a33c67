"""The free energy against its definition written out in loops, and against its textbook form: values and gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.core.free_energy import free_energy
from rpgssm.core.types import Natural, Potentials, Precision, StationaryChain

from . import oracles
from .problems import (
    assert_trees_close,
    evaluate,
    inner,
    moved,
    quick_jit,
    random_direction,
    random_problem,
    spd,
    symmetric,
    value_and_gradient,
)

SEQUENTIAL, PARALLEL = {"method": "sequential"}, {"method": "parallel"}
GENERAL = {"method": "sequential", "covariance": "general"}
slow = partial(pytest.param, marks=pytest.mark.slow)
# chain, precisions of the modalities, which are masked, time, latent, ways to run
CASES = [
    ("stationary", ("shared diagonal",), False, 5, 3, (SEQUENTIAL, PARALLEL)),
    slow("stationary", ("shared full", "shared diagonal"), False, 2, 2, (SEQUENTIAL, GENERAL)),
    ("stationary", ("shared full",), True, 5, 3, (SEQUENTIAL, PARALLEL)),
    ("stationary", ("dependent full",), True, 5, 3, (SEQUENTIAL, PARALLEL)),
    ("stationary", ("shared full", "dependent diagonal", "shared full"), (True, False, False), 5, 2, (SEQUENTIAL,)),
    ("stationary", ("dependent full",), False, 1, 3, (SEQUENTIAL,)),
    ("general", ("shared full",), False, 5, 2, (PARALLEL,)),
    slow("general", ("dependent full",), True, 2, 3, (SEQUENTIAL,)),
    slow("batched", ("shared diagonal",), False, 5, 3, (SEQUENTIAL,)),
    ("batched", ("dependent diagonal", "shared full"), (False, True), 5, 2, (SEQUENTIAL, PARALLEL)),
]


def check_slopes(gradient, problem, loss, rng, rtol=1e-8):
    """A gradient against differences of an oracle's loss along two random directions."""
    for _ in range(2):
        direction = random_direction(rng, problem)
        slope = oracles.slope(lambda e, d=direction: loss(moved(problem, d, e)))
        size = inner(*(jax.tree.map(np.abs, x) for x in (symmetric(gradient), direction)))  # before cancellation
        np.testing.assert_allclose(inner(gradient, direction), slope, rtol=0, atol=rtol * size)


@pytest.mark.parametrize(("chain", "precisions", "masked", "time", "latent", "runs"), CASES)
def test_against_definition(chain, precisions, masked, time, latent, runs):
    problem = random_problem(3, chain, *precisions, masked=masked, time=time, latent=latent)
    expected = oracles.free_energy(*problem)
    gradients = []
    for options in runs:
        loss, gradient, info = evaluate(problem, **options)
        np.testing.assert_allclose(loss, expected.loss, rtol=1e-10, err_msg=str(options))
        assert_trees_close(info, expected, 1e-10, str(options))
        gradients.append(symmetric(gradient))
        assert_trees_close(gradients[-1], gradients[0], 1e-9, str(options))
    loss = lambda problem: oracles.free_energy(*problem).loss  # noqa: E731
    check_slopes(gradients[0], problem, loss, np.random.default_rng(4))


@pytest.mark.parametrize(("chain", "timed"), [("stationary", False), ("batched", True)])
def test_reference_of_ones_own(chain, timed):
    rng = np.random.default_rng(5)
    problem = random_problem(5, chain, "shared full", "dependent full", masked=(False, True), time=3, latent=2)
    lead = (3,) if timed else ()
    p = Natural(jnp.asarray(rng.standard_normal((*lead, 2))), jnp.asarray(spd(rng, *lead, 2, 2)))
    _, gradient, info = evaluate(problem, p)
    assert_trees_close(info, oracles.free_energy(*problem, p), 1e-10)
    check_slopes(gradient, problem, lambda problem: oracles.free_energy(*problem, p).loss, rng)


@pytest.mark.parametrize("precision", ["shared full", "dependent full"])
def test_textbook_form(precision):
    chain, (potentials,) = problem = random_problem(6, "stationary", precision, time=4)
    expected = oracles.textbook_free_energy(chain, potentials)
    loss, info = quick_jit(lambda p: free_energy(*p))(problem)
    np.testing.assert_allclose(info.free_energy, expected, rtol=1e-10)
    np.testing.assert_allclose(loss, -np.mean(expected) / 4, rtol=1e-10)


@pytest.mark.parametrize(("chain", "precision"), [("stationary", "shared diagonal"), ("general", "dependent full")])
def test_gradient_with_posterior_held_fixed(chain, precision):
    problem = random_problem(7, chain, precision, masked=chain == "general", time=3, latent=2)
    fixed = oracles.smoothed(*problem)
    value, full, _ = evaluate(problem)
    same, em, _ = evaluate(problem, posterior_gradient=False)
    np.testing.assert_allclose(same, value, rtol=1e-13)
    loss = lambda problem: oracles.free_energy(*problem, marginals=fixed).loss  # noqa: E731
    check_slopes(em, problem, loss, np.random.default_rng(8))
    for a, b in zip(jax.tree.leaves(full), jax.tree.leaves(em), strict=True):
        assert np.max(np.abs(a - b)) > 1e-3 * np.max(np.abs(a))


@pytest.mark.parametrize("posterior_gradient", [True, False])
def test_gradient_of_log_z(posterior_gradient):
    """It is the same either way."""
    problem = random_problem(7, "stationary", "shared full", time=3, latent=2)

    def log_z(problem):
        return jnp.sum(free_energy(*problem, posterior_gradient=posterior_gradient)[1].log_z), None

    _, gradient, _ = value_and_gradient(log_z, problem)
    check_slopes(gradient, problem, lambda p: np.sum(oracles.smoothed(*p).log_z), np.random.default_rng(8))


@pytest.mark.parametrize(("chain", "precision"), [("stationary", "shared full"), ("batched", "dependent diagonal")])
def test_float32(chain, precision):
    problem = random_problem(9, chain, precision, masked=True, dtype=jnp.float32)
    loss, gradient, info = evaluate(problem)
    assert all(x.dtype == np.float32 for x in jax.tree.leaves((loss, gradient, info)))
    assert_trees_close(info, oracles.free_energy(*problem), 1e-5)
    check_slopes(gradient, problem, lambda problem: oracles.free_energy(*problem).loss, np.random.default_rng(9), 1e-4)


@pytest.mark.parametrize(
    ("chain", "precisions", "masked", "latent"),
    [
        ("stationary", ("shared full",), False, 3),
        ("stationary", ("shared full", "dependent diagonal"), (True, False), 2),
        ("batched", ("dependent full",), True, 2),
    ],
)
@pytest.mark.parametrize("batch", [3, pytest.param(9, marks=pytest.mark.slow)])  # matrices as rows; side by side
def test_members_at_other_times(chain, precisions, masked, latent, batch):
    problem = random_problem(11, chain, *precisions, masked=masked, batch=batch, time=4, latent=latent)
    _, gradient, info = evaluate(problem, offsets=(0, 3, 1))
    expected = oracles.free_energy(*problem, offsets=(0, 3, 1))
    assert_trees_close(info, expected, 1e-10)
    if batch == 3:
        loss = lambda problem: oracles.free_energy(*problem, offsets=(0, 3, 1)).loss  # noqa: E731
        check_slopes(gradient, problem, loss, np.random.default_rng(12))


@pytest.mark.parametrize(
    ("chain", "precisions", "masked", "batch"),
    [
        ("stationary", ("shared full",), False, 3),
        ("stationary", ("shared full", "shared diagonal"), (True, False), 9),
        ("batched", ("shared full",), True, 3),
    ],
)
def test_gaussian_marginal(chain, precisions, masked, batch):
    problem = random_problem(13, chain, *precisions, masked=masked, batch=batch, time=4, latent=2)
    _, gradient, info = evaluate(problem, marginal="gaussian")
    expected = oracles.gaussian_free_energy(*problem)
    np.testing.assert_allclose(info.free_energy, expected, rtol=1e-10)
    total = info.log_z + np.sum(info.posterior - info.recognition - info.mixture, 0)
    np.testing.assert_allclose(total, expected, rtol=1e-10)
    loss = lambda p: -np.sum(oracles.gaussian_free_energy(*p)) / info.observed  # noqa: E731
    check_slopes(gradient, problem, loss, np.random.default_rng(14), 1e-7)


def test_gaussian_marginal_is_the_limit_of_many_sequences():
    """Of a linear Gaussian world: at the true parameters the mixture tends to the Gaussian, and both to the prior."""
    rng, (time, k) = np.random.default_rng(15), (6, 2)
    A, Λ = 0.8 * np.eye(k), np.diag([4.0, 2.0])
    gaps = []
    for batch in (20, 400):
        z = [rng.standard_normal((batch, k))]
        for _ in range(time - 1):
            z.append(z[-1] @ A.T + rng.standard_normal((batch, k)) @ np.sqrt(np.eye(k) - A @ A.T))
        z = np.stack(z, 1)
        h = z @ Λ + rng.standard_normal(z.shape) @ np.sqrt(Λ)
        chain = StationaryChain(jnp.asarray(A))
        potentials = Potentials(jnp.asarray(h), Precision(jnp.asarray(Λ), True, False))
        losses = quick_jit(
            lambda chain, potentials: [free_energy(chain, potentials, marginal=m)[0] for m in ("empirical", "gaussian")]
        )(chain, potentials)
        gaps.append(float(losses[0] - losses[1]))
    assert 0 < gaps[1] < 0.25 * gaps[0]


def test_marginals_that_cannot_be():
    chain, potentials = random_problem(16, "stationary", "dependent full", time=2)
    with pytest.raises(ValueError, match="constant"):
        free_energy(chain, potentials, marginal="gaussian")
    chain, potentials = random_problem(16, "stationary", "shared full", time=2)
    with pytest.raises(ValueError, match="all times already"):
        free_energy(chain, potentials, marginal="gaussian", offsets=(0,))
