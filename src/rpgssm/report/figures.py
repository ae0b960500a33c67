"""The figures of a report: bands, forecasts, eigenvalues, frames, training."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Complex, Float, Shaped

from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EXCERPT = 400  # frames of a sequence
WIDE = 1.645  # standard deviations on each side of the 90 % interval
BLUE = "#1f6fb2"
COLUMNS = 9  # frames in a strip
FILM, FILMED = 96, 150  # at most so many pixels and frames of a film


@dataclass(frozen=True)
class Clock:
    """How time is written: in seconds if the time between frames is known, else in frames."""

    dt: float | None = None

    def __post_init__(self) -> None:
        if self.dt is not None and not (np.isfinite(self.dt) and self.dt > 0):
            raise ValueError(f"dt is {self.dt}: it must be a positive number, the seconds from one frame to the next")

    @property
    def step(self) -> float:
        return float(self.dt or 1)

    @property
    def unit(self) -> str:
        return "frames" if self.dt is None else "seconds"

    def label(self, frames: float | int) -> str:
        return f"frame {frames:g}" if self.dt is None else f"{frames * self.dt:.2f} s"

    def span(self, frames: float | int) -> str:
        """A length of time."""
        if self.dt is None:
            return "1 frame" if frames == 1 else f"{frames:.3g} frames"
        return f"{frames * self.dt:.3g} s"


@dataclass(frozen=True)
class Line:
    """One quantity of one sequence against time, with its standard deviation, and the truth if it is known."""

    name: str
    mean: Float[np.ndarray, " t"]
    deviation: Float[np.ndarray, " t"] | None = None
    truth: Float[np.ndarray, " t"] | None = None
    missing: Bool[np.ndarray, " t"] | None = None


def lines(
    columns: Mapping[str, Sequence[Line]],
    clock: Clock,
    *,
    mean: str,
    truth: str = "true",
    context: int | None = None,
    curves: Mapping[str, Float[np.ndarray, " horizon"]] | None = None,
    curves_title: str = "",
) -> "Figure":
    """Lines with bands: a column for each sequence, a row for each quantity; beside it curves of R² by horizon."""
    first = next(iter(columns.values()))
    drawn = style.figure(10, 0.9 + 1.6 * len(first))
    beside = [] if curves is None else [1.0]
    axes = drawn.subplots(
        len(first), len(columns) + len(beside), squeeze=False, width_ratios=[1.2] * len(columns) + beside
    )
    for column, (title, quantities) in enumerate(columns.items()):
        for row, line in enumerate(quantities):
            axis = axes[row, column]
            t = clock.step * np.arange(len(line.mean))
            _shade(axis, line.missing, clock)
            if context is not None:
                axis.axvspan(0, clock.step * context, color="0.93", lw=0)
            if line.deviation is not None:
                half = WIDE * line.deviation
                axis.fill_between(t, line.mean - half, line.mean + half, color=BLUE, alpha=0.25, lw=0)
            if line.truth is not None:
                axis.plot(clock.step * np.arange(len(line.truth)), line.truth, color=style.BLACK, lw=1.2)
            axis.plot(t, line.mean, color=BLUE, lw=1.5)
            axis.set_xlim(0, max(t[-1], clock.step))
            axis.set_ylim(*_limits([lines[row] for lines in columns.values()]))
            if column == 0:
                axis.set_ylabel(line.name)
            else:
                axis.tick_params(labelleft=False)
            if row < len(first) - 1:
                axis.tick_params(labelbottom=False)
        axes[0, column].set_title(title)
        axes[-1, column].set_xlabel(clock.unit + ("; the grey part is seen" if context is not None else ""))
    if curves is not None:
        for row, curve in enumerate(curves.values()):
            _horizon(axes[row, -1], curve, clock)
        for row in range(len(curves), len(first)):
            axes[row, -1].set_visible(False)
        axes[0, -1].set_title(curves_title)
        axes[len(curves) - 1, -1].set_xlabel(f"{clock.unit} ahead")
    _legend(drawn, mean, truth, list(columns.values()))
    return drawn


def _horizon(axis: "Axes", curve: Float[np.ndarray, " horizon"], clock: Clock) -> None:
    axis.plot(clock.step * np.arange(1, len(curve) + 1), curve, color=BLUE, lw=1.8)
    axis.axhline(0, color=style.BLACK, lw=0.6)
    lowest = float(np.nanmin(curve)) if np.isfinite(curve).any() else 0.0
    axis.set_ylim(min(-0.1, max(-1.0, lowest - 0.1)), 1.03)
    axis.set_ylabel("R² of the forecast")
    axis.grid(color="0.93")


def _shade(axis: "Axes", missing: Bool[np.ndarray, " t"] | None, clock: Clock) -> None:
    """Grey where frames are missing."""
    if missing is None or not missing.any():
        return
    edges = np.flatnonzero(np.diff(np.concatenate([[False], missing, [False]]).astype(int)))
    for begin, end in edges.reshape(-1, 2):
        axis.axvspan(clock.step * (begin - 0.5), clock.step * (end - 0.5), color="0.88", lw=0)


def _limits(quantities: Sequence[Line]) -> tuple[float, float]:
    """Room for the lines and most of their bands, the same for all columns of a row."""
    values = [x for line in quantities for x in (line.mean, line.truth) if x is not None]
    values = np.concatenate(values)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    halves = [float(np.nanmedian(WIDE * x.deviation)) for x in quantities if x.deviation is not None]
    room = max([0.35 * (high - low), *(half for half in halves if np.isfinite(half))]) or 1.0
    return low - room, high + room


def _legend(drawn: "Figure", mean: str, truth: str, columns: Sequence[Sequence[Line]]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    every = [line for column in columns for line in column]
    handles: list[Line2D | Patch] = [Line2D([], [], color=BLUE, lw=1.6, label=mean)]
    if any(line.truth is not None for line in every):
        handles.insert(0, Line2D([], [], color=style.BLACK, lw=1.4, label=truth))
    if any(line.deviation is not None for line in every):
        handles.append(Patch(color=BLUE, alpha=0.25, lw=0, label="90 % interval"))
    if any(line.missing is not None and line.missing.any() for line in every):
        handles.append(Patch(color="0.88", lw=0, label="frame missing"))
    drawn.legend(handles=handles, loc="outside upper center", ncols=len(handles))


def strips(rows: Mapping[str, Shaped[np.ndarray, "t *image"]], clock: Clock) -> "Figure":
    """Frames of films at a few moments, a row for each film. Values are between 0 and 1; NaN is missing."""
    moments = np.linspace(0, min(map(len, rows.values())) - 1, COLUMNS).round().astype(int)
    frame = next(iter(rows.values()))[0]
    drawn = style.figure(10, 0.35 + 0.98 * len(rows) * min(2.0, frame.shape[0] / frame.shape[1]))
    axes = drawn.subplots(len(rows), COLUMNS, squeeze=False)
    for line, (name, frames) in zip(axes, rows.items(), strict=True):
        for axis, t in zip(line, moments, strict=True):
            image = frames[t]
            image = image if image.ndim == 2 else image[..., 0] if image.shape[2] == 1 else image[..., :3]
            axis.imshow(
                np.clip(np.nan_to_num(image, nan=0.9), 0, 1), cmap="gray", vmin=0, vmax=1, interpolation="nearest"
            )
            axis.set_xticks([])
            axis.set_yticks([])
            for spine in axis.spines.values():
                spine.set_visible(False)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", labelpad=8)
    for axis, t in zip(axes[0], moments, strict=True):
        axis.set_title(clock.label(int(t)), fontsize=8)
    return drawn


def film(films: Mapping[str, Shaped[np.ndarray, "t *image"]]) -> str:
    """Films side by side, played over and over, as HTML. Values are between 0 and 1; NaN is missing."""
    from PIL import Image

    time, every = min(map(len, films.values())), -(-next(iter(films.values())).shape[1] // FILM)
    parts = []
    for frames in films.values():
        x = np.nan_to_num(np.clip(frames[: min(time, FILMED), ::every, ::every], 0, 1), nan=0.9)
        x = x[..., None] if x.ndim == 3 else x[..., :3]
        parts += [np.ones((*x.shape[:2], 2, 3)), np.broadcast_to(x, (*x.shape[:3], 3))]
    whole = np.rint(255 * np.concatenate(parts[1:], 2)).astype(np.uint8)
    images, kept = [Image.fromarray(frame) for frame in whole], io.BytesIO()
    images[0].save(kept, "GIF", save_all=True, append_images=images[1:], duration=60, loop=0)
    data = base64.b64encode(kept.getvalue()).decode("ascii")
    labels = "".join(f"<span>{escape(name)}</span>" for name in films)
    return (
        f'<figure class="film"><img alt="{escape(", ".join(films))}" src="data:image/gif;base64,{data}">'
        f"<figcaption>{labels}</figcaption></figure>\n"
    )


def traces(
    rows: Mapping[str, Float[np.ndarray, "t d"]], clock: Clock, over: Mapping[str, np.ndarray] | None = None
) -> "Figure":
    """Numbers against time, each channel with room of its own; `over` are others of the same names, in blue."""
    drawn = style.figure(10, 0.6 + 1.7 * len(rows))
    axes = drawn.subplots(len(rows), 1, squeeze=False, sharex=True)[:, 0]
    for axis, (name, x) in zip(axes, rows.items(), strict=True):
        missing = np.asarray(np.isnan(x).any(1))
        there = np.zeros_like(x) if missing.all() else x[~missing]
        centre, room = there.mean(0), 5 * np.maximum(there.std(0), 1e-12)
        t, level = clock.step * np.arange(len(x)), -np.arange(x.shape[1])
        _shade(axis, missing, clock)
        axis.plot(t, (x - centre) / room + level, color=style.BLACK, lw=0.9)
        if over is not None:
            axis.plot(t, (over[name] - centre) / room + level, color=BLUE, lw=1.3)
        axis.set_yticks(level, [str(i) for i in range(x.shape[1])])
        axis.set_ylabel(name)
        axis.set_xlim(t[0], max(t[-1], clock.step))
    axes[-1].set_xlabel(clock.unit)
    return drawn


def eigenvalues(values: Complex[np.ndarray, " k"], clock: Clock, marks: Mapping[str, float]) -> "Figure":
    """Eigenvalues in the unit disc, and the slow ones near 1. `marks` are periods in frames, drawn as dotted rays."""
    drawn = style.figure(10, 4.4)
    whole, near = drawn.subplots(1, 2)
    circle = np.exp(1j * np.linspace(-np.pi, np.pi, 2000))
    turns = [2 * np.pi / period for period in marks.values()]
    for axis in (whole, near):
        axis.plot(np.real(circle), np.imag(circle), color="0.6", lw=1)
        for turn in turns:
            for sign in (1, -1):
                axis.plot([0, np.cos(turn)], [0, sign * np.sin(turn)], color=style.BLACK, ls=":", lw=1)
        axis.plot(np.real(values), np.imag(values), "o", color=BLUE, ms=7, mec="white", mew=0.8, alpha=0.9)
        axis.set_aspect("equal")
        axis.set_xlabel("real part")
    whole.fill(np.real(circle), np.imag(circle), color="0.97", zorder=0)
    whole.set_xlim(-1.08, 1.08)
    whole.set_ylim(-1.08, 1.08)
    whole.set_ylabel("imaginary part")
    whole.set_title("in the unit disc")
    close = values[np.abs(values - 1) < 0.35]
    highest = max([float(np.abs(np.imag(close)).max(initial=0)), 0.05, *(1.5 * np.sin(turn) for turn in turns)])
    reach = 1.2 * highest
    near.set_xlim(1 - 1.8 * reach, 1 + 0.2 * reach)
    near.set_ylim(-reach, reach)
    near.set_title("closer: the slow ones, near 1")
    plain = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    turning = close[np.imag(close) > 1e-3]
    labelled: list[complex] = []
    for value in turning[np.argsort(-np.abs(turning))]:  # a label where there is room above and below
        if value.imag > 0.1 * reach and all(abs(value.imag - other.imag) > 0.12 * reach for other in labelled[:6]):
            labelled.append(complex(value))
            near.annotate(
                clock.span(2 * np.pi / float(np.angle(value))),
                (value.real, value.imag),
                color=BLUE,
                fontsize=8,
                bbox=plain,
                xytext=(-8, 0),
                textcoords="offset points",
                ha="right",
                va="center",
            )
    return drawn


def training(history: Mapping[str, np.ndarray], kept: int, phases: Mapping[str, tuple[int, int]]) -> "Figure":
    """The loss while training, a panel for each phase (first and last step)."""
    drawn = style.figure(10, 3.2)
    step, losses = history["step"], history["loss"]
    aside = history.get("validation_loss", np.full(len(losses), np.nan))
    for axis, (title, (first, last)) in zip(
        drawn.subplots(1, len(phases), squeeze=False)[0], phases.items(), strict=True
    ):
        now = (step >= first) & (step <= last)
        # without the first, which of a network or head that has learned nothing yet may be far above all others
        begin = 1 if now.sum() > 2 else 0
        axis.plot(step[now][begin:], losses[now][begin:], color="0.6", lw=1, label="training data")
        there = now & np.isfinite(aside)
        if there.any():
            axis.plot(step[there], aside[there], "o-", color=BLUE, ms=4, lw=1.6, label="held-out data")
        if first <= kept <= last:
            axis.axvline(kept, color=style.BLACK, lw=0.8, ls=":", label=f"kept: step {kept}")
        axis.set(title=title, xlabel="training step", ylabel="loss")
        axis.grid(axis="y", color="0.93")
        axis.legend()
    return drawn


def uncertainty(by_frame: Mapping[str, Float[np.ndarray, " t"]], clock: Clock) -> "Figure":
    """How uncertain the latents are, against the frame."""
    drawn = style.figure(10, 2.9)
    axis = drawn.subplots()
    for colour, (name, values) in zip((BLUE, "0.55", "#b2561f"), by_frame.items(), strict=False):
        axis.plot(clock.step * np.arange(len(values)), values, color=colour, lw=1.6, label=name)
    axis.set_ylim(bottom=0)
    axis.set(xlabel=f"{clock.unit} since the beginning", ylabel="standard deviation")
    axis.grid(axis="y", color="0.93")
    axis.legend()
    return drawn


def variances(share: Float[np.ndarray, " k"]) -> "Figure":
    """The share of variance along each principal direction, and of all up to it."""
    drawn = style.figure(10, 2.8)
    axis = drawn.subplots()
    number = np.arange(1, len(share) + 1)
    axis.bar(number, share, color=BLUE, width=0.8, alpha=0.85, label="each")
    axis.plot(number, np.cumsum(share), "o-", color=style.BLACK, ms=3, lw=1, label="all up to it")
    axis.set(xlabel="principal direction of the latents", ylabel="share of variance", ylim=(0, 1.05))
    axis.set_xlim(0.3, len(share) + 0.7)
    axis.legend(loc="center right")
    return drawn
