"""Divergences in closed form against the dense joint Gaussian and Monte Carlo; the prior's start."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.core import GaussianChain, Potentials, Precision, sample_posterior, smooth
from rpgssm.methods._generative import (
    ELBO,
    Bound,
    chain_kl,
    make_chain_prior,
    over_time,
    plane_rotation,
    potential_kl,
)

from .linear_worlds import (
    K,
    N,
    T,
    batch_of,
    dense_kl,
    joint,
    log_normal,
    prior_of,
    world,
    world_joint,
)

kl = eqx.filter_jit(chain_kl)


def some_chains(seed=0) -> GaussianChain:
    """A chain for each sequence, different at each step."""
    rng = np.random.default_rng(seed)
    L = rng.normal(size=(N, T, K, K))
    Q = L @ L.swapaxes(-1, -2) + 0.2 * np.eye(K)
    A = 0.5 * rng.normal(size=(N, T - 1, K, K))
    b = rng.normal(size=(N, T, K))
    return GaussianChain(*map(jnp.asarray, (b[:, 0], Q[:, 0], A, b[:, 1:], Q[:, 1:])))


def test_divergence_between_chains_is_that_of_their_joint_gaussians():
    w, q = world(), some_chains()
    found = kl(q, prior_of(w).chain(T)).sum(1)
    for n in range(N):
        of_q = joint(*(np.asarray(x[n]) for x in (q.m1, q.Q1, q.A, q.b, q.Q)))
        assert float(found[n]) == pytest.approx(dense_kl(of_q, world_joint(w)), rel=1e-9)


def test_divergence_between_chains_against_monte_carlo():
    w, q, rng = world(), some_chains(), np.random.default_rng(1)
    of_q, of_p = joint(*(np.asarray(x[0]) for x in (q.m1, q.Q1, q.A, q.b, q.Q))), world_joint(w)
    z = rng.multivariate_normal(*of_q, size=4000)
    ratio = np.array([log_normal(x, *of_q) - log_normal(x, *of_p) for x in z])
    error = ratio.std() / len(z) ** 0.5
    assert abs(float(kl(q, prior_of(w).chain(T))[0].sum()) - ratio.mean()) < 4 * error


def test_a_chain_does_not_diverge_from_itself():
    chain = prior_of(world()).chain(T)
    many = jax.tree.map(lambda x: jnp.broadcast_to(x, (N, *x.shape)), chain)
    np.testing.assert_allclose(kl(many, chain), 0, atol=1e-12)


@eqx.filter_jit
def divergence(chain, potentials):
    return potential_kl(smooth(chain, potentials), potentials)


@pytest.mark.parametrize("masked", [pytest.param(False, marks=pytest.mark.slow), True])
def test_divergence_of_a_posterior_from_its_prior(masked):
    w, rng = world(), np.random.default_rng(2)
    chain = prior_of(w).chain(T)
    mask = jnp.asarray(rng.random((N, T)) < 0.6) if masked else None
    precisions = (
        Precision(jnp.asarray([0.5, 2.0]), shared=True, diagonal=True),
        Precision(jnp.asarray(rng.random((N, T, K)) + 0.1), shared=False, diagonal=True),
    )
    potentials = tuple(Potentials(jnp.asarray(rng.normal(size=(N, T, K))), p, mask) for p in precisions)
    found = divergence(chain, potentials)
    m, S = world_joint(w)
    for n in range(N):
        h = sum(np.asarray(p.masked_h()[n]).reshape(-1) for p in potentials)
        blocks = np.sum([np.asarray(p.masked_precision()[n]) for p in potentials], 0)
        Λ = np.zeros((T * K, T * K))
        for t in range(T):
            Λ[t * K : t * K + K, t * K : t * K + K] = blocks[t]
        cov = np.linalg.inv(np.linalg.inv(S) + Λ)
        q = cov @ (np.linalg.solve(S, m) + h), cov
        assert float(found[n]) == pytest.approx(dense_kl(q, (m, S)), rel=1e-8)
    if not masked:
        return
    z = np.asarray(eqx.filter_jit(sample_posterior)(jax.random.key(0), chain, potentials, 4000))
    z = z[:, N - 1].reshape(4000, -1)
    ratio = np.array([log_normal(x, *q) - log_normal(x, m, S) for x in z])
    assert abs(float(found[N - 1]) - ratio.mean()) < 4 * ratio.std() / len(z) ** 0.5


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_prior_starts_as_a_rotation_in_a_plane(k):
    R = plane_rotation(k, np.pi / 20, seed=3)
    np.testing.assert_allclose(R @ R.T, np.eye(k), atol=1e-12)
    angles = np.sort(np.abs(np.angle(np.linalg.eigvals(R))))
    np.testing.assert_allclose(angles, [0.0] * (k - 2) + [np.pi / 20] * 2 if k > 1 else [0.0], atol=1e-7)
    prior = make_chain_prior(k, 3, dtype=jnp.float64)
    np.testing.assert_allclose(prior.A, 0.999 * R, atol=1e-6)
    chain = prior.chain(4)
    for x in (chain.Q1, chain.Q[0]):
        np.testing.assert_allclose(x, np.eye(k), atol=1e-9)
    assert not np.any(chain.b)
    assert not np.any(chain.m1)


def test_the_prior_keeps_its_variances_above_the_floor():
    prior = make_chain_prior(2, 0)
    low = jnp.full((2, 2), 0.0, jnp.float32) - 50 * jnp.eye(2, dtype=jnp.float32)
    smallest = eqx.tree_at(lambda p: p.free.factor, prior, low)
    np.testing.assert_allclose(np.diagonal(smallest.Q), 1e-4, rtol=1e-3)


class Told:
    """Stands in for a model: a reconstruction of -2 for each frame that is not hidden, and a divergence of 1."""

    def bound(self, batch, key, hidden=None):
        seen = jnp.ones((len(batch), batch.time), bool) if hidden is None else ~hidden
        return Bound(-2.0 * seen.sum(1).astype(jnp.float64), jnp.ones(len(batch), jnp.float64))


def test_the_loss_is_per_observed_frame_and_hides_some():
    mask = np.ones((N, T), bool)
    mask[0, 2:] = False
    batch, key, count = batch_of(world(), mask), jax.random.key(0), mask.sum()
    loss, info = ELBO()(Told(), batch, key)
    assert float(loss) == pytest.approx((N + 2 * N * T) / count)
    assert float(info["kl"]) == pytest.approx(N / count)
    hidden, _ = ELBO(mask_size=2)(Told(), batch, key)
    assert float(hidden) == pytest.approx((N + 2 * N * (T - 2)) / count)


def test_padding_is_left_out_of_sums():
    batch = batch_of(world(), lengths=np.array([T, 3, 4], np.int32))
    np.testing.assert_array_equal(over_time(jnp.ones((N, T), jnp.float64), batch), [T, 3, 4])
    np.testing.assert_array_equal(over_time(jnp.ones((N, T), jnp.float64), batch_of(world())), [T] * N)
