"""Encoders of every kind: shapes, dtypes, standardisation, paths that must agree, and users' own modules."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.nn.encoders import (
    REACH,
    SHARPNESS,
    CNNEncoder,
    Encoder,
    KeypointEncoder,
    LinearEncoder,
    MLPEncoder,
    UserEncoder,
    make_encoder,
)

KEY = jax.random.key(0)
SPECS = [
    ("linear", (5,), jnp.float64),
    ("linear", (3, 4), jnp.float32),
    ("mlp", (5,), jnp.float32),
    ("mlp", (4, 3, 2), jnp.float64),
    ("cnn", (8, 9), jnp.float32),
    ("cnn-paper", (8, 8, 3), jnp.float64),
    ("keypoints", (9, 8), jnp.float64),
    ("keypoints", (8, 8, 3), jnp.float32),
]


def frames_for(shape, n=4, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(1).normal(size=(n, *shape)), dtype)


@jax.jit
def encode(encoder, x):
    return encoder(x)


@jax.jit
def features_and_gradient(encoder, x):
    y, pull_back = jax.vjp(lambda e: e(x), encoder)
    return y, pull_back(jnp.sin(y))[0]


@pytest.mark.parametrize(("spec", "shape", "dtype"), SPECS, ids=str)
def test_features_and_gradients(spec, shape, dtype):
    encoder = make_encoder(spec, shape, key=KEY, dtype=dtype)
    assert isinstance(encoder, Encoder)
    x = frames_for(shape, dtype=dtype)
    y, gradient = features_and_gradient(encoder, x)
    assert y.shape == (4, encoder.out_dim)
    assert y.dtype == dtype
    # each frame apart from the others
    others = jnp.flip(x, 0).at[2].set(x[2])
    np.testing.assert_allclose(features_and_gradient(encoder, others)[0][2], y[2], rtol=1e-4, atol=1e-5)
    for leaf in jax.tree.leaves(gradient):
        assert leaf.dtype == dtype
        assert np.isfinite(leaf).all()
    # features neither vanish nor explode at the start
    assert 0.1 < float(jnp.sqrt((y**2).mean())) < 10


@pytest.mark.parametrize("spec", ["linear", "mlp", "cnn", "keypoints"])
def test_raw_data_of_any_scale(spec):
    x = frames_for((8, 8), dtype=jnp.float64)
    plain = make_encoder(spec, (8, 8), key=KEY, dtype=jnp.float64)
    scaled = make_encoder(spec, (8, 8), key=KEY, shift=100.0, scale=1e3, dtype=jnp.float64)
    np.testing.assert_allclose(encode(scaled, 100 + 1e3 * x), encode(plain, x), rtol=1e-8, atol=1e-10)


def test_frames_are_cast_to_the_parameters_dtype():
    encoder = make_encoder("mlp", (3,), key=KEY)
    assert encoder(jnp.ones((2, 3), jnp.float64)).dtype == jnp.float32
    assert encoder(jnp.ones((2, 3), jnp.uint8)).dtype == jnp.float32


def test_linear_means_affine():
    encoder = make_encoder("linear", (2, 3), key=KEY, shift=3.0, scale=2.0, dtype=jnp.float64)
    x = frames_for((2, 3), dtype=jnp.float64)
    np.testing.assert_allclose(encoder(x), (np.asarray(x).reshape(4, 6) - 3) / 2)


def test_mlp_against_numpy():
    encoder = MLPEncoder((2, 2), 3, 2, jnp.tanh, key=KEY, dtype=jnp.float64)
    x = np.asarray(frames_for((2, 2), dtype=jnp.float64))
    y = x.reshape(4, 4)
    for layer in encoder.layers.layers:
        y = np.tanh(y @ np.asarray(layer.weight) + np.asarray(layer.bias))
    np.testing.assert_allclose(encoder(jnp.asarray(x)), y)


@pytest.mark.parametrize("make", [CNNEncoder.light, KeypointEncoder])
def test_native_and_patches_agree(make):
    x = frames_for((10, 8, 2), 5, jnp.float64)

    def run(method):
        encoder = make((10, 8, 2), key=KEY, method=method, dtype=jnp.float64)
        return jax.tree.leaves(features_and_gradient(encoder, x))

    for a, b in zip(run("native"), run("patches"), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def test_presets():
    paper = CNNEncoder.paper((24, 24), key=KEY)
    assert [c.weight.shape for c in paper.convolutions] == [(3, 3, 1, 32), (3, 3, 32, 64), (3, 3, 64, 32)]
    assert [c.stride for c in paper.convolutions] == [(1, 1), (2, 2), (2, 2)]
    assert paper.out_dim == 6 * 6 * 32
    assert len(CNNEncoder.light((24, 24), key=KEY).convolutions) == 3
    assert len(CNNEncoder.light((64, 64, 3), key=KEY).convolutions) == 3
    assert len(CNNEncoder.light((65, 20), key=KEY).convolutions) == 4
    assert len(CNNEncoder.light((256, 256), key=KEY).convolutions) == 5


def test_keypoints_are_means_of_places_under_a_softmax():
    encoder = KeypointEncoder((6, 4), (2, 3), (3, 3), (1, 1), key=KEY, dtype=jnp.float64)
    x = frames_for((6, 4), dtype=jnp.float64)
    first, second = encoder.convolutions
    maps = np.asarray(second(jax.nn.relu(first(x[..., None]))))
    expected = np.zeros((4, 2, 3))
    for n in range(4):
        for c in range(3):
            weights = np.exp(SHARPNESS * maps[n, :, :, c])
            weights /= weights.sum()
            for i in range(6):
                for j in range(4):
                    expected[n, :, c] += weights[i, j] * REACH * np.array([2 * i / 5 - 1, 2 * j / 3 - 1])
    np.testing.assert_allclose(encode(encoder, x), expected.reshape(4, 6), rtol=1e-10, atol=1e-12)


def test_keypoints_move_with_what_they_see():
    encoder = KeypointEncoder((32, 32), (4, 8), (3, 3), (2, 2), key=KEY, dtype=jnp.float64)
    frames = np.zeros((2, 32, 32))
    frames[0, 10:13, 10:13] = frames[1, 14:17, 18:21] = 50  # four pixels further down, eight to the right
    y = np.asarray(encode(encoder, jnp.asarray(frames))).reshape(2, 2, 8)
    down, right = (y[1] - y[0]) * (8 - 1) / (2 * REACH) * 4  # from the coordinates of 8 × 8 maps to pixels
    sharp = np.abs(down) > 1  # channels that answer to the square by being high, and not to all around it
    assert sharp.sum() >= 2
    np.testing.assert_allclose(down[sharp], 4, atol=0.05)
    np.testing.assert_allclose(right[sharp], 8, atol=0.05)


def test_several_seeds_at_once():
    keys = jax.random.split(KEY, 3)
    x = frames_for((8, 8), dtype=jnp.float64)

    def build(key):
        return CNNEncoder((8, 8), (4, 4), (5, 3), (2, 2), 6, key=key, dtype=jnp.float64)

    together = jax.jit(jax.vmap(features_and_gradient, (0, None)))(eqx.filter_vmap(build)(keys), x)
    alone = features_and_gradient(build(keys[1]), x)
    for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(a[1], b, rtol=1e-8, atol=1e-10)


class Single(eqx.Module):
    """For one frame, as Equinox modules are written."""

    layer: eqx.nn.Linear

    def __call__(self, x, *, key=None):
        return self.layer(x.reshape(-1))


def test_users_module_for_one_frame():
    module = Single(eqx.nn.Linear(6, 4, key=KEY, dtype=jnp.float64))
    encoder = make_encoder(module, (2, 3), key=KEY)
    assert (encoder.batched, encoder.out_dim) == (False, 4)
    x = frames_for((2, 3), dtype=jnp.float64)
    np.testing.assert_allclose(encoder(x), jnp.stack([module(f) for f in x]), rtol=1e-12)
    gradient = eqx.filter_grad(lambda e: encoder_sum(e, x))(encoder)
    assert np.abs(gradient.module.layer.weight).max() > 0


def encoder_sum(encoder, x):
    return encoder(x).sum()


def test_users_function_for_a_batch():
    def function(x):
        return x.reshape(x.shape[0], -1)[:, :4]

    encoder = make_encoder(function, (2, 3), key=KEY, shift=1.0, scale=2.0)
    assert (encoder.batched, encoder.out_dim) == (True, 4)
    x = frames_for((2, 3))
    np.testing.assert_allclose(encode(encoder, x), (function(x) - 1) / 2, rtol=1e-6)


def test_a_function_that_takes_both_must_be_told():
    def row_means(x):
        return x.mean(1)

    with pytest.raises(ValueError, match="say which it is meant for"):
        make_encoder(row_means, (2, 3), key=KEY)
    assert UserEncoder(row_means, (2, 3), batched=True).out_dim == 3
    assert UserEncoder(row_means, (2, 3), batched=False).out_dim == 2
    # where it makes no difference, nobody need say anything
    assert make_encoder(jnp.tanh, (3,), key=KEY).out_dim == 3


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (lambda x: x.sum(), r"returned an array of shape \(\)"),
        (lambda x: (x, x), "returned tuple"),
        (lambda x: x @ jnp.ones((7, 7), x.dtype), "raised"),
        (lambda x: x.reshape(-1).astype(jnp.int32), "int32"),
    ],
)
def test_users_encoder_of_the_wrong_kind(module, reason):
    with pytest.raises(ValueError, match=reason):
        make_encoder(module, (2, 3), key=KEY)


def test_own_encoders_pass_through():
    encoder = LinearEncoder((3,))
    assert make_encoder(encoder, (3,), key=KEY) is encoder


@pytest.mark.parametrize("spec", ["resnet", 3, CNNEncoder, None])
def test_unknown_encoders(spec):
    with pytest.raises(ValueError, match="encoder must be"):
        make_encoder(spec, (3,), key=KEY)


def test_convolutions_need_images():
    with pytest.raises(ValueError, match="height, width"):
        make_encoder("cnn", (12,), key=KEY)
    with pytest.raises(ValueError, match="one entry per layer"):
        CNNEncoder((8, 8), (4,), (3, 3), (1, 1), key=KEY)
    with pytest.raises(ValueError, match="depth"):
        MLPEncoder((3,), depth=0, key=KEY)
