"""Files and folders that hold data, read as what `as_sequences` takes.

| path                             | is read as                                                               |
|----------------------------------|--------------------------------------------------------------------------|
| `.npy`                           | one array; mapped into memory, not loaded, if it is large                |
| `.npz`                           | one modality for each array                                              |
| `.h5`, `.hdf5`                   | one modality for each dataset of numbers, also in groups (extra `neuro`) |
| `.nwb`                           | one modality for each time series, and spikes (`nwb.py`; extra `neuro`)  |
| a Zarr folder                    | the same as HDF5 (extra `zarr`)                                          |
| `.mp4`, `.avi`, `.mov`, `.mkv`   | one video (extra `video`)                                                |
| a folder of images               | one video, in natural order: `frame2.png` before `frame10.png`           |
| a folder of folders of images    | one video for each folder                                                |
| a folder of videos, or of `.npy` | one sequence for each file                                               |

Arrays called `mask`, `controls` and `lengths` in files with several arrays are not modalities but the arguments of
`as_sequences` of these names. Nothing is unpickled, so a file from a stranger is safe to open.
"""

import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .convert import Recording
from .nwb import read_nwb
from .video import IMAGES, VIDEOS, optional, read_images, read_video

SPECIAL = ("mask", "controls", "lengths")
NAMELESS = "arr_0"  # what NumPy calls an array without a name
LARGE = 2**28  # bytes from which a .npy file is mapped
ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")
UNDERSTOOD = (
    f".npy, .npz, .h5, .hdf5, .nwb, {', '.join(VIDEOS)}, a Zarr folder, or a folder of images ({', '.join(IMAGES)}), "
    "of videos or of .npy files"
)


def read(
    path: str | Path,
    *,
    key: str | Sequence[str] | None = None,
    grey: bool | None = None,
    size: tuple[int, int] | None = None,
    every: int = 1,
    bin_seconds: float | None = None,
    trials: bool = False,
) -> Recording:
    """Read a file or folder; pass the result to `as_sequences`, or use its `data`, `mask`, `controls` and `lengths`.

    `key` chooses arrays by name where there are several; in HDF5 and Zarr also all arrays of a group. For images and
    videos: `grey` converts to grey (True) or colour (False), `size` resizes to (height, width), and `every=n` keeps
    each n-th frame. For NWB: `bin_seconds` averages series and counts spikes in bins of that length, and `trials` makes
    a sequence of each trial.

    Raises FileNotFoundError, ValueError for what cannot be read, and ImportError if a package is missing.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    if every < 1:
        raise ValueError(f"every is {every}: 1 keeps all frames, 2 every second one, and so on")
    if size is not None and min(size) < 1:
        raise ValueError(f"size is {size}, not (height, width) in pixels")
    suffix = path.suffix.lower()
    if suffix == ".nwb" and path.is_file():
        return read_nwb(path, key=_keys(key), bin_seconds=bin_seconds, trials=trials)
    if bin_seconds is not None or trials:
        raise ValueError(f"bin_seconds and trials are for NWB files, and {path} is none")
    images = {"grey": grey, "size": size, "every": every}
    if path.is_dir():
        if suffix == ".zarr" or any((path / name).exists() for name in ZARR_FILES):
            return _named(path, _read_zarr(path), key)
        recording = Recording(_read_folder(path, images))
    elif suffix == ".npy":
        recording = Recording(_read_npy(path))
    elif suffix == ".npz":
        return _named(path, _read_npz(path), key)
    elif suffix in (".h5", ".hdf5"):
        return _named(path, _read_hdf5(path), key)
    elif suffix in VIDEOS:
        recording = Recording([read_video(path, **images)])
    else:
        raise ValueError(f"{path} is of no known kind: DATA can be {UNDERSTOOD}")
    if key is not None:
        raise ValueError(f"{path} holds no named arrays to choose {key!r} from: leave key out")
    return recording


# ---------------------------------------------------------------------------------------------------------------------
# named arrays


Arrays = Mapping[str, Callable[[], Any]]  # names, and functions that load the arrays


def _keys(key: str | Sequence[str] | None) -> list[str]:
    return [] if key is None else [key] if isinstance(key, str) else list(key)


def _named(path: Path, arrays: Arrays, key: str | Sequence[str] | None) -> Recording:
    """Load the chosen arrays, and set the special ones apart. A file with one nameless array gives just that."""
    if not arrays:
        raise ValueError(f"{path} holds no arrays of numbers")
    keys = _keys(key)
    chosen = {} if keys else {name: name for name in arrays}  # from the name of a modality to that in the file
    for one in keys:
        inside = {name.removeprefix(f"{one}/"): name for name in arrays if name.startswith(f"{one}/")}
        if one not in arrays and not inside:
            raise ValueError(f"{path} has no array {one!r}: it has {', '.join(sorted(arrays))}")
        chosen |= {one: one} if one in arrays else inside
    everywhere = {name: name for name in SPECIAL if name in arrays}
    special = everywhere | {name: at for name, at in chosen.items() if name in SPECIAL}
    special = {name: at for name, at in special.items() if at not in keys}
    data = {name: arrays[at]() for name, at in chosen.items() if at not in special.values()}
    if not data:
        raise ValueError(f"{path} has only {', '.join(arrays)}, which are no observations: it needs another array")
    return Recording(
        data[NAMELESS] if list(data) == [NAMELESS] else data, **{k: arrays[at]() for k, at in special.items()}
    )


def _read_npy(path: Path) -> np.ndarray:
    try:
        if path.stat().st_size >= LARGE:
            return np.lib.format.open_memmap(path, mode="r")
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} cannot be read as .npy: {error}") from None


def _read_npz(path: Path) -> Arrays:
    def load(name: str) -> Any:
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return arrays[name]
        except (ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"the array {name!r} of {path} cannot be read: {error}") from None

    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} cannot be read as .npz: {error}") from None
    return {name: lambda name=name: load(name) for name in names}


def _read_hdf5(path: Path) -> Arrays:
    h5py, names = optional("h5py", path, "neuro"), []

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and item.ndim > 0 and item.dtype.kind in "biuf":
            names.append(name)

    def load(name: str) -> Any:
        with h5py.File(path, "r") as file:
            return file[name][()]

    try:
        with h5py.File(path, "r") as file:
            file.visititems(visit)
    except OSError as error:
        raise ValueError(f"{path} cannot be read as HDF5: {error}") from None
    return {name: lambda name=name: load(name) for name in names}


def _read_zarr(path: Path) -> Arrays:
    zarr, found = optional("zarr", path, "zarr"), {}

    def visit(prefix: str, node: Any) -> None:
        if hasattr(node, "shape"):
            if node.ndim > 0 and np.dtype(node.dtype).kind in "biuf":
                found[prefix or NAMELESS] = lambda: np.asarray(node[...])
            return
        for name, child in [*node.arrays(), *node.groups()]:
            visit(f"{prefix}/{name}" if prefix else name, child)

    try:
        root = zarr.open(str(path), mode="r")
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(f"{path} cannot be read as Zarr: {error}") from None
    visit("", root)
    return dict(sorted(found.items()))


# ---------------------------------------------------------------------------------------------------------------------
# folders


def natural(path: Path) -> list[tuple[int, int, str]]:
    """A key that sorts numbers in names by their value."""
    parts = re.split(r"(\d+)", path.name.lower())
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts if part]


def _read_folder(path: Path, images: dict[str, Any]) -> list[np.ndarray]:
    """One array for each sequence."""
    entries = sorted((p for p in path.iterdir() if not p.name.startswith(".")), key=natural)
    found = {
        "images": [p for p in entries if p.suffix.lower() in IMAGES and p.is_file()],
        "videos": [p for p in entries if p.suffix.lower() in VIDEOS and p.is_file()],
        ".npy files": [p for p in entries if p.suffix.lower() == ".npy" and p.is_file()],
        "folders of images": [p for p in entries if p.is_dir() and _has_images(p)],
    }
    kinds = [kind for kind, paths in found.items() if paths]
    if not kinds:
        raise ValueError(f"the folder {path} holds nothing that can be read: DATA can be {UNDERSTOOD}")
    if len(kinds) > 1:
        raise ValueError(f"the folder {path} holds {' and '.join(kinds)}: keep one kind of data in a folder")
    paths = found[kinds[0]]
    if kinds[0] == "images":
        return [read_images(paths, **images)]
    if kinds[0] == "videos":
        return [read_video(p, **images) for p in paths]
    if kinds[0] == ".npy files":
        return [_read_npy(p) for p in paths]
    return [
        read_images(sorted((q for q in p.iterdir() if q.suffix.lower() in IMAGES), key=natural), **images)
        for p in paths
    ]


def _has_images(path: Path) -> bool:
    return any(p.suffix.lower() in IMAGES for p in path.iterdir())
