"""The peers compute what they are said to compute.

The oracle is naive: posterior, log Z and free energy through the dense joint Gaussian of all `T K` variables, in numpy.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm_study.speed import peers
from rpgssm_study.speed.problem import make_problem


def dense_posterior(A, h, Λ):
    """`(log Z, means (T, K), marginal covariances (T, K, K))` of one sequence; h is (T, K), Λ is (T, K, K).

    The prior over `(z_1, ..., z_T)` is N(0, S) with blocks `S[t, s] = A^(t-s)` for t >= s. With block-diagonal Λ,

        log Z = ½ h'(S⁻¹ + Λ)⁻¹h - ½ log|S⁻¹ + Λ| - ½ log|S|
    """
    T, K = h.shape
    S = np.zeros((T, K, T, K))
    for t in range(T):
        for s in range(t + 1):
            block = np.linalg.matrix_power(A, t - s)
            S[t, :, s, :] = block
            S[s, :, t, :] = block.T
    S = S.reshape(T * K, T * K)
    precision = np.linalg.inv(S)
    for t in range(T):
        precision[t * K : (t + 1) * K, t * K : (t + 1) * K] += Λ[t]
    cov = np.linalg.inv(precision)
    mean = cov @ h.reshape(-1)
    log_z = 0.5 * h.reshape(-1) @ mean - 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * np.linalg.slogdet(S)[1]
    blocks = cov.reshape(T, K, T, K)
    return log_z, mean.reshape(T, K), np.stack([blocks[t, :, t, :] for t in range(T)])


def dense_free_energy(A, h, Λ):
    """`G^n` of every sequence by the definition; h is (N, T, K), Λ is (N, T, K, K)."""
    N, T, K = h.shape
    I = np.eye(K)
    G = np.zeros(N)
    for n in range(N):
        G[n], mean, cov = dense_posterior(A, h[n], Λ[n])
        for t in range(T):
            Λ_q = np.linalg.inv(cov[t])
            h_q = Λ_q @ mean[t]
            ratios = [Φ(h_q + h[m, t], Λ_q + Λ[m, t]) - Φ(h[m, t], I + Λ[m, t]) for m in range(N)]
            G[n] += Φ(h_q, Λ_q) - Φ(h[n, t], I + Λ[n, t]) - np.log(np.mean(np.exp(ratios)))
    return G


def Φ(h, Λ):
    """`½ h'Λ⁻¹h - ½ log|Λ|`."""
    return 0.5 * h @ np.linalg.solve(Λ, h) - 0.5 * np.linalg.slogdet(Λ)[1]


def every_frame(Λ, h):
    return np.broadcast_to(np.asarray(Λ), (*h.shape, h.shape[-1]))


@pytest.mark.parametrize("shared", [True, False])
def test_textbook_loss_is_the_free_energy(shared):
    problem = make_problem(batch=4, time=5, latent=3, shared=shared, dtype=jnp.float64)
    A, h, Λ = (np.asarray(x) for x in (problem.A, problem.h, problem.Λ))
    expected = -dense_free_energy(A, h, every_frame(Λ, h)).sum() / (4 * 5)
    loss = jax.jit(peers.textbook_loss)(problem.A, problem.h, problem.Λ)
    np.testing.assert_allclose(loss, expected, rtol=1e-10)


@pytest.mark.parametrize("shared", [pytest.param(True, marks=pytest.mark.slow), False])
def test_textbook_gradient(shared):
    """The gradient of the timed function, against central differences of the dense evaluation."""
    problem = make_problem(batch=3, time=4, latent=2, shared=shared, dtype=jnp.float64)
    point = (problem.A, problem.h, problem.Λ)
    gradient = jax.jit(jax.grad(peers.textbook_loss, argnums=(0, 1, 2)))(*point)
    rng = np.random.default_rng(1)
    direction = [rng.standard_normal(x.shape) for x in point]
    direction[2] = direction[2] + direction[2].swapaxes(-1, -2)  # stay among symmetric precisions

    def dense(step):
        A, h, Λ = (np.asarray(x) + step * d for x, d in zip(point, direction, strict=True))
        return -dense_free_energy(A, h, every_frame(Λ, h)).sum() / 12

    slope = sum(np.sum(np.asarray(g) * d) for g, d in zip(gradient, direction, strict=True))
    np.testing.assert_allclose(slope, (dense(1e-5) - dense(-1e-5)) / 2e-5, rtol=1e-6)


@pytest.mark.parametrize("output", ["full", "trimmed"])
@pytest.mark.parametrize("form", ["sequential", pytest.param("parallel", marks=pytest.mark.slow)])
@pytest.mark.parametrize("shared", [True, False])
def test_dynamax_smooths_the_same_chain(shared, form, output):
    pytest.importorskip("dynamax")
    problem = make_problem(batch=2, time=6, latent=3, shared=shared, dtype=jnp.float64)
    y, R = peers.observations(problem.h, problem.Λ)
    posterior = jax.jit(peers.dynamax_smoother(form, output))(problem.A, y, R)
    if output == "full":
        posterior = peers.Smoothed(posterior.marginal_loglik, posterior.smoothed_means, posterior.smoothed_covariances)
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
    with pytest.raises(peers.MissingPeer, match="pip install dynamax"):
        peers.dynamax_smoother("sequential", "full")
