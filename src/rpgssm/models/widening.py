"""A wide random layer on a trained recognition network.

Training fills few directions of the latent space, as few as the likelihood needs: what the latents know is then folded
up, and a line reads less of it than a curve does. A random layer on top of what one frame says of the latents spreads
it over many directions again, products of two angles among them. The network below stays as it is; only the layer, a
new head and a new chain are trained, on the recognised means as data. Without a layer head and chain alone are new:
a chain of another kind, or of fewer latents, finds in what was learned something else.

The layer may also stay as it was drawn (`RandomFeatures`). What the head gets are then fixed numbers, as if they were
the data, and a Gaussian with their moments may stand for their marginal: a frame may then be worth more than log N, and
the chain has a use for all of its latents.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Shaped

from rpgssm.core.linalg import mv, spd_inverse
from rpgssm.data import Sequences

from .encoders import LinearEncoder, MLPEncoder
from .heads import Recognition
from .random_features import RandomFeatures
from .rpgssm import RPGSSMModel


class WideEncoder(eqx.Module):
    """What a trained network recognises in a frame, passed through one wide layer. The network is not trained on."""

    trunk: Recognition
    layer: MLPEncoder | LinearEncoder | RandomFeatures

    @property
    def out_dim(self) -> int:
        return self.layer.out_dim

    def __call__(self, frames: Shaped[Array, "n *frame"]) -> Float[Array, "n f"]:
        return self.layer(lax.stop_gradient(recognised(self.trunk, frames[None])[0]))


def recognised(
    recognition: Recognition, frames: Shaped[Array, "b t *frame"], mask: Bool[Array, "b t"] | None = None
) -> Float[Array, "b t k"]:
    """What each frame alone says of the latents: the mean of f(z | x) ∝ N(z; 0, I) fΔ(z | x), (I + Λ)⁻¹ h."""
    p = recognition(frames, mask)
    Lam = p.precision.dense()
    S, _ = spd_inverse(Lam + jnp.eye(Lam.shape[-1], dtype=Lam.dtype), 1.0)
    return mv(S, p.h)


@eqx.filter_jit
def recognise(model: RPGSSMModel, batch: Sequences) -> dict[str, Float[Array, "b t k"]]:
    """What each frame alone says of the latents, by modality; zero where there is none."""
    means = {}
    for name, m in batch.modalities.items():
        mask = None if m.mask is None else jnp.asarray(m.mask)
        values = recognised(model.recognition[name], m.frames(), mask)
        means[name] = values if mask is None else jnp.where(mask[..., None], values, jnp.zeros_like(values))
    return means


def widened(narrow: RPGSSMModel, wide: RPGSSMModel) -> RPGSSMModel:
    """The model for frames, from one for frames and one trained on what that recognises."""
    recognition = {
        name: Recognition(WideEncoder(narrow.recognition[name], r.encoder), r.head)
        for name, r in wide.recognition.items()
    }
    return RPGSSMModel(wide.prior, recognition)


def is_wide(model: RPGSSMModel) -> bool:
    return any(isinstance(r.encoder, WideEncoder) for r in model.recognition.values())
