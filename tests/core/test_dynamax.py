"""Agreement with dynamax: a potential (h, Λ) is an observation y = Λ⁻¹h of z with noise covariance Λ⁻¹.

log N(y; z, Λ⁻¹) = h'z - ½z'Λz - ½h'Λ⁻¹h + ½log|Λ| - ½K log 2π
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.core.smoother import filter, smooth

from . import oracles
from .problems import quick_jit, random_problem


def dynamax_smoother(m1, Q1, A, b, Q, y, R):
    """dynamax's smoother for one sequence. Its transition t leads to frame t (ours: from frame t)."""
    inference = pytest.importorskip("dynamax.linear_gaussian_ssm.inference")
    k = len(m1)
    none = jnp.zeros((k, 0))
    parameters = inference.ParamsLGSSM(
        initial=inference.ParamsLGSSMInitial(mean=m1, cov=Q1),
        dynamics=inference.ParamsLGSSMDynamics(weights=A, bias=b, input_weights=none, cov=Q),
        emissions=inference.ParamsLGSSMEmissions(weights=jnp.eye(k), bias=jnp.zeros(k), input_weights=none, cov=R),
    )
    return inference.lgssm_smoother(parameters, y)


@pytest.mark.usefixtures("lenient_promotion")
@pytest.mark.parametrize("chain", ["stationary", "batched"])
def test_same_posterior(chain):
    batch, time, k = 3, 6, 2
    problem = random_problem(1, chain, "dependent full", batch=batch, time=time, latent=k)
    ours, causal = quick_jit(lambda p: (smooth(*p, cross=True), filter(*p)))(problem)

    sequences = []
    for n in range(batch):
        m1, Q1, A, b, Q = map(np.asarray, oracles.chain_of(problem.chain, n, time))
        h, Λ = oracles.total_of(problem.potentials, n)
        R = np.linalg.inv(Λ)
        A, b, Q = (np.concatenate([x[:1], x]) for x in (A, b, Q))  # dynamax does not use the first
        sequences.append((m1, Q1, A, b, Q, np.einsum("tij,tj->ti", R, h), R))
    theirs = jax.jit(jax.vmap(dynamax_smoother))(*(jnp.asarray(np.stack(x)) for x in zip(*sequences, strict=True)))

    tolerance = {"rtol": 1e-7, "atol": 1e-7}  # dynamax adds a jitter of 1e-9
    np.testing.assert_allclose(ours.mean, theirs.smoothed_means, **tolerance)
    np.testing.assert_allclose(ours.cov, theirs.smoothed_covariances, **tolerance)
    second = ours.mean[:, :-1, :, None] * ours.mean[:, 1:, None, :]
    np.testing.assert_allclose(ours.cross + second, theirs.smoothed_cross_covariances, **tolerance)
    np.testing.assert_allclose(causal.mean, theirs.filtered_means, **tolerance)
    np.testing.assert_allclose(causal.cov, theirs.filtered_covariances, **tolerance)
    for n in range(batch):
        h, Λ = oracles.total_of(problem.potentials, n)
        constant = sum(oracles.Φ(h[t], Λ[t]) for t in range(time)) + 0.5 * time * k * np.log(2 * np.pi)
        np.testing.assert_allclose(ours.log_z[n], theirs.marginal_loglik[n] + constant, **tolerance)
