"""The decoder of the published comparisons: its transposed convolutions against a loop, and both ways of doing them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.nn.paper_decoder import PaperDecoder, transposed_convolution


def spread_out(x: np.ndarray, kernel: np.ndarray, stride: int) -> np.ndarray:
    """Every pixel adds its share to the 3×3 pixels around stride times its place (for stride 1), or from there on."""
    n, h, w, _ = x.shape
    out = np.zeros((n, stride * h + 3, stride * w + 3, kernel.shape[-1]))
    for row in range(h):
        for column in range(w):
            for a in range(3):
                for b in range(3):
                    share = x[:, row, column] @ kernel[2 - a, 2 - b]
                    out[:, stride * row + a, stride * column + b] += share
    before = 1 if stride == 1 else 0
    return out[:, before : before + stride * h, before : before + stride * w]


@pytest.mark.parametrize("method", ["native", "patches"])
@pytest.mark.parametrize("stride", [1, 2])
def test_transposed_convolution_is_that_of_a_loop(stride, method):
    rng = np.random.default_rng(0)
    x, kernel = rng.standard_normal((2, 3, 4, 2)), rng.standard_normal((3, 3, 2, 5))
    out = transposed_convolution(jnp.asarray(x), jnp.asarray(kernel), stride, method)
    np.testing.assert_allclose(out, spread_out(x, kernel, stride), atol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.slow)])
def test_both_methods_give_the_same_frames_and_gradients(dtype):
    z = jax.random.normal(jax.random.key(1), (3, 2), dtype)

    def squares(decoder, z):
        frames = decoder.network(z)
        return jnp.sum(frames**2), frames

    results = []
    for method in ("native", "patches"):
        decoder = PaperDecoder(2, (5, 6, 2), key=jax.random.key(0), method=method, dtype=dtype)
        gradient, frames = jax.jit(jax.grad(squares, argnums=(0, 1), has_aux=True))(decoder, z)
        assert frames.shape == (3, 5, 6, 2)
        assert frames.dtype == dtype
        results.append([frames, *jax.tree.leaves(gradient)])
    for one, other in zip(*results, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(one, other, rtol=2e-3 if dtype == jnp.float32 else 1e-9, atol=1e-4)
