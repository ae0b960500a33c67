"""A batch of equally long, masked sequences: the form of data in the whole library.

User input (arrays, ragged lists, several modalities, missing frames) is converted to `Sequences` once. It is a pytree
of arrays, NumPy on the host or JAX on the device. The first axis of each array counts sequences.

Choosing sequences and cutting windows works on both, also inside `jit`; splitting and describing is for the host.
"""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped
from numpy import ndarray

AnyArray = Array | ndarray


class Modality(eqx.Module):
    """One modality: `values[n, t]` is the frame of sequence n at time t.

    Integers (images) stay integers in memory and become `values * scale` when they are used. `mask` is True where there
    is an observation; elsewhere, padding included, `values` are zero. None: everything is observed, and models take
    faster paths.
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

    def zero_filled(self) -> Float[Array, "n t *frame"]:
        """The frames as floating point numbers, zero where not observed."""
        frames, seen = self.frames(), self.device_mask()
        if seen is None:
            return frames
        return jnp.where(seen.reshape(*seen.shape, *[1] * (frames.ndim - 2)), frames, jnp.zeros_like(frames))

    def device_mask(self) -> Bool[Array, "n t"] | None:
        """The mask as a JAX array."""
        return None if self.mask is None else jnp.asarray(self.mask)

    def observed(self) -> int | Int[AnyArray, ""]:
        """The number of observed frames: an integer on the host, an array on the device."""
        if self.mask is None:
            return self.values.shape[0] * self.values.shape[1]
        return int(self.mask.sum()) if isinstance(self.mask, ndarray) else jnp.sum(self.mask)


class Sequences(eqx.Module):
    """N sequences of T frames in one or several modalities, with controls or without.

    `lengths[n]` frames of sequence n exist; the rest is padding, masked in every modality and zero in the controls.
    None: all have T. Controls are real vectors or integers (a discrete input). `controls[n, t]` acts on the step from
    frame t to frame t + 1.
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
        """The modalities in alphabetical order, which is the order that JAX gives the keys of a pytree."""
        return tuple(sorted(self.modalities))

    @property
    def frame_shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: self.modalities[name].frame_shape for name in self.names}

    @property
    def nbytes(self) -> int:
        """The memory of all arrays, in bytes."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self))

    @property
    def _first(self) -> Modality:
        return next(iter(self.modalities.values()))

    def observed(self) -> int | Int[AnyArray, ""]:
        """The number of observations in all sequences, frames and modalities."""
        return sum(modality.observed() for modality in self.modalities.values())

    def check_modalities(self, names: Iterable[str]) -> None:
        """Raise unless these are the names of the modalities."""
        if missing := set(names) ^ set(self.modalities):
            raise ValueError(f"the model and the data do not have the same modalities: {', '.join(sorted(missing))}")

    def take(self, indices: Int[AnyArray, " m"] | list[int]) -> "Sequences":
        """The sequences with these indices, in this order."""
        return jax.tree.map(lambda x: _indexed(x, indices), self)

    def window(
        self,
        starts: Int[AnyArray, " m"] | list[int],
        length: int,
        indices: Int[AnyArray, " m"] | list[int] | None = None,
    ) -> "Sequences":
        """One window of `length` frames per sequence, the n-th from `starts[n]` on.

        With `indices`, window i is cut from sequence `indices[i]` instead, which saves copying whole sequences first.
        A start is moved back if the window would end after frame T. A window may reach into padding, which stays
        masked; the new `lengths` count the frames that exist.
        """
        if not 1 <= length <= self.time:
            raise ValueError(f"windows of {length} frames cannot be cut from sequences of {self.time} frames")
        traced = any(isinstance(x, jax.Array) for x in (starts, indices, *jax.tree.leaves(self)))
        xp: Any = jnp if traced else np
        first, which = xp.asarray(starts), xp.asarray(np.arange(len(self)) if indices is None else indices)
        if first.shape != which.shape:
            raise ValueError(f"{first.shape[0]} starts were given for {which.shape[0]} windows: give one for each")
        first = xp.clip(first, 0, self.time - length)

        def cut(x):
            if traced:
                return _device_windows(jnp.asarray(x), which, first, length)
            return x[which[:, None], first[:, None] + np.arange(length)]

        modalities, controls = jax.tree.map(cut, (self.modalities, self.controls))
        if self.lengths is None:
            return Sequences(modalities, controls)
        lengths = _indexed(self.lengths, which)
        return Sequences(modalities, controls, xp.clip(lengths - first.astype(lengths.dtype), 0, length))

    def to_device(self, device: Any = None) -> "Sequences":
        """The same with JAX arrays, on the given device or sharding, or the default one."""
        return jax.device_put(self, device)

    def to_host(self) -> "Sequences":
        """The same with NumPy arrays."""
        return jax.device_get(self)

    def split(self, fraction: float, seed: int) -> tuple["Sequences", "Sequences"]:
        """Split into two parts of NumPy arrays, the second with this fraction of the data (for validation).

        Whole sequences are drawn at random (and stay in order), at least one for each part. A single sequence is cut in
        time instead: the second part is its end. Padding that a part does not need is cut off.
        """
        if not 0 < fraction < 1:
            raise ValueError(f"the fraction to split off is {fraction}, not between 0 and 1")
        host, count = self.to_host(), len(self)
        if count == 1:
            return host._split_in_time(fraction)
        held_out = min(max(round(fraction * count), 1), count - 1)
        chosen = np.zeros(count, bool)
        chosen[np.random.default_rng(seed).permutation(count)[:held_out]] = True
        first, second = (host.take(np.flatnonzero(part)).trimmed() for part in (~chosen, chosen))
        return first, second

    def _split_in_time(self, fraction: float) -> tuple["Sequences", "Sequences"]:
        time = self.time if self.lengths is None else int(self.lengths[0])
        if time < 4:
            raise ValueError(
                f"the only sequence has {time} frames, too few to split off a part of it (each part needs 2): pass "
                "longer or more sequences"
            )
        held_out = min(max(round(fraction * time), 2), time - 2)
        first, second = self.window([0], time - held_out), self.window([time - held_out], held_out)
        return first.trimmed(), second.trimmed()

    def trimmed(self) -> "Sequences":
        """Drop frames that are padding in all sequences, masks without a False, and equal lengths."""
        time = self.time if self.lengths is None else max(int(self.lengths.max()), 1)
        modalities, controls = jax.tree.map(lambda x: x[:, :time], (self.modalities, self.controls))
        lengths = None if self.lengths is None or self.lengths.min() == time else self.lengths
        modalities = {
            name: Modality(m.values, None if m.mask is None or m.mask.all() else m.mask, m.scale)
            for name, m in modalities.items()
        }
        return Sequences(modalities, controls, lengths)

    def describe(self) -> str:
        """A description in a few lines."""
        if self.lengths is None:
            frames, existing = f"{self.time}", len(self) * self.time
        else:
            lengths = np.asarray(self.lengths)
            frames, existing = f"{lengths.min()} to {lengths.max()}", int(lengths.sum())
        lines = [f"{len(self)} {_plural('sequence', len(self))} of {frames} frames, {_size(self.nbytes)}"]
        for name in self.names:
            modality = self.modalities[name]
            shape, observed = "×".join(map(str, modality.frame_shape)), int(modality.observed())
            missing = f", {existing - observed} of {existing} frames missing" if observed < existing else ""
            scale = "" if modality.scale == 1.0 else f" scaled by {modality.scale:.4g}"
            lines.append(f"{name}: {shape or 'scalar'} ({modality.values.dtype}{scale}){missing}")
        if self.controls is not None:
            discrete = self.controls.ndim == 2
            what = "discrete" if discrete else f"{self.controls.shape[-1]} {_plural('number', self.controls.shape[-1])}"
            lines.append(f"controls: {what}")
        return "\n".join(lines)


def _indexed(x: AnyArray, indices: Any) -> AnyArray:
    """x[indices], by JAX if either is a JAX array (also a traced one)."""
    if isinstance(x, jax.Array) or isinstance(indices, jax.Array):
        return jnp.asarray(x)[jnp.asarray(indices)]
    return x[np.asarray(indices, np.intp)]


def _device_windows(
    x: Shaped[Array, "n t *frame"], indices: Int[Array, " m"], starts: Int[Array, " m"], length: int
) -> Shaped[Array, "m length *frame"]:
    """The windows, by one gather of contiguous blocks."""
    rest = x.shape[2:]

    def one(n, t):
        zero = jnp.zeros_like(t)
        return lax.dynamic_slice(x, (n, t, *(zero for _ in rest)), (1, length, *rest))[0]

    return jax.vmap(one)(indices.astype(starts.dtype), starts)


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else noun + "s"


def _size(nbytes: int) -> str:
    value, unit = float(nbytes), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}"
