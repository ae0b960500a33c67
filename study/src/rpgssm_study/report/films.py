"""Figures of single films, from stored examples: reconstructions, a forecast, and paths over backgrounds."""

from typing import Any

import numpy as np

from rpgssm.report.style import BLACK, figure, said_missing
from rpgssm_study.choosing import Group
from rpgssm_study.pictures import from_picture

from .collection import Collection, label, target_name
from .colours import colour

PENDULUM, DAVIS = "cifar10-pendulum", "davis-tracking"
UNITS = {"velocity": "angular velocity\n(rad/s)"}  # of the pendulum


def _shown(c: Collection, task: str, example: str, contrastive: bool = True) -> dict[str, Group]:
    """The RP-GSSM, the best generative method, and CPC, as far as they have this example."""
    names = ["rpgssm", c.best_of(task, "generative", example), "cpc" if contrastive else None]
    found = {name: c.chosen(task, name) for name in names if name is not None}
    return {
        name: group for name, group in found.items() if group is not None and example in group.first.content["examples"]
    }


def reconstructions(c: Collection) -> Any:
    """Frames of a test film, and what decoders make of their latents."""
    groups = _shown(c, PENDULUM, "reconstructions")
    if not groups:
        return None
    stored = {name: group.first.content["examples"]["reconstructions"] for name, group in groups.items()}
    first = next(iter(stored.values()))
    rows: list[tuple[str, Any]] = [("seen", from_picture(first["seen"]))]
    for name, example in stored.items():
        kind = "auxiliary decoder" if example["decoder"] == "auxiliary" else "own decoder"
        rows.append((f"{label(name)}\n({kind})", from_picture(example["decoded"])))
    moments = first["moments"]
    drawn = figure(1.2 + 0.95 * len(moments), 0.4 + 0.98 * len(rows))
    axes = drawn.subplots(len(rows), len(moments), squeeze=False)
    for line, (name, frames) in zip(axes, rows, strict=True):
        for axis, frame in zip(line, frames, strict=True):
            axis.imshow(np.squeeze(frame), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            axis.set_xticks([])
            axis.set_yticks([])
            for spine in axis.spines.values():
                spine.set_visible(False)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8.5)
    for axis, t in zip(axes[0], moments, strict=True):
        axis.set_title(f"frame {t}", fontsize=8)
    return drawn


def forecast(c: Collection) -> Any:
    """Fifty frames of context, fifty predicted, with two standard deviations."""
    groups = _shown(c, PENDULUM, "forecast", contrastive=False)
    if not groups:
        return None
    stored = {name: group.first.content["examples"]["forecast"] for name, group in groups.items()}
    first = next(iter(stored.values()))
    targets = list(first["truth"])
    drawn = figure(8.5, 1.9 * len(targets) + 0.5)
    axes = drawn.subplots(len(targets), 1, sharex=True, squeeze=False)[:, 0]
    for axis, target in zip(axes, targets, strict=True):
        truth = np.array(first["truth"][target])[0, :, 0]
        t = np.arange(len(truth))
        for name, example in reversed(stored.items()):
            mean = np.array(example["mean"][target])[0, :, 0]
            if example["deviation"] is not None:
                half = 2 * np.array(example["deviation"][target])[0, :, 0]
                axis.fill_between(t, mean - half, mean + half, color=colour(name), alpha=0.15, lw=0)
            axis.plot(t, mean, color=colour(name), lw=1.8 if name == "rpgssm" else 1.3, label=label(name))
        axis.plot(t, truth, color=BLACK, lw=1.3, label="true")
        axis.axvline(first["context"], color=BLACK, ls="--", lw=0.8)
        axis.set_ylabel(UNITS.get(target, target_name(target)))
        low, high = truth.min(), truth.max()
        axis.set_ylim(low - 0.6 * (high - low), high + 0.6 * (high - low))
        axis.set_xlim(0, len(truth) - 1)
    axes[-1].set_xlabel(f"frame; the first {first['context']} are seen, the others predicted")
    handles, labels = axes[0].get_legend_handles_labels()
    drawn.legend(handles[::-1], labels[::-1], loc="outside upper right", ncols=3)
    return drawn


def paths(c: Collection) -> Any:
    """One path of the rat before five backgrounds, as each method sees it."""
    groups = _shown(c, DAVIS, "paths")
    if not groups:
        return None
    drawn = figure(9, 3.8)
    axes = drawn.subplots(1, 3)
    for axis, slot in zip(axes, _slots(groups), strict=True):
        if slot is None:
            said_missing(axis)
            continue
        example = groups[slot].first.content["examples"]["paths"]
        for line in example["inferred"]:
            x, y = np.array(line).T
            axis.plot(x, y, color=colour(slot), lw=1, alpha=0.7)
        x, y = np.array(example["truth"]).T
        axis.plot(x, y, color=BLACK, lw=1.8)
        axis.plot(x[0], y[0], "o", color=BLACK, ms=4)
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
        axis.set_aspect("equal")
        axis.set_xticks([0, 1])
        axis.set_yticks([0, 1])
        for spine in axis.spines.values():
            spine.set_visible(True)
        axis.set_title(label(slot), color=colour(slot))
        axis.set_xlabel("metres")
    axes[0].set_ylabel("metres")
    return drawn


def _slots(groups: dict[str, Group]) -> list[str | None]:
    names: list[str | None] = list(groups)
    return names + [None] * (3 - len(names))
