"""One array at the door: is it made of numbers, which ones can be used as they are, and which frames are broken."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Shaped
from numpy import ndarray

BLOCK = 4096  # frames that are looked at together, where a copy of them is needed


def to_array(label: str, value: Any) -> Shaped[ndarray, "..."]:
    """A user's array as NumPy array of real numbers in native byte order, without copying it where that is possible."""
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


def float_type(dtype: Any) -> np.dtype:
    """The floating-point type to work in: float32, or float64 if it is asked for and JAX has it switched on."""
    wanted = np.dtype(np.float32 if dtype is None else dtype)
    if wanted not in (np.float32, np.float64):
        raise ValueError(f"dtype is {wanted}: choose float32 or float64")
    if wanted == np.float64 and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError("dtype is float64, which JAX has switched off: jax.config.update('jax_enable_x64', True)")
    return wanted


def storage(dtype: np.dtype, image: bool, floating: np.dtype) -> tuple[np.dtype, float, str | None]:
    """How values of this dtype are kept: in which dtype, times which scale when they are used, and what to say of it.

    Small unsigned integers in images are pixels, and stay what they are; anywhere else they are counts.
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
    """x in another dtype, silently infinite where it does not fit: infinite values are looked for afterwards."""
    with np.errstate(over="ignore"):
        return x.astype(dtype, copy=False)


def broken_frames(values: Float[ndarray, "n t *frame"]) -> tuple[Bool[ndarray, "n t"], Bool[ndarray, "n t"]]:
    """Which frames hold NaN, and which hold an infinite value."""
    with np.errstate(all="ignore"):
        # a sum is finite only if every term is: this needs no array of the size of the data
        suspects = np.argwhere(~np.isfinite(values.sum(tuple(range(2, values.ndim)))))
    nan, infinite = np.zeros(values.shape[:2], bool), np.zeros(values.shape[:2], bool)
    for start in range(0, len(suspects), BLOCK):
        n, t = suspects[start : start + BLOCK].T
        frames = values[n, t].reshape(len(n), -1)
        nan[n, t], infinite[n, t] = np.isnan(frames).any(1), np.isinf(frames).any(1)
    return nan, infinite
