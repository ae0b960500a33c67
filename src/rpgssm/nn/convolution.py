"""Two-dimensional convolution of images with channels last, fast on CPU and native elsewhere.

XLA's own convolution is slow on CPU, above all its gradients. There a convolution is one matrix product: the output is
the product of the k×k neighbourhoods of all output pixels (`patches`) with the flattened kernel. The gradients are
matrix products too, except the transpose of `patches`, which adds neighbourhoods back into the image. In autodiff this
is a sum of k² images dilated with zeros. `fold` computes it phase by phase instead: the input pixels with the same
position modulo the stride receive shifted copies of whole arrays. Both go over rows, then columns, with 2k slices
instead of k².

Patches take k² / stride² times the memory of the image. So `map_frames` runs a network by chunks of frames that fit the
processor's cache. It keeps the results of the matrix products, and computes the patches of each chunk again in the
backward pass, which is faster than to store them.

Both methods use the same parameters and give the same outputs.
"""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from rpgssm.core.compiling import compiled, custom_vjp

from .layers import variance_scaling, zeros

Method = Literal["auto", "native", "patches"]
Padding = Literal["SAME", "VALID"]
Pair = tuple[int, int]

CHUNK_BYTES = 4 * 2**20


class Conv2d(eqx.Module):
    """Convolution of `(frames, height, width, channels)`.

    `method` is "patches" (matrix products), "native" (XLA's convolution) or "auto": patches on CPU, native elsewhere.
    """

    weight: Float[Array, "kh kw cin cout"]
    bias: Float[Array, " cout"]
    stride: Pair = eqx.field(static=True)
    padding: Padding = eqx.field(static=True)
    method: Method = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int | Pair,
        stride: int | Pair = 1,
        padding: Padding = "SAME",
        *,
        key: PRNGKeyArray,
        method: Method = "auto",
        gain: float = 2.0,
        dtype=jnp.float32,
    ):
        kh, kw = _pair(kernel)
        self.stride = _pair(stride)
        if min(in_channels, out_channels, kh, kw, *self.stride) < 1:
            raise ValueError("a convolution needs channels, kernel and stride of at least 1")
        if padding not in ("SAME", "VALID"):
            raise ValueError(f"padding must be 'SAME' or 'VALID', not {padding!r}")
        if method not in ("auto", "native", "patches"):
            raise ValueError(f"method must be 'auto', 'native' or 'patches', not {method!r}")
        self.weight = variance_scaling(key, (kh, kw, in_channels, out_channels), gain, dtype)
        self.bias = zeros((out_channels,), dtype)
        self.padding = padding
        self.method = method

    def __call__(self, x: Float[Array, "n h w cin"]) -> Float[Array, "n oh ow cout"]:
        if uses_patches(self.method):
            kh, kw, cin, cout = self.weight.shape
            kernel = self.weight.swapaxes(0, 1).reshape(kw * kh * cin, cout)
            y = patches(x, (kh, kw), self.stride, self.padding) @ kernel
        else:
            y = lax.conv_general_dilated(
                x, self.weight, self.stride, self.padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        return y + self.bias[None, None, None]

    def out_shape(self, height: int, width: int) -> tuple[int, int, int]:
        """Height, width and channels of the output for a frame of this size."""
        kh, kw, _, cout = self.weight.shape
        return (
            _geometry(height, kh, self.stride[0], self.padding)[0],
            _geometry(width, kw, self.stride[1], self.padding)[0],
            cout,
        )

    def patch_bytes(self, height: int, width: int) -> int:
        """Memory for the patches of one frame of this size."""
        kh, kw, cin, _ = self.weight.shape
        oh, ow, _ = self.out_shape(height, width)
        return oh * ow * kh * kw * cin * self.weight.dtype.itemsize


def uses_patches(method: Method) -> bool:
    """Whether this method uses patches on JAX's default device."""
    if method != "auto":
        return method == "patches"
    device = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    if device is None:
        return jax.default_backend() == "cpu"
    return (device if isinstance(device, str) else device.platform) == "cpu"


def map_frames(
    network: Callable[[Float[Array, "n *frame"]], Float[Array, "n *out"]],
    frames: Float[Array, "total *frame"],
    bytes_per_frame: int,
    chunk_bytes: int = CHUNK_BYTES,
) -> Float[Array, "total *out"]:
    """`network(frames)`, computed by chunks of frames that need about `chunk_bytes` of working memory each.

    The network must treat every frame alike and apart from the others. For the backward pass only the results of matrix
    products are stored; the rest is computed again.
    """
    total = frames.shape[0]
    size, pad = _chunks(total, max(1, chunk_bytes // max(1, bytes_per_frame)))
    if size >= total:
        return network(frames)
    padded = jnp.concatenate([frames, frames[:pad]]) if pad else frames
    # no prevent_cse: within a loop the compiler cannot merge the two forward passes
    products = jax.checkpoint_policies.dots_saveable
    chunk = jax.checkpoint(lambda x: network(x), prevent_cse=False, policy=products)
    out = lax.map(chunk, padded.reshape(-1, size, *frames.shape[1:]))
    return out.reshape(-1, *out.shape[2:])[:total]


def _chunks(total: int, target: int) -> tuple[int, int]:
    """A chunk size of at most `target`, and the number of frames to add for whole chunks.

    A divisor of `total` not much below the target needs no additional frames.
    """
    if total <= target:
        return total, 0
    for size in range(target, (target + 1) // 2 - 1, -1):
        if total % size == 0:
            return size, 0
    count = -(-total // target)
    size = -(-total // count)
    return size, size * -(-total // size) - total


# The barriers keep the compiler from merging the two passes into one with k² cases, which takes longer to compile and
# to run.
@custom_vjp(1, 2, 3)
@compiled("kernel", "stride", "padding")
def patches(x: Float[Array, "n h w c"], kernel: Pair, stride: Pair, padding: Padding) -> Float[Array, "n oh ow patch"]:
    """The neighbourhood of each output pixel as one vector, ordered (kw, kh, c)."""
    rows = _windows(x, 1, kernel[0], stride[0], padding)
    return _windows(lax.optimization_barrier(rows), 2, kernel[1], stride[1], padding)


@compiled("frame", "kernel", "stride", "padding")
def fold(
    p: Float[Array, "n oh ow patch"], frame: tuple[int, ...], kernel: Pair, stride: Pair, padding: Padding
) -> Float[Array, "n h w c"]:
    """The transpose of `patches`: add every element to the pixel that it came from."""
    columns = _add_windows(p, 2, kernel[1], stride[1], padding, frame[1])
    return _add_windows(lax.optimization_barrier(columns), 1, kernel[0], stride[0], padding, frame[0])


def _patches_forward(x, kernel, stride, padding):
    return patches(x, kernel, stride, padding), jnp.zeros((0, *x.shape[1:]), x.dtype)  # only its shape is wanted


def _patches_backward(kernel, stride, padding, like, cotangent):
    return (fold(cotangent, like.shape[1:], kernel, stride, padding),)


patches.defvjp(_patches_forward, _patches_backward)


def _windows(x: Float[Array, "..."], axis: int, kernel: int, stride: int, padding: Padding) -> Float[Array, "..."]:
    """The window of each output position along one axis, put in front of the channels."""
    out, missing = _geometry(x.shape[axis], kernel, stride, padding)
    x = _pad_axis(x, axis, *missing)
    stop = stride * (out - 1) + 1
    return jnp.concatenate([lax.slice_in_dim(x, i, i + stop, stride, axis) for i in range(kernel)], axis=-1)


def _add_windows(
    p: Float[Array, "..."], axis: int, kernel: int, stride: int, padding: Padding, size: int
) -> Float[Array, "..."]:
    """The transpose of `_windows`.

    Element i of the window at output o came from position s·o + i of the padded input. With i = s·q + a that is
    position o + q of phase a, the positions equal to a modulo s.
    """
    before = _geometry(size, kernel, stride, padding)[1][0]
    elements = jnp.split(p, kernel, axis=-1)
    reach = -(-kernel // stride) - 1  # the largest q
    empty = _pad_axis(jnp.zeros_like(elements[0]), axis, 0, reach)
    phases = [
        sum((_pad_axis(e, axis, q, reach - q) for q, e in enumerate(elements[a::stride])), start=empty)
        for a in range(stride)
    ]
    shape = list(empty.shape)
    shape[axis] *= stride
    full = jnp.stack(phases, axis + 1).reshape(shape)
    full = _pad_axis(full, axis, 0, max(0, before + size - shape[axis]))
    return lax.slice_in_dim(full, before, before + size, axis=axis)


def _pad_axis(x: Float[Array, "..."], axis: int, before: int, behind: int) -> Float[Array, "..."]:
    return jnp.pad(x, [(before, behind) if a == axis else (0, 0) for a in range(x.ndim)])


def _geometry(size: int, kernel: int, stride: int, padding: Padding) -> tuple[int, Pair]:
    """Output size along one axis, and the zeros to add before and behind."""
    if padding == "VALID":
        if size < kernel:
            raise ValueError(f"a kernel of {kernel} does not fit into {size} pixels; use padding='SAME'")
        return (size - kernel) // stride + 1, (0, 0)
    out = -(-size // stride)
    missing = max((out - 1) * stride + kernel - size, 0)
    return out, (missing // 2, missing - missing // 2)


def _pair(x: int | Pair) -> Pair:
    return (x, x) if isinstance(x, int) else x
