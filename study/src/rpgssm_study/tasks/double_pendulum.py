"""The double pendulum: windows of the IBM recordings, as video or drawn from the recorded markers.

Each run is a file of marker positions at 400 frames per second, six integers per frame, *vertical first*: y and x of
the red (pivot), green (joint) and blue (tip) marker, y growing downwards, in fifths of a pixel of the video. Every
third frame is kept, and windows of 100 are cut that do not overlap. Splits are by run: neighbouring windows look alike.

Frames (50×50, grey) come from one of three sources, and it is recorded from which: `rendered` draws both arms where the
markers were; `video` decodes the recorded video, cuts a square around the pivot and averages over areas; `simulated`
draws a simulated pendulum of the same lengths, for those without the recordings. Frames are kept as 8 bits;
`Task.frames` gives [0, 1]. Rod lengths differ a little between runs (the camera stood elsewhere), so every run is drawn
in units of its own.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from rpgssm.datasets.drawing import capsule
from rpgssm.datasets.resize import quantise
from rpgssm.datasets.streams import stream

from .backgrounds import still_backgrounds
from .double_pendulum_files import Run, read_run, read_video, split_runs
from .double_pendulum_physics import simulate
from .files import MARKERS, VIDEOS, fingerprint
from .recipe import Made, Request
from .task import Split

VERSION = 1
TIME = 100
EVERY = 3
DT = EVERY / 400
SIZE = 50
MARGIN = 1.08
"""Half the side of the square, in lengths of the stretched pendulum."""
ARM = 2.2
"""Width of the drawn arms in pixels."""


def render(markers: Float[np.ndarray, "n t 3 2"], reach: Float[np.ndarray, " n"]) -> UInt8[np.ndarray, "n t 50 50"]:
    """Draw both arms, antialiased; markers are (y, x) of pivot, joint and tip, `reach` is the stretched length."""
    n, time = markers.shape[:2]
    unit = (SIZE / 2 / (MARGIN * reach))[:, None, None, None]
    pixels = ((markers - markers[:, :, :1]) * unit + SIZE / 2).reshape(-1, 3, 2).astype(np.float32)
    grid = np.arange(SIZE, dtype=np.float32) + np.float32(0.5)
    x, y = grid[None, None, :], grid[None, :, None]
    out = np.empty((len(pixels), SIZE, SIZE), np.uint8)
    for start in range(0, len(pixels), 1024):
        part = pixels[start : start + 1024, :, :, None, None]
        pivot, joint, tip = ((part[:, i, 1], part[:, i, 0]) for i in range(3))
        cover = np.maximum(capsule(x, y, pivot, joint, ARM), capsule(x, y, joint, tip, ARM))
        out[start : start + 1024] = quantise(cover)
    return out.reshape(n, time, SIZE, SIZE)


def windows(run: Run) -> Float[np.ndarray, "w 100 3 2"]:
    """Windows of 100 frames, every third frame of the recording, without overlap."""
    kept = run.markers[::EVERY]
    count = len(kept) // TIME
    return kept[: count * TIME].reshape(count, TIME, 3, 2)


def build(request: Request) -> Made:
    sources: dict = {"generator": "rpgssm_study.tasks.double_pendulum", "frames": request.source}
    if request.source == "simulated":
        paths, roles = [], {}
    else:
        paths = MARKERS.need(request.data_dir)
        roles = split_runs(paths)
        sources["markers"] = {"files": len(paths), "fingerprint": fingerprint(paths, request.data_dir or Path())}
        sources["runs"] = {split: [int(path.stem) for path in files] for split, files in roles.items()}
    splits = {}
    for split, n in request.sizes.items():
        if request.source == "simulated":
            markers, reach = simulate(request.seed, split, n, TIME, DT)
            frames = render(markers, reach)
        else:
            markers, frames = _recorded(request, split, n, roles[split])
        n = len(markers)
        if request.name == "cifar10-double-pendulum":
            rng = stream(request.seed, request.name, split, "background", request.variant)
            behind, used = still_backgrounds(request, split, (n, TIME), SIZE, rng)
            frames = np.maximum(frames, behind)
            sources |= used
        splits[split] = Split(frames[..., None], *_ground_truth(markers))
    return Made(splits, dt=DT, scale=1 / 255, sources=sources)


def _recorded(request: Request, split: str, n: int, paths: list[Path]):
    """`n` windows of the runs of a split, chosen by seed, and their frames."""
    runs = [read_run(path) for path in paths]
    cut = [windows(run) for run in runs]
    which = np.concatenate([np.full(len(w), i) for i, w in enumerate(cut)])
    if n > len(which):
        raise ValueError(
            f"{request.name}: {n} windows were asked for, but the {len(runs)} runs of the {split} split have "
            f"{len(which)}: pass n_{split}={len(which)} or less"
        )
    order = stream(request.seed, "double-pendulum", split, "windows").permutation(len(which))[:n]
    markers, reach = np.concatenate(cut)[order], np.array([run.reach for run in runs])[which[order]]
    if request.source == "rendered":
        return markers, render(markers, reach)
    decoded = []
    for run, w in zip(runs, cut, strict=True):
        video = read_video(_video_of(run, request), run, len(w) * TIME * EVERY, EVERY, SIZE, MARGIN)
        decoded.append(video.reshape(len(w), TIME, SIZE, SIZE))
    return markers, np.concatenate(decoded)[order]


def _video_of(run: Run, request: Request) -> Path:
    for path in VIDEOS.need(request.data_dir):
        if path.stem == run.path.stem:
            return path
    raise FileNotFoundError(
        f"no video for run {run.path.stem}: {run.path} has the markers, but none of the files "
        f"{VIDEOS.folder}/{VIDEOS.pattern} is named so; unpack the archive again or ask for source='rendered'"
    )


def _ground_truth(markers: Float[np.ndarray, "n t 3 2"]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Angles from the vertical, 0 hanging down, positive to the right of the frame."""
    arms = np.diff(markers, axis=2)
    first, second = np.moveaxis(np.arctan2(arms[..., 1], arms[..., 0]), 2, 0)
    relative = (second - first + np.pi) % (2 * np.pi) - np.pi

    def column(x: np.ndarray) -> np.ndarray:
        return x[..., None].astype(np.float32)

    states = {"angle_first": column(first), "angle_second": column(second), "angle_second_relative": column(relative)}
    targets = {
        "sin_first": column(np.sin(first)),
        "sin_second_relative": column(np.sin(relative)),
        "sin_second_absolute": column(np.sin(second)),
    }
    return states, targets
