"""Read the recordings of the double pendulum: marker files, which are checked, and videos."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from rpgssm.datasets.resize import quantise, resize

TOLERANCE = 0.03
"""How far rod lengths may stray from their median, as a fraction of it."""


@dataclass(frozen=True)
class Run:
    """One recording: markers (y, x) of pivot, joint and tip in fifths of a pixel, and the two rods' lengths."""

    path: Path
    markers: Float[np.ndarray, "frames 3 2"]
    lengths: tuple[float, float]

    @property
    def reach(self) -> float:
        return sum(self.lengths)


def split_runs(paths: list[Path]) -> dict[str, list[Path]]:
    """The runs for training, validation and test: one in six for each of the latter two, at least one."""
    numbered = [path for path in paths if path.stem.isdigit()]
    if len(numbered) < 3:
        raise ValueError(
            f"three splits by run need at least three recordings, but {paths[0].parent} has {len(numbered)} files "
            "named <number>.csv: unpack the archive again"
        )
    runs = sorted(numbered, key=lambda path: int(path.stem))
    few = max(1, len(runs) // 6)
    return {"train": runs[: -2 * few], "validation": runs[-2 * few : -few], "test": runs[-few:]}


def read_run(path: Path) -> Run:
    """The markers of one run, checked: rods have constant lengths, and the first one hangs down on average."""
    try:
        table = np.loadtxt(path, delimiter=",", dtype=np.float64, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} is not a table of numbers ({error}): unpack the archive again") from error
    if table.shape[1] != 6 or not len(table):
        raise ValueError(f"{path} has {table.shape[1]} columns instead of 6: y and x of three markers")
    markers = table.reshape(-1, 3, 2)
    arms = np.diff(markers, axis=1)
    lengths = np.hypot(arms[..., 0], arms[..., 1])
    usual = np.median(lengths, axis=0)
    stray = np.abs(lengths / np.maximum(usual, 1e-9) - 1)
    if stray.max() > TOLERANCE:
        frame, rod = np.unravel_index(stray.argmax(), stray.shape)
        raise ValueError(
            f"{path}, frame {frame}: rod {rod + 1} is {lengths[frame, rod]:.0f} long, but usually {usual[rod]:.0f}: "
            "rods do not stretch, so the columns or the file are not what they should be (y, x of red, green, blue)"
        )
    down, right = arms[:, 0].mean(0)
    if down < abs(right):
        raise ValueError(
            f"{path}: on average the first rod points {down:.0f} down and {right:.0f} to the right, but a pendulum "
            "hangs down: the columns must be vertical first (y_red, x_red, y_green, x_green, y_blue, x_blue)"
        )
    return Run(path, markers, (float(usual[0]), float(usual[1])))


def read_video(
    path: Path, run: Run, frames: int, every: int, size: int, margin: float
) -> UInt8[np.ndarray, "kept size size"]:
    """Every `every`-th of the first `frames` frames: grey, a square around the pivot, averaged over areas.

    Where the square reaches beyond the picture it is black, as the recordings' background is.
    """
    try:
        import av
    except ImportError as error:
        raise ImportError('decoding video needs the extra "video": pip install "rpgssm[video]"') from error
    y, x = np.median(run.markers[:, 0], axis=0) / 5
    half = round(margin * run.reach / 5)
    top, left = round(y) - half, round(x) - half
    kept = []
    with av.open(str(path)) as container:
        for number, frame in enumerate(container.decode(video=0)):
            if number >= frames:
                break
            if number % every:
                continue
            grey = frame.to_ndarray(format="gray")
            square = np.zeros((2 * half, 2 * half), np.float32)
            y0, x0 = max(top, 0), max(left, 0)
            seen = grey[y0 : top + 2 * half, x0 : left + 2 * half]
            square[y0 - top : y0 - top + seen.shape[0], x0 - left : x0 - left + seen.shape[1]] = seen
            kept.append(quantise(resize(square, size, size, "box") / np.float32(255)))
    if len(kept) != -(-frames // every):
        raise ValueError(
            f"{path} has fewer frames than {run.path} has rows: {frames} are needed, and only every {every}rd of the "
            f"first {len(kept) * every} could be decoded"
        )
    return np.stack(kept)
