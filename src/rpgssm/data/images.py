"""Image files as one video: (T, H, W) if they are grey, else (T, H, W, 3)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

IMAGES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp")
GREY = ("1", "L", "LA", "La", "I", "F")  # and what starts with I;16


def read_images(
    paths: Sequence[Path], *, grey: bool | None = None, size: tuple[int, int] | None = None, every: int = 1
) -> Shaped[ndarray, "t h w *c"]:
    """The images in the given order. Grey images of 16 bits stay so; palettes and transparency become plain colour.

    `grey` None takes each as it is, and then all must be grey or all in colour.
    """
    frames: list[Any] = []
    paths = paths[::every]
    for path in paths:
        frames.append(_read_image(path, grey, size))
        if frames[-1].shape != frames[0].shape:
            raise ValueError(
                f"{path} has shape {frames[-1].shape} but {paths[0]} has shape {frames[0].shape}: all images need the "
                "same size and all be grey or in colour (resize with size=(height, width), convert with grey=True)"
            )
    return np.stack(frames)


def _read_image(path: Path, grey: bool | None, size: tuple[int, int] | None) -> Shaped[ndarray, "h w *c"]:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            deep = image.mode in ("I", "F") or image.mode.startswith("I;16")
            to_grey = (deep or image.mode in GREY) if grey is None else grey
            if not (deep and to_grey):
                image = image.convert("L" if to_grey else "RGB")
            if size is not None:
                image = image.resize((size[1], size[0]))
            pixels = np.asarray(image)
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise ValueError(f"{path} cannot be read as an image: {error}") from None
    if pixels.dtype == np.int32 and pixels.min() >= 0 and pixels.max() <= 65535:
        return pixels.astype(np.uint16)  # some versions of Pillow open 16 bits as 32
    return pixels
