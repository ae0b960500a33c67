"""Published files that tasks are made from: where they are, how to get them, and their fingerprints.

Files are expected in the layout in which their publishers give them away. Nothing is downloaded.
"""

import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Collection:
    """A published data set: `pattern` finds its files below the data directory."""

    title: str
    address: str
    archive: str
    folder: str
    pattern: str
    otherwise: str
    """What a user can do without the files."""
    suffixes: tuple[str, ...] = ()
    """If given, files with other endings do not belong to it."""

    def find(self, data_dir: Path | None) -> list[Path]:
        """Its files in a data directory, sorted; empty if there are none."""
        found = [] if data_dir is None else sorted((data_dir / self.folder).glob(self.pattern))
        return [path for path in found if not self.suffixes or path.suffix.lower() in self.suffixes]

    def need(self, data_dir: Path | None) -> list[Path]:
        """Its files, or an error that says how to get them."""
        if found := self.find(data_dir):
            return found
        where = "<data directory>" if data_dir is None else str(data_dir)
        tell = (
            "Then pass data_dir= or set the environment variable RPGSSM_DATA to the data directory."
            if data_dir is None
            else f"Nothing matches {self.pattern} in {data_dir / self.folder}."
        )
        raise FileNotFoundError(
            f"{self.title} not found. Download {self.archive} from {self.address} and unpack it so that "
            f"{where}/{self.folder}/{self.pattern} exists. {tell} {self.otherwise}"
        )


CIFAR10 = Collection(
    "the CIFAR-10 images (binary version)",
    "https://www.cs.toronto.edu/~kriz/cifar.html",
    "cifar-10-binary.tar.gz",
    "cifar-10-batches-bin",
    "data_batch_*.bin",
    "To run without them, ask for background='procedural' (--background procedural).",
)
DAVIS = Collection(
    "the DAVIS video clips",
    "https://davischallenge.org/davis2016/code.html",
    "DAVIS-data.zip",
    "DAVIS/JPEGImages/480p",
    "*/*.jpg",
    "To run without them, ask for background='procedural' (--background procedural).",
)
MARKERS = Collection(
    "the marker positions of the double pendulum",
    "https://ibm.github.io/double-pendulum-chaotic-dataset/",
    "double-pendulum-chaotic.tar.gz",
    "double-pendulum-chaotic/original/dpc_dataset_csv",
    "*.csv",
    "To run without them, ask for source='simulated' (a simulated double pendulum, not the recordings).",
)
VIDEOS = Collection(
    "the videos of the double pendulum",
    MARKERS.address,
    MARKERS.archive,
    "double-pendulum-chaotic/original",
    "*/*",
    "To run without them, ask for source='rendered', which draws the recorded motion.",
    (".h264", ".mp4", ".mkv", ".avi", ".mov"),
)


def data_directory(data_dir: str | os.PathLike[str] | None) -> Path | None:
    """The directory given, else the one that `RPGSSM_DATA` names, else None."""
    chosen = data_dir if data_dir is not None else os.environ.get("RPGSSM_DATA") or None
    if chosen is None:
        return None
    path = Path(chosen).expanduser()
    if not path.is_dir():
        origin = "data_dir" if data_dir is not None else "RPGSSM_DATA"
        raise FileNotFoundError(f"{origin} names {path}, which is not a directory")
    return path


def fingerprint(files: Iterable[Path], root: Path) -> str:
    """Eight hexadecimal digits that change when a file is added, removed, resized or changed at either end.

    Names are taken relative to `root`, so that the same files in another place have the same fingerprint.
    """
    code = 0
    for path in files:
        size = path.stat().st_size
        code = zlib.crc32(f"{path.relative_to(root).as_posix()}:{size};".encode(), code)
        with path.open("rb") as file:
            code = zlib.crc32(file.read(4096), code)
            if size > 8192:
                file.seek(-4096, os.SEEK_END)
                code = zlib.crc32(file.read(4096), code)
    return f"{code:08x}"
