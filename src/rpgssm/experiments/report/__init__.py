"""The report: all figures and tables, from stored results alone, as PNG and SVG and as one HTML file."""

from pathlib import Path

from . import style
from .collection import Collection
from .page import page
from .sections import SECTIONS

PAGE = "report.html"
TITLE = "RP-GSSM and other methods: learning latent dynamics"


def build(results: Path, output: Path, protocol: str = "compact") -> tuple[list[Path], list[str]]:
    """Write the report into a folder. Returns the files written, and the names of the parts that have no results yet.

    Figures of an older report whose results are gone are removed.
    """
    collection = Collection.read(results, protocol)
    parts, written, missing = [], [], []
    with style.context():
        for section in SECTIONS:
            drawn = section.draw(collection) if section.draw is not None else None
            rows = section.rows(collection) if section.rows is not None else []
            svg = None
            if drawn is not None:
                png, svg = style.write(drawn, output, section.name)
                written += [png, svg]
            elif section.draw is not None:
                for suffix in (".png", ".svg"):
                    (output / f"{section.name}{suffix}").unlink(missing_ok=True)
            if svg is None and not rows:
                missing.append(section.name)
            parts.append((section, svg, rows))
    output.mkdir(parents=True, exist_ok=True)
    (output / PAGE).write_text(page(TITLE, _about(collection), parts), encoding="utf-8")
    return [*written, output / PAGE], missing


def _about(c: Collection) -> str:
    runs = len(c.results) + len(c.accuracy)
    if not runs:
        return "There are no stored results yet."
    diverged = sum(not r.finished for r in (*c.results, *c.accuracy))
    hours = sum(r.training["seconds"] for r in (*c.results, *c.accuracy) if r.finished) / 3600
    failed = f", {diverged} of which diverged" if diverged else ""
    return (
        f"Made from {len(c.results)} stored runs of the comparison by the protocol '{c.protocol}' and "
        f"{len(c.accuracy)} runs for accuracy{failed}: {hours:.1f} hours of training. Every number here is in a file "
        "of its run; the last table says which."
    )
