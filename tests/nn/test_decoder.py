"""Decoders: the Gaussian likelihood against scipy, masks, samples, frozen latents, and that training them works."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from rpgssm.nn.decoder import ConvDecoder, MLPDecoder, decoder_loss, make_decoder, sample_latents

KEY = jax.random.key(0)
K = 3


def problem(frame_shape, dtype=jnp.float64, lead=(2, 3)):
    rng = np.random.default_rng(1)
    z, x = rng.normal(size=(*lead, K)), 5 + 2 * rng.normal(size=(*lead, *frame_shape))
    return jnp.asarray(z, dtype), jnp.asarray(x, dtype)


@pytest.mark.parametrize(
    ("spec", "shape", "dtype"),
    [("mlp", (4,), jnp.float64), ("conv", (9, 11), jnp.float64), ("conv", (18, 16, 2), jnp.float32)],
    ids=str,
)
def test_means_and_gradients(spec, shape, dtype):
    decoder = make_decoder(spec, K, shape, key=KEY, shift=5.0, scale=2.0, dtype=dtype)
    z, x = problem(shape, dtype)

    @jax.jit
    def run(decoder, z, x):
        loss, gradient = jax.value_and_grad(lambda d: decoder_loss(d, z, x)[0])(decoder)
        return decoder.mean(z), loss, gradient

    mean, loss, gradient = run(decoder, z, x)
    assert mean.shape == x.shape
    assert mean.dtype == loss.dtype == dtype
    trained = eqx.tree_at(lambda g: g.standardise, gradient, None)
    for leaf in jax.tree.leaves(trained):
        assert np.isfinite(leaf).all()
        assert np.abs(leaf).max() > 0
    assert float(gradient.standardise.scale) == 0


def test_log_likelihood_against_scipy():
    scale = np.array([2.0, 0.5, 1.0])
    decoder = MLPDecoder(K, (3,), 8, 1, key=KEY, shift=5.0, scale=scale, dtype=jnp.float64)
    decoder = eqx.tree_at(lambda d: d.tenth_log_variance, decoder, jnp.asarray(-0.07, jnp.float64))
    z, x = problem((3,))
    mask = jnp.asarray([[True, False, True], [True, True, False]])
    spread = scale * np.exp(-0.35)
    expected = stats.norm.logpdf(np.asarray(x), np.asarray(decoder.mean(z)), spread).sum(-1)
    np.testing.assert_allclose(decoder.log_likelihood(z, x), expected)
    broken = jnp.where(mask[..., None], x, jnp.nan)
    np.testing.assert_allclose(decoder.log_likelihood(z, broken, mask), np.where(mask, expected, 0))
    loss, info = decoder_loss(decoder, z, broken, mask)
    np.testing.assert_allclose(loss, -expected[np.asarray(mask)].mean())
    np.testing.assert_allclose(info.log_likelihood, -loss)
    np.testing.assert_allclose(info.variance, np.exp(-0.7))
    error = (((np.asarray(x) - np.asarray(decoder.mean(z))) / scale) ** 2).mean(-1)
    np.testing.assert_allclose(info.squared_error, error[np.asarray(mask)].mean())
    gradient = jax.jit(jax.grad(lambda d: decoder_loss(d, z, broken, mask)[0]))(decoder)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_samples_are_averaged_over():
    decoder = MLPDecoder(K, (2,), 8, 1, key=KEY, dtype=jnp.float64)
    z, x = problem((2,))
    draws = jnp.stack([z, z + 1, z - 1])
    expected = np.mean([decoder.log_likelihood(d, x) for d in draws], axis=0)
    np.testing.assert_allclose(decoder.log_likelihood(draws, x), expected)


@pytest.mark.parametrize("batch", [1, 2])
def test_sampled_latents_have_the_moments_asked_for(batch):
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(batch, 2, K, K))
    cov = roots @ roots.swapaxes(-1, -2)
    mean = rng.normal(size=(2, 2, K))
    draws = np.asarray(sample_latents(KEY, jnp.asarray(mean), jnp.asarray(cov), 20000))
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.1)
    for n, t in np.ndindex(2, 2):
        np.testing.assert_allclose(np.cov(draws[:, n, t].T), cov[n % batch, t], atol=0.1 * np.abs(cov).max())


def test_latents_stay_frozen():
    decoder = MLPDecoder(K, (2,), 8, 1, key=KEY, dtype=jnp.float64)
    z, x = problem((2,))
    assert not np.any(jax.grad(lambda z: decoder_loss(decoder, z, x)[0])(z))


def test_native_and_patches_agree():
    z, x = problem((9, 8))

    @jax.jit
    def run(decoder, z, x):
        return jax.value_and_grad(lambda d: decoder_loss(d, z, x)[0])(decoder)

    def leaves(method):
        return jax.tree.leaves(run(ConvDecoder(K, (9, 8), key=KEY, method=method, dtype=jnp.float64), z, x))

    for a, b in zip(leaves("native"), leaves("patches"), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.parametrize("spec", ["mlp", pytest.param("conv", marks=pytest.mark.slow)])
@pytest.mark.usefixtures("lenient_promotion")
def test_training_finds_frames_and_noise(spec):
    """Frames that are a smooth function of two latents plus noise of standard deviation 0.3 (of a scale of 10)."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, 2)).astype(np.float32)
    grid = np.linspace(-1, 1, 8, dtype=np.float32)
    clean = np.tanh(z[:, :1, None] * grid[:, None] + z[:, 1:, None] * grid[None, None])
    x = (100 + 10 * (clean + 0.3 * rng.normal(size=clean.shape))).astype(np.float32)
    decoder = make_decoder(spec, 2, (8, 8), key=KEY, shift=100.0, scale=10.0)
    optimizer = optax.adam(1e-2)
    z, x = jnp.asarray(z), jnp.asarray(x)

    @jax.jit
    def train(decoder):
        def step(carry, _):
            decoder, state = carry
            gradient = jax.grad(lambda d: decoder_loss(d, z, x)[0])(decoder)
            updates, state = optimizer.update(gradient, state)
            return (eqx.apply_updates(decoder, updates), state), None

        return jax.lax.scan(step, (decoder, optimizer.init(decoder)), None, length=150)[0][0]

    trained = train(decoder)
    error = (np.asarray(trained.mean(z)) - 100) / 10 - clean
    assert (error**2).mean() < 0.1 * clean.var()
    np.testing.assert_allclose(trained.variance, 0.09, rtol=0.25)


def test_choice_by_the_frame():
    assert isinstance(make_decoder("auto", K, (8, 8), key=KEY), ConvDecoder)
    decoder = make_decoder("auto", K, (8,), key=KEY)
    assert isinstance(decoder, MLPDecoder)
    assert make_decoder(decoder, K, (8,), key=KEY) is decoder
    with pytest.raises(ValueError, match="decoder must be"):
        make_decoder("gan", K, (8,), key=KEY)


def test_shapes_that_do_not_fit():
    decoder = MLPDecoder(K, (2,), 8, 1, key=KEY, dtype=jnp.float64)
    z, x = problem((2,))
    with pytest.raises(ValueError, match="does not end in"):
        decoder.log_likelihood(z, x[..., :1])
    with pytest.raises(ValueError, match="latents have shape"):
        decoder.log_likelihood(z[:1], x)
    with pytest.raises(ValueError, match="mask has shape"):
        decoder.log_likelihood(z, x, jnp.ones((2,), bool))
