"""Tiny files in the layouts in which their publishers give them away."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_cifar10(folder: Path, images: int = 40) -> None:
    target = folder / "cifar-10-batches-bin"
    target.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in (1, 2):
        records = rng.integers(0, 256, (images // 2, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        records.tofile(target / f"data_batch_{number}.bin")


def write_davis(folder: Path, clips: int = 5, frames: int = 45) -> None:
    """Clip i is of colour (40 i, 0, frame): one can tell from a pixel which clip and frame it shows."""
    for clip in range(clips):
        target = folder / "DAVIS" / "JPEGImages" / "480p" / f"clip-{clip}"
        target.mkdir(parents=True)
        for frame in range(frames if clip else 12):
            Image.new("RGB", (80, 45), (40 * clip, 0, 4 * frame)).save(target / f"{frame:05d}.jpg", quality=95)


def pendulum_markers(frames: int, seed: int, lengths: tuple[float, float] = (602.0, 461.0)) -> np.ndarray:
    """(y, x) of pivot, joint and tip in fifths of a pixel: arms that swing smoothly about the vertical."""
    t = np.arange(frames) / 400
    first = 1.2 * np.sin(4 * t + seed)
    second = 2.0 * np.sin(7 * t + 2 * seed)
    pivot = np.tile([2.0 * lengths[0], 2.02 * lengths[0]], (frames, 1))
    joint = pivot + lengths[0] * np.stack([np.cos(first), np.sin(first)], -1)
    tip = joint + lengths[1] * np.stack([np.cos(second), np.sin(second)], -1)
    return np.rint(np.stack([pivot, joint, tip], 1))


def write_markers(
    folder: Path, runs: int = 6, frames: int = 700, lengths: tuple[float, float] = (602.0, 461.0)
) -> list[np.ndarray]:
    target = folder / "double-pendulum-chaotic" / "original" / "dpc_dataset_csv"
    target.mkdir(parents=True)
    all_markers = [pendulum_markers(frames, run, lengths) for run in range(runs)]
    for run, markers in enumerate(all_markers):
        np.savetxt(target / f"{run}.csv", markers.reshape(-1, 6), fmt="%d", delimiter=",")
    return all_markers
