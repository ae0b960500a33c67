"""The report: all figures and tables, from stored results alone, as PNG and SVG and as one HTML file."""

from pathlib import Path

from rpgssm.report import style
from rpgssm.report.page import page

from .collection import Collection
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
    runs = (*c.results, *c.accuracy)
    if not runs:
        return "There are no stored results yet."
    diverged = sum(not r.finished for r in runs)
    both = sum("taken_from" in r.content for r in runs)
    hours = sum(r.training["seconds"] for r in runs if r.finished and "taken_from" not in r.content) / 3600
    told = [f"{diverged} diverged"] * bool(diverged) + [f"{both} belong to both and were trained once"] * bool(both)
    return (
        f"Made from {len(c.results)} stored runs of the comparison by the protocol '{c.protocol}' (rpgssm-study "
        f"run comparison --protocol {c.protocol}) and {len(c.accuracy)} runs for accuracy (rpgssm-study run "
        f"accuracy){''.join(f', of which {text}' for text in told)}: {hours:.1f} hours of training, with rpgssm "
        f"{', '.join(sorted({r.content['version'] for r in runs}))}. Every number here is in a file of its run; the "
        f"last table says which. This page: rpgssm-study report --protocol {c.protocol}"
    )
