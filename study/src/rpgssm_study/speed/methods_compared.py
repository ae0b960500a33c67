"""The cost of a training step of each compared method, on the linear tasks and on images of a pendulum.

All methods get batches of the same shape, and the settings of the compact protocol: linear networks for the linear
tasks, light convolutional ones for images; latents of the true dimension, and 16 for images. Of a recipe in stages the
first one is timed. Masking, which the paper applies to all baselines, is on for methods that have it. The data are
random numbers of the right shape. Tasks come one after the other. Within a task all methods are compiled first, and
then take turns in an order that rotates.

A step includes choosing the batch, networks, loss, gradient, optimizer and projection. EM has no such steps: an
iteration on one batch takes their place.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rpgssm.data import Modality, Sequences
from rpgssm.estimator import DataInfo, GradientEstimator
from rpgssm.methods import all_methods
from rpgssm.methods.lgssm import expectations, maximise
from rpgssm.training.optimizer import Updater
from rpgssm.training.program import Program
from rpgssm_study.methods import METHODS
from rpgssm_study.protocols import compact
from rpgssm_study.runs import stages
from rpgssm_study.speed.implementations import turn
from rpgssm_study.tasks.linear import SIZES

TASKS: dict[str, tuple[int, ...]] = {**{name: (dim,) for name, (_, dim) in SIZES.items()}, "pendulum": (24, 24)}
EM = "LinearGaussianSSM"
IMAGE_LATENTS = 16
STEPS = {1: 16, 2: 2}  # optimizer steps per call, for frames that are vectors and for images
ENDLESS = 10**6  # steps of the training that the timed ones are taken from


@dataclass(frozen=True)
class Shape:
    """The shape of batches, and how many frames methods with masks hide from each sequence."""

    batch: int = 32
    time: int = 100
    mask_size: int = 20


SHAPE = Shape()


@dataclass(frozen=True)
class Row:
    """Time per step of one method on one task; `relative` to the same method on the smallest task measured."""

    method: str
    task: str
    median_ms: float
    min_ms: float
    turns: int
    relative: float


def measure(methods: Sequence[str], tasks: Sequence[str], repeats: int, shape: Shape = SHAPE) -> list[Row]:
    """Measure each method on each task. Rows are sorted by task, then by method."""
    rows: list[Row] = []
    methods, tasks = _known(methods, METHODS, "method"), _known(tasks, TASKS, "task")
    for task in tasks:
        steps = STEPS[len(TASKS[task])]
        calls = {}
        for method in methods:
            print(f"{task}: compiling {METHODS[method].label}", flush=True)
            calls[method] = _call(method, task, shape, steps)
        seconds: dict[str, list[float]] = {method: [] for method in calls}
        order = list(calls)
        for _ in range(repeats):
            for method in order:
                seconds[method].append(turn(calls[method]) / (1 if METHODS[method].estimator == EM else steps))
            order = order[1:] + order[:1]
        for method, values in seconds.items():
            median, least = 1e3 * statistics.median(values), 1e3 * min(values)
            smallest = next((row.median_ms for row in rows if row.method == method), median)
            rows.append(Row(method, task, median, least, len(values), median / smallest))
        del calls
    return rows


def _known(names: Sequence[str], known: Mapping[str, Any], kind: str) -> list[str]:
    for name in names:
        if name not in known:
            raise ValueError(f"there is no {kind} {name!r}: choose from {', '.join(known)}")
    return [name for name in known if name in names]


def random_data(task: str, shape: Shape) -> Sequences:
    """Two batches of random frames, integers for images as in the task."""
    rng = np.random.default_rng(0)
    size = (2 * shape.batch, shape.time, *TASKS[task])
    if len(TASKS[task]) == 1:
        return Sequences({"observations": Modality(rng.standard_normal(size).astype(np.float32))})
    return Sequences({"observations": Modality(rng.integers(0, 256, size, np.uint8), None, 1 / 255)})


def make(method: str, task: str, shape: Shape) -> Any:
    """The estimator of a method as the compact protocol has it for a task, but for the size of its batches."""
    name = METHODS[method].estimator
    settings = dict(stages(compact(task, method)[0])[0])
    if len(TASKS[task]) > 1:
        settings["latent_dim"] = IMAGE_LATENTS
    if name != EM:
        settings |= {"batch_size": shape.batch, "window": None}
    if METHODS[method].masked:
        settings["mask_size"] = shape.mask_size
    return all_methods()[name](**METHODS[method].fixed, **settings)


def _call(method: str, task: str, shape: Shape, steps: int) -> Callable[[], Any]:
    data, estimator = random_data(task, shape), make(method, task, shape)
    if METHODS[method].estimator != EM:
        return steps_of(estimator, data, steps)
    batch = data.take(np.arange(shape.batch))
    model = estimator.build(DataInfo.of(batch), batch, 0)
    iteration = lambda: jax.block_until_ready(maximise(model, expectations(model, batch)))  # noqa: E731
    iteration()
    return iteration


def steps_of(estimator: GradientEstimator, data: Sequences, steps: int) -> Callable[[], Any]:
    """Return a function that does so many optimizer steps, always from the same start. It is compiled and run once."""
    settings, name = estimator.training_settings(None), type(estimator).__name__
    params, static = eqx.partition(estimator.build(DataInfo.of(data), data, 0), eqx.is_inexact_array)
    program = Program(
        estimator.objective(),
        static,
        settings.sampler.plan(data, settings.batch_size, None),
        Updater(settings.optimizer, settings.learning_rate, ENDLESS, params),
        augment=settings.augment,
        project=lambda model: model.project(),
        capacity=steps,
    )
    on_device = jax.device_put(data)
    state = program.initial_state(params, 0, on_device)
    program.compile(state, on_device, None)
    alive = jnp.asarray(True)

    def run() -> Any:
        return jax.block_until_ready(program.advance(state, alive, on_device, 0, steps))

    done = int(run().state.step)
    if done != steps:
        raise RuntimeError(f"{name} stopped after {done} of {steps} steps: its loss is no longer finite")
    return run


def table(rows: Sequence[Row]) -> str:
    """The table of milliseconds per step, and relative to the smallest task, a line per method."""
    found = {(row.method, row.task): row for row in rows}
    tasks = [task for task in TASKS if any(row.task == task for row in rows)]
    lines = []
    for head, text in (("milliseconds per step", _milliseconds), ("relative to the smallest task", _ratio)):
        lines += ["", f"{head:<30}" + "".join(f"{task:>15}" for task in tasks)]
        for method in (m for m in METHODS if any(row.method == m for row in rows)):
            cells = (text(found[method, task]) if (method, task) in found else "" for task in tasks)
            lines.append(f"{METHODS[method].label:<30}" + "".join(f"{cell:>15}" for cell in cells))
    return "\n".join(lines[1:])


def _milliseconds(row: Row) -> str:
    return f"{row.median_ms:.2f}" if row.median_ms < 10 else f"{row.median_ms:.1f}"


def _ratio(row: Row) -> str:
    return f"{row.relative:.2f}"


def section(rows: Sequence[Row], shape: Shape) -> dict[str, Any]:
    """The content of the JSON file."""
    frames = {task: list(TASKS[task]) for task in TASKS if any(row.task == task for row in rows)}
    return {"shape": asdict(shape), "frames": frames, "rows": [asdict(row) for row in rows]}


def draw(rows: Sequence[Row], file: Path) -> None:
    """Draw milliseconds per step and relative times side by side, with logarithmic axes."""
    from rpgssm.report.style import context, figure, plain_log
    from rpgssm_study.report.colours import colour, legend_of

    tasks = [task for task in TASKS if any(row.task == task for row in rows)]
    methods = [m for m in METHODS if any(row.method == m for row in rows)]
    with context():
        drawn = figure(10, 3.8)
        left, right = drawn.subplots(1, 2)
        for row in rows:
            x = tasks.index(row.task) + 0.8 * ((methods.index(row.method) + 0.5) / len(methods) - 0.5)
            style: dict[str, Any] = {"color": colour(row.method), "ms": 7 if row.method == "rpgssm" else 5}
            left.plot(x, row.median_ms, "o", **style)
            right.plot(x, row.relative, "o", **style)
        left.set_ylabel("milliseconds per step")
        right.set_ylabel("relative to the smallest task")
        for axis in (left, right):
            axis.set_yscale("log")
            plain_log(axis.yaxis)
            axis.set_xticks(range(len(tasks)), tasks)
            axis.grid(axis="y", color="0.92")
        legend_of(drawn, methods, marker=True)
        drawn.savefig(file, dpi=140)
