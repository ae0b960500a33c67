"""Gaussians in natural parameters, against scipy's multivariate normal and finite differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from rpgssm.core import gaussian
from rpgssm.core.types import Moments, Natural


def random_natural(seed, lead=(), plead=None, k=3, dtype=jnp.float64) -> Natural:
    rng = np.random.default_rng(seed)
    plead = lead if plead is None else plead
    W = rng.standard_normal((*plead, k, k))
    Λ = 0.5 * np.eye(k) + W @ W.swapaxes(-1, -2) / k
    return Natural(jnp.asarray(rng.standard_normal((*lead, k)), dtype), jnp.asarray(Λ, dtype))


def naive_moments(h, Λ):
    Σ = np.linalg.inv(np.asarray(Λ, np.float64))
    return Σ @ np.asarray(h, np.float64), Σ


def naive_phi(h, Λ):
    μ, Σ = naive_moments(h, Λ)
    return 0.5 * np.asarray(h, np.float64) @ μ + 0.5 * np.linalg.slogdet(Σ)[1]


def naive_kl(q: Natural, p: Natural):
    (m, S), (n, R) = naive_moments(q.h, q.precision), naive_moments(p.h, p.precision)
    iR, d = np.linalg.inv(R), n - m
    return 0.5 * (np.trace(iR @ S) + d @ iR @ d - len(m) + np.linalg.slogdet(R)[1] - np.linalg.slogdet(S)[1])


def each(natural: Natural, lead):
    """The Gaussians of a batch one by one, in the order of a raveled array of shape `lead`."""
    h = np.broadcast_to(natural.h, (*lead, natural.h.shape[-1]))
    Λ = np.broadcast_to(natural.precision, (*lead, *natural.precision.shape[-2:]))
    return [Natural(jnp.asarray(h[i]), jnp.asarray(Λ[i])) for i in np.ndindex(*lead)]


def central_difference(f, at, direction, step=1e-5):
    move = lambda s: jax.tree.map(lambda x, d: jnp.asarray(np.asarray(x) + s * np.asarray(d)), at, direction)  # noqa: E731
    return (f(move(step)) - f(move(-step))) / (2 * step)


def inner(a, b):
    return sum(np.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@jax.jit
def everything(q, p, z):
    moments = gaussian.to_moments(q)
    return gaussian.log_normaliser(q), moments, gaussian.to_natural(moments), gaussian.kl(q, p), gaussian.log_prob(q, z)


# leading axes of h, of Λ, and of both together; the latent dimension; and the dtype
CASES = [
    ((), (), (), 1, jnp.float64),
    ((2, 3), (1, 3), (2, 3), 3, jnp.float32),
    ((2, 3), (3,), (2, 3), 5, jnp.float64),
    ((3,), (2, 3), (2, 3), 3, jnp.float64),
]


@pytest.mark.parametrize(("lead", "plead", "out", "k", "dtype"), CASES)
def test_against_the_textbook(lead, plead, out, k, dtype):
    q, p = random_natural(0, lead, plead, k, dtype), random_natural(1, plead, lead, k, dtype)
    z = jnp.asarray(np.random.default_rng(2).standard_normal((4, *out, k)), dtype)
    phi, moments, back, kl, log_prob = results = everything(q, p, z)
    assert all(x.dtype == dtype for x in jax.tree.leaves(results))
    assert moments.mean.shape == back.h.shape == (*out, k)
    assert moments.cov.shape == back.precision.shape == q.precision.shape
    assert phi.shape == kl.shape == out
    assert log_prob.shape == (4, *out)
    np.testing.assert_array_equal(moments.cov, np.swapaxes(moments.cov, -1, -2))

    cov = np.broadcast_to(moments.cov, (*out, k, k))
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == jnp.float32 else {"rtol": 1e-11, "atol": 1e-11}
    np.testing.assert_allclose(back.h, np.broadcast_to(q.h, back.h.shape), **close)
    np.testing.assert_allclose(back.precision, q.precision, **close)
    for i, a, b in zip(np.ndindex(*out), each(q, out), each(p, out), strict=True):
        μ, Σ = naive_moments(a.h, a.precision)
        np.testing.assert_allclose(phi[i], naive_phi(a.h, a.precision), **close)
        np.testing.assert_allclose(moments.mean[i], μ, **close)
        np.testing.assert_allclose(cov[i], Σ, **close)
        np.testing.assert_allclose(kl[i], naive_kl(a, b), **close)
        np.testing.assert_allclose(log_prob[:, *i], multivariate_normal(μ, Σ).logpdf(z[:, *i]), **close)


@pytest.mark.parametrize(("lead", "plead", "out"), [((), (), ()), ((2, 3), (3,), (2, 3))])
def test_gradient_of_the_normaliser(lead, plead, out):
    """By hand (the mean for h, minus half the second moment for Λ) and by finite differences; and once more."""
    natural = random_natural(3, lead, plead)
    weights = jnp.asarray(np.random.default_rng(4).standard_normal(out))
    f = jax.jit(lambda x: jnp.sum(weights * gaussian.log_normaliser(x)))
    gradient = jax.jit(jax.grad(f))(natural)
    np.testing.assert_allclose(gradient.precision, np.swapaxes(gradient.precision, -1, -2), 0, 1e-14)
    if not out:
        μ, Σ = naive_moments(natural.h, natural.precision)
        np.testing.assert_allclose(gradient.h, weights * μ, 1e-12)
        np.testing.assert_allclose(gradient.precision, -0.5 * weights * (Σ + np.outer(μ, μ)), 1e-12)

    direction = random_natural(5, lead, plead)  # symmetric in Λ
    directional = jax.jit(lambda x: jax.jvp(f, (x,), (direction,))[1])
    np.testing.assert_allclose(inner(gradient, direction), directional(natural), 1e-12)
    np.testing.assert_allclose(inner(gradient, direction), central_difference(f, natural, direction), 1e-7)
    second = jax.jit(jax.grad(directional))(natural)
    np.testing.assert_allclose(inner(second, direction), central_difference(directional, natural, direction), 1e-7)


def test_derivative_of_the_normaliser_far_from_the_identity():
    natural = Natural(jnp.ones(3, jnp.float32), jnp.asarray(np.diag([1e-4, 1, 1e4]), jnp.float32))
    value, gradient = jax.jit(jax.value_and_grad(gaussian.log_normaliser))(natural)
    np.testing.assert_allclose(value, naive_phi(natural.h, natural.precision), rtol=1e-5)
    np.testing.assert_allclose(gradient.h, [1e4, 1, 1e-4], rtol=1e-5)


def test_normaliser_under_vmap():
    natural = random_natural(6, (4,))
    value, gradient = jax.jit(jax.vmap(jax.value_and_grad(gaussian.log_normaliser)))(natural)
    for i, single in enumerate(each(natural, (4,))):
        np.testing.assert_allclose(value[i], naive_phi(single.h, single.precision), 1e-12)
        np.testing.assert_allclose(gradient.h[i], naive_moments(single.h, single.precision)[0], 1e-11)


def test_adding_is_multiplying_densities():
    p, f, g = random_natural(7), random_natural(8, (4,)), random_natural(9, (2, 4), (4,))
    total = gaussian.add(p, f, g)
    assert total.h.shape == (2, 4, 3)
    assert total.precision.shape == (4, 3, 3)
    for a, b, c, d in zip(*(each(x, (2, 4)) for x in (p, f, g, total)), strict=True):
        np.testing.assert_allclose(d.h, np.asarray(a.h) + np.asarray(b.h) + np.asarray(c.h), 1e-14, 1e-14)
        np.testing.assert_allclose(d.precision, sum(np.asarray(x.precision) for x in (a, b, c)), 1e-14)
    assert gaussian.add(p) is p


def test_zero_is_neutral():
    natural = random_natural(10, (2,), dtype=jnp.float32)
    zero = gaussian.zero_like(natural)
    assert eqx.tree_equal(gaussian.add(natural, zero), natural)
    assert eqx.tree_equal(gaussian.add(zero, natural), natural)


def test_standard_normal():
    moments = jax.jit(gaussian.to_moments)(gaussian.standard_normal(3, jnp.float32))
    assert eqx.tree_equal(moments, Moments(jnp.zeros(3, jnp.float32), jnp.eye(3, dtype=jnp.float32)))


def test_kl_of_a_gaussian_with_itself_is_zero():
    natural = random_natural(11, (50,), k=6, dtype=jnp.float32)

    def f(q, p):
        kl = gaussian.kl(q, p)
        return jnp.sum(kl), kl

    gradient, kl = jax.jit(jax.grad(f, has_aux=True))(natural, natural)
    np.testing.assert_array_equal(kl, np.zeros(50))
    np.testing.assert_allclose(gradient.h, 0, atol=1e-4)
    np.testing.assert_allclose(gradient.precision, 0, atol=1e-4)


def test_gradient_of_kl():
    both, direction = (random_natural(12, (2,)), random_natural(13)), (random_natural(14, (2,)), random_natural(15))
    f = jax.jit(lambda both: jnp.sum(gaussian.kl(*both)))
    gradient = jax.jit(jax.grad(f))(both)
    np.testing.assert_allclose(inner(gradient, direction), central_difference(f, both, direction), 1e-7)


def test_log_prob_is_precise_far_from_the_origin():
    """Expanded, z'Λz and h'z would be of order 1e8 each: nothing is left of their difference in float32."""
    natural = Natural(jnp.full(2, 1e4, jnp.float32), jnp.eye(2, dtype=jnp.float32))
    result = jax.jit(gaussian.log_prob)(natural, jnp.asarray([1e4 + 1, 1e4 - 1], jnp.float32))
    np.testing.assert_allclose(result, -1 - np.log(2 * np.pi), 1e-6)


@pytest.mark.parametrize(("lead", "plead", "out", "k", "dtype"), CASES)
def test_sample_shapes(lead, plead, out, k, dtype):
    natural = random_natural(16, lead, plead, k, dtype)
    for shape in [(), (7,), (2, 5)]:
        z = jax.eval_shape(lambda x, shape=shape: gaussian.sample(jax.random.key(0), x, shape), natural)
        assert z.shape == (*shape, *out, k)
        assert z.dtype == dtype


def test_samples_have_the_right_moments():
    count = 40_000
    natural = random_natural(17, (2, 2), (1, 2))
    z = np.asarray(jax.jit(gaussian.sample, static_argnums=2)(jax.random.key(1), natural, (count,)))
    for i, single in zip(np.ndindex(2, 2), each(natural, (2, 2)), strict=True):
        μ, Σ = naive_moments(single.h, single.precision)
        five_sigma = 5 * np.sqrt(np.diag(Σ) / count)
        assert np.all(abs(z[:, *i].mean(0) - μ) < five_sigma)
        # the empirical covariance of Gaussians has variance (Σ_ij² + Σ_iiΣ_jj) / count
        five_sigma = 5 * np.sqrt((Σ**2 + np.outer(np.diag(Σ), np.diag(Σ))) / count)
        assert np.all(abs(np.cov(z[:, *i].T) - Σ) < five_sigma)
    # Gaussians that share a covariance do not share their noise
    whitened = (z - z.mean(0)) / z.std(0)
    assert np.all(abs(np.mean(whitened[:, 0] * whitened[:, 1], 0)) < 5 / np.sqrt(count))


def test_samples_are_differentiable():
    """The noise stays fixed while the parameters move."""
    natural, direction = random_natural(18, (2,)), random_natural(19, (2,))
    weights = jnp.asarray(np.random.default_rng(20).standard_normal((4, 2, 3)))
    f = jax.jit(lambda x: jnp.sum(weights * gaussian.sample(jax.random.key(2), x, (4,)) ** 2))
    gradient = jax.jit(jax.grad(f))(natural)
    np.testing.assert_allclose(inner(gradient, direction), central_difference(f, natural, direction), 1e-7)
