"""The peers compute what they are said to compute."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from dense import dense_free_energy, dense_posterior

from rpgssm.bench import peers
from rpgssm.bench.problem import make_problem


def every_frame(Λ, h):
    return np.broadcast_to(np.asarray(Λ), (*h.shape, h.shape[-1]))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("shared", [True, False])
def test_textbook_loss_is_the_free_energy(shared):
    problem = make_problem(batch=4, time=5, latent=3, shared=shared, dtype=jnp.float64)
    A, h, Λ = (np.asarray(x) for x in (problem.A, problem.h, problem.Λ))
    expected = -dense_free_energy(A, h, every_frame(Λ, h)).sum() / (4 * 5)
    np.testing.assert_allclose(peers.textbook_loss(problem.A, problem.h, problem.Λ), expected, rtol=1e-10)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("shared", [True, False])
def test_textbook_gradient(shared):
    """The gradient of the benchmarked function, against central differences of the dense evaluation."""
    problem = make_problem(batch=3, time=4, latent=2, shared=shared, dtype=jnp.float64)
    point = (problem.A, problem.h, problem.Λ)
    gradient = jax.grad(peers.textbook_loss, argnums=(0, 1, 2))(*point)
    rng = np.random.default_rng(1)
    direction = [rng.standard_normal(x.shape) for x in point]
    direction[2] = direction[2] + direction[2].swapaxes(-1, -2)  # stay among symmetric precisions

    def dense(step):
        A, h, Λ = (np.asarray(x) + step * d for x, d in zip(point, direction, strict=True))
        return -dense_free_energy(A, h, every_frame(Λ, h)).sum() / 12

    slope = sum(np.sum(np.asarray(g) * d) for g, d in zip(gradient, direction, strict=True))
    np.testing.assert_allclose(slope, (dense(1e-5) - dense(-1e-5)) / 2e-5, rtol=1e-6)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("output", ["full", "trimmed"])
@pytest.mark.parametrize("form", ["sequential", "parallel"])
@pytest.mark.parametrize("shared", [True, False])
def test_dynamax_smooths_the_same_chain(shared, form, output):
    pytest.importorskip("dynamax")
    problem = make_problem(batch=2, time=6, latent=3, shared=shared, dtype=jnp.float64)
    y, R = peers.observations(problem.h, problem.Λ)
    posterior = jax.jit(peers.dynamax_smoother(form, output))(problem.A, y, R)
    if output == "full":
        posterior = peers.Smoothed(
            posterior.marginal_loglik, posterior.smoothed_means, posterior.smoothed_covariances
        )
    log_z = peers.log_z_of_loglik(posterior.loglik, problem.h, problem.Λ)
    A, h = np.asarray(problem.A), np.asarray(problem.h)
    for n, Λ in enumerate(every_frame(problem.Λ, h)):
        expected = dense_posterior(A, h[n], Λ)
        np.testing.assert_allclose(log_z[n], expected[0], rtol=1e-6)
        np.testing.assert_allclose(posterior.mean[n], expected[1], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(posterior.cov[n], expected[2], rtol=1e-6, atol=1e-7)


def test_missing_dynamax_says_what_to_do(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "dynamax"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dynamax", None)
    with pytest.raises(peers.MissingPeer, match=r"pip install rpgssm\[bench\]"):
        peers.dynamax_smoother("sequential", "full")
