"""Gaussians in natural parameters, against scipy's multivariate normal and finite differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from rpgssm.core import gaussian
from rpgssm.core.types import Moments, Natural

DTYPES = [jnp.float32, jnp.float64]
TOLERANCE = {jnp.float32: 2e-5, jnp.float64: 1e-11}


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


# leading axes of h, of Λ, and of both together; and the dtype
CASES = [
    ((), (), (), jnp.float64),
    ((2, 3), (1, 3), (2, 3), jnp.float32),
    ((2, 3), (3,), (2, 3), jnp.float64),
    ((3,), (2, 3), (2, 3), jnp.float64),
]
cases = pytest.mark.parametrize(("lead", "plead", "out", "dtype"), CASES)

# compiled once, which is faster here than operation by operation
log_normaliser = jax.jit(gaussian.log_normaliser)
to_moments = jax.jit(gaussian.to_moments)
to_natural = jax.jit(gaussian.to_natural)
kl = jax.jit(gaussian.kl)
log_prob = jax.jit(gaussian.log_prob)
sample = jax.jit(gaussian.sample, static_argnums=2)


@cases
def test_normaliser_and_moments(lead, plead, out, dtype):
    natural = random_natural(0, lead, plead, dtype=dtype)
    phi, moments = log_normaliser(natural), to_moments(natural)
    assert phi.shape == out and phi.dtype == moments.mean.dtype == moments.cov.dtype == dtype
    tolerance = TOLERANCE[dtype]
    singles = each(natural, out)
    np.testing.assert_allclose(phi.ravel(), [naive_phi(x.h, x.precision) for x in singles], tolerance, tolerance)
    means = [naive_moments(x.h, x.precision)[0] for x in singles]
    np.testing.assert_allclose(moments.mean.reshape(-1, 3), means, tolerance, tolerance)
    np.testing.assert_allclose(moments.cov, np.linalg.inv(np.asarray(natural.precision)), tolerance, tolerance)
    assert moments.cov.shape == natural.precision.shape
    np.testing.assert_array_equal(moments.cov, jnp.swapaxes(moments.cov, -1, -2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 7])
def test_moments_and_back(k, dtype):
    natural = random_natural(1, (5,), k=k, dtype=dtype)
    back = to_natural(to_moments(natural))
    assert back.h.dtype == back.precision.dtype == dtype
    np.testing.assert_allclose(back.h, natural.h, 0, 10 * TOLERANCE[dtype])
    np.testing.assert_allclose(back.precision, natural.precision, 0, 10 * TOLERANCE[dtype])
    moments = Moments(natural.h, natural.precision)  # any vector and positive definite matrix
    again = to_moments(to_natural(moments))
    np.testing.assert_allclose(again.mean, moments.mean, 0, 10 * TOLERANCE[dtype])
    np.testing.assert_allclose(again.cov, moments.cov, 0, 10 * TOLERANCE[dtype])


@pytest.mark.parametrize(("lead", "plead", "out"), [case[:3] for case in CASES[::2]])
def test_gradient_of_the_normaliser(lead, plead, out):
    """By hand (minus half the second moment for Λ), by finite differences, and in both modes; then once more."""
    natural = random_natural(2, lead, plead)
    weights = jnp.asarray(np.random.default_rng(3).standard_normal(out))
    f = lambda x: jnp.sum(weights * log_normaliser(x))  # noqa: E731
    gradient = jax.jit(jax.grad(f))(natural)
    np.testing.assert_allclose(gradient.precision, jnp.swapaxes(gradient.precision, -1, -2), 0, 1e-14)
    if not out:
        μ, Σ = naive_moments(natural.h, natural.precision)
        np.testing.assert_allclose(gradient.h, weights * μ, 1e-12)
        np.testing.assert_allclose(gradient.precision, -0.5 * weights * (Σ + np.outer(μ, μ)), 1e-12)

    direction = random_natural(4, lead, plead)  # symmetric in Λ
    directional = jax.jit(lambda x: jax.jvp(f, (x,), (direction,))[1])
    along = sum(jnp.vdot(g, d) for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True))
    np.testing.assert_allclose(directional(natural), along, 1e-12)
    np.testing.assert_allclose(along, central_difference(f, natural, direction), 1e-7)
    second = jax.jit(lambda x: jax.jvp(directional, (x,), (direction,))[1])(natural)
    np.testing.assert_allclose(second, central_difference(directional, natural, direction), 1e-7)


def central_difference(f, at, direction, step=1e-5):
    move = lambda s: jax.tree.map(lambda x, d: x + s * d, at, direction)  # noqa: E731
    return (f(move(step)) - f(move(-step))) / (2 * step)


@pytest.mark.parametrize("dtype", DTYPES)
def test_normaliser_has_finite_derivatives_far_from_the_identity(dtype):
    Λ = jnp.asarray(np.diag([1e-4, 1.0, 1e4]), dtype)
    value, gradient = jax.jit(jax.value_and_grad(gaussian.log_normaliser))(Natural(jnp.ones(3, dtype), Λ))
    assert np.isclose(value, naive_phi(np.ones(3), Λ), rtol=1e-5)
    np.testing.assert_allclose(gradient.h, [1e4, 1, 1e-4], rtol=1e-5)


def test_adding_is_multiplying_densities():
    p, f, g = random_natural(5), random_natural(6, (4,)), random_natural(7, (2, 4), (4,))
    total = gaussian.add(p, f, g)
    assert total.h.shape == (2, 4, 3) and total.precision.shape == (4, 3, 3)
    z = jnp.asarray(np.random.default_rng(8).standard_normal((10, 1, 1, 3)))
    parts = sum(log_prob(x, z).reshape(10, *((1, 1) + x.h.shape[:-1])[-2:]) for x in (p, f, g))
    ratio = log_prob(total, z) - parts  # the same at all z
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:1], ratio.shape), 0, 1e-11)
    assert gaussian.add(p) is p


@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_is_neutral(dtype):
    natural = random_natural(9, (2,), dtype=dtype)
    zero = gaussian.zero_like(natural)
    assert eqx.tree_equal(gaussian.add(natural, zero), natural)
    assert eqx.tree_equal(gaussian.add(zero, natural), natural)


@pytest.mark.parametrize("dtype", DTYPES)
def test_standard_normal(dtype):
    moments = to_moments(gaussian.standard_normal(3, dtype))
    assert eqx.tree_equal(moments, Moments(jnp.zeros(3, dtype), jnp.eye(3, dtype=dtype)))


@cases
def test_kl(lead, plead, out, dtype):
    q, p = random_natural(10, lead, plead, dtype=dtype), random_natural(11, plead, lead, dtype=dtype)
    expected = [naive_kl(a, b) for a, b in zip(each(q, out), each(p, out), strict=True)]
    result = kl(q, p)
    assert result.shape == out and result.dtype == dtype
    np.testing.assert_allclose(result.ravel(), expected, 20 * TOLERANCE[dtype], 20 * TOLERANCE[dtype])
    standard = gaussian.standard_normal(3, dtype)
    expected = [naive_kl(a, standard) for a in each(q, out)]
    np.testing.assert_allclose(kl(q, standard).ravel(), expected, 20 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_kl_of_a_gaussian_with_itself_is_zero(dtype):
    natural = random_natural(12, (50,), k=6, dtype=dtype)
    np.testing.assert_array_equal(kl(natural, natural), np.zeros(50))
    gradient = jax.jit(jax.grad(lambda q: jnp.sum(gaussian.kl(q, natural))))(natural)
    np.testing.assert_allclose(gradient.h, 0, atol=10 * TOLERANCE[dtype])
    np.testing.assert_allclose(gradient.precision, 0, atol=10 * TOLERANCE[dtype])


def test_gradient_of_kl():
    q, p = random_natural(13, (2,)), random_natural(14)
    f = jax.jit(lambda both: jnp.sum(gaussian.kl(*both)))
    direction = (random_natural(15, (2,)), random_natural(16))
    exact = jax.jit(lambda both: jax.jvp(f, (both,), (direction,))[1])((q, p))
    np.testing.assert_allclose(exact, central_difference(f, (q, p), direction), 1e-7)


@cases
def test_log_prob(lead, plead, out, dtype):
    natural = random_natural(17, lead, plead, dtype=dtype)
    z = jnp.asarray(np.random.default_rng(18).standard_normal((5, *out, 3)), dtype)
    result = log_prob(natural, z)
    assert result.shape == (5, *out) and result.dtype == dtype
    for i, single in zip(np.ndindex(*out), each(natural, out), strict=True):
        expected = multivariate_normal(*naive_moments(single.h, single.precision)).logpdf(z[:, *i])
        np.testing.assert_allclose(result[:, *i], expected, 0, 10 * TOLERANCE[dtype])


def test_log_prob_is_precise_far_from_the_origin():
    """Expanded, z'Λz and h'z would be of order 1e8 each, beyond float32."""
    natural = Natural(jnp.full(2, 1e4, jnp.float32), jnp.eye(2, dtype=jnp.float32))
    result = log_prob(natural, jnp.asarray([1e4 + 1, 1e4 - 1], jnp.float32))
    np.testing.assert_allclose(result, -1 - np.log(2 * np.pi), 1e-6)


@cases
def test_sample_shapes(lead, plead, out, dtype):
    natural = random_natural(19, lead, plead, dtype=dtype)
    for shape in [(), (2, 5)]:
        z = sample(jax.random.key(0), natural, shape)
        assert z.shape == (*shape, *out, 3) and z.dtype == dtype


def test_samples_have_the_right_moments():
    count = 40_000
    natural = random_natural(20, (2, 2), (1, 2))
    z = np.asarray(sample(jax.random.key(1), natural, (count,)))
    for i, single in zip(np.ndindex(2, 2), each(natural, (2, 2)), strict=True):
        μ, Σ = naive_moments(single.h, single.precision)
        five_sigma = 5 * np.sqrt(np.diag(Σ) / count)
        assert np.all(abs(z[:, *i].mean(0) - μ) < five_sigma)
        # the empirical covariance of Gaussians has variance (Σ_ij² + Σ_iiΣ_jj) / count
        five_sigma = 5 * np.sqrt((Σ**2 + np.outer(np.diag(Σ), np.diag(Σ))) / count)
        assert np.all(abs(np.cov(z[:, *i].T) - Σ) < five_sigma)
    # sequences that share a covariance do not share their noise
    whitened = (z - z.mean(0)) / z.std(0)
    assert np.all(abs(np.mean(whitened[:, 0] * whitened[:, 1], 0)) < 5 / np.sqrt(count))


def test_samples_are_differentiable():
    """The noise stays fixed while the parameters move."""
    natural, direction = random_natural(21, (2,)), random_natural(22, (2,))
    weights = jnp.asarray(np.random.default_rng(23).standard_normal((4, 2, 3)))
    f = jax.jit(lambda x: jnp.sum(weights * gaussian.sample(jax.random.key(2), x, (4,)) ** 2))
    exact = jax.jit(lambda x: jax.jvp(f, (x,), (direction,))[1])(natural)
    np.testing.assert_allclose(exact, central_difference(f, natural, direction), 1e-7)
    gradient = jax.jit(jax.grad(f))(natural)
    along = sum(jnp.vdot(g, d) for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True))
    np.testing.assert_allclose(along, exact, 1e-12)


def test_under_vmap():
    natural = random_natural(24, (4,))
    value, gradient = jax.jit(jax.vmap(jax.value_and_grad(gaussian.log_normaliser)))(natural)
    np.testing.assert_allclose(value, log_normaliser(natural), 1e-12)
    np.testing.assert_allclose(gradient.h, to_moments(natural).mean, 1e-12)
