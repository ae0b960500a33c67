"""The sections of a report about targets: scores, tracks, forecasts."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from . import figures
from .figures import Line
from .findings import Findings
from .page import Part

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS, DIMENSIONS = 6, 3  # of a figure: quantities in all, and of one target
HORIZONS = (1, 2, 5, 10, 20, 50, 100)


def sections(f: Findings) -> list[Part]:
    """All sections about targets; none if there are no targets."""
    return [] if f.found.linear is None else [scores(f), tracks(f), forecasts(f)]


def score_rows(f: Findings) -> list[list[str]]:
    """The table of scores."""
    found = f.found
    assert found.linear is not None
    assert found.kernel is not None
    rows = [
        ["target", "linear R²", "kernel R²"],
        *([name, f"{x:.3f}", f"{found.kernel[name]:.3f}"] for name, x in found.linear.items()),
    ]
    if found.filtering is not None:
        rows[0].append("linear R², causal")
        for row in rows[1:]:
            row.append(f"{found.filtering[row[0]]:.3f}")
    if found.calibration is not None:
        for level in ("50%", "90%"):
            rows[0].append(f"{level[:-1]} % interval holds")
            for row in rows[1:]:
                row.append(f"{100 * found.calibration['with_misfit'][row[0]].coverage[level]:.0f} %")
    return rows


def scores(f: Findings) -> Part:
    """What can be read off the latents, in numbers."""
    found = f.found
    caption = [
        "R² of a regression from the latents of a frame to a target that the model was never shown: 1 is perfect, 0 is "
        f"no better than always guessing the mean. {f.arranged.words}",
        "Linear: least squares. Kernel: kernel ridge regression, which finds curves too.",
    ]
    missing = []
    if found.filtering is not None:
        caption.append("Causal: the linear readout of latents that are inferred without later frames.")
    else:
        missing.append(f"{f.method} has no filter, so there is no causal score.")
    if found.calibration is not None:
        caption.append(
            "Intervals: how often the truth lies inside. They follow from the covariance of the latents and from the "
            "errors of the regression on the sequences it was fitted to."
        )
    else:
        missing.append(f"{f.method} gives no covariances, so there are no intervals.")
    return Part(
        "scores", "What can be read off the latents", "\n".join(caption), rows=score_rows(f), note=" ".join(missing)
    )


def tracks(f: Findings) -> Part:
    """Targets as they are read off the latents."""
    caption = (
        "Sequences that the regression was not fitted to. Black: the truth. Blue: what the linear regression reads off "
        "the latents that are inferred from all frames."
    )
    if f.found.deviation is not None:
        caption += " Band: 90 % interval."
    return Part("tracks", "Targets, read off the latents", caption, partial(_tracks, f))


def _tracks(f: Findings) -> "Figure":
    decoded, deviation = f.found.decoded, f.found.deviation
    assert decoded is not None
    columns = {}
    for n in f.shown:
        to = slice(f.frames(n))
        columns[f.name(n)] = [
            Line(
                label,
                decoded[name][n, to, d],
                None if deviation is None else deviation[name][n, to, d],
                f.found.truth[name][n, to, d],
                f.missing(n),
            )
            for label, name, d in _quantities(f)
        ]
    return figures.lines(columns, f.clock, mean="inferred from all frames")


def forecasts(f: Findings) -> Part:
    """Targets as they are read off latents that were forecast."""
    name, title, ahead = "target-forecasts", "Forecasts of the targets", f.found.forecast
    if ahead is None or ahead.scores is None:
        return Part(name, title, note=f"{f.method} has no dynamics, so there are no forecasts.")
    steps = [h for h in HORIZONS if h <= len(ahead.latents)]
    rows = [["R², looking ahead", *(f.clock.span(h) for h in steps)]]
    rows += [[target, *(f"{s.r_squared[h - 1]:.3f}" for h in steps)] for target, s in ahead.scores.items()]
    caption = (
        f"The model sees the first {ahead.context} frames (grey) and nothing after them. What follows is its forecast, "
        "read off by the same regression. Right and below: R² of all "
        f"{len(ahead.predicted)} held-out forecasts, against how far ahead they look."
    )
    return Part(name, title, caption, partial(_forecasts, f), rows)


def _forecasts(f: Findings) -> "Figure":
    found, ahead = f.found, f.found.forecast
    assert ahead is not None
    assert ahead.decoded is not None
    assert ahead.scores is not None
    assert found.readout is not None
    places = f.places(ahead)
    seen = f.before(ahead, places)
    past = found.readout.predict(seen.mean)
    spread: Mapping[str, np.ndarray] | None = None
    if seen.cov is not None and found.misfit is not None:
        spread = found.misfit.deviation(found.readout, seen.cov)
    columns = {}
    for i, place in enumerate(places):
        n = int(ahead.rows[place])
        lines = []
        for label, name, d in _quantities(f):
            mean = np.concatenate([past[name][i, :, d], ahead.decoded[name][place, :, d]])
            deviation = None
            if spread is not None and ahead.deviation is not None:
                deviation = np.concatenate([spread[name][i, :, d], ahead.deviation[name][place, :, d]])
            truth = found.truth[name][n, : len(mean), d]
            lines.append(Line(label, mean, deviation, truth))
        columns[f.name(n)] = lines
    curves = {label: ahead.scores[name].r_squared for label, name, _ in _quantities(f)}
    title = f"all {len(ahead.predicted)} sequences"
    return figures.lines(
        columns, f.clock, mean="inferred, then forecast", context=ahead.context, curves=curves, curves_title=title
    )


def _quantities(f: Findings) -> list[tuple[str, str, int]]:
    """The rows of figures: what they are called, their target, and its dimension."""
    rows = []
    for name, y in f.found.truth.items():
        for d in range(min(y.shape[-1], DIMENSIONS)):
            rows.append((name if y.shape[-1] == 1 else f"{name} {d + 1}", name, d))
    return rows[:ROWS]
