"""The tracking tasks: a rat in a 1 m box seen from above, on an empty floor or over pieces of DAVIS clips.

The rat is a white disc with a red arrow along its head direction. Frames are 64×64 RGB, 0.05 s apart; the box fills the
frame, with y upwards in the box and downwards in the frame. Standardisation with one mean and standard deviation of the
training set is in the task's `scale` and `offset`: as floating point numbers the frames would take 3.4 GB.
"""

import numpy as np
from jaxtyping import Float, UInt8

from rpgssm.datasets.drawing import capsule, disc
from rpgssm.datasets.streams import stream

from . import rat
from .backgrounds import moving_backgrounds
from .recipe import Made, Request
from .task import Split

VERSION = 1
TIME = 100
SIZE = 64
RADIUS = 2.5
ARROW, ARROW_WIDTH = 7.0, 1.5
WHITE, RED = (255, 255, 255), (255, 0, 0)
_HALF = 9  # the rat and its arrow fit into this many pixels around its centre


def simulate(seed: int, split: str, n: int) -> rat.Paths:
    """Motion; both tracking tasks of one seed show the same."""
    begin = stream(seed, "tracking", split, "start").random((n, 3))
    noise = stream(seed, "tracking", split, "motion").standard_normal((n, TIME, 2))
    return rat.walk(rat.BOX * begin[:, :2], 2 * np.pi * begin[:, 2], noise)


def draw(
    frames: UInt8[np.ndarray, "n 64 64 3"], position: Float[np.ndarray, "n 2"], head: Float[np.ndarray, "n 2"]
) -> None:
    """Draw one rat into each frame, in place. Only the pixels around it are touched."""
    for start in range(0, len(frames), 4096):
        part = slice(start, start + 4096)
        _draw(frames[part], position[part].astype(np.float32), head[part].astype(np.float32))


def _draw(frames, position, head) -> None:
    cx = position[:, 0] / np.float32(rat.BOX) * SIZE
    cy = (1 - position[:, 1] / np.float32(rat.BOX)) * SIZE
    span = np.arange(2 * _HALF)
    left = np.clip(np.floor(cx).astype(np.intp) - _HALF, 0, SIZE - 2 * _HALF)
    top = np.clip(np.floor(cy).astype(np.intp) - _HALF, 0, SIZE - 2 * _HALF)
    columns, rows = (left[:, None] + span)[:, None, :], (top[:, None] + span)[:, :, None]
    x, y = (columns + 0.5).astype(np.float32), (rows + 0.5).astype(np.float32)
    cx, cy = cx[:, None, None], cy[:, None, None]
    tip = cx + np.float32(ARROW) * head[:, 0, None, None], cy - np.float32(ARROW) * head[:, 1, None, None]
    body = disc(x, y, (cx, cy), RADIUS)[..., None]
    arrow = capsule(x, y, (cx, cy), tip, ARROW_WIDTH)[..., None]
    which = np.arange(len(frames))[:, None, None]
    patch = frames[which, rows, columns].astype(np.float32)
    patch += body * (np.array(WHITE, np.float32) - patch)
    patch += arrow * (np.array(RED, np.float32) - patch)
    frames[which, rows, columns] = np.rint(patch).astype(np.uint8)


def build(request: Request) -> Made:
    splits, sources = {}, {"generator": "rpgssm_study.tasks.tracking"}
    for split, n in request.sizes.items():
        paths = simulate(request.seed, split, n)
        if request.name == "davis-tracking":
            rng = stream(request.seed, request.name, split, "background", request.variant)
            frames, used = moving_backgrounds(request, split, (n, TIME), SIZE, rng)
            sources |= used
        else:
            frames = np.zeros((n, TIME, SIZE, SIZE, 3), np.uint8)
        draw(frames.reshape(-1, SIZE, SIZE, 3), paths.position.reshape(-1, 2), paths.head_direction.reshape(-1, 2))
        targets = {
            "position": paths.position.astype(np.float32),
            "velocity": paths.velocity.astype(np.float32),
            "head_direction": paths.head_direction.astype(np.float32),
            "head_angle": np.arctan2(paths.head_direction[..., 1:], paths.head_direction[..., :1]).astype(np.float32),
        }
        splits[split] = Split(frames, dict(targets), targets)
    first = splits.get("train") or next(iter(splits.values()))
    mean, std = _moments(first.observations)
    return Made(splits, dt=rat.DT, scale=1 / std, offset=mean, secondary=("head_angle",), sources=sources)


def _moments(frames: UInt8[np.ndarray, "n t 64 64 3"]) -> tuple[float, float]:
    counts = np.zeros(256, np.int64)
    for sequence in frames:
        counts += np.bincount(sequence.reshape(-1), minlength=256)
    values, total = np.arange(256), counts.sum()
    mean = float((counts * values).sum() / total)
    return mean, float(np.sqrt((counts * (values - mean) ** 2).sum() / total))
