"""A page of sections: one HTML file that needs nothing else, with its figures inside.

`page` is for figures that are files already and tables that are stored, `report_page` for those of a report.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1b1b1b; background: #fff; margin: 0 auto; max-width: 62rem;
  padding: 2rem 1.25rem 5rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; margin: 3rem 0 .5rem; border-top: 1px solid #ddd; padding-top: 1.2rem; }
p { max-width: 46rem; } p.caption { color: #444; } p.missing { color: #8a4b00; font-style: italic; }
nav ol { columns: 2; column-gap: 2.5rem; padding-left: 1.3rem; font-size: .95rem; } nav li { break-inside: avoid; }
a { color: #1f4e79; } nav .absent { color: #888; }
img { max-width: 100%; height: auto; display: block; margin: 1rem auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .84rem; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #e6e6e6; vertical-align: top; }
th { border-bottom: 2px solid #999; white-space: nowrap; } tr:hover td { background: #f6f8fa; }
td.number { text-align: right; white-space: nowrap; } td.best { font-weight: 700; }
summary { cursor: pointer; color: #1f4e79; }
@media print { nav { display: none; } h2 { break-after: avoid; } img { break-inside: avoid; } }
"""
_REPORT_STYLE = """
h2 + p, p + p { margin-top: .4rem; }
.film { margin: 1.5rem 0 0; } .film img { width: 100%; margin: 0; image-rendering: pixelated; }
.film figcaption, .numbers { display: flex; color: #444; } .film span { flex: 1; text-align: center; padding: .4rem; }
.numbers { flex-wrap: wrap; gap: 1rem 4rem; justify-content: center; margin: 1.6rem 0; }
.numbers div { display: flex; align-items: center; gap: .9rem; } .numbers b { font-size: 3rem; color: #1f4e79; }
.numbers span { font-size: .95rem; line-height: 1.35; white-space: pre-line; }
pre { background: #f6f8fa; padding: .9rem 1.1rem; border-radius: 6px; overflow-x: auto; font-size: .85rem; }
"""
_ABSENT = ' class="absent"'


@dataclass(frozen=True)
class Section:
    """A part of a page. `draw` gives a figure, `rows` a table; either gives nothing if there is nothing to show yet."""

    name: str
    title: str
    caption: str
    draw: Callable[[Any], Any] | None = None
    rows: Callable[[Any], list[list[str]]] | None = None
    folded: bool = False


def page(title: str, about: str, parts: list[tuple[Section, Path | None, list[list[str]]]]) -> str:
    """The text of the page. Parts come with the SVG file of their figure, or with the rows of their table."""
    contents = "\n".join(
        f'<li><a href="#{s.name}"{_absent(svg, rows)}>{escape(s.title)}</a></li>' for s, svg, rows in parts
    )
    return _document(title, about, contents, "\n".join(_part(*part) for part in parts))


@dataclass(frozen=True)
class Part:
    """A section of a report: a caption, then a figure, a table, HTML, and a plain sentence, as far as there are such.

    `draw` makes the figure when the page is written. `note` says why something is missing.
    """

    name: str
    title: str
    caption: str = ""
    draw: "Callable[[], Figure] | None" = None
    rows: list[list[str]] = field(default_factory=list)
    html: str = ""
    note: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing but the sentence that says why."""
        return self.draw is None and not self.rows and not self.html


def report_page(
    title: str, about: str, parts: Sequence[Part], pictures: Mapping[str, bytes], top: str = "", style: str = ""
) -> str:
    """The text of a report. `pictures` are the figures of the parts as SVG, by name; `top` is HTML before the contents,
    `style` further CSS."""
    contents = "\n".join(
        f'<li><a href="#{p.name}"{_ABSENT if p.empty else ""}>{escape(p.title)}</a></li>' for p in parts
    )
    body = []
    for p in parts:
        lines = [f'<section id="{p.name}">\n<h2>{escape(p.title)}</h2>']
        lines += [f'<p class="caption">{escape(text)}</p>' for text in p.caption.split("\n") if text]
        lines += [_image(p.title, pictures[p.name])] if p.name in pictures else []
        lines += [_table(p.rows, bold=False)] if p.rows else []
        lines += [p.html] if p.html else []
        lines += [f'<p class="missing">{escape(p.note)}</p>'] if p.note else []
        body.append("\n".join([*lines, "</section>"]))
    return _document(title, about, contents, "\n".join(body), top, _REPORT_STYLE + style)


def numbers(shown: Mapping[str, float]) -> str:
    """Numbers in large type beside what they are, as HTML."""
    cells = (f"<div><b>{x:.2f}</b><span>{escape(text)}</span></div>" for text, x in shown.items())
    return f'<div class="numbers">{"".join(cells)}</div>\n'


def _image(title: str, svg: bytes) -> str:
    data = base64.b64encode(svg).decode("ascii")
    return f'<img alt="{escape(title)}" src="data:image/svg+xml;base64,{data}">'


def _document(title: str, about: str, contents: str, body: str, top: str = "", style: str = "") -> str:
    style = f"<style>{style}</style>\n" if style else ""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style>\n'
        f"{style}</head>\n"
        f"<body>\n<h1>{escape(title)}</h1>\n<p>{escape(about)}</p>\n{top}<nav><ol>\n{contents}\n</ol></nav>\n"
        f"{body}\n</body>\n</html>\n"
    )


def _absent(svg: Path | None, rows: list[list[str]]) -> str:
    return "" if svg is not None or rows else _ABSENT


def _part(section: Section, svg: Path | None, rows: list[list[str]]) -> str:
    head = f'<section id="{section.name}">\n<h2>{escape(section.title)}</h2>\n'
    head += f'<p class="caption">{escape(section.caption)}</p>\n'
    if svg is not None:
        inside = _image(section.title, svg.read_bytes())
    elif rows:
        inside = _table(rows, bold=section.name == "main")
        if section.folded:
            inside = f"<details><summary>{len(rows) - 1} lines</summary>\n{inside}\n</details>"
    else:
        inside = '<p class="missing">Missing: there are no stored results for this yet.</p>'
    return f"{head}{inside}\n</section>"


def _table(rows: list[list[str]], bold: bool) -> str:
    header, *lines = rows
    text = "<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in header) + "</tr>\n"
    for line in lines:
        top = max((x for x in map(_number, line[1:-1]) if x is not None), default=None) if bold else None
        cells = []
        for i, cell in enumerate(line):
            number = _number(cell)
            best = bold and 0 < i < len(line) - 1 and number is not None and number == top
            kind = " ".join(name for name, on in (("number", number is not None), ("best", best)) if on)
            cells.append(f'<td class="{kind}">{escape(cell)}</td>' if kind else f"<td>{escape(cell)}</td>")
        text += "<tr>" + "".join(cells) + "</tr>\n"
    return f'<div class="scroll"><table>\n{text}</table></div>'


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
