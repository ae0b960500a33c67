"""The free energy is a lower bound on the likelihood of the recognition-parametrised model, with a gap we can name.

The model of sequence n, given all observations: p(x^n) = N^-TJ ∫ p(z_1..T) Π_tj f_jt(z_t | x^n)/F_jt(z_t) dz, where
F = 1/N Σ_n' f(· | x^n') mixes over the sequences observed. For any posterior q, and any density p̄ with which f ∝ p̄ fΔ,

    log p(x^n) + TJ log N = <log p - log q + Σ_tj log f_jt - log F_jt>_q + KL[q ‖ p(z | x^n)].

The expectation of -log F has no closed form. With g = q_t/p̄ and the density f̂ = F g/Γ, Γ = ∫F g,

    -<log F>_q = -<log f̂>_q - log Γ + <log g>_q = KL[q_t ‖ f̂] - log Γ - <log p̄>_q,

and everything but the two kinds of divergences is G:

    log p(x^n) + TJ log N - G = KL[q ‖ p(z | x^n)] + Σ_tj KL[q_t ‖ f̂_jt].

With one latent dimension and T = 2 or 3 frames all these integrals are sums over a grid.
"""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from rpgssm.core.free_energy import free_energy
from rpgssm.core.types import Natural

from . import oracles
from .problems import Problem, quick_jit, random_problem

GRID = np.linspace(-16, 16, 161)
LOG_CELL = np.log(GRID[1] - GRID[0])


def log_integral(log_density: np.ndarray) -> float:
    return logsumexp(log_density) + log_density.ndim * LOG_CELL


def divergence(log_q: np.ndarray, log_p: np.ndarray) -> float:
    """KL[q ‖ p] of two normalised densities on the grid."""
    return np.sum(np.exp(log_q) * (log_q - log_p)) * np.exp(log_q.ndim * LOG_CELL)


def log_joint(mean: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """log N(z_1..T; mean, cov) at all points of the grid."""
    z = np.stack(np.meshgrid(*[GRID] * len(mean), indexing="ij"), -1) - mean
    return -0.5 * np.sum(z @ np.linalg.inv(cov) * z, -1) - 0.5 * np.linalg.slogdet(2 * np.pi * cov)[1]


def on_axis(values: np.ndarray, t: int, time: int) -> np.ndarray:
    """A function of z_t as one of z_1..T."""
    return values.reshape([-1 if s == t else 1 for s in range(time)])


def quadrature(problem: Problem, reference, n: int):
    """log p(x^n) + (observed frames) log N, KL[q ‖ posterior] and Σ KL[q_t ‖ f̂_jt]."""
    chain, potentials = problem
    batch, time, _ = potentials[0].h.shape
    h0, Λ0 = oracles.reference_of(reference, chain, batch, time)
    m, S = oracles.prior_joint(*oracles.chain_of(chain, n, time))
    _, mean, V = oracles.joint_posterior(m, S, *oracles.total_of(potentials, n))
    log_model, marginal_gap = log_joint(m, S), 0.0

    for p in potentials:
        observed = oracles.observed_of(p)
        for t in np.flatnonzero(observed[n]):
            log_reference = -0.5 * Λ0[t, 0, 0] * GRID**2 + h0[t, 0] * GRID
            log_f = {}
            for other in np.flatnonzero(observed[:, t]):
                (h,), ((Λ,),) = oracles.natural_of(p, other, t)
                log_f[other] = log_reference - 0.5 * Λ * GRID**2 + h * GRID
                log_f[other] -= log_integral(log_f[other])
            log_F = logsumexp(list(log_f.values()), axis=0) - np.log(len(log_f))
            log_model = log_model + on_axis(log_f[n] - log_F, t, time)

            log_q = log_joint(mean[t : t + 1], V[t : t + 1, t : t + 1])
            log_f_hat = log_F + log_q - log_reference
            marginal_gap += divergence(log_q, log_f_hat - log_integral(log_f_hat))

    log_likelihood = log_integral(log_model)
    return log_likelihood, divergence(log_joint(mean, V), log_model - log_likelihood), marginal_gap


@functools.cache
def compiled():
    return quick_jit(lambda problem, reference: free_energy(*problem, reference=reference)[1])


@pytest.mark.parametrize("time", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("chain", "precisions", "masked", "own_reference"),
    [
        ("stationary", ("shared full",), False, False),
        ("stationary", ("dependent full",), False, False),
        ("stationary", ("dependent full", "shared full"), (True, False), True),
        ("batched", ("dependent diagonal",), True, False),
    ],
)
def test_gap_is_the_sum_of_divergences(chain, precisions, masked, own_reference, time):
    gaps = []
    for seed in range(8 if time == 2 else 1):
        problem = random_problem(seed, chain, *precisions, masked=masked, time=time, latent=1)
        reference = Natural(jnp.array([0.3]), jnp.array([[0.6]])) if own_reference else None
        info = compiled()(problem, reference)
        G = np.asarray(info.free_energy)
        for n in range(4):
            log_likelihood, posterior_gap, marginal_gap = quadrature(problem, reference, n)
            assert G[n] <= log_likelihood + 1e-9
            np.testing.assert_allclose(log_likelihood - G[n], posterior_gap + marginal_gap, atol=1e-8)
            gaps.append((posterior_gap, marginal_gap))
    assert np.all(np.max(gaps, 0) > 1e-2)  # neither of the two is negligible
