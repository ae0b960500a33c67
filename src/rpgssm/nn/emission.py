"""Emissions: Gaussian distributions of frames given latents, for models that reconstruct."""

from math import log, pi, prod
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from .decoder import Decoder, MLPDecoder, make_decoder

Output = Literal["sigmoid", "linear"]


class Emission(eqx.Module):
    """x ~ N(μ(z), ν²I), in the units of the data. With a sigmoid, means are between 0 and 1."""

    decoder: Decoder
    noise: float = eqx.field(static=True)
    output: Output = eqx.field(static=True, default="linear")

    def mean(self, latents: Float[Array, "*lead k"]) -> Float[Array, "*out"]:
        """The expected frames."""
        d = self.decoder
        if self.output == "linear":
            return d.mean(latents)
        rows = latents.astype(d.standardise.shift.dtype).reshape(-1, latents.shape[-1])
        # an output of zero from the network gives the mean frame of the data
        usual = jnp.clip(jax.lax.stop_gradient(d.standardise.shift), 0.02, 0.98)
        usual = jnp.broadcast_to(jnp.log(usual) - jnp.log1p(-usual), d.frame_shape)
        return jax.nn.sigmoid(d.network(rows) + usual[None]).reshape(*latents.shape[:-1], *d.frame_shape)

    def log_likelihood(
        self,
        latents: Float[Array, "n t k"],
        frames: Shaped[Array, "n t *frame"],
        mask: Bool[Array, "n t"] | None = None,
    ) -> Float[Array, "n t"]:
        """log p(x_t | z_t), 0 where nothing was observed."""
        means = self.mean(latents)
        squared = ((frames.astype(means.dtype) - means) ** 2).reshape(*means.shape[:2], -1).sum(-1)
        pixels = prod(self.decoder.frame_shape)
        value = -0.5 * squared / self.noise**2 - 0.5 * pixels * (log(2 * pi) + 2 * log(self.noise))
        return value if mask is None else jnp.where(mask, value, jnp.zeros_like(value))


def make_emission(
    spec: Any,
    latent_dim: int,
    frame_shape: tuple[int, ...],
    *,
    key: PRNGKeyArray,
    noise: float,
    output: Output = "linear",
    shift: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    dtype=jnp.float32,
) -> Emission:
    """The emission with the decoder that `spec` names: "linear", "conv-paper", or one that `make_decoder` knows."""
    given: dict[str, Any] = {"key": key, "shift": shift, "scale": scale, "dtype": dtype}
    if spec == "linear":
        decoder: Decoder = MLPDecoder(latent_dim, frame_shape, depth=0, **given)
    elif spec == "conv-paper":
        from .paper_decoder import PaperDecoder

        decoder = PaperDecoder(latent_dim, frame_shape, **given)
    else:
        decoder = make_decoder(spec, latent_dim, frame_shape, **given)
    return Emission(decoder, float(noise), output)
