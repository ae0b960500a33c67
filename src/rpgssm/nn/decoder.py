"""The auxiliary generative model: frames from latents, trained on latents that stay fixed.

The recognition-parametrised model never reconstructs its data. A decoder, trained afterwards on the inferred latents,
shows what they hold: x ~ N(m(z), s²) in standardised units, with one learnt variance s² for all pixels. Only the
decoder is trained.

Latents are posterior means `(*lead, k)`, or samples of the posterior `(samples, *lead, k)`. The mean of the
log-likelihood over samples is its expectation under the posterior. Frames are `(*lead, *frame)`, for instance with
lead = (sequence, time).
"""

from abc import abstractmethod
from math import log, pi, prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from rpgssm.core.linalg import cholesky_psd, mv
from rpgssm.data.sequences import AnyArray

from .convolution import Conv2d, Method, map_frames, uses_patches
from .encoders import image_shape
from .layers import MLP, Activation, Dense, Standardise, split, zeros

SMALLEST_LOG_VARIANCE = log(1e-6)


class DecoderInfo(eqx.Module):
    """Per observed frame: the log-likelihood; per pixel: mean squared error and variance, in standardised units."""

    log_likelihood: Float[Array, ""]
    squared_error: Float[Array, ""]
    variance: Float[Array, ""]


class Decoder(eqx.Module):
    """A network from latents to the means of frames, and the variance around them."""

    standardise: eqx.AbstractVar[Standardise]
    tenth_log_variance: eqx.AbstractVar[Float[Array, ""]]
    frame_shape: eqx.AbstractVar[tuple[int, ...]]

    @abstractmethod
    def network(self, latents: Float[Array, "n k"]) -> Float[Array, "n *frame"]:
        """The means of frames in standardised units."""

    @property
    def log_variance(self) -> Float[Array, ""]:
        """The logarithm of the variance of each pixel, in standardised units."""
        # Adam moves a parameter by about its learning rate at each step: a tenth converges ten times sooner
        return jnp.maximum(10 * self.tenth_log_variance, SMALLEST_LOG_VARIANCE)

    @property
    def variance(self) -> Float[Array, ""]:
        return jnp.exp(self.log_variance)

    def mean(self, latents: Float[Array, "*lead k"]) -> Float[Array, "*out"]:
        """The expected frames, in the units of the data."""
        lead = latents.shape[:-1]
        return self.standardise.inverse(self._standard_means(latents)).reshape(*lead, *self.frame_shape)

    def log_likelihood(
        self, latents: Float[Array, "..."], frames: Shaped[Array, "..."], mask: Bool[Array, "..."] | None = None
    ) -> Float[Array, "..."]:
        """log p(frame | latent) of each frame in the units of the data, averaged over samples; 0 where masked."""
        return self._per_frame(latents, frames, mask)[0]

    def _standard_means(self, latents: Float[Array, "*lead k"]) -> Float[Array, "n *frame"]:
        z = latents.astype(self.tenth_log_variance.dtype)
        return self.network(z.reshape(-1, z.shape[-1]))

    def _per_frame(self, latents, frames, mask):
        """Log-likelihood and squared error of each frame, the latter per pixel; both 0 where masked."""
        lead = _lead(frames.shape, self.frame_shape)
        samples = _samples(latents.shape, lead)
        if mask is not None and mask.shape != lead:
            raise ValueError(f"the mask has shape {mask.shape}, but there are {lead} frames")
        x = frames.astype(self.tenth_log_variance.dtype)
        if mask is not None:
            x = jnp.where(mask.reshape(*lead, *[1] * len(self.frame_shape)), x, jnp.zeros_like(x))
        x = self.standardise(x.reshape(-1, *self.frame_shape))
        means = self._standard_means(latents).reshape(samples, *x.shape)
        pixels = prod(self.frame_shape)
        squared = ((means - x[None]) ** 2).reshape(samples, *lead, pixels).mean(axis=(0, -1))
        constant = pixels * (log(2 * pi) + self.log_variance) + 2 * self.standardise.log_volume(self.frame_shape)
        log_likelihood = -0.5 * (pixels * squared / self.variance + constant)
        if mask is not None:
            zero = jnp.zeros_like(squared)
            return jnp.where(mask, log_likelihood, zero), jnp.where(mask, squared, zero)
        return log_likelihood, squared


class MLPDecoder(Decoder):
    """Dense layers from the latent to all pixels."""

    standardise: Standardise
    tenth_log_variance: Float[Array, ""]
    layers: MLP
    frame_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        latent_dim: int,
        frame_shape: tuple[int, ...],
        width: int = 128,
        depth: int = 2,
        activation: Activation = jax.nn.relu,
        *,
        key: PRNGKeyArray,
        shift: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        dtype=jnp.float32,
    ):
        self.standardise = Standardise(frame_shape, shift, scale, dtype)
        self.tenth_log_variance = zeros((), dtype)
        sizes = (latent_dim, *[width] * depth, prod(frame_shape))
        self.layers = MLP(sizes, key=key, activation=activation, activate_last=False, dtype=dtype)
        self.frame_shape = tuple(frame_shape)

    def network(self, latents: Float[Array, "n k"]) -> Float[Array, "n *frame"]:
        return self.layers(latents).reshape(-1, *self.frame_shape)


class ConvDecoder(Decoder):
    """A dense layer to a small image, doubled in size until it covers the frame, then cut to it.

    Doubling is a 3×3 convolution with four times the channels, rearranged to 2×2 pixels each: all arithmetic is at the
    lower resolution.
    """

    standardise: Standardise
    tenth_log_variance: Float[Array, ""]
    dense: MLP
    start: Dense
    convolutions: tuple[Conv2d, ...]
    frame_shape: tuple[int, ...] = eqx.field(static=True)
    small_shape: tuple[int, int, int] = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        latent_dim: int,
        frame_shape: tuple[int, ...],
        channels: int = 32,
        width: int = 128,
        activation: Activation = jax.nn.relu,
        *,
        key: PRNGKeyArray,
        shift: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        method: Method = "auto",
        dtype=jnp.float32,
    ):
        h, w, c = image_shape(frame_shape)
        doublings = 1
        while max(h, w) > 8 * 2**doublings:
            doublings += 1
        first, second, *keys = split(key, 2 + doublings)
        # each doubling of the sides halves the channels; the last one gives the frame
        depth = [max(8, channels // 2**i) for i in range(doublings)] + [c]
        self.standardise = Standardise(frame_shape, shift, scale, dtype)
        self.tenth_log_variance = zeros((), dtype)
        self.dense = MLP((latent_dim, width), key=first, activation=activation, dtype=dtype)
        self.small_shape = (-(-h // 2**doublings), -(-w // 2**doublings), depth[0])
        self.start = Dense(width, prod(self.small_shape), key=second, dtype=dtype)
        self.convolutions = tuple(
            Conv2d(depth[i], 4 * depth[i + 1], 3, key=k, method=method, gain=gain, dtype=dtype)
            for i, (k, gain) in enumerate(zip(keys, [2.0] * (doublings - 1) + [1.0], strict=True))
        )
        self.frame_shape = tuple(frame_shape)
        self.activation = activation

    def network(self, latents: Float[Array, "n k"]) -> Float[Array, "n *frame"]:
        if not uses_patches(self.convolutions[0].method):
            return self._images(latents)
        h, w, _ = self.small_shape
        largest = max(layer.patch_bytes(h * 2**i, w * 2**i) for i, layer in enumerate(self.convolutions))
        return map_frames(self._images, latents, largest)

    def _images(self, latents):
        x = self.activation(self.start(self.dense(latents))).reshape(-1, *self.small_shape)
        for layer in self.convolutions[:-1]:
            x = self.activation(_depth_to_space(layer(x)))
        x = _depth_to_space(self.convolutions[-1](x))
        h, w, _ = image_shape(self.frame_shape)
        return x[:, :h, :w].reshape(-1, *self.frame_shape)


def make_decoder(
    spec: Any,
    latent_dim: int,
    frame_shape: tuple[int, ...],
    *,
    key: PRNGKeyArray,
    shift: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    dtype=jnp.float32,
) -> Decoder:
    """The decoder that `spec` names: "mlp", "conv", or "auto" for "conv" on images and "mlp" on vectors.

    A `Decoder` given as an object is returned as it is.
    """
    if isinstance(spec, Decoder):
        return spec
    if spec == "auto":
        spec = "conv" if len(frame_shape) in (2, 3) and min(frame_shape[:2]) >= 8 else "mlp"
    classes = {"mlp": MLPDecoder, "conv": ConvDecoder}
    if spec not in classes:
        raise ValueError(f"decoder must be 'auto', 'mlp', 'conv' or a Decoder, not {spec!r}")
    return classes[spec](latent_dim, frame_shape, key=key, shift=shift, scale=scale, dtype=dtype)


def decoder_loss(
    decoder: Decoder,
    latents: Float[AnyArray, "..."],
    frames: Shaped[AnyArray, "..."],
    mask: Bool[AnyArray, "..."] | None = None,
) -> tuple[Float[Array, ""], DecoderInfo]:
    """Minus the log-likelihood per observed frame. No gradient reaches the latents."""
    log_likelihood, squared = decoder._per_frame(lax.stop_gradient(latents), frames, mask)
    observed = log_likelihood.size if mask is None else jnp.maximum(mask.sum(), 1).astype(log_likelihood.dtype)
    value = log_likelihood.sum() / observed
    return -value, DecoderInfo(value, squared.sum() / observed, decoder.variance)


def sample_latents(
    key: PRNGKeyArray, mean: Float[Array, "b t k"], cov: Float[Array, "c t k k"], samples: int
) -> Float[Array, "samples b t k"]:
    """Independent draws from the marginals of a posterior, for the expected log-likelihood.

    Covariances that all sequences share may have a batch axis of length 1, as from `rpgssm.core.smooth`.
    """
    noise = jax.random.normal(key, (samples, *mean.shape), mean.dtype)
    return mean[None] + mv(cholesky_psd(cov)[None], noise)


def _depth_to_space(x: Float[Array, "n h w c4"]) -> Float[Array, "n h2 w2 c"]:
    n, h, w, c = x.shape
    x = x.reshape(n, h, w, 2, 2, c // 4)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * h, 2 * w, c // 4)


def _lead(shape: tuple[int, ...], frame_shape: tuple[int, ...]) -> tuple[int, ...]:
    split = len(shape) - len(frame_shape)
    if split < 0 or shape[split:] != frame_shape:
        raise ValueError(f"the frames have shape {shape}, which does not end in the decoder's {frame_shape}")
    return shape[:split]


def _samples(shape: tuple[int, ...], lead: tuple[int, ...]) -> int:
    """The number of samples of the latents for each frame."""
    if shape[:-1] == lead:
        return 1
    if len(shape) == len(lead) + 2 and shape[1:-1] == lead:
        return shape[0]
    raise ValueError(
        f"the latents have shape {shape}; for {lead} frames they must be (*{lead}, k), or (samples, *{lead}, k)"
    )
