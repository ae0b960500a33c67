"""Procedural backgrounds: smooth coloured random textures, and moving ones for video."""

import numpy as np
from jaxtyping import Float, UInt8

from .resize import quantise, resize_weights

GREY = np.array([0.2989, 0.5870, 0.1140], np.float32)
"""Weights of red, green and blue."""
_GRIDS = {3: 0.22, 8: 0.18}  # nodes per side of a random grid: standard deviation of its part
_COLOUR = 0.4  # standard deviation, relative to the whole, of the part that differs between colours
_WAVES = 16
_CHUNK = 2048


def still_textures(n: int, size: int, rng: np.random.Generator) -> Float[np.ndarray, "n size size 3"]:
    """Coloured random images in [0, 1]: sums of coarse random grids, smoothly interpolated."""
    noise = rng.standard_normal((n, 1 + sum(g * g for g in _GRIDS), 4), np.float32)
    noise = np.float32(np.sqrt(1 - _COLOUR**2)) * noise[..., :1] + np.float32(_COLOUR) * noise[..., 1:]
    colour = np.float32(0.47) + np.float32(0.14) * noise[:, :1, None]
    images = np.empty((n, size, size, 3), np.float32)
    for start in range(0, n, _CHUNK):
        part = slice(start, min(start + _CHUNK, n))
        total, used = colour[part], 1
        for nodes, strength in _GRIDS.items():
            W = resize_weights(nodes, size, "bilinear").astype(np.float32)
            grid = noise[part, used : used + nodes**2].reshape(-1, nodes, nodes, 3)
            used += nodes**2
            total = total + np.float32(strength) * np.einsum("yi,nijc,xj->nyxc", W, grid, W, optimize=True)
        images[part] = np.clip(total, 0, 1)
    return images


def grey_textures(shape: tuple[int, int], size: int, rng: np.random.Generator) -> UInt8[np.ndarray, "n t size size"]:
    """A new grey random image for each frame of n films of t frames, in 8 bits."""
    return quantise(still_textures(shape[0] * shape[1], size, rng) @ GREY).reshape(*shape, size, size)


def moving_textures(
    n: int, time: int, piece: int, size: int, rng: np.random.Generator
) -> UInt8[np.ndarray, "n time size size 3"]:
    """Coloured waves that drift across the frame, with other waves every `piece` frames.

    A wave is cos(a + b) = cos a cos b - sin a sin b with a = k_y y + φ + w t and b = k_x x, so a frame is two products
    of thin matrices. All waves of a piece share a drift v, w = k·v, plus a little change of their own.
    """
    pieces = -(-time // piece)
    drawn = rng.standard_normal((n, pieces, 6 * _WAVES + 2 + 3))
    grid = (np.arange(size) + 0.5) / size
    out = np.empty((n, time, size, size, 3), np.uint8)
    for i in range(n):
        for j in range(pieces):
            p = drawn[i, j]
            waves = p[: 6 * _WAVES].reshape(_WAVES, 6)
            k = 2 * np.pi * 1.6 * waves[:, :2]
            amplitude = np.exp(0.4 * waves[:, 3:6]) / (3 + np.linalg.norm(k, axis=1))[:, None]
            drift, base = 0.15 * p[-5:-3], 0.45 + 0.12 * p[-3:]
            t = np.arange(min(piece, time - j * piece)) * 0.05
            phase = (k @ drift + 0.5 * waves[:, 0]) * t[:, None] + 7 * waves[:, 2]
            down = (phase[:, None, :] + np.outer(grid, k[:, 1])).astype(np.float32)[:, None]
            across = np.outer(k[:, 0], grid).astype(np.float32)
            strength = amplitude.T[:, None, :].astype(np.float32)
            real = (np.cos(down) * strength) @ np.cos(across) - (np.sin(down) * strength) @ np.sin(across)
            frames = np.moveaxis(real, 1, -1) * np.float32(0.75) + base.astype(np.float32)
            out[i, j * piece : j * piece + len(t)] = quantise(frames)
    return out
