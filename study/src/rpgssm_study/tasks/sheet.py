"""A picture of a task: some sequences, frame by frame, with their targets as curves underneath."""

import os
from pathlib import Path
from typing import Literal

import numpy as np

from .task import Task


def contact_sheet(
    task: Task,
    path: str | os.PathLike[str],
    *,
    split: Literal["train", "validation", "test"] = "train",
    sequences: int = 3,
    frames: int = 10,
) -> Path:
    """Draw `sequences` sequences of a split with `frames` evenly spaced frames each, and write the picture to `path`.

    Vector observations are drawn as curves too.
    """
    from matplotlib.figure import Figure

    part = task.splits[split]
    shown = min(sequences, len(part))
    moments = np.unique(np.linspace(0, part.time - 1, min(frames, part.time)).round().astype(int))
    images = len(task.frame_shape) >= 2
    # frames are square: a row of them is as high as the sheet is wide over their number
    heights = [11.6 / len(moments) if images else 1.6, *[1.15] * len(part.targets)] * shown
    figure = Figure(figsize=(13, sum(heights) + 0.35 * shown + 0.9), layout="constrained")
    figure.suptitle(_title(task, split), fontsize=11)
    for row, block in enumerate(np.atleast_1d(np.array(figure.subfigures(shown, 1, hspace=0.04)))):
        grid = block.add_gridspec(1 + len(part.targets), len(moments), height_ratios=heights[: 1 + len(part.targets)])
        time = np.arange(part.time) * (task.dt or 1)
        if images:
            _draw_frames(block, grid, task, part.observations[row], moments)
        else:
            axis = block.add_subplot(grid[0, :])
            axis.plot(time, part.observations[row], linewidth=0.8)
            _tidy(axis, "observed", last=False)
        for i, (name, target) in enumerate(part.targets.items(), start=1):
            axis = block.add_subplot(grid[i, :])
            axis.plot(time, target[row], linewidth=1.1)
            for moment in moments if images else ():
                axis.axvline(time[moment], color="0.85", linewidth=0.6, zorder=0)
            _tidy(axis, name.replace("_", " "), last=i == len(part.targets))
            if i == len(part.targets):
                axis.set_xlabel("frame" if task.dt is None else "seconds", fontsize=8)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def _draw_frames(block, grid, task: Task, sequence: np.ndarray, moments: np.ndarray) -> None:
    top = 255 if sequence.dtype == np.uint8 else 1
    for column, moment in enumerate(moments):
        axis = block.add_subplot(grid[0, column])
        image = np.clip(sequence[moment].astype(np.float32) / top, 0, 1)
        axis.imshow(image.squeeze(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axis.set_title(f"{moment}", fontsize=7, pad=2)
        axis.set_axis_off()


def _tidy(axis, label: str, *, last: bool) -> None:
    axis.set_ylabel(label, fontsize=8, rotation=0, ha="right", va="center")
    axis.tick_params(labelsize=7, labelbottom=last)
    axis.margins(x=0.01)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _title(task: Task, split: str) -> str:
    size = "×".join(map(str, task.frame_shape))
    parts = [f"{task.name}, {split} split: {task.description['summary']} ({size})"]
    if task.description["background"] != "none":
        parts.append(f"background: {task.description['background']}")
    if task.description["source"] != "none":
        parts.append(f"source: {task.description['source']}")
    parts.append(f"seed {task.description['seed']}")
    return ", ".join(parts)
