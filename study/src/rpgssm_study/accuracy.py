"""A table of study/README.md: the RP-GSSM against its aims, from stored results alone."""

import statistics
from pathlib import Path

from . import store
from .plans import plan
from .targets import AIMS, Aim, Target

_HEADER = ("task", "target", "R²", "seeds", "ceiling", "aim", "kernel R²", "minutes", "allowed")


def table(results: Path) -> str:
    """The table in Markdown: medians and ranges over seeds, with the present recipes. Tasks without results say so."""
    return markdown(rows(results))


def markdown(rows: list[list[str]]) -> str:
    """Write rows of text, of which the first is the header, as a table in Markdown."""
    header, *lines = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *lines))


def rows(results: Path) -> list[list[str]]:
    """The table as rows of text. The first is the header."""
    stored = store.read_all(results, "accuracy")
    return [
        list(_HEADER),
        *(row for task, aim in AIMS.items() for row in _rows(task, aim, of_present_recipe(stored, task))),
    ]


def insert(text: str, table: str, name: str = "accuracy") -> str:
    """Put a table between the markers of its name in a text."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"there is no place for the table: mark it by {begin} and {end}, each on a line of its own")
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"


def of_present_recipe(stored: list[store.Result], task: str) -> list[store.Result]:
    """The results of the present recipe, of all seeds."""
    digest = plan("accuracy", tasks=[task])[0].digest
    return [r for r in stored if r.run.task == task and r.run.digest == digest and r.run.method == "rpgssm"]


def _rows(task: str, aim: Aim, found: list[store.Result]) -> list[list[str]]:
    allowed = f"< {aim.minutes:g}"
    scored = [result for result in found if result.finished]
    if not scored:
        said = "diverged" if found else "not run yet"
        return [[task, t.name, said, str(len(found)), "", _aim(t), "", "", allowed] for t in aim.targets]
    minutes = statistics.median(r.training["seconds"] for r in scored) / 60
    failed = len(found) - len(scored)
    seeds = str(len(scored)) + (f" ({failed} diverged)" if failed else "")
    out = []
    for i, target in enumerate(aim.targets):
        linear = [r.scores["linear"][target.name] for r in scored]
        kernel = statistics.median(r.scores["kernel"][target.name] for r in scored)
        ceilings = [(r.scores["ceiling"] or {}).get(target.name) for r in scored]
        ceiling = "" if None in ceilings else _number(statistics.median(ceilings))  # pyright: ignore
        kernel_text = _number(kernel) + ("" if aim.kernel is None else _verdict(kernel >= aim.kernel))
        first = i == 0
        out.append(
            [
                task if first else "",
                target.name,
                _measured(linear, ceilings, target),
                seeds if first else "",
                ceiling,
                _aim(target),
                kernel_text,
                f"{minutes:.1f}{_verdict(minutes < aim.minutes)}" if first else "",
                allowed if first else "",
            ]
        )
    return out


def _measured(linear: list[float], ceilings: list, target: Target) -> str:
    value = statistics.median(linear)
    spread = f" ({_number(min(linear))} to {_number(max(linear))})" if len(linear) > 1 else ""
    if target.gap is not None:
        met = statistics.median(c - x for c, x in zip(ceilings, linear, strict=True)) <= target.gap
    else:
        met = target.least is not None and value >= target.least
    return f"{_number(value)}{_verdict(met)}{spread}"


def _aim(target: Target) -> str:
    return f"≥ {target.least:.2f}" if target.gap is None else f"≥ ceiling - {target.gap:g}"


def _verdict(met: bool) -> str:
    return " ✓" if met else " ✗"


def _number(value: float) -> str:
    return f"{value:.3f}"
