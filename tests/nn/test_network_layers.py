"""Initial sizes, standardisation, and which leaves are trained."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.model import Fixed
from rpgssm.nn.encoders import MLPEncoder
from rpgssm.nn.layers import Standardise, standardisation, variance_scaling


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_variance_scaling(dtype):
    key, shape = jax.random.key(0), (3, 3, 40, 50)
    w = variance_scaling(key, shape, 2.0, dtype)
    assert (w.shape, w.dtype) == (shape, dtype)
    w = np.asarray(w)
    np.testing.assert_allclose(w.var(), 2.0 / 360, rtol=0.05)
    assert np.abs(w).max() < 2.4 * w.std()  # truncated
    assert len(np.unique(w)) > 0.99 * w.size  # no block is drawn twice
    traced = jax.jit(lambda key: variance_scaling(key, shape, 2.0, dtype))(key)
    np.testing.assert_allclose(traced, w, rtol=1e-5)
    assert not np.allclose(variance_scaling(jax.random.key(1), shape, 2.0, dtype), w)


def test_standardisation_of_vectors_ignores_masked_frames_and_constants():
    rng = np.random.default_rng(0)
    x = rng.normal([5.0, -2.0, 7.0], [3.0, 0.1, 0.0], size=(4, 6, 3)).astype(np.float32)
    mask = np.ones((4, 6), bool)
    mask[1, 3:] = False
    x[~mask] = np.nan
    shift, scale = standardisation(x, mask)
    assert shift.dtype == np.float32
    np.testing.assert_allclose(shift, x[mask].mean(0), rtol=1e-4)
    np.testing.assert_allclose(scale, [x[mask][:, 0].std(), x[mask][:, 1].std(), 1.0], rtol=1e-4)


def test_standardisation_of_images_is_per_channel():
    rng = np.random.default_rng(0)
    x = rng.normal([5.0, -2.0], [3.0, 0.1], size=(2, 3, 4, 5, 2))
    shift, scale = standardisation(x)
    np.testing.assert_allclose(shift, x.reshape(-1, 2).mean(0))
    np.testing.assert_allclose(scale, x.reshape(-1, 2).std(0))
    shift, scale = standardisation(x[..., 0])
    assert shift.shape == scale.shape == ()
    np.testing.assert_allclose(scale, x[..., 0].std())


def test_standardisation_of_nothing():
    with pytest.raises(ValueError, match="no frame is observed"):
        standardisation(np.zeros((1, 2, 3)), np.zeros((1, 2), bool))


def test_standardise_and_back():
    s = Standardise((4, 2), np.array([1.0, 2.0]), np.array([3.0, 0.5]), jnp.float64)
    x = jax.random.normal(jax.random.key(0), (5, 4, 2), jnp.float64)
    np.testing.assert_allclose(s(x), (np.asarray(x) - [1.0, 2.0]) / [3.0, 0.5])
    np.testing.assert_allclose(s.inverse(s(x)), x)
    np.testing.assert_allclose(s.log_volume((4, 2)), 4 * np.log(3.0 * 0.5))


@pytest.mark.parametrize(
    ("shift", "scale", "message"),
    [(np.zeros(3), 1.0, "shift has shape"), (0.0, 0.0, "positive"), (np.nan, 1.0, "not finite")],
)
def test_standardise_refuses(shift, scale, message):
    with pytest.raises(ValueError, match=message):
        Standardise((4, 2), shift, scale)


def test_the_standardisation_is_not_trained():
    encoder = MLPEncoder((3,), 4, 1, key=jax.random.key(0), shift=1.0, scale=2.0)
    x = jax.random.normal(jax.random.key(1), (8, 3), jnp.float32)
    gradient = jax.jit(jax.grad(lambda e: (e(x) ** 2).sum()))(encoder)
    assert float(gradient.standardise.shift) == float(gradient.standardise.scale) == 0
    assert np.abs(gradient.layers.layers[0].weight).max() > 0
    fixed = [x for x in jax.tree.leaves(encoder, is_leaf=lambda x: isinstance(x, Fixed)) if isinstance(x, Fixed)]
    assert fixed == [encoder.standardise]
    assert len(jax.tree.leaves(fixed)) == len(jax.tree.leaves(encoder)) - 2 == 2
