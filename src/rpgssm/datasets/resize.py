"""Resizing images by one matrix product from the left and one from the right.

The weights are those of Pillow's `Image.resize`: a filter, wider by the scale when shrinking, cut off at the border and
normalised. So the result equals Pillow's for floating point images, for any number of images at once.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from jaxtyping import Float, Shaped, UInt8

Filter = Literal["lanczos", "box", "bilinear"]


def _lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


def _box(x: np.ndarray) -> np.ndarray:
    return ((x > -0.5) & (x <= 0.5)).astype(float)


def _bilinear(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0.0)


_FILTERS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "lanczos": (_lanczos, 3.0),
    "box": (_box, 0.5),
    "bilinear": (_bilinear, 1.0),
}


@lru_cache(maxsize=64)
def resize_weights(old: int, new: int, kind: Filter = "lanczos") -> Float[np.ndarray, "new old"]:
    """The matrix that maps a line of `old` pixels to a line of `new` pixels."""
    weight, support = _FILTERS[kind]
    ratio = old / new
    stretch = max(ratio, 1.0)
    rows = np.zeros((new, old))
    for i in range(new):
        centre = (i + 0.5) * ratio
        first = max(int(centre - support * stretch + 0.5), 0)
        last = min(int(centre + support * stretch + 0.5), old)
        w = weight((np.arange(first, last) + 0.5 - centre) / stretch)
        rows[i, first:last] = w / w.sum()
    rows.setflags(write=False)
    return rows


def resize(
    images: Shaped[np.ndarray, "*lead h w"], height: int, width: int, kind: Filter = "lanczos"
) -> Float[np.ndarray, "*lead height width"]:
    """Resize images of one channel, in 32-bit floating point. Lanczos overshoots: clip what must stay in range."""
    left = resize_weights(images.shape[-2], height, kind).astype(np.float32)
    right = resize_weights(images.shape[-1], width, kind).astype(np.float32)
    return left @ (images.astype(np.float32) @ right.T)


def quantise(images: Float[np.ndarray, "*shape"]) -> UInt8[np.ndarray, "*shape"]:
    """Images in [0, 1] as 8 bits, clipped and rounded."""
    return np.rint(np.clip(images, 0, 1) * 255).astype(np.uint8)
