"""Video files and lists of image files as arrays of frames: (T, H, W) if grey, else (T, H, W, 3)."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped, UInt8
from numpy import ndarray

VIDEOS = (".mp4", ".avi", ".mov", ".mkv")
IMAGES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp")
GREY = ("1", "L", "LA", "La", "I", "F")  # Pillow's modes of grey images, beside I;16...


def optional(package: str, path: Path, extra: str) -> Any:
    """Import the package that reads `path`, or raise with the extra to install."""
    try:
        return import_module(package)
    except ImportError:
        raise ImportError(f'reading {path} needs the package {package}: pip install "rpgssm[{extra}]"') from None


def read_video(
    path: Path, *, grey: bool | None = None, size: tuple[int, int] | None = None, every: int = 1
) -> UInt8[ndarray, "t h w *c"]:
    """Read each `every`-th frame of the first video stream; `grey` None keeps the stream's own choice of colour."""
    av, frames = optional("av", path, "video"), []
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise ValueError(f"{path} holds no video")
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            if grey is None:
                grey = (stream.codec_context.pix_fmt or "").startswith(("gray", "mono"))
            target = "gray" if grey else "rgb24"
            height, width = size if size is not None else (None, None)
            for index, frame in enumerate(container.decode(stream)):
                if index % every == 0:
                    frames.append(frame.reformat(width=width, height=height, format=target).to_ndarray())
    except av.error.FFmpegError as error:
        raise ValueError(f"{path} cannot be read as a video: {error}") from None
    if not frames:
        raise ValueError(f"{path} holds no frames")
    return np.stack(frames)


def read_images(
    paths: Sequence[Path], *, grey: bool | None = None, size: tuple[int, int] | None = None, every: int = 1
) -> Shaped[ndarray, "t h w *c"]:
    """Read each `every`-th image, in the given order. Grey images of 16 bits keep them; palettes become colours.

    `grey` None keeps each image grey or in colour, and then all must be the same.
    """
    frames: list[Shaped[ndarray, "h w *c"]] = []
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
