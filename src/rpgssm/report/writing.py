"""Write the report of a fitted model: look at data, describe what was found, and make one HTML page of it."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import rpgssm
from rpgssm.data import Recording
from rpgssm.estimator import Estimator
from rpgssm.evaluation import Labelled, evaluate
from rpgssm.evaluation.labelled import Part as Data

from . import sections, style, targets
from .arrange import arrange, as_given, context_of
from .figures import Clock
from .findings import Findings
from .page import Part, report_page

PAGE = "report.html"


def write_report(
    model: Estimator,
    X: object,
    targets: Mapping[str, object] | None = None,
    *,
    train: object | None = None,
    output: str | Path = PAGE,
    mask: object = None,
    controls: object = None,
    dt: float | None = None,
    title: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Write one HTML page about what a fitted model finds in X. Returns its path.

    X is what `fit` takes, with `mask` and `controls` as there. `targets` are things that are known of the frames, by
    name: (N, T) or (N, T, d), for one long recording (T,) or (T, d), for ragged sequences lists; NaN where they are not
    known. With targets the page says how well they can be read off the latents of sequences that were held out: a part
    of X, or all of X if there is `train`, a data set or `rpgssm.evaluation.Labelled` to fit readouts to. `dt` is the
    time between frames in seconds. `output` is the file, or a folder that also gets the figures as PNG and SVG.
    """
    path = check_output(output, overwrite)
    recording = X if mask is None and controls is None else Recording(X, mask, controls)
    f = look(model, Labelled(recording, targets), train, dt=dt)
    name = title or f"{model.title}: what it found"
    return write_page(name, _about(f), [sections.data(f), *describe(f)], path, overwrite=True)


def look(
    model: Estimator,
    test: object,
    train: object | None = None,
    *,
    dt: float | None = None,
    context: int | None = None,
    marks: Mapping[str, float] | None = None,
) -> Findings:
    """Ask a model all that a report tells.

    `test` and `train` are data sets or `Labelled`. Without `train` a part of `test` is held out for the scores of its
    targets, and long recordings are cut into blocks. `marks` are known periods, in frames, for the figure of the
    dynamics.
    """
    seen = getattr(test, "observations", test)
    notes = tuple(f"{note[0].upper()}{note[1:]}." for note in model._convert(seen, None, None)[1])
    data = Data.of(model, test)
    arranged = arrange(model, data) if train is None else as_given(Data.of(model, train), data)
    before, horizon = context_of(arranged.test)
    if context is not None:
        before, horizon = context, arranged.test.time - context
    found = evaluate(model, arranged.train, arranged.test, context=before, horizon=horizon)
    clock = Clock(dt if dt is not None else getattr(test, "dt", None))
    return Findings(model, data, arranged, found, clock, notes, marks or {})


def describe(f: Findings) -> list[Part]:
    """The sections of the page, without the one about the data."""
    return [*targets.sections(f), *sections.sections(f)]


def write_page(
    title: str,
    about: str,
    parts: Sequence[Part],
    output: str | Path,
    *,
    top: str = "",
    css: str = "",
    overwrite: bool = False,
) -> Path:
    """Write sections as one HTML page: to a file, or as report.html to a folder, with the figures beside it."""
    path = check_output(output, overwrite)
    folder = None if path.suffix.lower() in (".html", ".htm") else path
    page = path if folder is None else folder / PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    pictures = {}
    with style.context():
        for part in parts:
            if part.draw is not None:
                drawn = part.draw()
                if folder is None:
                    pictures[part.name] = style.svg(drawn)
                else:
                    pictures[part.name] = style.write(drawn, folder / "figures", part.name)[1].read_bytes()
    page.write_text(report_page(title, about, parts, pictures, top, css), encoding="utf-8")
    return page


def check_output(output: str | Path, overwrite: bool) -> Path:
    """Raise unless a report may be written there."""
    path = Path(output)
    page = path if path.suffix.lower() in (".html", ".htm") else path / PAGE
    if path.suffix and page is not path and not path.is_dir():
        raise ValueError(f"{path} must end in .html, or be a folder")
    if page.exists() and not overwrite:
        raise ValueError(f"{page} exists: choose another name, or pass overwrite=True (--overwrite)")
    return path


def _about(f: Findings) -> str:
    told = "No targets were given: the page shows what the model itself finds."
    if f.found.linear is not None:
        told = "The model has never seen the targets. It may have been fitted to the same observations."
    made = f"Made with rpgssm {rpgssm.__version__} on {time.strftime('%Y-%m-%d')}."
    dimensions = int(f.model.model_.latent_dim)
    return f"{f.model.title} with {dimensions} latent dimensions, and what it finds in data. {told} {made}"
