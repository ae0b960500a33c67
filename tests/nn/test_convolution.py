"""Convolution by patches and by XLA against a loop over pixels; the transpose of `patches` against its definition."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.nn.convolution import Conv2d, _chunks, fold, map_frames, patches, uses_patches

CASES = [
    # height, width, channels in and out, kernel, stride, padding
    (8, 8, 1, 3, 5, 2, "SAME"),
    (7, 9, 2, 3, 3, 2, "SAME"),
    (6, 5, 3, 2, 3, 1, "SAME"),
    (8, 8, 2, 2, 4, 4, "SAME"),
    (8, 9, 2, 2, 3, 2, "VALID"),
    (9, 7, 1, 2, 2, 3, "VALID"),
    (7, 8, 2, 3, (1, 3), (2, 1), "SAME"),
]
TOLERANCE = {jnp.float32: 1e-5, jnp.float64: 1e-12}


def naive_convolution(x, weight, bias, stride, padding):
    n, h, w, _ = x.shape
    kh, kw, _, cout = weight.shape
    if padding == "VALID":
        oh, ow, top, left = (h - kh) // stride[0] + 1, (w - kw) // stride[1] + 1, 0, 0
    else:
        oh, ow = -(-h // stride[0]), -(-w // stride[1])
        top = max((oh - 1) * stride[0] + kh - h, 0) // 2
        left = max((ow - 1) * stride[1] + kw - w, 0) // 2
    y = np.zeros((n, oh, ow, cout)) + bias
    for o, p, i, j in np.ndindex(oh, ow, kh, kw):
        r, c = o * stride[0] + i - top, p * stride[1] + j - left
        if 0 <= r < h and 0 <= c < w:
            y[:, o, p] += x[:, r, c] @ weight[i, j]
    return y


def make(case, method, dtype=jnp.float64, n=2):
    h, w, cin, cout, kernel, stride, padding = case
    layer = Conv2d(cin, cout, kernel, stride, padding, key=jax.random.key(0), method=method, dtype=dtype)
    layer = eqx.tree_at(lambda m: m.bias, layer, jnp.arange(cout, dtype=dtype))
    return layer, jnp.asarray(np.random.default_rng(1).normal(size=(n, h, w, cin)), dtype)


@jax.jit
def value_and_gradients(layer, x):
    y, pull_back = jax.vjp(lambda layer, x: layer(x), layer, x)
    return y, pull_back(jnp.sin(y))


@pytest.mark.parametrize(
    ("case", "dtype"), [(CASES[0], jnp.float32), *[(case, jnp.float64) for case in CASES]], ids=str
)
def test_values_and_gradients(case, dtype):
    layer, x = make(case, "patches", dtype)
    fast, native = (value_and_gradients(*make(case, method, dtype)) for method in ("patches", "native"))
    expected = naive_convolution(*map(np.asarray, (x, layer.weight, layer.bias)), layer.stride, layer.padding)
    for y, _ in (fast, native):
        np.testing.assert_allclose(y, expected, atol=TOLERANCE[dtype])
    assert layer.out_shape(*x.shape[1:3]) == expected.shape[1:]
    for a, b in zip(jax.tree.leaves(fast), jax.tree.leaves(native), strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, atol=30 * TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_fold_is_the_transpose_of_patches():
    rng = np.random.default_rng(2)
    frame, where = (7, 9, 2), ((3, 2), (2, 3), "SAME")
    x = jnp.asarray(rng.normal(size=(2, *frame)))
    p = patches(x, *where)
    c = jnp.asarray(rng.normal(size=p.shape))
    back = fold(c, frame, *where)
    assert back.shape == x.shape
    np.testing.assert_allclose((p * c).sum(), (x * back).sum(), rtol=1e-12)


def test_several_parameters_at_once():
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(jax.random.key(1), (4, 8, 8, 1))

    def gradient(layer, x):
        return jax.grad(lambda m: (m(x) ** 2).sum())(layer)

    alone, together = jax.jit(gradient), jax.jit(jax.vmap(gradient, (0, None)))

    def build(key):
        return Conv2d(1, 2, 3, 2, key=key, dtype=jnp.float64, method="patches")

    weights = together(jax.vmap(build)(keys), x).weight
    for i in range(3):
        np.testing.assert_allclose(weights[i], alone(build(keys[i]), x).weight, rtol=1e-10)


@pytest.mark.parametrize("total", [6, 13])
def test_map_frames_equals_the_whole(total):
    layer, x = make(CASES[1], "patches", n=total)

    def loss(a, chunk_bytes):
        return jnp.sin(map_frames(a[0], a[1], 100, chunk_bytes)).sum()

    gradient = jax.jit(jax.value_and_grad(loss), static_argnums=1)
    whole, chunked = (jax.tree.leaves(gradient((layer, x), size)) for size in (10**6, 300))
    for a, b in zip(whole, chunked, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


@pytest.mark.parametrize("target", [1, 2, 5, 16])
def test_chunks_cover_the_frames_with_little_to_spare(target):
    for total in range(1, 60):
        size, pad = _chunks(total, target)
        assert size <= target
        assert (total + pad) % size == 0
        assert 0 <= pad < size


def test_the_patches_of_all_frames_are_never_held_at_once():
    frames, side = 512, 16
    layer = Conv2d(1, 4, 5, key=jax.random.key(0), method="patches")
    x = jax.ShapeDtypeStruct((frames, side, side, 1), jnp.float32)

    def temporary(f):
        return jax.jit(jax.grad(f)).lower(layer, x).compile().memory_analysis().temp_size_in_bytes

    needed = layer.patch_bytes(side, side)
    chunked = temporary(lambda m, x: map_frames(m, x, needed, 16 * needed).sum())
    whole = temporary(lambda m, x: m(x).sum())
    assert chunked < frames * needed / 4 < whole


def test_what_auto_means():
    assert uses_patches("auto")  # the tests run on CPU
    assert uses_patches("patches")
    assert not uses_patches("native")
    with jax.default_device(jax.devices("cpu")[0]):
        assert uses_patches("auto")


@pytest.mark.parametrize(
    ("change", "message"),
    [({"padding": "REFLECT"}, "padding"), ({"method": "fft"}, "method"), ({"kernel": 0}, "at least 1")],
)
def test_refuses(change, message):
    given = {"in_channels": 1, "out_channels": 2, "kernel": 3, "key": jax.random.key(0)} | change
    with pytest.raises((ValueError, TypeError), match=message):
        Conv2d(**given)


def test_a_kernel_larger_than_the_frame():
    with pytest.raises(ValueError, match="does not fit"):
        Conv2d(1, 1, 5, padding="VALID", key=jax.random.key(0)).out_shape(4, 4)
