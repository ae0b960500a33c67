"""Priors against loops over sequences and frames: the chains that they build, and how they may be learned."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.core import GaussianChain, StationaryChain, check_chain
from rpgssm.nn.priors import (
    ControlledPrior,
    FreePrior,
    NetworkPrior,
    StationaryPrior,
    contraction,
    covariance_of,
    factor_of,
    initial_transition,
    inverse_contraction,
    make_prior,
)

N, T, K, U, V = 3, 5, 4, 2, 3
projected = eqx.filter_jit(lambda prior: prior.project(0.95))
chain_of = eqx.filter_jit(lambda prior, controls: prior.chain(T, controls))
KEY = jax.random.key(0)
KINDS = ("stationary", "free", "controlled", "controlled-discrete", "network", "network-discrete")
TOLERANCE = {jnp.float32: 2e-6, jnp.float64: 1e-12}


def controls_for(kind):
    rng = np.random.default_rng(1)
    if kind.endswith("discrete"):
        return rng.integers(0, V, (N, T))
    return None if kind in ("stationary", "free") else rng.standard_normal((N, T, U))


def settings_for(kind):
    name, _, discrete = kind.partition("-")
    size = {} if name in ("stationary", "free") else {"n_control_values": V} if discrete else {"control_dim": U}
    return {"kind": name, "latent_dim": K, "width": 6} | size


@cache
def prior_for(kind, dtype=jnp.float64):
    """A prior moved away from where it starts, so that nothing about it is special."""
    prior = make_prior(**settings_for(kind), key=KEY, dtype=dtype)
    rng = np.random.default_rng(0)
    arrays, rest = eqx.partition(prior, eqx.is_array)
    return eqx.combine(
        jax.tree.map(lambda x: x + jnp.asarray(0.1 * rng.standard_normal(x.shape), x.dtype), arrays), rest
    )


def naive_network(network, u):
    hidden = np.tanh(np.asarray(network.layers[0].weight) @ u + np.asarray(network.layers[0].bias))
    return np.asarray(network.layers[1].weight) @ hidden + np.asarray(network.layers[1].bias)


def naive_covariance(factor):
    L = np.tril(factor, -1) + np.diag(np.log1p(np.exp(np.diagonal(factor))))
    return L @ L.T + 1e-6 * np.eye(K)


def naive_step(prior, kind, u):
    """A, b and Q of one step under control u, by the formulas of the documentation."""
    eye = np.eye(K)
    one_hot = np.eye(V)[u] if kind.endswith("discrete") else u
    if isinstance(prior, FreePrior):
        return np.asarray(prior.A), np.asarray(prior.b), naive_covariance(prior.factor)
    if isinstance(prior, NetworkPrior):
        out = naive_network(prior.network, one_hot)
        M = np.asarray(prior.M) + out[K:].reshape(K, K)
        A, b = 0.999 * M @ np.linalg.inv(np.linalg.cholesky(eye + M.T @ M)).T, out[:K]
    elif isinstance(prior, ControlledPrior):
        A, b = np.asarray(prior.A), np.asarray(prior.B) @ one_hot
    else:
        A, b = np.asarray(prior.A), np.zeros(K)
    return A, b, eye - A @ A.T


def naive_marginals(prior, kind, controls):
    """Means (n, t, k) and covariances (n, t, k, k) of the prior, frame by frame."""
    means, covariances = np.zeros((N, T, K)), np.zeros((N, T, K, K))
    for n in range(N):
        m, S = np.zeros(K), np.eye(K)
        if isinstance(prior, FreePrior):
            m, S = np.asarray(prior.m1), naive_covariance(prior.factor1)
        for t in range(T):
            means[n, t], covariances[n, t] = m, S
            A, b, Q = naive_step(prior, kind, None if controls is None else controls[n, t])
            m, S = A @ m + b, A @ S @ A.T + Q
    return means, covariances


def chain_marginals(chain):
    """The same from a chain, whichever kind it is."""
    means, covariances = np.zeros((N, T, K)), np.zeros((N, T, K, K))
    for n in range(N):
        if isinstance(chain, StationaryChain):
            A = np.asarray(chain.A, np.float64)
            m1, Q1, A, b, Q = np.zeros(K), np.eye(K), [A] * T, [np.zeros(K)] * T, [np.eye(K) - A @ A.T] * T
        else:
            one = [x[n] if chain.batched else x for x in (chain.m1, chain.Q1, chain.A, chain.b, chain.Q)]
            m1, Q1, A, b, Q = (np.asarray(x, np.float64) for x in one)
        m, S = m1, Q1
        for t in range(T):
            means[n, t], covariances[n, t] = m, S
            if t < T - 1:
                m, S = A[t] @ m + b[t], A[t] @ S @ A[t].T + Q[t]
    return means, covariances


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_chain_against_loops(kind, dtype):
    prior, controls = projected(prior_for(kind, dtype)), controls_for(kind)
    chain = chain_of(prior, controls)
    assert all(x.dtype == dtype for x in jax.tree.leaves(chain))
    check_chain(chain)
    assert prior.latent_dim == chain.latent_dim == K
    assert isinstance(chain, StationaryChain) == (kind == "stationary")
    if isinstance(chain, GaussianChain):
        assert chain.batched == (controls is not None)
        assert chain.A.shape[-3] == T - 1
    expected = naive_marginals(
        jax.tree.map(lambda x: np.asarray(x, np.float64) if eqx.is_array(x) else x, prior), kind, controls
    )
    for actual, wanted in zip(chain_marginals(chain), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, 0, 10 * TOLERANCE[dtype])


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_against_differences(kind):
    prior, controls = projected(prior_for(kind)), controls_for(kind)
    rng = np.random.default_rng(2)
    weights = [rng.standard_normal(x.shape) for x in jax.tree.leaves(chain_of(prior, controls))]
    parameters, rest = eqx.partition(prior, eqx.is_array)

    def some_number(parameters):
        chain = eqx.combine(parameters, rest).chain(T, controls)
        return sum(jnp.sum(w * x) for w, x in zip(weights, jax.tree.leaves(chain), strict=True))

    value_and_gradient = jax.jit(jax.value_and_grad(some_number))
    gradient = value_and_gradient(parameters)[1]
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert np.any(leaf != 0), path
    direction = jax.tree.map(lambda x: jnp.asarray(rng.standard_normal(x.shape)), parameters)
    ends = (
        value_and_gradient(jax.tree.map(lambda x, d, e=e: x + e * d, parameters, direction))[0] for e in (1e-5, -1e-5)
    )
    slope = sum(np.vdot(g, d) for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True))
    np.testing.assert_allclose(np.subtract(*ends) / 2e-5, slope, rtol=1e-6)


@pytest.mark.parametrize("kind", ["controlled", "controlled-discrete", "network", "network-discrete"])
def test_the_last_control_has_no_effect_and_the_others_have(kind):
    prior, controls = prior_for(kind), controls_for(kind)
    changed = controls.copy()
    changed[:, -1] = 0 if controls.ndim == 3 else (changed[:, -1] + 1) % V
    before, after, without = (chain_of(prior, u) for u in (controls, changed, controls[:, :-1]))
    assert eqx.tree_equal(before, after)
    assert eqx.tree_equal(before, without)
    changed[1, 2] = 0 if controls.ndim == 3 else (changed[1, 2] + 1) % V
    different = np.asarray(chain_of(prior, changed).b != before.b).any(-1)
    np.testing.assert_array_equal(np.argwhere(different), [[1, 2]])


@pytest.mark.parametrize("kind", ["controlled", "network"])
def test_integers_and_their_one_hot_vectors_are_the_same(kind):
    discrete = prior_for(f"{kind}-discrete")
    continuous = _as_continuous(discrete)
    u = controls_for("controlled-discrete")
    a, b = chain_of(discrete, u), chain_of(continuous, np.eye(V)[u])
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, 0, 1e-14)


def _as_continuous(prior):
    if isinstance(prior, ControlledPrior):
        return ControlledPrior(prior.A, prior.B, False)
    return NetworkPrior(prior.M, prior.network, False)


# ---------------------------------------------------------------------------------------------------------------------
# stability


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_projection_bounds_A_and_is_idempotent(kind, dtype):
    prior = prior_for(kind, dtype)
    if hasattr(prior, "A"):
        prior = eqx.tree_at(lambda p: p.A, prior, 3 * prior.A)
    once = projected(prior)
    assert type(once) is type(prior)
    assert eqx.tree_equal(projected(once), once)
    if hasattr(prior, "A"):
        assert np.linalg.norm(prior.A, 2) > 1
        assert 0.949 < np.linalg.norm(np.asarray(once.A, np.float64), 2) < 0.95
        assert eqx.tree_equal(eqx.tree_at(lambda p: p.A, once, prior.A), prior)
    else:
        assert eqx.tree_equal(once, prior)


def test_projection_leaves_an_unbounded_prior_alone():
    prior = prior_for("free")
    free = FreePrior(prior.m1, prior.factor1, 3 * prior.A, prior.b, prior.factor, bounded=False)
    assert eqx.tree_equal(free.project(), free)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_contraction_whatever_the_matrix(dtype):
    M = np.random.default_rng(3).standard_normal((30, K, K)) * 10.0 ** np.linspace(-3, 2, 30)[:, None, None]
    A = np.asarray(jax.jit(contraction, static_argnums=1)(jnp.asarray(M, dtype), 0.9), np.float64)
    s = np.linalg.svd(M, compute_uv=False)
    np.testing.assert_allclose(
        np.linalg.svd(A, compute_uv=False), 0.9 * s / np.sqrt(1 + s**2), 0, 10 * TOLERANCE[dtype]
    )


def test_contraction_reaches_every_contraction():
    A = np.random.default_rng(4).standard_normal((K, K))
    A *= 0.98 / np.linalg.norm(A, 2)
    np.testing.assert_allclose(jax.jit(contraction)(jnp.asarray(inverse_contraction(A))), A, 0, 1e-12)


def test_noise_of_the_network_stays_a_covariance():
    prior = prior_for("network", jnp.float32)
    extreme = eqx.tree_at(lambda p: p.M, prior, 300 * prior.M)
    chain = chain_of(extreme, 100 * controls_for("network").astype(np.float32))
    check_chain(chain)
    assert np.linalg.eigvalsh(np.asarray(chain.Q, np.float64)).min() > 1e-3


# ---------------------------------------------------------------------------------------------------------------------
# where they start


@pytest.mark.parametrize("initial", ["identity", "rotation"])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_initial_transition(initial, k):
    A = initial_transition(initial, k, 0.8)
    np.testing.assert_allclose(A @ A.T, 0.64 * np.eye(k), atol=1e-15)
    if initial == "identity":
        np.testing.assert_array_equal(A, 0.8 * np.eye(k))
    else:
        angles = np.abs(np.angle(np.linalg.eigvals(A)))
        periods = {1: [np.inf], 2: [4, 4], 5: [4, 4, 100, 100, np.inf]}[k]
        np.testing.assert_allclose(np.sort(angles), np.sort(2 * np.pi / np.array(periods)), atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_smooth_start(k):
    """Correlations of the first of each pair are those of a Matérn process, (1 + s/τ) exp(-s/τ), and the second is its
    slope: their correlation is the derivative of that, in units of τ."""
    A = initial_transition("smooth", k, 0.9) / 0.9
    expected = np.eye(k)
    for s in range(6):
        for i, τ in enumerate([3.0, 30.0][: k // 2]):
            x = s / τ
            slopes = [[1 + x, x], [-x, 1 - x]]
            expected[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = np.exp(-x) * np.array(slopes)
        np.testing.assert_allclose(np.linalg.matrix_power(A, s), expected, atol=1e-12)
    assert np.linalg.norm(A, 2) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_priors_start_near_the_stationary_chain_of_the_given_matrix(kind):
    A = np.random.default_rng(5).standard_normal((K, K))
    A *= 0.9 / np.linalg.norm(A, 2)
    chain = chain_of(make_prior(**settings_for(kind), key=KEY, initial=A, dtype=jnp.float64), controls_for(kind))
    name = kind.partition("-")[0]
    np.testing.assert_allclose(chain.A - A, 0, atol=0.15 if name == "network" else 1e-14)
    if isinstance(chain, GaussianChain):
        Q = np.asarray(chain.A @ jnp.swapaxes(chain.A, -1, -2))
        np.testing.assert_allclose(chain.Q, np.eye(K) - Q, atol=1e-12)
        np.testing.assert_allclose(chain.Q1 - np.eye(K), 0, atol=1e-12)
        assert np.abs(chain.b).max() < 0.5
        assert (np.abs(chain.b).max() > 0) == (name != "free")


def test_factor_and_covariance_are_inverse():
    X = np.random.default_rng(6).standard_normal((K, 2 * K))
    np.testing.assert_allclose(covariance_of(jnp.asarray(factor_of(X @ X.T))), X @ X.T, rtol=1e-12)


def test_several_seeds_at_once():
    settings, controls, keys = settings_for("controlled"), controls_for("controlled"), jax.random.split(KEY, 2)

    def chain(key):
        return make_prior(**settings, key=key).project().chain(T, controls)

    together = jax.jit(jax.vmap(chain))(keys)
    for seed, key in enumerate(keys):
        for x, y in zip(jax.tree.leaves(together), jax.tree.leaves(jax.jit(chain)(key)), strict=True):
            np.testing.assert_allclose(x[seed], y, 0, 1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stack_of_priors_is_one_prior_under_vmap(kind):
    one = prior_for(kind)
    arrays, rest = eqx.partition(one, eqx.is_array)
    stack = eqx.combine(jax.tree.map(lambda x: jnp.stack([x, 2 * x]), arrays), rest)
    together = eqx.filter_jit(eqx.filter_vmap(lambda p: p.project(0.95)))(stack)
    other = projected(eqx.combine(jax.tree.map(lambda x: 2 * x, arrays), rest))
    for x, y in zip(*(jax.tree.leaves(eqx.filter(p, eqx.is_array)) for p in (together, other)), strict=True):
        np.testing.assert_allclose(x[1], y, 0, 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_reference(kind):
    reference = prior_for(kind).reference()
    if kind in ("stationary", "free"):
        assert reference is None
    else:
        np.testing.assert_array_equal(reference.h, np.zeros(K))
        np.testing.assert_array_equal(reference.precision, np.eye(K))


# ---------------------------------------------------------------------------------------------------------------------
# what is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "statoinary"}, "kind is 'statoinary'"),
        ({"latent_dim": 0}, "at least one latent dimension"),
        ({"initial": "eye"}, "initial is 'eye'"),
        ({"initial": np.eye(3)}, r"initial has shape \(3, 3\)"),
        ({"initial": 1.5 * np.eye(K)}, "largest singular value of initial is 1.5"),
        ({"initial": np.full((K, K), np.nan)}, "not finite"),
        ({"scale": 1.0}, "scale is 1.0"),
        ({"control_dim": 2}, "a stationary prior has no controls"),
        ({"kind": "free", "n_control_values": 2}, "a free prior has no controls"),
        ({"kind": "controlled"}, "needs control_dim"),
        ({"kind": "network", "control_dim": 2, "n_control_values": 2}, "and not both"),
        ({"kind": "network", "control_dim": 0}, "at least one dimension"),
        ({"kind": "controlled", "n_control_values": 0}, "at least one value"),
    ],
)
def test_wrong_settings(arguments, message):
    make = getattr(make_prior, "__wrapped__", make_prior)  # without the tests' own checks of types
    with pytest.raises(ValueError, match=message):
        make(**({"kind": "stationary", "latent_dim": K, "key": KEY} | arguments))


@pytest.mark.parametrize("kind", ["controlled", "network"])
def test_wrong_controls(kind):
    continuous, discrete = prior_for(kind), prior_for(f"{kind}-discrete")
    u, i = controls_for(kind), controls_for(f"{kind}-discrete")
    with pytest.raises(ValueError, match=r"needs controls, vectors \(n, t, 2\)"):
        continuous.chain(T)
    with pytest.raises(ValueError, match=r"takes vectors \(n, t, 2\)"):
        continuous.chain(T, u[..., :1])
    with pytest.raises(ValueError, match=r"shape \(3, 5\) and dtype int64"):
        continuous.chain(T, i)
    with pytest.raises(ValueError, match="takes integers"):
        discrete.chain(T, u)
    with pytest.raises(ValueError, match="controls have 5 frames but the chain has 7"):
        continuous.chain(T + 2, u)
    i = i.copy()
    i[2, 1] = V
    with pytest.raises(ValueError, match=r"controls\[2, 1\] is 3"):
        discrete.chain(T, i)


def test_stationary_prior_ignores_controls():
    prior = StationaryPrior(0.5 * jnp.eye(K))
    assert eqx.tree_equal(prior.chain(T, np.zeros((N, T, U))), prior.chain(T))
