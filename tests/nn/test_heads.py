"""Heads and recognition: what Λ is made of, where it starts, and that masked frames have no effect at all."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.core import StationaryChain, check, free_energy
from rpgssm.nn.encoders import make_encoder
from rpgssm.nn.heads import Recognition, make_head

KEY = jax.random.key(0)
KINDS = [(kind, dependent) for kind in ("diagonal", "cholesky") for dependent in (False, True)]
B, T, F, K = 3, 4, 5, 3


def features(dtype=jnp.float64):
    return jnp.asarray(np.random.default_rng(1).normal(size=(B, T, F)), dtype)


def naive_precision(head, raw):
    softplus = np.log1p(np.exp(raw))
    if head.kind == "diagonal":
        return np.diag(head.floor + softplus)
    L = np.diag(softplus[:K])
    L[1, 0], L[2, 0], L[2, 1] = raw[K:]
    return head.floor * np.eye(K) + L @ L.T


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize(("kind", "dependent"), KINDS)
def test_values(kind, dependent, dtype):
    head = make_head(kind, dependent, F, K, key=KEY, floor=0.01, initial_precision=2.0, dtype=dtype)
    x = features(dtype)
    h, precision = jax.jit(lambda m, x: m(x))(head, x)
    rows = np.asarray(x, np.float64)
    np.testing.assert_allclose(h, rows @ np.asarray(head.to_h.weight) + np.asarray(head.to_h.bias), atol=1e-6)
    assert h.dtype == precision.value.dtype == dtype
    assert (precision.shared, precision.diagonal) == (not dependent, kind == "diagonal")
    Λ = np.asarray(precision.dense())
    if dependent:
        raw = rows @ np.asarray(head.to_raw.weight) + np.asarray(head.to_raw.bias)
        expected = np.array([[naive_precision(head, r) for r in sequence] for sequence in raw])
        assert np.diagonal(Λ.std(axis=(0, 1))).min() > 0
    else:
        expected = naive_precision(head, np.asarray(head.raw, np.float64))
    np.testing.assert_allclose(Λ, expected, atol=1e-5)
    check(StationaryChain(0.5 * jnp.eye(K, dtype=dtype)), make_potentials(head, x))


def make_potentials(head, x):
    return Recognition(make_encoder("linear", (F,), key=KEY, dtype=x.dtype), head)(x)


@pytest.mark.parametrize("initial", [0.01, 1.0, 30.0])
@pytest.mark.parametrize(("kind", "dependent"), KINDS)
def test_where_the_precision_starts(kind, dependent, initial):
    head = make_head(kind, dependent, F, K, key=KEY, initial_precision=initial, dtype=jnp.float64)
    _, precision = head(jnp.zeros((1, 1, F), jnp.float64))
    np.testing.assert_allclose(precision.dense().reshape(K, K), initial * np.eye(K), atol=0.05 * initial)


@pytest.mark.parametrize(("kind", "dependent"), KINDS)
def test_the_last_layer_starts_small(kind, dependent):
    head = make_head(kind, dependent, 200, 50, key=KEY)
    np.testing.assert_allclose(np.asarray(head.to_h.weight).var(), 0.1 / 200, rtol=0.1)
    if dependent:
        np.testing.assert_allclose(np.asarray(head.to_raw.weight).var(), 0.1 / 200, rtol=0.1)


@pytest.mark.parametrize(("kind", "dependent"), KINDS)
def test_every_parameter_has_a_gradient_at_the_start(kind, dependent):
    head = make_head(kind, dependent, F, K, key=KEY, dtype=jnp.float64)
    weights = jax.random.normal(jax.random.key(2), (K, K), jnp.float64)

    @jax.jit
    def gradient(head, x):
        def loss(head):
            h, precision = head(x)
            return (h**3).sum() + (precision.dense() * weights).sum()

        return jax.grad(loss)(head)

    for leaf in jax.tree.leaves(gradient(head, features())):
        assert (np.abs(leaf) > 1e-6).all()


def test_the_floor_holds_far_out():
    head = make_head("cholesky", False, F, K, key=KEY, floor=1e-3)
    head = eqx.tree_at(lambda m: m.raw, head, jnp.full_like(head.raw, -1e3).at[K:].set(0))
    _, precision = head(features(jnp.float32))
    np.testing.assert_allclose(precision.value, 1e-3 * np.eye(K), rtol=1e-5)


@pytest.mark.parametrize("given", [{"kind": "full"}, {"floor": -1.0}, {"floor": 1.0}])
def test_refuses(given):
    # the type checker of the tests is the first to object to a wrong kind
    with pytest.raises((ValueError, TypeError), match=r"kind|floor"):
        make_head(**({"in_dim": F, "latent_dim": K, "key": KEY} | given))


def test_a_latent_of_one_dimension():
    for kind, dependent in KINDS:
        h, precision = make_head(kind, dependent, F, 1, key=KEY)(features(jnp.float32))
        assert h.shape == (B, T, 1)
        assert precision.dense().shape[-2:] == (1, 1)


def direction(x):
    """Not differentiable at zero, as many a user's encoder."""
    return x.reshape(-1) / jnp.sqrt((x**2).sum())


@pytest.mark.parametrize(
    ("kind", "dependent", "spec"),
    [
        pytest.param("diagonal", False, "mlp", marks=pytest.mark.slow),
        ("diagonal", True, direction),
        pytest.param("cholesky", True, "mlp", marks=pytest.mark.slow),
    ],
    ids=["constant", "dependent-user", "cholesky"],
)
def test_masked_frames_have_no_effect(kind, dependent, spec):
    recognition = Recognition(
        make_encoder(spec, (2, 2), key=KEY, dtype=jnp.float32),
        make_head(kind, dependent, 64 if spec == "mlp" else 4, K, key=KEY),
    )
    mask = jnp.asarray([[False, True, True], [True, False, True]])
    x = jax.random.normal(jax.random.key(1), (2, 3, 2, 2), jnp.float32)
    chain = StationaryChain(0.5 * jnp.eye(K, dtype=jnp.float32))

    @jax.jit
    def run(x):
        def loss(arguments):
            recognition, x = arguments
            potentials = recognition(x, mask)
            return free_energy(chain, potentials)[0], potentials

        return jax.grad(loss, has_aux=True)((recognition, x))

    runs = [run(jnp.where(mask[:, :, None, None], x, fill)) for fill in (0.0, jnp.nan, 1e30)]
    for (gradient, frames_gradient), potentials in runs:
        assert not np.any(np.asarray(potentials.h)[~np.asarray(mask)])
        assert not np.any(np.asarray(frames_gradient)[~np.asarray(mask)])
        for leaf in jax.tree.leaves((gradient, frames_gradient)):
            assert np.isfinite(leaf).all()
        for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(runs[0][0][0]), strict=True):
            np.testing.assert_array_equal(a, b)
    # the observed ones are what they are without a mask
    alone = recognition(x)
    np.testing.assert_allclose(runs[0][1].h[mask], alone.h[mask], rtol=1e-5, atol=1e-6)


def test_nothing_observed():
    recognition = Recognition(make_encoder("mlp", (2,), key=KEY), make_head("diagonal", True, 64, K, key=KEY))
    potentials = recognition(jnp.full((2, 3, 2), jnp.nan, jnp.float32), jnp.zeros((2, 3), bool))
    assert not np.any(potentials.h)
    assert np.isfinite(potentials.precision.value).all()


def test_several_seeds_at_once():
    def build(key):
        return Recognition(make_encoder("mlp", (2,), key=key), make_head("cholesky", True, 64, K, key=key))

    x = jax.random.normal(jax.random.key(1), (2, 3, 2), jnp.float32)
    keys = jax.random.split(KEY, 2)
    together = jax.jit(jax.vmap(lambda r: r(x)))(eqx.filter_vmap(build)(keys))
    alone = jax.jit(lambda r: r(x))(build(keys[1]))
    for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(a[1], b, rtol=1e-5, atol=1e-6)
