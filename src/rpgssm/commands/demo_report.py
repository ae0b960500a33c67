"""The report of the demonstration: one HTML file with everything in it, and its figures as files of their own.

Page and figures look like those of the report of experiments; added are a film on top and some code at the end.
"""

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from rpgssm.experiments.report import style
from rpgssm.experiments.report.page import page
from rpgssm.experiments.report.sections import Section

PAGE = "report.html"
TITLE = "A pendulum, learned from distracting video"
NAMES = {"sin_angle": "sin θ (where it is)", "velocity": "ω (how fast it turns)"}
AXES = {"sin_angle": "sin θ", "velocity": "ω, radians per second"}
WIDE = 1.645  # standard deviations on each side of the 90 % interval
BLUE = "#1f6fb2"
SHOWN = 3  # held-out films in figures
Targets = dict[str, np.ndarray]


@dataclass(frozen=True)
class Track:
    """Targets as read off latents: mean, and the deviation that follows from the latents' covariance and the misfit."""

    mean: Targets
    deviation: Targets


@dataclass(frozen=True)
class Findings:
    """All that the report tells. Scores are of held-out films; all arrays of films begin with the same ones."""

    dt: float
    swing: float  # seconds of a small swing of the true pendulum, to and fro
    context: int
    films: int
    held_out: int
    seconds: float
    components: int
    truth: Targets
    smoothed: Track
    seen: Track
    ahead: Track
    r_squared: dict[str, float]
    pixels: dict[str, float]
    covered: dict[str, float]
    horizon: Targets
    transition: Float[np.ndarray, "k k"]
    history: dict[str, np.ndarray]
    changed: int  # steps before the second training
    kept: int
    frames: Float[np.ndarray, "n t h w"]
    decoded: Float[np.ndarray, "t h w"]
    bare: Float[np.ndarray, "t h w"]


def score_rows(f: Findings) -> list[list[str]]:
    """The table of scores, as the terminal and the page show it."""
    header = ["", f"RP-GSSM, {f.components} latents", f"pixels, {f.components} principal components"]
    rows = [[*header, "90 % interval holds the truth"]]
    for name, score in f.r_squared.items():
        rows.append([NAMES[name], f"{score:.3f}", f"{f.pixels[name]:.3f}", f"{100 * f.covered[name]:.0f} %"])
    return rows


def write_report(f: Findings, folder: Path) -> Path:
    """Write the page, and beside it a folder of the figures as PNG and SVG. Returns the path of the page."""
    parts: list[tuple[Section, Path | None, list[list[str]]]] = [(_scores(f), None, score_rows(f))]
    with style.context():
        for section, draw in _figures(f):
            parts.append((section, style.write(draw(f), folder / "figures", section.name)[1], []))
    text = page(TITLE, _about(f), parts)
    text = _before(text, "</head>", f"<style>{_STYLE}</style>\n")
    text = _before(text, "<nav>", _film(f))
    text = _before(text, "</ol></nav>", '<li><a href="#next">What to do next</a></li>\n')
    text = _before(text, "</body>", _next(f, folder))
    (folder / PAGE).write_text(text, encoding="utf-8")
    return folder / PAGE


def _before(text: str, mark: str, inserted: str) -> str:
    start, end = text.split(mark)
    return start + inserted + mark + end


def _about(f: Findings) -> str:
    return (
        f"A bar swings, and behind it every frame has a new random picture. The model watched {f.films} such films of "
        f"{f.bare.shape[0] * f.dt:g} s for {f.seconds / 60:.1f} minutes. It was told nothing of pendulums and angles, "
        "and it never tried to redraw a frame. What it found is shown here on films that it has not seen."
    )


def _scores(f: Findings) -> Section:
    return Section(
        "main",
        "Can the pendulum be read off?",
        f"R² of a linear regression from the {f.components} numbers that the model infers for a frame to the truth, "
        f"which it never saw: fitted on the training films, scored on {f.held_out} others. 1 is perfect, 0 is no "
        f"better than always guessing the mean. Beside it the same regression from {f.components} principal components "
        "of the frame's pixels: most of their variance is background, and no single frame shows a velocity. The last "
        "column should say 90 %: then the model knows how wrong it is.",
    )


def _figures(f: Findings) -> list[tuple[Section, Callable[[Findings], Any]]]:
    ahead = (f.bare.shape[0] - f.context) * f.dt
    return [
        (
            Section(
                "frames",
                "What the model sees",
                f"Frames of the first {SHOWN} held-out films, {f.frames.shape[2]}×{f.frames.shape[3]} pixels each. The "
                "bar is there in every one of them, and so is a picture that has nothing to do with it and that will "
                "never come back. A model that has to redraw its input spends its effort on that picture.",
            ),
            _frames,
        ),
        (
            Section(
                "training",
                "How it learned",
                "The loss (lower is better) on the training films, and on some of them that were set aside. It falls "
                "as the latent of a frame becomes easier to predict from the frames around it, while still telling "
                "that frame from those of other films. Only the pendulum is good for that: backgrounds predict "
                "nothing. Right: the network stays, and a second chain is trained on random functions of what it sees "
                "in a frame, which makes more of it (its loss is of other data, and on another scale).",
            ),
            _training,
        ),
        (
            Section(
                "trajectories",
                "The motion it infers, and how sure it is",
                f"The first {SHOWN} held-out films, none of them picked. Black: the truth. Blue: what the regression "
                "reads off the latents. Band: 90 % interval, the model's covariance carried through the regression "
                "and made to agree with the regression's errors on the training films by one number for each quantity.",
            ),
            _trajectories,
        ),
        (
            Section(
                "forecast",
                "The future it expects",
                f"The model sees the first {f.context} frames (grey) and nothing after them; the last {ahead:g} s are "
                "its forecast, with 90 % intervals as above: they should widen the further it looks ahead. Right: R² "
                f"of all {f.held_out} forecasts against how far ahead they look.",
            ),
            _forecast,
        ),
        (
            Section(
                "eigenvalues",
                "The dynamics it found",
                "From frame to frame the latents are multiplied by a matrix A, and its eigenvalues say what that does. "
                "The angle of an eigenvalue is how fast something turns, its distance from the circle how fast it is "
                f"forgotten. Small swings of the true pendulum take {f.swing:.2f} s (dotted ray); large ones "
                "are slower, and a linear model has to build them from several parts. Numbers: seconds per turn, of "
                "some that last long. What is near -1 changes its sign in every frame.",
            ),
            _eigenvalues,
        ),
        (
            Section(
                "reconstructions",
                "What its latents hold: where is the background?",
                "After training, and without changing the model, a decoder learned to draw frames from the latents. "
                "Where they say nothing it can only draw the average of all films: a background that the model ignores "
                "becomes an even grey, and the bar stays. Below: the bar alone, as it really was.",
            ),
            _reconstructions,
        ),
    ]


def _image(axis: Any, frame: np.ndarray) -> None:
    axis.imshow(frame, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_visible(False)


def _strips(f: Findings, rows: dict[str, np.ndarray], columns: int = 9) -> Any:
    moments = np.linspace(0, f.bare.shape[0] - 1, columns).round().astype(int)
    drawn = style.figure(10, 0.35 + 0.98 * len(rows))
    axes = drawn.subplots(len(rows), columns, squeeze=False)
    for line, (name, frames) in zip(axes, rows.items(), strict=True):
        for axis, t in zip(line, moments, strict=True):
            _image(axis, frames[t])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", labelpad=8)
    for axis, t in zip(axes[0], moments, strict=True):
        axis.set_title(f"{t * f.dt:.2f} s", fontsize=8)
    return drawn


def _frames(f: Findings) -> Any:
    return _strips(f, {f"film {n + 1}": film for n, film in enumerate(f.frames)})


def _reconstructions(f: Findings) -> Any:
    return _strips(f, {"seen": f.frames[0], "drawn from\nthe latents": f.decoded, "true bar": f.bare})


def _training(f: Findings) -> Any:
    drawn = style.figure(10, 3.2)
    step, losses = f.history["step"], f.history["loss"]
    aside = f.history.get("validation_loss", np.full(len(losses), np.nan))
    phases = {"network and chain": step <= f.changed, "new head and chain on random features": step > f.changed}
    for axis, (title, now) in zip(drawn.subplots(1, len(phases)), phases.items(), strict=True):
        # without the first, which of a network or head that has learned nothing yet may be far above all others
        axis.plot(step[now][1:], losses[now][1:], color="0.7", lw=1, label="training films")
        there = now & np.isfinite(aside)
        axis.plot(step[there], aside[there], "o-", color=BLUE, ms=4, lw=1.6, label="set aside")
        if now[step >= f.kept][:1].any():
            axis.axvline(f.kept, color=style.BLACK, lw=0.8, ls=":", label=f"kept: step {f.kept}")
        axis.set(title=title, xlabel="training step", ylabel="loss per frame")
        axis.grid(axis="y", color="0.93")
        axis.legend()
    return drawn


def _band(axis: Any, t: np.ndarray, track: Track, name: str, film: int) -> None:
    mean = track.mean[name][film, :, 0]
    half = WIDE * track.deviation[name][film, :, 0]
    axis.fill_between(t, mean - half, mean + half, color=BLUE, alpha=0.25, lw=0)


def _limits(axis: Any, truth: np.ndarray) -> None:
    """Room for bands around the truth, the same for all films of a row."""
    low, high = truth.min(), truth.max()
    axis.set_ylim(low - 0.35 * (high - low), high + 0.35 * (high - low))


def _legend(drawn: Any, inferred: str) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Line2D([], [], color=style.BLACK, lw=1.4, label="true"),
        Line2D([], [], color=BLUE, lw=1.6, label=inferred),
        Patch(color=BLUE, alpha=0.25, lw=0, label="90 % interval"),
    ]
    drawn.legend(handles=handles, loc="outside upper center", ncols=3)


def _trajectories(f: Findings) -> Any:
    drawn = style.figure(10, 4.6)
    axes = drawn.subplots(len(f.truth), SHOWN, sharex=True, sharey="row", squeeze=False)
    t = np.arange(f.bare.shape[0]) * f.dt
    for line, (name, truth) in zip(axes, f.truth.items(), strict=True):
        for film, axis in enumerate(line):
            _band(axis, t, f.smoothed, name, film)
            axis.plot(t, truth[film, :, 0], color=style.BLACK, lw=1.4)
            axis.plot(t, f.smoothed.mean[name][film, :, 0], color=BLUE, lw=1.6)
            axis.set_xlim(t[0], t[-1])
        line[0].set_ylabel(AXES[name])
        _limits(line[0], truth[:SHOWN])
    for film in range(SHOWN):
        axes[0, film].set_title(f"film {film + 1}")
        axes[-1, film].set_xlabel("seconds")
    _legend(drawn, "inferred from all frames")
    return drawn


def _forecast(f: Findings) -> Any:
    drawn = style.figure(10, 4.6)
    axes = drawn.subplots(len(f.truth), SHOWN, squeeze=False, width_ratios=[1.2] * (SHOWN - 1) + [1])
    t = np.arange(f.bare.shape[0]) * f.dt
    past, future = t[: f.context], t[f.context :]
    for line, (name, truth) in zip(axes, f.truth.items(), strict=True):
        for film, axis in enumerate(line[:-1]):
            axis.axvspan(t[0], t[f.context], color="0.93", lw=0)
            for times, track in ((past, f.seen), (future, f.ahead)):
                _band(axis, times, track, name, film)
                axis.plot(times, track.mean[name][film, :, 0], color=BLUE, lw=1.6)
            axis.plot(t, truth[film, :, 0], color=style.BLACK, lw=1.4)
            axis.set_xlim(t[0], t[-1])
            _limits(axis, truth[: SHOWN - 1])
        line[0].set_ylabel(AXES[name])
        curve = line[-1]
        curve.plot(f.dt * np.arange(1, len(f.horizon[name]) + 1), f.horizon[name], color=BLUE, lw=1.8)
        curve.axhline(0, color=style.BLACK, lw=0.6)
        curve.set_ylim(min(-0.1, max(-1.0, float(np.min(f.horizon[name])) - 0.1)), 1.03)
        curve.set_ylabel("R² of the forecast")
        curve.grid(color="0.93")
    for film in range(SHOWN - 1):
        axes[0, film].set_title(f"film {film + 1}")
        axes[-1, film].set_xlabel("seconds; the grey part is seen")
    axes[0, -1].set_title(f"all {f.held_out} films")
    axes[-1, -1].set_xlabel("seconds ahead")
    _legend(drawn, "inferred, then forecast")
    return drawn


def _eigenvalues(f: Findings) -> Any:
    values: Any = np.linalg.eigvals(f.transition)
    turn = 2 * np.pi * f.dt / f.swing  # radians per frame
    drawn = style.figure(10, 4.4)
    whole, near = drawn.subplots(1, 2)
    circle: Any = np.exp(1j * np.linspace(-np.pi, np.pi, 2000))
    for axis in (whole, near):
        axis.plot(circle.real, circle.imag, color="0.6", lw=1)
        for sign in (1, -1):
            axis.plot([0, np.cos(turn)], [0, sign * np.sin(turn)], color=style.BLACK, ls=":", lw=1)
        axis.plot(values.real, values.imag, "o", color=BLUE, ms=7, mec="white", mew=0.8, alpha=0.9)
        axis.set_aspect("equal")
        axis.set_xlabel("real part")
    whole.fill(circle.real, circle.imag, color="0.97", zorder=0)
    whole.set_xlim(-1.08, 1.08)
    whole.set_ylim(-1.08, 1.08)
    whole.set_ylabel("imaginary part")
    whole.set_title("in the unit disc")
    close = values[np.abs(values - 1) < 0.35]
    reach = 1.2 * max(float(np.abs(close.imag).max(initial=0)), 1.5 * float(np.sin(turn)))
    near.set_xlim(1 - 1.8 * reach, 1 + 0.2 * reach)
    near.set_ylim(-reach, reach)
    near.set_title("closer: the slow ones, near 1")
    beside: dict[str, Any] = {"xytext": (-8, 0), "textcoords": "offset points", "ha": "right", "va": "center"}
    plain = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    turning = close[close.imag > 1e-3]
    for value in _apart(turning[np.argsort(-np.abs(turning))], 0.12 * reach)[:6]:
        seconds = 2 * np.pi * f.dt / np.angle(value)
        near.annotate(f"{seconds:.2f} s", (value.real, value.imag), color=BLUE, fontsize=8, bbox=plain, **beside)
    return drawn


def _apart(values: np.ndarray, height: float) -> list[Any]:
    """Those of the values, the first ones first, whose labels have room above and below."""
    chosen: list[Any] = []
    for value in values:
        if all(abs(value.imag - other.imag) > height for other in chosen):
            chosen.append(value)
    return chosen


def _film(f: Findings) -> str:
    """One film, over and over: what is seen, what is drawn from the latents, and the bar alone."""
    from PIL import Image

    gap = np.ones((*f.bare.shape[:2], 2))
    whole = np.concatenate([f.frames[0], gap, f.decoded, gap, f.bare], -1)
    images = [Image.fromarray(frame) for frame in np.rint(255 * np.clip(whole, 0, 1)).astype(np.uint8)]
    kept = io.BytesIO()
    images[0].save(kept, "GIF", save_all=True, append_images=images[1:], duration=60, loop=0)
    data = base64.b64encode(kept.getvalue()).decode("ascii")
    names = ("what it sees", "what its latents hold", "the pendulum alone")
    labels = "".join(f"<span>{name}</span>" for name in names)
    alt = "A held-out film, what a decoder draws from its latents, and the true pendulum"
    numbers = "".join(
        f"<div><b>{score:.2f}</b><span>R² of {escape(NAMES[name])}<br>"
        f"from the pixels (PCA): {f.pixels[name]:.2f}</span></div>"
        for name, score in f.r_squared.items()
    )
    return (
        f'<figure class="film"><img alt="{alt}" src="data:image/gif;base64,{data}">'
        f'<figcaption class="thirds">{labels}</figcaption></figure>\n<div class="numbers">{numbers}</div>\n'
    )


def _next(f: Findings, folder: Path) -> str:
    python = (
        "from rpgssm import RPGSSM\n"
        f"model = RPGSSM(latent_dim={f.components}).fit(videos)  # your array: films, frames, height, width, channels\n"
        f"latents, ahead = model.transform(videos), model.forecast(videos, steps={f.context})"
    )
    shell = (
        f"rpgssm fit videos.npy -o run --latent-dim {f.components}\n"
        "rpgssm transform run videos.npy -o latents.npz\n"
        f"rpgssm forecast run videos.npy -o ahead.npz --steps {f.context}"
    )
    load = f'RPGSSM.load("{folder.name}/model")'
    return (
        '<section id="next">\n<h2>What to do next</h2>\n'
        '<p class="caption">The same with your own recordings, in Python:</p>\n'
        f'<pre class="python">{escape(python)}</pre>\n<p class="caption">or from the command line:</p>\n'
        f'<pre class="shell">{escape(shell)}</pre>\n<p class="caption">The model of this page is <code>{escape(load)}'
        "</code>, and its figures are in the folder <code>figures</code>, as PNG and SVG.</p>\n</section>\n"
    )


_STYLE = """
.film { margin: 1.5rem 0 0; } .film img { width: 100%; margin: 0; image-rendering: pixelated; }
.thirds { display: grid; grid-template-columns: repeat(3, 1fr); text-align: center; color: #444; padding-top: .4rem; }
.numbers { display: flex; flex-wrap: wrap; gap: 1rem 4rem; justify-content: center; margin: 1.6rem 0; }
.numbers div { display: flex; align-items: center; gap: .9rem; } .numbers b { font-size: 3rem; color: #1f4e79; }
.numbers span { color: #444; font-size: .95rem; line-height: 1.35; }
pre { background: #f6f8fa; padding: .9rem 1.1rem; border-radius: 6px; overflow-x: auto; font-size: .9rem; }
"""
