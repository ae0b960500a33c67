"""The sections of a report that need no targets: the data, the latents, their dynamics, what they hold, training."""

from functools import partial
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Shaped

from rpgssm.data import Modality, Sequences
from rpgssm.model import abilities

from . import figures
from .figures import Line
from .findings import Directions, Findings, sequences
from .page import Part

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIRECTIONS = 4  # of the latents in figures
RECONSTRUCTED = 8  # sequences
CHANNELS = 8  # of a modality of numbers in figures
MODES = 12  # rows of the table of dynamics


def sections(f: Findings) -> list[Part]:
    """All of them but the first, which `data` makes."""
    return [section(f) for section in (latents, uncertainty, forecasts, dynamics, dimensions, contents, training)]


# --- data -------------------------------------------------------------------------------------------------------------


def data(f: Findings) -> Part:
    """What the data are, and what the model is."""
    described = sequences(f.data).describe().split("\n")
    rows = [["", ""], ["data", described[0]], *(line.split(": ", 1) for line in described[1:])]
    if f.clock.dt is not None:
        rows.append(["time between frames", f"{f.clock.dt:g} s"])
    rows.append(["in this report", f.arranged.words])
    notes = [*f.notes, *f.arranged.notes, *(f"When the model was fitted: {note}." for note in f.model.notes_)]
    listed = "".join(f"<li>{escape(note)}</li>" for note in dict.fromkeys(notes))
    html = (f"<ul>{listed}</ul>\n" if listed else "") + f"<pre>{escape(f.model.summary())}</pre>"
    first = "The first sequences" if any(map(_is_image, sequences(f.data).modalities.values())) else f.name(f.shown[0])
    caption = f"{first[0].upper()}{first[1:]}, as the model sees {'them' if first.startswith('The') else 'it'}."
    return Part("data", "The data and the model", caption, partial(_data, f), rows, html)


def _data(f: Findings) -> "Figure":
    """Images, if there are any, else numbers of the first sequence."""
    x = sequences(f.test)
    for name in x.names:
        if _is_image(x.modalities[name]):
            return figures.strips({f.name(n): _images(x.modalities[name], n)[: f.frames(n)] for n in f.shown}, f.clock)
    n = f.shown[0]
    return figures.traces({name: _numbers(x.modalities[name], n)[: f.frames(n)] for name in x.names[:3]}, f.clock)


def _is_image(modality: Modality) -> bool:
    shape = modality.frame_shape
    return len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))


def _values(modality: Modality, n: int) -> Float[np.ndarray, "t *frame"]:
    """The frames of a sequence, NaN where they are missing."""
    x = np.asarray(modality.values[n], np.float32) * np.float32(modality.scale)
    if modality.mask is not None:
        x[~np.asarray(modality.mask[n])] = np.nan
    return x


def _images(modality: Modality, n: int) -> Float[np.ndarray, "t *image"]:
    """The frames of a sequence between 0 and 1."""
    x = _values(modality, n)
    return x if modality.scale != 1 else _stretched(x, x)


def _stretched(
    x: Shaped[np.ndarray, "t *image"], like: Shaped[np.ndarray, "s *image"]
) -> Float[np.ndarray, "t *image"]:
    """Values brought between 0 and 1, as those of `like` would be, unless they are there already."""
    if np.isnan(like).all():
        return x
    low, high = float(np.nanmin(like)), float(np.nanmax(like))
    return x if low >= 0 and 0.5 < high <= 1 else (x - low) / max(high - low, 1e-12)


def _numbers(modality: Modality, n: int) -> Float[np.ndarray, "t d"]:
    """The first numbers of each frame of a sequence."""
    x = _values(modality, n)
    return x.reshape(len(x), -1)[:, :CHANNELS]


# --- latents ----------------------------------------------------------------------------------------------------------


def latents(f: Findings) -> Part:
    """The latents of a few sequences."""
    count = min(DIRECTIONS, f.found.test.mean.shape[-1])
    caption = (
        f"Latents that the model infers from all frames, along the {count} directions in which they vary most "
        "(their principal directions: the coordinates of a latent space have no meaning of their own)."
    )
    note = ""
    if f.found.test.cov is not None:
        caption += " Band: 90 % interval."
    else:
        note = f"{f.method} gives no covariances, so there are no intervals."
    return Part("latents", "The latents", caption, partial(_latents, f), note=note)


def _latents(f: Findings) -> "Figure":
    test = f.found.test
    along = Directions.of(test, DIRECTIONS)
    columns = {}
    for n in f.shown:
        to = slice(f.frames(n))
        mean, deviation = along.mean(test.mean[n, to]), None if test.cov is None else along.deviation(test.cov[n, to])
        columns[f.name(n)] = [
            Line(f"direction {d + 1}", mean[:, d], None if deviation is None else deviation[:, d], None, f.missing(n))
            for d in range(mean.shape[-1])
        ]
    return figures.lines(columns, f.clock, mean="inferred from all frames")


def uncertainty(f: Findings) -> Part:
    """How sure the model is of its latents, over time."""
    title = "How sure it is"
    if f.found.test.cov is None:
        return Part("uncertainty", title, note=f"{f.method} gives no covariances, so there is no uncertainty to show.")
    caption = (
        "Standard deviation of the latents given the frames, averaged over sequences and the directions that hold 95 % "
        "of the variance, as a fraction of how much the latents vary. Near 0 a frame and those around it determine the "
        "latents; near 1 they say nothing. "
        "Smoothed: from all frames. Filtered: from the frames so far."
    )
    missing = "" if f.found.filtered is not None else f"{f.method} has no filter: only smoothed latents are shown."
    return Part("uncertainty", title, caption, partial(_uncertainty, f), note=missing)


def _uncertainty(f: Findings) -> "Figure":
    test, scale = f.found.test, 1.0
    used = Directions.of(test, test.mean.shape[-1])
    count = used.count(0.95)
    along = Directions(used.centre, used.directions[:, :count], used.share, used.variance)
    exist = test.exist()
    known = exist.any(0) & (exist.sum(0) >= exist.sum(0).max() / 2)  # frames that most sequences have
    curves = {}
    for name, found in (("smoothed", test), ("filtered", f.found.filtered)):
        if found is not None and found.cov is not None:
            variance = (along.deviation(found.cov) ** 2).sum(-1)
            mean = np.where(exist, variance, 0).sum(0)[known] / exist.sum(0)[known]
            if name == "smoothed":
                scale = used.variance * used.share[:count].sum() + mean.mean()
            curves[name] = np.sqrt(mean / max(scale, 1e-300))[: figures.EXCERPT]
    return figures.uncertainty(curves, f.clock)


def forecasts(f: Findings) -> Part:
    """Latents that were forecast, and what is found of them once the frames are seen."""
    title, ahead = "Forecasts of the latents", f.found.forecast
    if ahead is None:
        return Part("forecasts", title, note=f"{f.method} has no dynamics, so there are no forecasts.")
    caption = (
        f"The model sees the first {ahead.context} frames (grey) and nothing after them. Blue: what it infers "
        "there, and then its forecast. Black: what it infers once it has seen all frames. Right: R² of the "
        f"forecast against that, over all latents and all {len(ahead.predicted)} sequences. A "
        "forecast falls back to the mean as fast as the model forgets; its interval should grow meanwhile."
    )
    return Part("forecasts", title, caption, partial(_forecasts, f))


def _forecasts(f: Findings) -> "Figure":
    test, ahead = f.found.test, f.found.forecast
    assert ahead is not None
    along, places = Directions.of(test, min(2, DIRECTIONS)), f.places(ahead)
    seen = f.before(ahead, places)
    columns = {}
    for i, place in enumerate(places):
        n = int(ahead.rows[place])
        mean = along.mean(np.concatenate([seen.mean[i], ahead.predicted.mean[place]]))
        deviation = None
        if seen.cov is not None and ahead.predicted.cov is not None:
            deviation = np.concatenate([along.deviation(seen.cov[i]), along.deviation(ahead.predicted.cov[place])])
        later = along.mean(test.mean[n, : min(len(mean), int(f.test.lengths[n]))])
        columns[f.name(n)] = [
            Line(f"direction {d + 1}", mean[:, d], None if deviation is None else deviation[:, d], later[:, d])
            for d in range(mean.shape[-1])
        ]
    return figures.lines(
        columns,
        f.clock,
        mean="inferred, then forecast",
        truth="inferred from all frames",
        context=ahead.context,
        curves={"all latents": ahead.latents},
        curves_title=f"all latents, {len(ahead.predicted)} sequences",
    )


# --- dynamics ---------------------------------------------------------------------------------------------------------


def dynamics(f: Findings) -> Part:
    """The eigenvalues of the transition matrix, as times."""
    title = "The dynamics"
    A = getattr(f.model, "transition_", None)
    if A is None:
        return Part(
            "dynamics", title, note=f"This {f.method} has no single transition matrix, so there is no spectrum."
        )
    values = np.linalg.eigvals(A).astype(complex)
    caption = (
        "From frame to frame the latents are multiplied by a matrix A, and its eigenvalues say what that does. "
        "The angle of an eigenvalue is how fast something turns, its distance from the circle how fast it is "
        "forgotten. Numbers in the figure: time of one turn. What is near -1 changes its sign in every frame."
    )
    if f.marks:
        caption += f" Dotted: {', '.join(f'{name} ({f.clock.span(period)})' for name, period in f.marks.items())}."
    rows = [["eigenvalue", "size", "forgotten to 1/e in", "period"]]
    for value in sorted(values[values.imag >= -1e-9], key=abs, reverse=True)[:MODES]:
        size, angle = float(abs(value)), float(abs(np.angle(value)))
        memory = f.clock.span(-1 / np.log(size)) if 0 < size < 1 else "never" if size >= 1 else "at once"
        number = f"{value.real:.3f} {'±' if value.imag > 1e-9 else '+'} {abs(value.imag):.3f}i"
        rows.append([number, f"{size:.4f}", memory, f.clock.span(2 * np.pi / angle) if angle > 1e-6 else "none"])
    return Part("dynamics", title, caption, partial(figures.eigenvalues, values, f.clock, f.marks), rows)


def dimensions(f: Findings) -> Part:
    """How many directions of the latent space are used."""
    share = Directions.of(f.found.test, 1).share
    used = 1 / max(float((share**2).sum()), 1e-300)
    enough = Directions.of(f.found.test, 1).count(0.95)
    caption = (
        f"Variance of the inferred latents along their {len(share)} principal directions. The first {enough} hold "
        f"95 % of it. The effective number of dimensions (the participation ratio) is {used:.1f}."
    )
    return Part("dimensions", "How many dimensions it uses", caption, partial(figures.variances, share[:64]))


# --- frames -----------------------------------------------------------------------------------------------------------


def contents(f: Findings) -> Part:
    """Frames, as they are reconstructed from the latents."""
    title, own = "What the latents hold of the frames", not f.model.decoders_
    if own and not abilities(f.model.model_type) & {"decode", "reconstruct"}:
        note = (
            f"{f.method} does not reconstruct frames, and no decoder was trained. Call fit_decoder(X) before the "
            "report (rpgssm fit --decoder-steps 1000) to see here what the latents hold."
        )
        return Part("contents", title, note=note)
    first = f.test.take(np.arange(min(RECONSTRUCTED, len(f.test))))
    x = sequences(first)
    frames = f.model.reconstruct(x)
    frames = frames if isinstance(frames, dict) else {x.names[0]: frames}
    rows = [["", "R² of the frames"]]
    for name, modality in x.modalities.items():
        seen, drawn = (
            np.concatenate(part) for part in zip(*_pairs(modality, frames[name], first.lengths), strict=True)
        )
        error, spread = ((seen - drawn) ** 2).sum(), ((seen - seen.mean(0)) ** 2).sum()
        rows.append([name, f"{1 - error / max(spread, 1e-300):.3f}"])
    decoder = "the model's own decoder" if own else "a decoder that was trained afterwards, without changing the model"
    caption = (
        f"Frames that are expected for the latents, drawn by {decoder}. Where the latents say nothing it can only draw "
        f"the average. R²: the share of the frames' variance that it draws, in the first {len(x)} sequences."
    )
    images = _compared(f, x, frames)
    if images is None:
        caption += " Black: seen. Blue: drawn."
    html = "" if images is None else figures.film(images)
    return Part("contents", title, caption, partial(_contents, f, x, frames), rows, html)


def _pairs(modality: Modality, drawn: object, lengths: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The observed frames of each sequence, and what was drawn of them."""
    pairs = []
    for n, length in enumerate(lengths):
        seen = _values(modality, n)[:length]
        seen = seen.reshape(len(seen), -1)
        there = np.isfinite(seen).all(-1)
        pairs.append((seen[there], np.asarray(drawn[n])[:length].reshape(seen.shape)[there]))  # pyright: ignore[reportIndexIssue]
    return pairs


def _compared(f: Findings, x: Sequences, frames: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """The first images of the first sequence as they were, and as they are drawn; None without images."""
    to = slice(f.frames(0))
    for name in x.names:
        modality = x.modalities[name]
        if _is_image(modality):
            drawn = np.asarray(frames[name][0])[to]
            drawn = drawn if modality.scale != 1 else _stretched(drawn, _values(modality, 0)[to])
            return {"seen": _images(modality, 0)[to], "drawn from\nthe latents": drawn}
    return None


def _contents(f: Findings, x: Sequences, frames: dict[str, np.ndarray]) -> "Figure":
    images = _compared(f, x, frames)
    if images is not None:
        return figures.strips(images, f.clock)
    to = slice(f.frames(0))
    rows = {name: _numbers(x.modalities[name], 0)[to] for name in x.names[:3]}
    drawn = {name: np.asarray(frames[name][0])[to].reshape(len(rows[name]), -1)[:, :CHANNELS] for name in rows}
    return figures.traces(rows, f.clock, drawn)


# --- training ---------------------------------------------------------------------------------------------------------


def training(f: Findings) -> Part:
    """The loss while the model was trained."""
    history, title = f.model.history_, "Training"
    if "loss" not in history or len(history["step"]) < 2:
        return Part("training", title, note="There is no history of the training.")
    last = int(f.model.n_steps_)
    phases = {"": (0, last)}
    stages = getattr(f.model, "stages", ())
    if np.isfinite(history.get("stage", np.nan)).all():
        steps = {int(n): history["step"][history["stage"] == n] for n in np.unique(history["stage"])}
        if len(steps) > 1:
            phases = {f"stage {n}": (int(of.min()), int(of.max())) for n, of in steps.items()}
    elif len(stages) > 1 and last == f.model.total_steps:  # saved by 0.1, without a column for the stages
        ends = np.cumsum([0, *(stage.total_steps for stage in stages)])
        phases = {f"stage {i + 1}": (int(a) + 1, int(b)) for i, (a, b) in enumerate(pairwise(ends))}
    caption = (
        f"{last} steps ({f.model.stopped_}); the model of step {int(f.model.best_step_)} was kept. Lower is better."
    )
    if len(phases) > 1:
        caption += " Losses of different stages are of other data, and not comparable."
    kept = int(f.model.best_step_)
    return Part("training", title, caption, partial(figures.training, history, kept, phases))
