"""Encoders: from a batch of frames to one feature vector per frame, the input of a head.

| name        | class             | features                                                                           |
|-------------|-------------------|------------------------------------------------------------------------------------|
| "linear"    | `LinearEncoder`   | the frame itself, so that h is affine in the frame                                 |
| "mlp"       | `MLPEncoder`      | dense layers                                                                       |
| "cnn"       | `CNNEncoder`      | light: strided convolutions of 16, 32, 32 channels and a dense layer; for CPU      |
| "cnn-paper" | `CNNEncoder`      | 32, 64, 32 channels, 3×3, strides 1, 2, 2                                          |
| "keypoints" | `KeypointEncoder` | positions in the frame at which 32 maps are active; for moving objects             |
| a callable  | `UserEncoder`     | the output of the user's module or function, for one frame or for a batch          |

Every encoder first standardises the frames by fixed numbers, and computes in the dtype of its parameters.
"""

from abc import abstractmethod
from collections.abc import Callable
from math import prod
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from rpgssm.settings import Behaviour, setting

from .convolution import Conv2d, Method, map_frames, uses_patches
from .layers import MLP, Activation, Standardise, parameter_dtype, split
from .random_features import RandomFeatures

IMAGE_ENCODERS = ("cnn", "cnn-paper", "keypoints")
NAMES = ("linear", "mlp", *IMAGE_ENCODERS)

SHARPNESS, REACH = 2.0, 4.0
"""Of keypoints: the factor of the maps before the softmax, and the coordinate of the frame's edges."""


@runtime_checkable
class Encoder(Protocol):
    """Maps frames to features of size `out_dim`, each frame apart from the others."""

    @property
    def out_dim(self) -> int: ...

    def __call__(self, frames: Shaped[Array, "n *frame"], /) -> Float[Array, "n f"]: ...


class LinearEncoder(eqx.Module):
    """The standardised frame as one vector. Since the head is affine, h is affine in the frame."""

    standardise: Standardise
    out_dim: int = eqx.field(static=True)

    def __init__(
        self, frame_shape: tuple[int, ...], *, shift: ArrayLike = 0.0, scale: ArrayLike = 1.0, dtype=jnp.float32
    ):
        self.standardise = Standardise(frame_shape, shift, scale, dtype)
        self.out_dim = prod(frame_shape)

    def __call__(self, frames: Shaped[Array, "n *frame"]) -> Float[Array, "n f"]:
        return _standard(self.standardise, frames).reshape(-1, self.out_dim)


class MLPEncoder(eqx.Module):
    """`depth` dense layers of `width` units, each followed by the activation."""

    standardise: Standardise
    layers: MLP
    out_dim: int = eqx.field(static=True)

    def __init__(
        self,
        frame_shape: tuple[int, ...],
        width: int = 64,
        depth: int = 2,
        activation: Activation = jax.nn.silu,
        *,
        key: PRNGKeyArray,
        shift: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        dtype=jnp.float32,
    ):
        if depth < 1:
            raise ValueError("an MLP encoder needs depth 1 or more; use 'linear' for none")
        self.standardise = Standardise(frame_shape, shift, scale, dtype)
        self.layers = MLP((prod(frame_shape), *[width] * depth), key=key, activation=activation, dtype=dtype)
        self.out_dim = width

    def __call__(self, frames: Shaped[Array, "n *frame"]) -> Float[Array, "n f"]:
        x = _standard(self.standardise, frames)
        return self.layers(x.reshape(x.shape[0], -1))


class CNNEncoder(eqx.Module):
    """Convolutions, then optionally a dense layer. Frames are (height, width) or (height, width, channels).

    On CPU the frames go through the network by chunks (`map_frames`), which is faster and keeps memory small.
    """

    standardise: Standardise
    convolutions: tuple[Conv2d, ...]
    dense: MLP | None
    frame_shape: tuple[int, ...] = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)
    out_dim: int = eqx.field(static=True)

    def __init__(
        self,
        frame_shape: tuple[int, ...],
        channels: tuple[int, ...] = (16, 32, 32),
        kernels: tuple[int, ...] = (5, 3, 3),
        strides: tuple[int, ...] = (2, 2, 2),
        dense: int | None = 64,
        activation: Activation = jax.nn.relu,
        *,
        key: PRNGKeyArray,
        shift: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        method: Method = "auto",
        dtype=jnp.float32,
    ):
        *keys, last = split(key, len(channels) + 1)
        self.convolutions = _convolutions(frame_shape, channels, kernels, strides, keys, method, dtype)
        h, w, c = _sizes(self.convolutions, frame_shape)[-1]
        self.standardise = Standardise(frame_shape, shift, scale, dtype)
        self.dense = None if dense is None else MLP((h * w * c, dense), key=last, activation=activation, dtype=dtype)
        self.frame_shape = tuple(frame_shape)
        self.activation = activation
        self.out_dim = h * w * c if dense is None else dense

    @classmethod
    def paper(cls, frame_shape: tuple[int, ...], **kwargs) -> "CNNEncoder":
        """Three layers of 32, 64 and 32 channels, 3×3, strides 1, 2, 2, ReLU, and no dense layer."""
        return cls(frame_shape, (32, 64, 32), (3, 3, 3), (1, 2, 2), None, **kwargs)

    @classmethod
    def light(cls, frame_shape: tuple[int, ...], **kwargs) -> "CNNEncoder":
        """About a twentieth of the cost of `paper`. Large frames get more layers, until 8×8 pixels are left."""
        layers, side = 3, -(-max(image_shape(frame_shape)[:2]) // 8)
        while side > 8:
            layers, side = layers + 1, -(-side // 2)
        return cls(frame_shape, (16, *[32] * (layers - 1)), (5, *[3] * (layers - 1)), (2,) * layers, **kwargs)

    def __call__(self, frames: Shaped[Array, "n *frame"]) -> Float[Array, "n f"]:
        return _by_chunks(self._network, frames, self.convolutions, self.frame_shape)

    def _network(self, frames):
        x = _standard(self.standardise, frames).reshape(-1, *image_shape(self.frame_shape))
        for layer in self.convolutions:
            x = self.activation(layer(x))
        x = x.reshape(x.shape[0], -1)
        return x if self.dense is None else self.dense(x)


class KeypointEncoder(eqx.Module):
    """Convolutions, then for each channel of the last one the position at which it is active: row and column.

    The position is the mean over all pixels weighted by the softmax of the channel (a *spatial softmax*). It is smooth,
    with a resolution of a fraction of a pixel. A linear readout finds positions of objects in these features, and
    directions, which are differences of two positions. The features hold nothing but positions.
    """

    standardise: Standardise
    convolutions: tuple[Conv2d, ...]
    frame_shape: tuple[int, ...] = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)
    out_dim: int = eqx.field(static=True)

    def __init__(
        self,
        frame_shape: tuple[int, ...],
        channels: tuple[int, ...] = (16, 32),
        kernels: tuple[int, ...] = (5, 3),
        strides: tuple[int, ...] = (2, 2),
        activation: Activation = jax.nn.relu,
        *,
        key: PRNGKeyArray,
        shift: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        method: Method = "auto",
        dtype=jnp.float32,
    ):
        keys = split(key, len(channels))
        self.convolutions = _convolutions(frame_shape, channels, kernels, strides, keys, method, dtype)
        self.standardise = Standardise(frame_shape, shift, scale, dtype)
        self.frame_shape = tuple(frame_shape)
        self.activation = activation
        self.out_dim = 2 * channels[-1]

    def __call__(self, frames: Shaped[Array, "n *frame"]) -> Float[Array, "n f"]:
        return _by_chunks(self._network, frames, self.convolutions, self.frame_shape)

    def _network(self, frames):
        x = _standard(self.standardise, frames).reshape(-1, *image_shape(self.frame_shape))
        for layer in self.convolutions[:-1]:
            x = self.activation(layer(x))
        x = self.convolutions[-1](x)
        n, h, w, c = x.shape
        weights = jax.nn.softmax(SHARPNESS * x.reshape(n, h * w, c), axis=1)
        places = jnp.einsum("nsc,sd->ndc", weights, _grid(h, w, x.dtype), precision=lax.Precision.HIGHEST)
        return places.reshape(n, 2 * c)


class Function(eqx.Module):
    """A function without parameters, as a pytree without leaves."""

    function: Callable = eqx.field(static=True)

    def __call__(self, x):
        return self.function(x)


class UserEncoder(eqx.Module):
    """A user's Equinox module or function as an encoder.

    It maps one frame to a vector, or a batch `(n, *frame)` to `(n, f)`. If `batched` is None, a trial with abstract
    arrays shows which.
    """

    standardise: Standardise
    module: Callable
    batched: bool = eqx.field(static=True)
    out_dim: int = eqx.field(static=True)

    def __init__(
        self,
        module: Callable,
        frame_shape: tuple[int, ...],
        *,
        batched: bool | None = None,
        shift: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        dtype=None,
    ):
        dtype = parameter_dtype(module) if dtype is None else dtype
        self.standardise = Standardise(frame_shape, shift, scale, dtype)
        self.module = Function(module) if jax.tree.structure(module) == jax.tree.structure(0) else module
        self.batched, self.out_dim = _calling_convention(module, tuple(frame_shape), batched, dtype)

    def __call__(self, frames: Shaped[Array, "n *frame"]) -> Float[Array, "n f"]:
        x = _standard(self.standardise, frames)
        return self.module(x) if self.batched else jax.vmap(self.module)(x)


class EncoderKind(Behaviour, abstract=True):
    """An encoder with settings of its own."""

    @abstractmethod
    def make(
        self,
        frame_shape: tuple[int, ...],
        *,
        key: PRNGKeyArray,
        shift: ArrayLike,
        scale: ArrayLike,
        frames: np.ndarray | None,
    ) -> Encoder:
        """Make the encoder. `frames` (n, *frame) are the training data; None when a saved model is loaded."""


class _OneLayer(EncoderKind, abstract=True):
    units: int = setting(256, "Units of the layer.", least=1, kw_only=False)


class WideLayer(_OneLayer):
    """One wide dense layer, trained."""

    def make(self, frame_shape, *, key, shift, scale, frames):
        return MLPEncoder(frame_shape, self.units, 1, key=key, shift=shift, scale=scale)


class FixedFeatures(_OneLayer):
    """The leading principal components of a layer of random units, not trained.

    Its output is fixed, like data, and allows `GaussianMarginal`. For frames that are vectors.
    """

    components: int = setting(25, "Number of principal components.", least=1)

    def make(self, frame_shape, *, key, shift, scale, frames):
        if len(frame_shape) != 1:
            shape = "×".join(map(str, frame_shape))
            raise ValueError(
                f"FixedFeatures are for vectors, and frames are {shape}: use them in the last stage of a Stack"
            )
        return RandomFeatures(
            frame_shape[0], self.units, self.components, key=key, shift=shift, scale=scale, frames=frames
        )


def make_encoder(
    spec: Any,
    frame_shape: tuple[int, ...],
    *,
    key: PRNGKeyArray,
    shift: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    frames: np.ndarray | None = None,
    dtype=jnp.float32,
) -> Any:
    """The encoder that `spec` names: one of `NAMES`, an `EncoderKind`, or a module or function of the user's.

    Frames are standardised to `(frame - shift) / scale` first; `standardisation` computes both from data. One of this
    module's own encoders, given as an object, is returned as it is.
    """
    given = {"shift": shift, "scale": scale, "dtype": dtype}
    match spec:
        case "linear":
            return LinearEncoder(frame_shape, **given)
        case "mlp":
            return MLPEncoder(frame_shape, key=key, **given)
        case "cnn":
            return CNNEncoder.light(frame_shape, key=key, **given)
        case "cnn-paper":
            return CNNEncoder.paper(frame_shape, key=key, **given)
        case "keypoints":
            return KeypointEncoder(frame_shape, key=key, **given)
    if isinstance(spec, EncoderKind):
        return spec.make(frame_shape, key=key, shift=shift, scale=scale, frames=frames)
    if isinstance(spec, LinearEncoder | MLPEncoder | CNNEncoder | KeypointEncoder | RandomFeatures | UserEncoder):
        return spec
    if callable(spec) and not isinstance(spec, type):
        return UserEncoder(spec, frame_shape, shift=shift, scale=scale)
    raise ValueError(
        f"encoder must be {', '.join(repr(name) for name in NAMES)}, or a module or function from a frame to a vector; "
        f"got {spec!r}"
    )


def _convolutions(frame_shape, channels, kernels, strides, keys, method, dtype) -> tuple[Conv2d, ...]:
    if not len(channels) == len(kernels) == len(strides) >= 1:
        raise ValueError("channels, kernels and strides must have one entry per layer, and there must be a layer")
    inputs = (image_shape(frame_shape)[-1], *channels)
    return tuple(
        Conv2d(c, out, kernel, stride, key=k, method=method, dtype=dtype)
        for c, out, kernel, stride, k in zip(inputs, channels, kernels, strides, keys, strict=False)
    )


def _sizes(convolutions: tuple[Conv2d, ...], frame_shape: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Height, width and channels of the frame, and of the output of each layer."""
    sizes = [image_shape(frame_shape)]
    for layer in convolutions:
        sizes.append(layer.out_shape(*sizes[-1][:2]))
    return sizes


def _by_chunks(network, frames, convolutions: tuple[Conv2d, ...], frame_shape: tuple[int, ...]):
    """Apply the network, on CPU by chunks of frames that suit the largest of its convolutions."""
    if not uses_patches(convolutions[0].method):
        return network(frames)
    sizes = _sizes(convolutions, frame_shape)
    largest = max(layer.patch_bytes(h, w) for layer, (h, w, _) in zip(convolutions, sizes, strict=False))
    return map_frames(network, frames, largest)


def _grid(height: int, width: int, dtype) -> Float[Array, "s 2"]:
    """Row and column of each pixel, from -`REACH` to `REACH`."""
    rows, columns = (REACH * (np.arange(n) - 0.5 * (n - 1)) / max(0.5 * (n - 1), 0.5) for n in (height, width))
    return jnp.asarray(np.stack(np.meshgrid(rows, columns, indexing="ij"), -1).reshape(-1, 2), dtype)


def _standard(standardise: Standardise, frames: Shaped[Array, "n *frame"]) -> Float[Array, "n *frame"]:
    return standardise(frames.astype(standardise.shift.dtype))


def image_shape(frame_shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(frame_shape) not in (2, 3):
        raise ValueError(
            f"a convolutional network needs frames of (height, width) or (height, width, channels), not of shape "
            f"{tuple(frame_shape)}; use the encoder 'mlp' or 'linear' for vectors"
        )
    h, w, *channels = frame_shape
    return h, w, channels[0] if channels else 1


def _calling_convention(module, frame_shape, batched, dtype) -> tuple[bool, int]:
    """Whether the module takes a batch, and the length of its vectors."""
    single, why_not_single = _try_shape(module, frame_shape, dtype)
    batch, why_not_batch = _try_shape(module, (3, *frame_shape), dtype)
    for_single = single[0] if batched is not True and len(single) == 1 else None
    for_batch = batch[1] if batched is not False and len(batch) == 2 and batch[0] == 3 else None
    if for_single is not None and for_batch is not None and for_single != for_batch:
        raise ValueError(
            f"the encoder takes one frame of shape {frame_shape} (and returns {single}) as well as a batch of three "
            f"(and returns {batch}); say which it is meant for: UserEncoder(module, frame_shape, batched=False or True)"
        )
    if for_single is not None:
        return False, for_single
    if for_batch is not None:
        return True, for_batch
    raise ValueError(
        f"the encoder must map one frame of shape {frame_shape} to a vector, or a batch of them to one vector per "
        f"frame. For one frame it {why_not_single}; for a batch of shape {(3, *frame_shape)} it {why_not_batch}. "
        "Return an array with one axis (for one frame) or two (for a batch); flatten the rest"
    )


def _try_shape(module, shape, dtype) -> tuple[tuple[int, ...], str]:
    """The shape of the module's output for an input of this shape, () if it fails; and the outcome in words."""
    try:
        out = eqx.filter_eval_shape(module, jax.ShapeDtypeStruct(shape, dtype))
    except Exception as error:
        return (), f"raised {type(error).__name__} ({str(error).splitlines()[0] if str(error) else 'no message'})"
    if not isinstance(out, jax.ShapeDtypeStruct):
        return (), f"returned {type(out).__name__}, not one array"
    if not jnp.issubdtype(out.dtype, jnp.floating):
        return (), f"returned an array of {out.dtype}, not of floating point numbers"
    return out.shape, f"returned an array of shape {out.shape}"
