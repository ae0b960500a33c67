"""`rpgssm-study speed core`: the speed of the core beside other implementations of the same mathematics.

Runs the chosen cases one after the other, prints a table of numbers with their targets, and writes all measurements to
a JSON file. A target that is not reached is shown as missed, with its number.
"""

from pathlib import Path
from typing import Any

from rich.console import Console

from rpgssm_study.speed import speed_table
from rpgssm_study.speed.cases import CaseResult, select
from rpgssm_study.speed.config import SpeedCore

DEFAULT_FOLDER = Path("study/speed")


def run(config: SpeedCore, console: Console | None = None) -> dict[str, Any]:
    """Run the cases, and return the content of the JSON file.

    Args:
        config: which cases, how often, and where to write. Without an output path the results go to
            `study/speed/core.json` if there is a folder `study/speed`; a small run is never written there.
        console: where to print.
    """
    console = console or Console()
    cases, effort = select(config.cases, config.small, config.repeats)
    results: dict[str, CaseResult] = {}
    for name, case in cases.items():
        with console.status(f"{name} ({len(results) + 1} of {len(cases)})"):
            results[name] = case(effort)
    content = speed_table.document(results, effort)
    speed_table.show(results, effort, console)
    output = _output(config)
    if output is not None:
        speed_table.write(output, content)
        console.print(f"Written to {output}")
    return content


def _output(config: SpeedCore) -> Path | None:
    if config.output is not None:
        return config.output
    return DEFAULT_FOLDER / "core.json" if DEFAULT_FOLDER.is_dir() and not config.small else None
