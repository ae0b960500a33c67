"""Smoothers for known models: exact where the model is linear, and as good as a grid where it is not."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.core.nonlinear import KnownModel, filter_known, linearise, smooth_known

A = np.array([[0.9, 0.3], [-0.2, 0.8]])
C = np.array([[1.0, 0.5], [0.2, -1.0], [0.3, 0.3]])
B, D = np.array([0.1, -0.2]), np.array([0.5, 0.0, -0.5])
Q, R = np.array([[0.3, 0.1], [0.1, 0.2]]), np.diag([0.2, 0.4, 0.3])
M1, Q1 = np.array([1.0, -1.0]), np.array([[1.0, 0.2], [0.2, 0.5]])
KINDS = ("extended", "unscented")


def dense_posterior(x, seen):
    """Condition the joint normal law of all states on all frames seen, by the textbook formula."""
    t, k = len(x), 2
    mean, blocks = [M1], [Q1]
    for _ in range(t - 1):
        mean.append(A @ mean[-1] + B)
        blocks.append(A @ blocks[-1] @ A.T + Q)
    S = np.zeros((t * k, t * k))
    for i in range(t):
        for j in range(i, t):
            S[j * k : (j + 1) * k, i * k : (i + 1) * k] = np.linalg.matrix_power(A, j - i) @ blocks[i]
            S[i * k : (i + 1) * k, j * k : (j + 1) * k] = S[j * k : (j + 1) * k, i * k : (i + 1) * k].T
    H = np.kron(np.diag(seen.astype(float)), C)[np.repeat(seen, 3)]
    noise = np.kron(np.eye(int(seen.sum())), R)
    m = np.concatenate(mean)
    gain = np.linalg.solve(H @ S @ H.T + noise, H @ S).T
    m = m + gain @ ((x - D)[seen].reshape(-1) - H @ m)
    V = S - gain @ H @ S
    return m.reshape(t, k), np.stack([V[i * k : (i + 1) * k, i * k : (i + 1) * k] for i in range(t)])


def linear_model(dtype=jnp.float64):
    a, c, b, d = (jnp.asarray(y, dtype) for y in (A, C, B, D))
    m1, q1, q, r = (jnp.asarray(y, dtype) for y in (M1, Q1, Q, R))
    return KnownModel(m1, q1, lambda z: a @ z + b, q, lambda z: c @ z + d, r)


@pytest.mark.parametrize("kind", ["extended", pytest.param("unscented", marks=pytest.mark.slow)])
def test_a_linear_model_is_smoothed_exactly_whatever_missing_frames_hold(kind):
    rng = np.random.default_rng(0)
    x, mask = rng.normal(size=(3, 6, 3)), rng.random((3, 6)) < 0.7
    spoiled = np.where(mask[..., None], x, np.nan)
    smoothed = jax.jit(partial(smooth_known, linear_model(), kind=kind))(spoiled, mask)
    for i in range(3):
        mean, cov = dense_posterior(x[i], mask[i])
        np.testing.assert_allclose(smoothed.mean[i], mean, atol=1e-9)
        np.testing.assert_allclose(smoothed.cov[i], cov, atol=1e-9)


@pytest.mark.slow
def test_filtering_a_linear_model_is_smoothing_the_frames_so_far():
    x = np.random.default_rng(0).normal(size=(1, 5, 3))
    filtered = jax.jit(partial(filter_known, linear_model()))(x)
    for t in range(5):
        mean, cov = dense_posterior(x[0, : t + 1], np.ones(t + 1, bool))
        np.testing.assert_allclose(filtered.mean[0, t], mean[-1], atol=1e-9)
        np.testing.assert_allclose(filtered.cov[0, t], cov[-1], atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_iterating_a_linear_model_changes_nothing(kind):
    x, everything = np.random.default_rng(1).normal(size=(2, 5, 3)).astype(np.float32), np.ones(5, bool)
    run = jax.jit(partial(smooth_known, linear_model(jnp.float32), kind=kind, iterations=3))
    found = run(x)
    assert found.mean.dtype == jnp.float32
    for i in range(2):
        np.testing.assert_allclose(found.mean[i], dense_posterior(x[i].astype(float), everything)[0], atol=1e-4)


def test_linearising():
    """Tangent and regression against derivatives and moments known by heart."""
    m, P = jnp.asarray([0.5, -1.0]), jnp.asarray([[0.4, 0.1], [0.1, 0.3]])

    def square(z):
        return jnp.stack([z[0] ** 2, z[0] * z[1]])

    tangent = jax.jit(lambda m, P: linearise(square, m, P, "extended"))(m, P)
    np.testing.assert_allclose(tangent.F, [[1.0, 0.0], [-1.0, 0.5]], atol=1e-12)
    np.testing.assert_allclose(tangent.F @ m + tangent.b, square(m), atol=1e-12)
    np.testing.assert_array_equal(tangent.N, np.zeros((2, 2)))
    regression = jax.jit(lambda m, P: linearise(square, m, P, "unscented"))(m, P)
    # E z0² = m0² + P00 and E z0z1 = m0m1 + P01; Cov(z0², z) P⁻¹ is the expected slope (2m0, 0)
    np.testing.assert_allclose(regression.F @ m + regression.b, [0.25 + 0.4, -0.5 + 0.1], atol=1e-12)
    np.testing.assert_allclose(regression.F, [[1.0, 0.0], [-1.0, 0.5]], atol=1e-12)
    np.testing.assert_allclose(regression.N[0, 0], 2 * 0.4**2, atol=1e-12)  # what is left of Var z0² = 4m0²P + 2P²


@pytest.mark.parametrize("k", [1, 5])
def test_regression_keeps_affine_functions_and_flat_directions(k):
    rng = np.random.default_rng(k)
    F, L = rng.normal(size=(2, k)), np.tril(rng.normal(size=(k, k)))
    L[:, -1] = 0  # no spread in the last direction
    m = jnp.asarray(rng.normal(size=k))
    found = jax.jit(lambda P: linearise(lambda z: jnp.asarray(F) @ z + 1.0, m, P, "unscented"))(L @ L.T)
    np.testing.assert_allclose(found.F @ L, F @ L, atol=1e-9)
    np.testing.assert_allclose(found.F @ m + found.b, F @ m + 1, atol=1e-9)
    np.testing.assert_allclose(found.N, np.zeros((2, 2)), atol=1e-12)


def grid_posterior(x, f, g, q, r, m1, q1):
    """Means and variances of a one-dimensional state on a fine grid, forward and backward."""
    grid = np.linspace(-5, 5, 801)
    move = np.exp(-0.5 * (grid[None] - f(grid)[:, None]) ** 2 / q)
    move /= move.sum(1, keepdims=True)
    seen = np.exp(-0.5 * (x[:, None] - g(grid)[None]) ** 2 / r)
    forward = [np.exp(-0.5 * (grid - m1) ** 2 / q1) * seen[0]]
    for like in seen[1:]:
        forward.append((forward[-1] / forward[-1].sum()) @ move * like)
    backward = [np.ones_like(grid)]
    for like in seen[:0:-1]:
        message = move @ (like * backward[0])
        backward.insert(0, message / message.max())
    p = np.array(forward) * np.array(backward)
    p /= p.sum(1, keepdims=True)
    mean = p @ grid
    return mean, p @ grid**2 - mean**2


@pytest.mark.slow
def test_a_nonlinear_model_against_a_grid():
    q, r, m1, q1 = 0.05, 0.1, 0.5, 0.3

    def f(z):
        return z + 0.15 * np.sin(2 * z) if isinstance(z, np.ndarray) else z + 0.15 * jnp.sin(2 * z)

    def g(z):
        return z + 0.1 * z**3

    rng, z, x = np.random.default_rng(3), np.array([0.5]), []
    for _ in range(12):
        x.append(g(z) + r**0.5 * rng.normal(size=1))
        z = f(z) + q**0.5 * rng.normal(size=1)
    x = np.array(x)
    mean, variance = grid_posterior(x[:, 0], f, g, q, r, m1, q1)
    known = [jnp.asarray(v).reshape(s) for v, s in ((m1, (1,)), (q1, (1, 1)), (q, (1, 1)), (r, (1, 1)))]
    model = KnownModel(known[0], known[1], f, known[2], g, known[3])
    for kind in KINDS:
        for iterations in (1, 5):
            run = jax.jit(partial(smooth_known, model, kind=kind, iterations=iterations))
            found = run(jnp.asarray(x)[None])
            wrong = np.abs(found.mean[0, :, 0] - mean) / np.sqrt(variance)
            assert wrong.max() < (0.9 if iterations == 1 else 0.2), (kind, iterations)
            np.testing.assert_allclose(found.cov[0, :, 0, 0], variance, rtol=0.35)


@pytest.mark.slow
def test_iterating_finds_the_most_likely_trajectory():
    """The iterated extended smoother is Gauss-Newton: at its end the gradient of log p(z, x) vanishes."""
    x = jnp.asarray(np.random.default_rng(4).normal(size=(1, 5, 1)))

    def f(z):
        return jnp.tanh(1.5 * z)

    def g(z):
        return jnp.sin(z) + z

    one = jnp.ones((1, 1))
    model = KnownModel(jnp.zeros(1), one, f, 0.5 * one, g, 0.5 * one)

    def log_p(z):
        first, steps, seen = z[0], z[1:] - jax.vmap(f)(z[:-1]), x[0] - jax.vmap(g)(z)
        return -0.5 * jnp.sum(first**2) - jnp.sum(steps**2) - jnp.sum(seen**2)

    run = jax.jit(partial(smooth_known, model, kind="extended"), static_argnames="iterations")
    slope = {i: np.abs(jax.grad(log_p)(run(x, iterations=i).mean[0])).max() for i in (1, 25)}
    assert slope[25] < 1e-6 < slope[1]


def textbook_unscented(x, f, g, q, r, m, P):
    """The unscented filter and Rauch-Tung-Striebel smoother of a two-dimensional state, step by step."""
    weights = np.array([1 / 3] + [1 / 6] * 4)

    def points(m, P):
        L = np.sqrt(3) * np.linalg.cholesky(P)
        return np.stack([m, m + L[:, 0], m + L[:, 1], m - L[:, 0], m - L[:, 1]])

    def cov(a, b):
        return np.einsum("s,si,sj->ij", weights, a - weights @ a, b - weights @ b)

    filtered, ahead = [], []
    for y in x:
        z = points(m, P)
        seen = np.stack([g(p) for p in z])
        S = cov(seen, seen) + r
        gain = cov(z, seen) @ np.linalg.inv(S)
        m, P = m + gain @ (y - weights @ seen), P - gain @ S @ gain.T
        filtered.append((m, P))
        z = points(m, P)
        moved = np.stack([f(p) for p in z])
        cross, m, P = cov(z, moved), weights @ moved, cov(moved, moved) + q
        ahead.append((cross, m, P))
    smoothed = [filtered[-1]]
    for (m, P), (cross, m_ahead, P_ahead) in zip(filtered[-2::-1], ahead[-2::-1], strict=True):
        back = cross @ np.linalg.inv(P_ahead)
        smoothed.insert(0, (m + back @ (smoothed[0][0] - m_ahead), P + back @ (smoothed[0][1] - P_ahead) @ back.T))
    return [np.stack(y) for y in zip(*smoothed, strict=True)]


def test_the_unscented_smoother_is_the_textbook_one():
    """Also for a start of its own for each sequence."""
    x = np.random.default_rng(5).normal(size=(2, 7, 2))
    starts = np.array([[0.5, 0.0], [-1.0, 0.3]])

    def f(z):
        return jnp.stack([z[0] + 0.3 * z[1], z[1] - 0.3 * jnp.sin(z[0])])

    def g(z):
        return jnp.stack([jnp.sin(z[0]), z[1] ** 2])

    q, r, q1 = 0.1 * np.eye(2), 0.3 * np.eye(2), 0.5 * np.eye(2)
    model = KnownModel(jnp.asarray(starts), jnp.asarray(q1), f, jnp.asarray(q), g, jnp.asarray(r))
    found = jax.jit(partial(smooth_known, model, kind="unscented"))(jnp.asarray(x))
    for i in range(2):
        mean, cov = textbook_unscented(x[i], jax.jit(f), jax.jit(g), q, r, starts[i], q1)
        np.testing.assert_allclose(found.mean[i], mean, atol=1e-9)
        np.testing.assert_allclose(found.cov[i], cov, atol=1e-9)


def test_no_pass_is_too_few():
    with pytest.raises(ValueError, match="at least one pass"):
        smooth_known(linear_model(), jnp.zeros((2, 3, 3)), iterations=0)
