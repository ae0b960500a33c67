"""Backgrounds: real images and clips, or procedural textures.

Validation and test never show an image or clip that training shows: of every ten (in the publishers' order), the
ninth is for validation and the tenth for test. Procedural textures are new in every frame or piece, so they need no
such care.
"""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from rpgssm.datasets.resize import quantise, resize
from rpgssm.datasets.textures import GREY, grey_textures, moving_textures

from .files import CIFAR10, DAVIS, fingerprint
from .recipe import Request

PIECE = 40
"""Frames of one clip before the next begins."""


def share(split: str, count: int) -> np.ndarray:
    """The numbers of those of `count` images or clips that belong to a split."""
    if count < 3:
        raise ValueError(f"three splits need at least three images or clips, but there are only {count}")
    index = np.arange(count)
    if count < 10:
        role = np.where(index == count - 2, 1, np.where(index == count - 1, 2, 0))
    else:
        role = np.where(index % 10 == 8, 1, np.where(index % 10 == 9, 2, 0))
    return index[role == ("train", "validation", "test").index(split)]


def still_backgrounds(
    request: Request, split: str, shape: tuple[int, int], size: int, rng: np.random.Generator
) -> tuple[UInt8[np.ndarray, "n t size size"], dict[str, Any]]:
    """A new random grey image per frame."""
    if request.background == "procedural":
        return grey_textures(shape, size, rng), {"background_source": "rpgssm.datasets.textures"}
    files = CIFAR10.need(request.data_dir)
    images = np.concatenate([read_cifar10(path) for path in files])
    pool = share(split, len(images))
    grey = np.moveaxis(images[pool].astype(np.float32) / 255, 1, -1) @ GREY
    small = quantise(resize(grey, size, size))
    used = {"background_source": _found("CIFAR-10", files, request), "images": len(images)}
    return small[rng.integers(len(small), size=shape)], used


def read_cifar10(path: Path) -> UInt8[np.ndarray, "n 3 32 32"]:
    """The images of one file of the binary version: per record a label and three colour planes."""
    data = np.fromfile(path, np.uint8)
    if len(data) == 0 or len(data) % 3073:
        raise ValueError(
            f"{path} has {len(data)} bytes, which is not a whole number of CIFAR-10 records (3073 bytes each): "
            "it may be damaged; download it again"
        )
    records = data.reshape(-1, 3073)
    if records[:, 0].max() > 9:
        raise ValueError(
            f"{path}: record {int(records[:, 0].argmax())} has label {records[:, 0].max()}, but CIFAR-10 has 0 to 9: "
            "is this the binary version (cifar-10-binary.tar.gz)?"
        )
    return records[:, 1:].reshape(-1, 3, 32, 32)


def moving_backgrounds(
    request: Request, split: str, shape: tuple[int, int], size: int, rng: np.random.Generator
) -> tuple[UInt8[np.ndarray, "n t size size 3"], dict[str, Any]]:
    """Pieces of random clips, stitched together, in colour."""
    n, time = shape
    pieces = -(-time // PIECE)
    if request.background == "procedural":
        return moving_textures(n, time, PIECE, size, rng), {"background_source": "rpgssm.datasets.textures"}
    files = DAVIS.need(request.data_dir)
    names = sorted({path.parent.name for path in files})
    chosen = [names[i] for i in share(split, len(names))]
    clips = [_read_clip([p for p in files if p.parent.name == name], size) for name in chosen]
    draw = rng.random((n, pieces, 2))
    out = np.empty((n, time, size, size, 3), np.uint8)
    for i in range(n):
        for j in range(pieces):
            clip = clips[int(draw[i, j, 0] * len(clips))]
            begin, length = j * PIECE, min(PIECE, time - j * PIECE)
            first = int(draw[i, j, 1] * max(len(clip) - PIECE + 1, 1))
            out[i, begin : begin + length] = clip[_there_and_back(first, length, len(clip))]
    used = {"background_source": _found("DAVIS", files, request), f"clips_{split}": chosen}
    return out, used


def _there_and_back(first: int, length: int, frames: int) -> np.ndarray:
    """Frame numbers from `first` on; a clip that is too short is played backwards from its end."""
    period = max(2 * frames - 2, 1)
    step = (first + np.arange(length)) % period
    return np.minimum(step, period - step)


def _read_clip(paths: list[Path], size: int) -> UInt8[np.ndarray, "frames size size 3"]:
    from PIL import Image, UnidentifiedImageError

    out = np.empty((len(paths), size, size, 3), np.uint8)
    for i, path in enumerate(paths):
        try:
            with Image.open(path) as image:
                image.draft("RGB", (2 * size, 2 * size))
                out[i] = np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BOX))
        except (UnidentifiedImageError, OSError) as error:
            raise ValueError(f"{path} cannot be read as an image ({error}): download it again") from error
    return out


def _found(title: str, files: list[Path], request: Request) -> dict[str, Any]:
    root = request.data_dir or Path()
    return {"name": title, "files": len(files), "fingerprint": fingerprint(files, root)}
