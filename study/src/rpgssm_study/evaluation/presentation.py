"""Scores for the eye: a table of text, and figures."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .evaluate import Evaluation

_COLUMNS = {"linear": "linear R²", "kernel": "kernel R²", "filtering": "filtering R²", "ceiling": "ceiling"}


def table(scores: dict[str, Any]) -> str:
    """One line per target: R² by linear and kernel readout, when filtering, when forecasting, and calibration."""
    forecast = {} if scores["forecast"] is None else scores["forecast"]["r_squared"]
    steps = sorted({1, min(10, len(forecast["mean"])), len(forecast["mean"])}) if forecast else []
    header = ["target", *_COLUMNS.values(), *(f"+{h} frames" for h in steps)]
    calibration = scores.get("calibration", {}).get("with_misfit")
    if calibration:
        header += ["50 % covers", "90 % covers"]
    rows = []
    for name in scores["linear"]:
        row = [name, *(_number((scores[column] or {}).get(name)) for column in _COLUMNS)]
        row += [_number(forecast[name][h - 1]) for h in steps]
        if calibration:
            covered = calibration.get(name, {}).get("coverage", {})
            row += [_number(covered.get(level)) for level in ("50%", "90%")]
        rows.append(row)
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [_line(row, widths) for row in [header, *rows]]
    about = scores["task"]
    sizes = ", ".join(f"{n} {split}" for split, n in about["sizes"].items())
    title = f"{about['task']} (seed {about['seed']}, background: {about['background']}; {sizes})"
    notes = []
    if "robustness" in scores:
        r = scores["robustness"]
        by_target = ", ".join(f"{name} {value:.3f}" for name, value in r["targets"].items())
        notes.append(f"spread over {r['variants']} backgrounds: latents {r['latents']:.3f}; {by_target}")
    if "head_angle_error_degrees" in scores:
        notes.append(f"mean error of the head's angle: {scores['head_angle_error_degrees']:.1f}°")
    return "\n".join([f"{title}, K = {scores['latent_dim']}", lines[0], "-" * len(lines[0]), *lines[1:], *notes])


def _line(cells: list[str], widths: list[int]) -> str:
    first, *rest = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join([first.strip().ljust(widths[0]), *rest])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def draw_figures(evaluation: "Evaluation", directory: Path) -> list[Path]:
    """Decoded trajectories with intervals, R² against horizon, and coverage."""
    directory.mkdir(parents=True, exist_ok=True)
    written = [_trajectories(evaluation, directory / "trajectories.png")]
    if evaluation.scores["forecast"] is not None:
        written.append(_horizon(evaluation, directory / "forecast.png"))
    if "calibration" in evaluation.scores:
        written.append(_coverage(evaluation, directory / "calibration.png"))
    return written


def _figure(width: float | int, height: float | int):
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure, path: Path) -> Path:
    figure.savefig(path, dpi=120)
    return path


def _clean(axis) -> None:
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.tick_params(labelsize=8)


def _trajectories(evaluation: "Evaluation", path: Path, sequences: int = 3) -> Path:
    lines = [(name, d) for name, y in evaluation.truth.items() for d in range(min(y.shape[-1], 3))]
    n, time = next(iter(evaluation.truth.values())).shape[:2]
    shown = min(sequences, n)
    figure = _figure(4 * shown, 1.35 * len(lines) + 0.7)
    axes = np.array(figure.subplots(len(lines), shown, squeeze=False, sharex=True))
    t = np.arange(time) * (evaluation.dt or 1)
    for row, (name, d) in enumerate(lines):
        for column in range(shown):
            axis = axes[row, column]
            mean = evaluation.decoded[name][column, :, d]
            if evaluation.deviation is not None:
                half = 1.645 * evaluation.deviation[name][column, :, d]
                axis.fill_between(
                    t, mean - half, mean + half, color="C0", alpha=0.2, linewidth=0, label="90 % interval"
                )
            axis.plot(t, evaluation.truth[name][column, :, d], color="black", linewidth=1.2, label="true")
            axis.plot(t, mean, color="C0", linewidth=1.2, label="decoded")
            _clean(axis)
        many = evaluation.truth[name].shape[-1] > 1
        axes[row, 0].set_ylabel(name.replace("_", " ") + (f" {d + 1}" if many else ""), fontsize=8)
    for column in range(shown):
        axes[0, column].set_title(f"test sequence {column}", fontsize=9)
        axes[-1, column].set_xlabel("frame" if evaluation.dt is None else "seconds", fontsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=8, frameon=False)
    return _save(figure, path)


def _horizon(evaluation: "Evaluation", path: Path) -> Path:
    forecast = evaluation.scores["forecast"]
    figure = _figure(6, 3.6)
    axis = figure.subplots()
    for name, curve in forecast["r_squared"].items():
        h = np.arange(1, len(curve) + 1)
        if name == "mean" and len(forecast["r_squared"]) == 2:
            continue  # of one target
        colour, width = ("black", 2.0) if name == "mean" else (None, 1.2)
        axis.plot(h, np.maximum(curve, -1), label=name.replace("_", " "), color=colour, linewidth=width)
    axis.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    axis.set_ylim(-1.05, 1.05)
    axis.set_xlabel(f"frames ahead, after {forecast['context']} frames of context", fontsize=9)
    axis.set_ylabel("R² (cut at -1)", fontsize=9)
    axis.legend(fontsize=8, frameon=False)
    _clean(axis)
    return _save(figure, path)


def _coverage(evaluation: "Evaluation", path: Path) -> Path:
    figure = _figure(6, 3.6)
    axes = np.array(figure.subplots(1, 2, sharey=True))
    for axis, (kind, title) in zip(
        axes, {"posterior": "posterior alone", "with_misfit": "with the readout's misfit"}.items(), strict=True
    ):
        for name, c in evaluation.scores["calibration"][kind].items():
            levels = [int(level.rstrip("%")) / 100 for level in c["coverage"]]
            axis.plot(
                [0, *levels, 1], [0, *c["coverage"].values(), 1], "o-", markersize=4, label=name.replace("_", " ")
            )
        axis.plot([0, 1], [0, 1], color="0.7", linewidth=0.8, zorder=0)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("interval", fontsize=9)
        _clean(axis)
    axes[0].set_ylabel("fraction of truth inside", fontsize=9)
    axes[1].legend(fontsize=8, frameon=False)
    return _save(figure, path)
