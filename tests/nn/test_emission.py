"""Emissions: their density against SciPy, where a sigmoid starts, and the decoders that can be named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rpgssm.nn.emission import make_emission
from rpgssm.nn.paper_decoder import PaperDecoder


def test_the_emission_is_a_normal_density():
    rng = np.random.default_rng(0)
    e = make_emission("linear", 2, (4,), key=jax.random.key(0), noise=0.7, shift=3.0, scale=2.0, dtype=jnp.float64)
    (layer,) = e.decoder.layers.layers
    z, x, mask = rng.normal(size=(3, 6, 2)), rng.normal(size=(3, 6, 4)), rng.random((3, 6)) < 0.7
    mean = 3 + 2 * (z @ np.asarray(layer.weight) + np.asarray(layer.bias))
    np.testing.assert_allclose(e.mean(jnp.asarray(z)), mean)
    expected = stats.norm.logpdf(x, mean, 0.7).sum(-1)
    found = e.log_likelihood(jnp.asarray(z), jnp.asarray(x), jnp.asarray(mask))
    np.testing.assert_allclose(found, np.where(mask, expected, 0))
    np.testing.assert_allclose(e.log_likelihood(jnp.asarray(z), jnp.asarray(x)), expected)


def test_a_sigmoid_starts_at_the_mean_frame_and_stays_in_range():
    e = make_emission(
        "conv", 2, (16, 16, 3), key=jax.random.key(0), noise=0.1, output="sigmoid", shift=np.array([0.1, 0.5, 0.7])
    )
    z = 100 * jax.random.normal(jax.random.key(1), (5, 7, 2), jnp.float32)
    frames = e.mean(z)
    assert frames.shape == (5, 7, 16, 16, 3)
    assert frames.dtype == jnp.float32
    assert float(frames.min()) >= 0
    assert float(frames.max()) <= 1
    np.testing.assert_allclose(e.mean(jnp.zeros((1, 2), jnp.float32))[0, 0, 0], [0.1, 0.5, 0.7], rtol=1e-5)


@pytest.mark.parametrize("shape", [(9, 10), (8, 8, 3)])
def test_the_decoder_of_the_comparisons(shape):
    e = make_emission("conv-paper", 3, shape, key=jax.random.key(0), noise=1.0)
    z = jax.random.normal(jax.random.key(1), (64, 3), jnp.float32)
    frames = np.asarray(e.mean(z))
    assert frames.shape == (64, *shape)
    assert 0.2 < frames.std() < 3  # neither vanishing nor exploding
    assert isinstance(e.decoder, PaperDecoder)
    kernels = [x.shape for x in e.decoder.kernels]
    assert kernels == [(3, 3, 32, 64), (3, 3, 64, 32), (3, 3, 32, shape[2] if len(shape) == 3 else 1)]
