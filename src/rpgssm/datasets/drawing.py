"""Drawing, for all frames at once.

Two kinds: a hard-edged bar on a large canvas that is then resized (the pendulum), and small antialiased shapes drawn
directly into the frame. Coordinates are in pixels, x to the right and y downwards. In the first kind pixel i lies at
coordinate i, in the second it covers [i, i + 1].
"""

import numpy as np
from jaxtyping import Float

from .resize import resize_weights


def resized_bar(
    angle: Float[np.ndarray, " n"],
    *,
    size: int = 24,
    canvas: int = 128,
    centre: float = 64.0,
    length: float = 55.0,
    width: float = 8.0,
) -> Float[np.ndarray, "n size size"]:
    """A bar of value 1 from the centre to `centre + length (sin, cos)`, Lanczos-resized and clipped to [0, 1].

    The bar is a rectangle: pixels at most half its width from the axis (less on one side, so that an upright bar is
    `width` pixels wide and not one more), and between its two ends. In each row of the canvas that is an interval
    [a, b) of columns, so resizing along the row is a difference of cumulative weights, and the canvas itself is never
    made.
    """
    weights = resize_weights(canvas, size)
    cumulative = np.concatenate([np.zeros((1, size)), np.cumsum(weights.T, axis=0)]).astype(np.float32)
    y = np.arange(canvas, dtype=np.float32) - np.float32(centre)
    images = np.empty((len(angle), size, size), np.float32)
    for start in range(0, len(angle), 4096):
        part = slice(start, start + 4096)
        s, c = np.sin(angle[part]).astype(np.float32), np.cos(angle[part]).astype(np.float32)
        # with (x, y) from the centre: 0 ≤ x s + y c ≤ length along the bar, |x c - y s| ≤ width / 2 across it
        a1, b1 = _interval(s, -np.outer(c, y), length - np.outer(c, y))
        a2, b2 = _interval(c, np.outer(s, y) - width / 2 + 1e-3, np.outer(s, y) + width / 2)
        a = np.clip(np.ceil(np.maximum(a1, a2) + centre), 0, canvas).astype(np.intp)
        b = np.clip(np.floor(np.minimum(b1, b2) + centre) + 1, 0, canvas).astype(np.intp)
        rows = cumulative[np.maximum(a, b)] - cumulative[a]
        images[part] = weights.astype(np.float32) @ rows
    return np.clip(images, 0, 1)


def _interval(
    slope: Float[np.ndarray, " n"], low: Float[np.ndarray, "n rows"], high: Float[np.ndarray, "n rows"]
) -> tuple[Float[np.ndarray, "n rows"], Float[np.ndarray, "n rows"]]:
    """The x for which low ≤ slope x ≤ high. A slope of zero stands for a very small one: all x, or none."""
    slope = np.where(np.abs(slope) < 1e-7, np.float32(1e-7), slope)[:, None]
    one, other = low / slope, high / slope
    return np.minimum(one, other), np.maximum(one, other)


def capsule(
    x: Float[np.ndarray, "*#shape"],
    y: Float[np.ndarray, "*#shape"],
    start: tuple[np.ndarray, np.ndarray],
    end: tuple[np.ndarray, np.ndarray],
    width: float,
) -> Float[np.ndarray, "*shape"]:
    """The fraction of the pixel at (x, y) that a line with round ends covers, softened over one pixel."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    px, py = x - start[0], y - start[1]
    along = np.clip((px * dx + py * dy) / np.maximum(dx * dx + dy * dy, 1e-12), 0, 1)
    distance = np.hypot(px - along * dx, py - along * dy)
    return np.clip(width / 2 + 0.5 - distance, 0, 1)


def disc(
    x: Float[np.ndarray, "*#shape"],
    y: Float[np.ndarray, "*#shape"],
    centre: tuple[np.ndarray, np.ndarray],
    radius: float,
) -> Float[np.ndarray, "*shape"]:
    """The fraction of the pixel at (x, y) that a disc covers, softened over one pixel."""
    return np.clip(radius + 0.5 - np.hypot(x - centre[0], y - centre[1]), 0, 1)
