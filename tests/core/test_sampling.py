"""Sampled trajectories have the moments of the distributions they are drawn from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.core import sample_posterior, sample_prior

from .oracles import chain_of, joint_posterior, prior_joint, total_of
from .problems import quick_jit, random_problem

N = 20_000


def check_moments(z, mean, cov):
    """Sample mean and covariance of z (N, D) within five standard errors of the exact ones."""
    scale = np.sqrt(np.diag(cov))
    assert np.all(np.abs(z.mean(0) - mean) < 5 * scale / np.sqrt(len(z)) + 1e-9)
    error = 5 * np.sqrt(2 / len(z)) * np.outer(scale, scale) + 1e-9
    assert np.all(np.abs(np.cov(z.T) - cov) < error)


@pytest.mark.parametrize("kind", ["stationary", "general", "batched", "singular"])
def test_prior(kind):
    chain, potentials = random_problem(1, kind, "shared full", time=4)
    z = np.asarray(sample_prior(jax.random.key(0), chain, 4, N))
    for n in range(potentials[0].h.shape[0] if kind == "batched" else 1):
        sequence = z[:, n] if kind == "batched" else z
        check_moments(sequence.reshape(N, -1), *prior_joint(*chain_of(chain, n, 4)))


@pytest.mark.parametrize("kind", ["stationary", "general", "batched"])
@pytest.mark.parametrize(
    ("precision", "method"),
    [
        ("shared full", "sequential"),
        ("dependent diagonal", "parallel"),
        pytest.param("shared full", "parallel", marks=pytest.mark.slow),
        pytest.param("dependent diagonal", "sequential", marks=pytest.mark.slow),
    ],
)
def test_posterior(kind, precision, method):
    chain, potentials = random_problem(2, kind, precision, masked=precision != "shared full", time=4)
    draw = quick_jit(lambda key, *problem: sample_posterior(key, *problem, N, method=method))
    z = np.asarray(draw(jax.random.key(1), chain, potentials))
    assert z.shape == (N, *potentials[0].h.shape)
    for n in range(z.shape[1]):
        h, Lam = total_of(potentials, n)
        _, mean, cov = joint_posterior(*prior_joint(*chain_of(chain, n, 4)), h, Lam)
        check_moments(z[:, n].reshape(N, -1), mean, cov)


@pytest.mark.parametrize("kind", ["stationary", "general"])
def test_posterior_samples_are_differentiable(kind):
    """Reparametrised: the derivative of a fixed draw, against finite differences."""
    chain, potentials = random_problem(3, kind, "dependent full", time=3)

    def f(scale):
        moved = jax.tree.map(lambda x: x, chain)
        z = sample_posterior(jax.random.key(2), moved, tuple(_scaled(p, scale) for p in potentials), 2)
        return jnp.sum(jnp.sin(z))

    step = 1e-5
    value = quick_jit(f)
    numeric = (value(jnp.asarray(1 + step)) - value(jnp.asarray(1 - step))) / (2 * step)
    np.testing.assert_allclose(quick_jit(jax.grad(f))(jnp.asarray(1.0)), numeric, rtol=1e-5)


def _scaled(p, scale):
    return jax.tree.map(lambda x: x * scale, p)
