"""The projection of singular values, and Lemma 1 against the Lyapunov equation and the dense joint law of data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov
from scipy.stats import multivariate_normal

from rpgssm.core.canonical import canonical_form, project_singular_values

project = jax.jit(project_singular_values, static_argnames=("maximum", "mode"))


def random_matrix(seed, k=4, scale=1.0, dtype=jnp.float64):
    return jnp.asarray(scale * np.random.default_rng(seed).standard_normal((k, k)), dtype)


def unchecked(function):
    """Without the tests' own checks of types and shapes, which come before those of the function."""
    return getattr(function, "__wrapped__", function)


def singular_values(A):
    return np.linalg.svd(np.asarray(A, np.float64), compute_uv=False)


# ---------------------------------------------------------------------------------------------------------------------
# projection


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("mode", ["clip", "scale"])
def test_projection(mode, dtype):
    A = random_matrix(0, dtype=dtype)
    P = project(A, mode=mode)
    U, s, Vt = np.linalg.svd(np.asarray(A, np.float64))
    assert s[0] > 1 > s[-1]
    expected = (U * np.minimum(s, 0.999)) @ Vt if mode == "clip" else np.asarray(A) * (0.999 / s[0])
    assert P.dtype == dtype
    np.testing.assert_allclose(P, expected, 0, 4e-6 if dtype == jnp.float32 else 1e-14)


@pytest.mark.parametrize("maximum", [0.5, 1 - 1e-3, 1.0])
@pytest.mark.parametrize("mode", ["clip", "scale"])
@pytest.mark.parametrize("k", [1, 3, 12])
def test_projection_keeps_the_bound_and_is_idempotent(k, mode, maximum):
    A = jnp.asarray(np.random.default_rng(k).standard_normal((40, k, k)), jnp.float32)
    A = A * jnp.asarray(10.0 ** np.linspace(-2, 4, 40), jnp.float32)[:, None, None]
    P = project(A, maximum, mode)
    s = singular_values(P)
    assert s.max() < maximum
    np.testing.assert_array_equal(project(P, maximum, mode), P)
    within = singular_values(A).max(-1) <= maximum
    assert within.any()
    assert not within.all()
    np.testing.assert_array_equal(np.asarray(P)[within], np.asarray(A)[within])
    np.testing.assert_allclose(s[~within].max(-1), maximum, rtol=1e-5)


@pytest.mark.parametrize("mode", ["clip", "scale"])
@pytest.mark.parametrize(
    "A", [np.zeros((3, 3)), 0.5 * np.eye(3), np.diag([0.9, 0.0, 0.0]), 0.999 * np.roll(np.eye(3), 1, 0)]
)
def test_projection_leaves_good_matrices_alone(A, mode):
    """Also those with repeated or vanishing singular values, and one on the bound."""
    A = jnp.asarray(A)
    np.testing.assert_array_equal(project(A, 0.999, mode), A)


def test_projection_of_repeated_singular_values():
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    np.testing.assert_allclose(project(jnp.asarray(2 * rotation)), 0.999 * rotation, atol=1e-14)


def test_unknown_mode_is_named():
    with pytest.raises(ValueError, match="mode must be 'clip' or 'scale', not 'clamp'"):
        unchecked(project_singular_values)(jnp.eye(2), mode="clamp")


# ---------------------------------------------------------------------------------------------------------------------
# Lemma 1


def stable_chain(seed, k=3, radius=0.9, dtype=jnp.float64):
    """m1, Q1, A, b, Q of a stable chain that is not contracting (singular values above 1)."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((k, k))
    A *= radius / np.abs(np.linalg.eigvals(A)).max()
    A[0, -1] += 2 if k > 1 else 0
    A *= radius / np.abs(np.linalg.eigvals(A)).max()
    W, V = rng.standard_normal((2, k, k))
    parts = rng.standard_normal(k), V @ V.T, A, rng.standard_normal(k), W @ W.T + 0.1 * np.eye(k)
    return tuple(jnp.asarray(x, dtype) for x in parts)


@pytest.mark.parametrize("k", [1, 3, 12])
def test_parameters_of_the_canonical_chain(k):
    m1, Q1, A, _, Q = map(np.asarray, chain := stable_chain(2, k))
    form = canonical_form(*chain)
    G, c = np.asarray(form.G), np.asarray(form.c)
    iG = np.linalg.inv(G)
    np.testing.assert_allclose(form.G_inverse, iG, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(form.m1, G @ m1 + c, atol=1e-9)
    np.testing.assert_allclose(form.Q1, G @ Q1 @ G.T, atol=1e-9)
    np.testing.assert_allclose(form.A, G @ A @ iG, atol=1e-9)
    np.testing.assert_allclose(form.Q, G @ Q @ G.T, atol=1e-9)
    # stationary law N(0, I), no bias
    np.testing.assert_allclose(G @ solve_discrete_lyapunov(A, Q) @ G.T, np.eye(k), atol=1e-9)
    np.testing.assert_allclose(np.asarray(form.A) @ form.A.T + form.Q, np.eye(k), atol=1e-9)
    np.testing.assert_array_equal(form.b, np.zeros(k))
    assert k == 1 or singular_values(A)[0] > 1
    assert singular_values(form.A)[0] < 1
    np.testing.assert_allclose(np.abs(np.linalg.eigvals(form.A)).max(), 0.9, rtol=1e-9)


def test_sign_of_the_shift():
    """u = Gz + c has no bias for c = (GAG⁻¹ - I)⁻¹Gb, as the lemma has it, and not for -c: step a mean by hand."""
    m1, _, A, b, _ = map(np.asarray, chain := stable_chain(3))
    form = canonical_form(*chain)
    G, iG, c = map(np.asarray, (form.G, form.G_inverse, form.c))
    np.testing.assert_allclose(c, np.linalg.solve(G @ A @ iG - np.eye(3), G @ b), atol=1e-12)
    u, next_u = form.to_canonical(jnp.asarray(m1)), form.to_canonical(jnp.asarray(A @ m1 + b))
    np.testing.assert_allclose(next_u, np.asarray(form.A) @ u, atol=1e-12)
    wrong, next_wrong = G @ m1 - c, G @ (A @ m1 + b) - c
    assert np.abs(next_wrong - np.asarray(form.A) @ wrong).max() > 0.1
    stationary_mean = jnp.asarray(np.linalg.solve(np.eye(3) - A, b))
    np.testing.assert_allclose(form.to_canonical(stationary_mean), 0, atol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_maps_are_inverse_to_each_other(dtype):
    form = canonical_form(*stable_chain(4, dtype=dtype))
    assert all(x.dtype == dtype for x in jax.tree.leaves(form))
    z = jnp.asarray(np.random.default_rng(5).standard_normal((2, 5, 3)), dtype)
    u = form.to_canonical(z)
    assert u.dtype == dtype
    expected = np.asarray(z) @ np.asarray(form.G).T + np.asarray(form.c)
    tolerance = 2e-5 if dtype == jnp.float32 else 1e-12
    np.testing.assert_allclose(u, expected, atol=tolerance)
    np.testing.assert_allclose(form.from_canonical(u), z, atol=tolerance)


def joint_law(m1, Q1, A, b, Q, T):
    """Mean and covariance of (z_1, ..., z_T), written out: z is linear in the noises e, z_t = Az_{t-1} + e_t."""
    k = len(m1)
    L = np.zeros((T, k, T, k))
    for t in range(T):
        for s in range(t + 1):
            L[t, :, s] = np.linalg.matrix_power(A, t - s)
    L = L.reshape(T * k, T * k)
    noise = np.zeros((T, k, T, k))
    for t in range(T):
        noise[t, :, t] = Q if t else Q1
    drive = np.concatenate([m1, *[b] * (T - 1)])
    return L @ drive, L @ noise.reshape(T * k, T * k) @ L.T


def test_likelihood_is_unchanged():
    """Of y = Cz + d + noise; in the new variables y = f(h(u)) + noise, f(z) = Cz + d and h the inverse map."""
    T, C = 6, np.random.default_rng(6).standard_normal((2, 3))
    d, R = np.array([1.0, -2.0]), 0.3 * np.eye(2)
    chain = stable_chain(7)
    form = canonical_form(*chain)
    new = form.chain(T)
    emission = lambda u: np.asarray(form.from_canonical(jnp.asarray(u))) @ C.T + d  # noqa: E731
    intercept = emission(np.zeros(3))
    slope = (emission(np.eye(3)) - intercept).T

    def log_likelihood(parameters, C, d, y):
        mean, cov = joint_law(*map(np.asarray, parameters), T)
        every = np.kron(np.eye(T), C)
        law = multivariate_normal(every @ mean + np.tile(d, T), every @ cov @ every.T + np.kron(np.eye(T), R))
        return law.logpdf(y)

    y = 3 * np.random.default_rng(8).standard_normal((5, 2 * T))
    old_likelihood = log_likelihood(chain, C, d, y)
    new_likelihood = log_likelihood((new.m1, new.Q1, new.A[0], new.b[0], new.Q[0]), slope, intercept, y)
    assert old_likelihood.std() > 1
    np.testing.assert_allclose(new_likelihood, old_likelihood, rtol=1e-9)


def test_a_chain_in_its_stationary_law_stays_there():
    _, _, A, b, Q = stable_chain(9)
    m, S = np.linalg.solve(np.eye(3) - np.asarray(A), b), solve_discrete_lyapunov(A, Q)
    form = canonical_form(jnp.asarray(m), jnp.asarray(S), A, b, Q)
    np.testing.assert_allclose(form.m1, 0, atol=1e-10)
    np.testing.assert_allclose(form.Q1, np.eye(3), atol=1e-10)


@pytest.mark.parametrize("eigenvalue", [1 - 1e-9, -1 + 1e-9])
def test_almost_unstable(eigenvalue):
    """Close to the unit circle the covariance is nearly singular relative to its largest axis, but it exists."""
    k, rng = 12, np.random.default_rng(10)
    V = np.linalg.qr(rng.standard_normal((k, k)))[0]
    A = V @ np.diag(np.r_[eigenvalue, rng.uniform(-0.9, 0.9, k - 1)]) @ V.T
    W = rng.standard_normal((k, k))
    form = canonical_form(*map(jnp.asarray, (np.zeros(k), np.eye(k), A, np.zeros(k), W @ W.T)))
    np.testing.assert_allclose(np.asarray(form.G) @ W @ W.T @ form.G.T, form.Q, atol=1e-6)
    assert singular_values(form.A)[0] < 1


def test_unstable_chain():
    m1, Q1, A, b, Q = stable_chain(11)
    with pytest.raises(ValueError, match=r"A has spectral radius 1\.2, so .* needs a radius below 1 \(shrink A"):
        canonical_form(m1, Q1, A * (1.2 / 0.9), b, Q)
    with pytest.raises(ValueError, match="A has spectral radius 1, so"):
        canonical_form(m1, Q1, jnp.diag(jnp.asarray([0.5, -1.0, 0.2])), b, Q)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_singular_stationary_covariance(dtype):
    rng = np.random.default_rng(12)
    V = np.linalg.qr(rng.standard_normal((3, 3)))[0]  # noise and dynamics keep to a plane
    A, Q = V @ np.diag([0.9, 0.5, 0.3]) @ V.T, V @ np.diag([1.0, 2.0, 0.0]) @ V.T
    with pytest.raises(
        ValueError, match=r"smallest eigenvalue is \S+ \(the largest is 5\.26\).*multiple of the identity"
    ):
        canonical_form(*(jnp.asarray(x, dtype) for x in (np.zeros(3), np.eye(3), A, np.zeros(3), Q)))


def test_singular_noise_is_enough_if_the_dynamics_spread_it():
    A, Q = np.array([[0.5, 1.0], [0.0, 0.5]]), np.diag([0.0, 1.0])  # an AR(2) process
    form = canonical_form(*map(jnp.asarray, (np.zeros(2), np.eye(2), A, np.ones(2), Q)))
    np.testing.assert_allclose(singular_values(form.A)[0], 1, rtol=1e-12)
    np.testing.assert_allclose(form.Q, np.asarray(form.G) @ Q @ form.G.T, atol=1e-12)


@pytest.mark.parametrize(
    ("index", "value", "message"),
    [
        (4, np.diag([1.0, 1.0, -1.0]), r"Q is not positive semidefinite \(smallest eigenvalue -1\)"),
        (1, np.triu(np.ones((3, 3))), r"Q1 is not symmetric \(entries \(i, j\) and \(j, i\) differ by 1\)"),
        (3, np.array([0.0, np.nan, 0.0]), "b is not finite"),
        (2, np.eye(3, dtype=int), "A has dtype int64, not a floating-point one"),
        (4, np.eye(2), r"Q has shape \(2, 2\), not \(latent=3, latent=3\)"),
    ],
)
def test_wrong_parameters(index, value, message):
    chain = list(stable_chain(13))
    chain[index] = jnp.asarray(value)
    with pytest.raises(ValueError, match=message):
        unchecked(canonical_form)(*chain)
