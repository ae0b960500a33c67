"""The one shape in which data flows through the library: a batch of equally long, masked sequences.

Whatever a user brings (arrays, ragged lists, several modalities, missing frames) becomes `Sequences` at the door, and
everything after (batching, models, evaluation) works on that. It is a pytree of arrays, NumPy on the host or JAX on the
device, whose every leaf has the sequences as its first axis.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped
from numpy import ndarray

AnyArray = Array | ndarray


class Modality(eqx.Module):
    """What one sensor recorded: `values[n, t]` is the frame of sequence n at time t.

    Integers (images) stay integers in memory and become `values * scale` when they are used. `mask` is True where there
    is an observation; elsewhere, padding included, `values` are zero. None: everything is observed, which lets models
    take faster paths.
    """

    values: Shaped[AnyArray, "n t *frame"]
    mask: Bool[AnyArray, "n t"] | None = None
    scale: float = eqx.field(static=True, default=1.0)

    @property
    def frame_shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape[2:])

    def frames(self) -> Float[Array, "n t *frame"]:
        """The frames as floating point numbers."""
        values = jnp.asarray(self.values)
        if not jnp.issubdtype(values.dtype, jnp.floating):
            values = values.astype(jnp.float32)
        return values if self.scale == 1.0 else values * jnp.asarray(self.scale, values.dtype)


class Sequences(eqx.Module):
    """N sequences of T frames in one or several modalities, with controls or without.

    `lengths[n]` frames of sequence n exist, the rest is padding (masked in every modality, zero in the controls); None:
    all have T. Controls are real vectors or integers (a discrete input); `controls[n, t]` acts on the step from frame t
    to frame t + 1.
    """

    modalities: dict[str, Modality]
    controls: Float[AnyArray, "n t u"] | Int[AnyArray, "n t"] | None = None
    lengths: Int[AnyArray, " n"] | None = None

    def __len__(self) -> int:
        return self._first.values.shape[0]

    @property
    def time(self) -> int:
        return self._first.values.shape[1]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.modalities)

    @property
    def _first(self) -> Modality:
        return next(iter(self.modalities.values()))
