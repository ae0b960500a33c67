"""The report as one HTML file that needs nothing else: figures are inside it."""

import base64
from html import escape
from pathlib import Path

from .sections import Section

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


def page(title: str, about: str, parts: list[tuple[Section, Path | None, list[list[str]]]]) -> str:
    """The text of the page. Parts come with the SVG file of their figure, or with the rows of their table."""
    contents = "\n".join(
        f'<li><a href="#{s.name}"{_absent(svg, rows)}>{escape(s.title)}</a></li>' for s, svg, rows in parts
    )
    body = "\n".join(_part(*part) for part in parts)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style>\n</head>\n'
        f"<body>\n<h1>{escape(title)}</h1>\n<p>{escape(about)}</p>\n<nav><ol>\n{contents}\n</ol></nav>\n"
        f"{body}\n</body>\n</html>\n"
    )


def _absent(svg: Path | None, rows: list[list[str]]) -> str:
    return "" if svg is not None or rows else ' class="absent"'


def _part(section: Section, svg: Path | None, rows: list[list[str]]) -> str:
    head = f'<section id="{section.name}">\n<h2>{escape(section.title)}</h2>\n'
    head += f'<p class="caption">{escape(section.caption)}</p>\n'
    if svg is not None:
        data = base64.b64encode(svg.read_bytes()).decode("ascii")
        inside = f'<img alt="{escape(section.title)}" src="data:image/svg+xml;base64,{data}">'
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
