"""Recognition heads: from features to the natural parameters (h, Λ) of potentials fΔ(z | x) = exp(-½ z'Λz + h'z).

h is affine in the features. Λ is diagonal or full, and the same for all frames or a function of the features:

    diagonal   Λ = floor·I + diag(softplus(r))
    cholesky   Λ = floor·I + LL',   L lower triangular with softplus(r) on its diagonal

with r and the rest of L parameters (constant) or affine in the features (dependent). A constant Λ gives a *shared*
`Precision`, for which the core has its fastest paths. A head starts with small weights, so that Λ starts near
`initial_precision·I` for all frames. L starts away from 0, where LL' has no gradient.

`Recognition` is an encoder with its head: frames in, potentials out.
"""

from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from rpgssm.core import Potentials, Precision
from rpgssm.data import Sequences
from rpgssm.settings import Behaviour, setting

from .layers import Dense, split, variance_scaling, zeros

Kind = Literal["diagonal", "cholesky"]

LAST_LAYER_GAIN = 0.1


class PrecisionForm(Behaviour, abstract=True):
    """The form of the precisions of recognition potentials."""

    data_dependent: bool = setting(
        False,
        "Whether the precision is a function of the frame, or one constant. Takes more time; a frame that shows "
        "nothing then gets a low precision.",
    )
    start: float | None = setting(None, "Initial size of precisions. None: chosen by the method.", above=0)

    kind: ClassVar[Kind]


class Diagonal(PrecisionForm):
    """Diagonal precisions."""

    kind = "diagonal"


class Cholesky(PrecisionForm):
    """Full precisions, by their Cholesky factors."""

    kind = "cholesky"


def precision_setting(default: PrecisionForm) -> Any:
    """Declare the setting `precision` of a method."""
    return setting(default, "Precision of the recognition potentials: Cholesky (full) or Diagonal.")


class Head(eqx.Module):
    """A map from features to (h, Λ). A constant Λ has the parameter `raw`; otherwise `to_raw` computes it."""

    to_h: Dense
    to_raw: Dense | None
    raw: Float[Array, " r"] | None
    kind: Kind = eqx.field(static=True)
    latent_dim: int = eqx.field(static=True)
    floor: float = eqx.field(static=True)

    @property
    def dependent(self) -> bool:
        return self.to_raw is not None

    def __call__(self, features: Float[Array, "b t f"]) -> tuple[Float[Array, "b t k"], Precision]:
        b, t, f = features.shape
        rows = features.astype(self.to_h.weight.dtype).reshape(b * t, f)
        h = self.to_h(rows).reshape(b, t, -1)
        raw: Any = self.raw if self.to_raw is None else self.to_raw(rows).reshape(b, t, -1)
        return h, Precision(self._precision(raw), shared=not self.dependent, diagonal=self.kind == "diagonal")

    def _precision(self, raw: Float[Array, "*lead r"]) -> Float[Array, "..."]:
        k = self.latent_dim
        if self.kind == "diagonal":
            return self.floor + jax.nn.softplus(raw)
        # k numbers for the diagonal of L, then the others, put in place by a product: its gradient is one, too
        entries = jnp.concatenate([jax.nn.softplus(raw[..., :k]), raw[..., k:]], -1)
        L = jnp.matmul(entries, jnp.asarray(_triangle(k), raw.dtype), precision=lax.Precision.HIGHEST)
        L = L.reshape(*raw.shape[:-1], k, k)
        Λ = jnp.einsum("...ij,...kj->...ik", L, L, precision=lax.Precision.HIGHEST)
        return 0.5 * (Λ + jnp.swapaxes(Λ, -1, -2)) + self.floor * jnp.eye(k, dtype=Λ.dtype)


def make_head(
    kind: Kind = "diagonal",
    dependent: bool = False,
    in_dim: int = 64,
    latent_dim: int = 8,
    *,
    key: PRNGKeyArray,
    floor: float = 1e-3,
    initial_precision: float = 1.0,
    dtype=jnp.float32,
) -> Head:
    """A head for features of size `in_dim` whose precision starts near `initial_precision` times the identity."""
    if kind not in ("diagonal", "cholesky"):
        raise ValueError(f"kind must be 'diagonal' or 'cholesky', not {kind!r}")
    if not floor >= 0 or not initial_precision > floor:
        raise ValueError(
            f"initial_precision ({initial_precision}) must be above the floor ({floor}), and the floor not negative"
        )
    for_h, for_raw = split(key, 2)
    to_h = Dense(in_dim, latent_dim, key=for_h, gain=LAST_LAYER_GAIN, dtype=dtype)
    excess = initial_precision - floor
    diagonal = excess if kind == "diagonal" else excess**0.5
    below = 0 if kind == "diagonal" else latent_dim * (latent_dim - 1) // 2
    start = jnp.asarray(np.full(latent_dim, _inverse_softplus(diagonal)), dtype)
    to_raw = raw = None
    if dependent:
        to_raw = Dense(in_dim, latent_dim + below, key=for_raw, gain=LAST_LAYER_GAIN, dtype=dtype)
        to_raw = eqx.tree_at(lambda m: m.bias, to_raw, jnp.concatenate([start, zeros((below,), dtype)]))
    else:
        raw = start
        if below:
            small = variance_scaling(for_raw, (1, below), (0.01 * diagonal) ** 2, dtype)[0]
            raw = jnp.concatenate([start, small])
    return Head(to_h, to_raw, raw, kind, latent_dim, floor)


class Recognition(eqx.Module):
    """An encoder and its head: the potentials of one modality for a batch of sequences.

    Masked frames have no effect, and cannot spoil gradients, not even with NaN: in their place the encoder gets the
    first observed frame of the batch, and the result is discarded.
    """

    encoder: Any
    head: Head

    def __call__(self, frames: Shaped[Array, "b t *frame"], mask: Bool[Array, "b t"] | None = None) -> Potentials:
        b, t, *frame = frames.shape
        rows = frames.reshape(b * t, *frame)
        if mask is not None:
            observed = mask.reshape(b * t, *[1] * len(frame))
            spare = jnp.where(mask.any(), rows[jnp.argmax(mask.reshape(-1))], jnp.zeros_like(rows[0]))
            rows = jnp.where(observed, rows, spare[None])
        h, precision = self.head(self.encoder(rows).reshape(b, t, -1))
        if mask is not None:
            h = jnp.where(mask[..., None], h, jnp.zeros_like(h))
        return Potentials(h, precision, mask)


def recognise(networks: dict[str, Recognition], batch: Sequences) -> tuple[Potentials, ...]:
    """The potentials of each modality, in alphabetical order; zero where nothing was observed."""
    batch.check_modalities(networks)
    return tuple(networks[name](m.frames(), m.device_mask()) for name, m in sorted(batch.modalities.items()))


def _triangle(k: int) -> np.ndarray:
    """The 0/1 matrix that puts the diagonal, then the entries below it row by row, into a flattened matrix."""
    rows, columns = np.tril_indices(k, -1)
    rows, columns = np.concatenate([np.arange(k), rows]), np.concatenate([np.arange(k), columns])
    place = np.zeros((rows.size, k * k))
    place[np.arange(rows.size), rows * k + columns] = 1
    return place


def _inverse_softplus(y: float) -> float:
    return y + float(np.log(-np.expm1(-y)))
