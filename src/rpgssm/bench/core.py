"""`rpgssm bench core`: how fast the core is on this machine, against other implementations of the same mathematics.

Runs the chosen cases one after the other, prints a table of numbers with their targets, and writes everything measured
to a JSON file. A target that is not reached is shown as missed, with the number that was.
"""

from pathlib import Path
from typing import Any

from rich.console import Console

from rpgssm.bench import report
from rpgssm.bench.cases import CaseResult, select
from rpgssm.bench.config import BenchCoreConfig

DEFAULT_FOLDER = Path("benchmarks")


def run(config: BenchCoreConfig, console: Console | None = None) -> dict[str, Any]:
    """Run the benchmark and return what is written to the JSON file.

    Args:
        config: which cases, how often, and where to write. Without an output path the results go to
            `benchmarks/core.json` if the current folder has a `benchmarks` folder; a small run is never written there.
        console: where to print.
    """
    console = console or Console()
    cases, effort = select(config.cases, config.small, config.repeats)
    results: dict[str, CaseResult] = {}
    for name, case in cases.items():
        with console.status(f"{name} ({len(results) + 1} of {len(cases)})"):
            results[name] = case(effort)
    content = report.document(results, effort)
    report.show(results, effort, console)
    output = _output(config)
    if output is not None:
        report.write(output, content)
        console.print(f"Written to {output}")
    return content


def _output(config: BenchCoreConfig) -> Path | None:
    if config.output is not None:
        return config.output
    return DEFAULT_FOLDER / "core.json" if DEFAULT_FOLDER.is_dir() and not config.small else None
