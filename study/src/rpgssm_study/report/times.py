"""Figures of time: per step, accuracy against training time, learning curves, forecasts by horizon."""

import statistics
from typing import Any

from rpgssm.report.style import BLACK, figure, plain_log, said_missing
from rpgssm_study.accuracy import of_present_recipe
from rpgssm_study.targets import AIMS

from .collection import LINEAR, VIDEO, Collection, long_title, title
from .colours import colour, legend_of, line_style

FAR_BELOW = -5.0  # where a curve has left the panel, however far it goes


def per_step(c: Collection) -> Any:
    """Time per step on the linear tasks over all runs of the sweeps, absolute and relative to the smallest task."""
    methods = c.methods(LINEAR)
    times = {(t, m): _milliseconds(c, t, m) for t in LINEAR for m in methods}
    if not any(times.values()):
        return None
    drawn = figure(10, 3.6)
    left, right = drawn.subplots(1, 2)
    for i, method in enumerate(methods):
        offset = 0.8 * ((i + 0.5) / len(methods) - 0.5)
        base = times[LINEAR[0], method]
        for x, task in enumerate(LINEAR):
            values = times[task, method]
            if not values:
                continue
            for axis, unit in ((left, 1.0), (right, statistics.fmean(base) if base else None)):
                if unit is not None:
                    mean = statistics.fmean(values) / unit
                    spread = statistics.stdev(values) / unit if len(values) > 1 else 0.0
                    style = {"color": colour(method), "fmt": "o", "ms": 5, "capsize": 2, "lw": 1}
                    axis.errorbar(x + offset, mean, yerr=spread, **style)
    left.set_yscale("log")
    plain_log(left.yaxis)
    left.set_ylabel("milliseconds per step")
    right.set_ylabel("relative to the smallest task")
    right.axhline(1, color="0.8", lw=0.8, zorder=0)
    for axis in (left, right):
        axis.set_xticks(range(len(LINEAR)), [title(task).replace(", ", ",\n") for task in LINEAR])
        axis.grid(axis="y", color="0.92")
    legend_of(drawn, methods, marker=True)
    return drawn


def _milliseconds(c: Collection, task: str, method: str) -> list[float]:
    return [1000 / r.training["steps_per_second"] for r in c.of(task, method) if r.finished]


def against_accuracy(c: Collection) -> Any:
    """Mean R² against minutes of training: lines while it goes on (validation), dots at its end (test)."""
    tasks = (*LINEAR, "pendulum-64", *VIDEO)
    tasks = tuple(task for task in tasks if any(r.finished for r in c.of(task)))
    if not tasks:
        return None
    columns = min(4, len(tasks))
    rows = -(-len(tasks) // columns)
    drawn = figure(2.6 * columns, 2.3 * rows + 0.6)
    axes = drawn.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[len(tasks) :]:
        axis.set_axis_off()
    for axis, task in zip(axes, tasks, strict=False):
        lowest = 1.0
        for method in c.methods([task]):
            group = c.chosen(task, method)
            if group is None:
                continue
            done = [r for r in group.results if r.finished]
            for curve in (r.training.get("validation_r2") for r in done):
                if curve:
                    x, y = [seconds / 60 for seconds in curve["seconds"]], [max(v, 0) for v in curve["mean"]]
                    axis.plot(x, y, color=colour(method), ls=line_style(method), lw=1.8 if method == "rpgssm" else 1)
            minutes = [r.training["seconds"] / 60 for r in done]
            values = [max(r.scores["linear"]["mean"], 0) for r in done]
            lowest = min(lowest, *values)
            main = method == "rpgssm"
            axis.plot(minutes, values, "o", color=colour(method), ms=7 if main else 5, mec="white", mew=0.6, alpha=0.9)
        axis.set_xscale("log")
        axis.set_ylim(max(lowest - 0.1, -0.03) if task in LINEAR else -0.03, 1.03)
        axis.set_title(long_title(task).replace(": ", ":\n"), fontsize=9)
        axis.grid(color="0.93")
        plain_log(axis.xaxis)
    for i in range(0, len(tasks), columns):
        axes[i].set_ylabel("mean linear R²")
    for i in range(max(0, len(tasks) - columns), len(tasks)):
        axes[i].set_xlabel("minutes of training")
    legend_of(drawn, c.methods(tasks), marker=True, line=True)
    return drawn


def learning_curves(c: Collection) -> Any:
    """Mean R² (or, where it was not followed, loss) of the RP-GSSM on held-out sequences against step: a line per seed.

    Runs of former recipes are left out.
    """
    finished = [r for r in c.accuracy if r.finished]
    found = {task: of_present_recipe(finished, task) for task in AIMS}
    tasks = [task for task in AIMS if found[task]]
    if not tasks:
        return None
    columns = min(4, len(tasks))
    rows = -(-len(tasks) // columns)
    drawn = figure(2.6 * columns, 2.1 * rows)
    axes = drawn.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[len(tasks) :]:
        axis.set_axis_off()
    for axis, task in zip(axes, tasks, strict=False):
        for result in found[task]:
            name, points = _learning(result.training)
            axis.plot(*zip(*points, strict=True), color=colour("rpgssm"), lw=1.2, alpha=0.8)
            axis.set_ylabel(name)
        axis.set_title(title(task), fontsize=9)
        axis.grid(color="0.93")
    for i in range(max(0, len(tasks) - columns), len(tasks)):
        axes[i].set_xlabel("step")
    return drawn


def _learning(training: dict[str, Any]) -> tuple[str, list[tuple[float, float]]]:
    """The name of what was followed during training, and its values by step."""
    curve, scores = training["curve"], training.get("validation_r2") or {}
    if "mean" in scores:
        name, steps, values = "mean R²", scores["step"], scores["mean"]
    elif "validation_loss" in curve:
        name, steps, values = "held-out loss", curve["step"], curve["validation_loss"]
    else:
        name, steps, values = "loss", curve["step"], curve["loss"]
    return name, [(step, y) for step, y in zip(steps, values, strict=True) if y is not None]


def horizon(c: Collection) -> Any:
    """R² of forecasts against horizon, for methods that forecast."""
    tasks = tuple(task for task in VIDEO if any(r.finished for r in c.of(task)))
    if not tasks:
        return None
    columns = 2
    rows = -(-len(tasks) // columns)
    drawn = figure(8, 2.4 * rows + 0.6)
    axes = drawn.subplots(rows, columns, squeeze=False, sharex=True).ravel()
    for axis in axes[len(tasks) :]:
        axis.set_axis_off()
    shown = []
    for axis, task in zip(axes, tasks, strict=False):
        empty = True
        for method in reversed(c.methods([task])):
            curve = c.forecast(task, method)
            if curve is None:
                continue
            empty = False
            shown.append(method)
            middle = [max(value, FAR_BELOW) for value in curve]
            width = 2.4 if method == "rpgssm" else 1.3
            axis.plot(range(1, len(middle) + 1), middle, color=colour(method), ls=line_style(method), lw=width)
        if empty:
            said_missing(axis, "no forecasts")
            continue
        axis.axhline(0, color=BLACK, lw=0.6)
        axis.set_ylim(-0.27, 1.03)
        axis.set_title(title(task), fontsize=9)
        axis.grid(color="0.93")
    for i in range(0, len(tasks), columns):
        axes[i].set_ylabel("mean R²")
    for i in range(max(0, len(tasks) - columns), len(tasks)):
        axes[i].set_xlabel("frames ahead")
        axes[i].tick_params(labelbottom=True)  # nothing need be below
    legend_of(drawn, [m for m in c.methods(tasks) if m in shown])
    return drawn
