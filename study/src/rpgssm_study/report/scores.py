"""Figures of R²: linear tasks by size, all methods on all video tasks, and target by target."""

import statistics
from typing import Any

from rpgssm.report.style import BLACK, GREY, figure, said_missing

from .collection import LINEAR, PAIRS, VIDEO, Collection, label, plain, target_name, title
from .colours import colour

FLOOR = 0.6  # of the linear systems: below it there is a number and no dot


def linear_sizes(c: Collection) -> Any:
    """R² by size, method and data seed, with the ceiling of the exact smoother."""
    methods = c.methods(LINEAR)
    if not methods:
        return None
    drawn = figure(10, 3.6)
    axes = drawn.subplots(1, len(LINEAR), sharey=True)
    lowest = 1.0
    for axis, task in zip(axes, LINEAR, strict=True):
        axis.set_title(title(task))
        if all(c.chosen(task, method) is None for method in methods):
            said_missing(axis)
            continue
        ceilings = []
        for x, method in enumerate(methods):
            group = c.chosen(task, method)
            if group is None:
                axis.text(x, 0.02, "–", ha="center", color=GREY, transform=axis.get_xaxis_transform())
                continue
            values = group.values("linear", "mean")
            ceilings += group.values("ceiling", "mean")
            lowest = min(lowest, *values)
            median = statistics.median(values)
            if median >= FLOOR:
                axis.plot([x - 0.3, x + 0.3], [median] * 2, color=colour(method), lw=2)
            spread = [x + 0.12 * (i - (len(values) - 1) / 2) for i in range(len(values))]
            inside = [(place, value) for place, value in zip(spread, values, strict=True) if value >= FLOOR]
            if inside:
                axis.plot(*zip(*inside, strict=True), "o", color=colour(method), ms=5, mec="white", mew=0.6)
            below = [plain(value, 2) for value in sorted(values, reverse=True) if value < FLOOR]
            if below:
                axis.text(x, FLOOR, "\n".join([*below, "▼"]), ha="center", va="bottom", fontsize=7, color=BLACK)
        if ceilings:
            told = "exact smoother, true parameters" if axis is axes[0] else None
            axis.axhline(statistics.median(ceilings), color=BLACK, ls="--", lw=1, zorder=1.5, label=told)
            axis.axhspan(min(ceilings), max(ceilings), color="0.9", lw=0, zorder=1)
        axis.set_xticks(range(len(methods)), [label(m) for m in methods], rotation=90)
        axis.grid(axis="y", color="0.92")
    axes[0].set_ylim(max(FLOOR - 0.02, lowest - 0.04), 1.01)
    if axes[0].get_legend_handles_labels()[0]:
        drawn.legend(loc="outside upper right")
    axes[0].set_ylabel("held-out linear R²")
    return drawn


def all_video(c: Collection, kind: str) -> Any:
    """The mean over targets: a row per world, without and with distractors."""
    methods = c.methods(VIDEO)
    if not methods:
        return None
    pairs = [pair for pair in PAIRS if any(c.of(task) for task in pair)]
    drawn = figure(9, 1.1 + 0.62 * len(pairs) + 0.2 * len(methods) * len(pairs))
    axes = drawn.subplots(len(pairs), 2, squeeze=False)
    for row, pair in zip(axes, pairs, strict=True):
        for axis, task in zip(row, pair, strict=True):
            bars(axis, c, task, methods, kind, "mean")
            axis.set_title(title(task))
    axes[-1][0].set_xlabel(f"mean held-out {kind} R²; no distractors")
    axes[-1][1].set_xlabel(f"mean held-out {kind} R²; with distractors")
    return drawn


def by_target(c: Collection, kind: str, tasks: tuple[str, ...] = VIDEO) -> Any:
    """The same for each target by itself: a row per task."""
    tasks = tuple(task for task in tasks if c.of(task))
    methods = c.methods(tasks)
    if not methods:
        return None
    width = max((len(c.targets(task)) for task in tasks), default=1) or 1
    drawn = figure(1.2 + 2.9 * width, 0.6 + len(tasks) * (0.55 + 0.17 * len(methods)))
    axes = drawn.subplots(len(tasks), width, squeeze=False)
    for row, task in zip(axes, tasks, strict=True):
        targets = c.targets(task)
        for i, axis in enumerate(row):
            if i < len(targets):
                bars(axis, c, task, methods, kind, targets[i], names=i == 0)
                axis.set_title(f"{title(task)}: {target_name(targets[i])}", fontsize=9)
            elif i == 0:
                said_missing(axis)
                axis.set_title(title(task), fontsize=9)
            else:
                axis.set_axis_off()
    for axis in axes[-1]:
        axis.set_xlabel(f"held-out {kind} R²")
    return drawn


def bars(axis: Any, c: Collection, task: str, methods: list[str], kind: str, target: str, names: bool = True) -> None:
    """A bar per method: the median over seeds, with a dot for each seed; what lies below 0 is drawn as 0.

    The best number is bold, if there are others.
    """
    found = {method: c.chosen(task, method) for method in methods}
    if not any(found.values()):
        said_missing(axis)
        return
    scores = {m: [] if group is None else group.values(kind, target) for m, group in found.items()}
    medians = [statistics.median(values) for values in scores.values() if values]
    best = max(medians) if len(medians) > 1 else None
    for y, method in enumerate(methods):
        values = scores[method]
        if not values:
            diverged = bool(c.of(task, method))
            axis.text(0.01, y, "diverged" if diverged else "not run", va="center", fontsize=7, color=GREY)
            continue
        median = statistics.median(values)
        axis.barh(y, max(median, 0), height=0.72, color=colour(method), alpha=0.88)
        if len(values) > 1:
            axis.plot([max(v, 0) for v in values], [y] * len(values), "o", color=BLACK, ms=2.6, mew=0)
        weight = "bold" if median == best else "normal"
        axis.text(1.02, y, plain(median, 2), va="center", fontsize=7.5, fontweight=weight)
    axis.set_xlim(0, 1.12)
    axis.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axis.set_ylim(len(methods) - 0.4, -0.6)
    axis.set_yticks(range(len(methods)), [label(m) for m in methods] if names else [""] * len(methods))
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", color="0.92")
