"""Conversion of one array: to numbers, to a dtype for storage, and the search for NaN and infinite values."""

from collections.abc import Sequence
from typing import TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Shaped
from numpy import ndarray
from numpy.typing import DTypeLike

BLOCK = 4096  # frames to check together, where checking copies them


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Whether this is a list with an array for each sequence, and not a list of numbers."""
    return isinstance(value, list | tuple) and not all(np.ndim(row) == 0 for row in value)


def to_array(label: str, value: object) -> Shaped[ndarray, "..."]:
    """Convert to a NumPy array of real numbers in native byte order, without a copy where possible."""
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise ValueError(
                f"{label} is a masked array: pass its values with NaN where they are missing ({label}.filled(nan)), or "
                "say which frames are observed with mask="
            )
        value = value.data
    try:
        x = np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"{label} is no array ({error}): pass numbers only, and sequences of different lengths as a list of arrays"
        ) from None
    if x.dtype.kind == "O":
        raise ValueError(
            f"{label} is an array of Python objects: pass sequences of different lengths as a list of arrays "
            f"(list({label})), and numbers as an array of numbers ({label}.astype('float32'))"
        )
    if x.dtype.kind == "c":
        raise ValueError(f"{label} holds complex numbers: pass real and imaginary parts as separate entries of a frame")
    if x.dtype.kind not in "biuf" and not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"{label} has dtype {x.dtype}: pass an array of numbers")
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


def padded(rows: Sequence[Shaped[ndarray, "..."]], time: int) -> Shaped[ndarray, "n time *frame"]:
    """Stack arrays of different lengths, with zeros after the end of each."""
    out = np.zeros((len(rows), time, *rows[0].shape[1:]), np.result_type(*{row.dtype for row in rows}))
    for place, row in zip(out, rows, strict=True):
        place[: len(row)] = row
    return out


def float_type(dtype: DTypeLike | None) -> np.dtype:
    """The dtype of computations: float32 by default, or float64 if JAX has switched it on."""
    wanted = np.dtype(np.float32 if dtype is None else dtype)
    if wanted not in (np.float32, np.float64):
        raise ValueError(f"dtype is {wanted}: choose float32 or float64")
    if wanted == np.float64 and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError("dtype is float64, which JAX has switched off: jax.config.update('jax_enable_x64', True)")
    return wanted


def storage(dtype: np.dtype, image: bool, floating: np.dtype) -> tuple[np.dtype, float, str | None]:
    """Return the dtype for storing values, the scale to apply when they are used, and a note or None.

    Small unsigned integers in images are pixels and keep their dtype; elsewhere they are counts.
    """
    if dtype == floating:
        return dtype, 1.0, None
    if image and dtype in (np.uint8, np.uint16):
        top = int(np.iinfo(dtype).max)
        return dtype, 1 / top, f"{dtype} images are scaled by 1/{top}, to values between 0 and 1"
    scaled = (
        "" if dtype.kind not in "iu" else " as they are" if not image else " without scaling (uint8 would be scaled)"
    )
    return floating, 1.0, f"{dtype} values are converted to {floating}{scaled}"


def converted(x: Shaped[ndarray, "..."], dtype: np.dtype) -> Shaped[ndarray, "..."]:
    """Cast x without a warning where it overflows: `broken_frames` finds the infinite values afterwards."""
    with np.errstate(over="ignore"):
        return x.astype(dtype, copy=False)


def broken_frames(values: Float[ndarray, "n t *frame"]) -> tuple[Bool[ndarray, "n t"], Bool[ndarray, "n t"]]:
    """Find the frames with NaN, and the frames with an infinite value."""
    with np.errstate(all="ignore"):
        # a sum is finite only if every term is, and needs no array of the size of the data
        suspects = np.argwhere(~np.isfinite(values.sum(tuple(range(2, values.ndim)))))
    nan, infinite = np.zeros(values.shape[:2], bool), np.zeros(values.shape[:2], bool)
    for start in range(0, len(suspects), BLOCK):
        n, t = suspects[start : start + BLOCK].T
        frames = values[n, t].reshape(len(n), -1)
        nan[n, t], infinite[n, t] = np.isnan(frames).any(1), np.isinf(frames).any(1)
    return nan, infinite
