"""Results of the cases as a printed table and as JSON."""

import json
import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rpgssm import __version__
from rpgssm_study.speed.cases import CaseResult, Check, Effort

_VERDICTS = {"met": "[green]yes[/]", "missed": "[red]missed[/]", "not measured": "[yellow]not measured[/]", "none": ""}


def document(results: dict[str, CaseResult], effort: Effort) -> dict[str, Any]:
    """A run: machine, versions, settings, measurements, and targets with their verdicts."""
    checks = [check.to_dict() for result in results.values() for check in result.checks]
    return {
        "benchmark": "core",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "settings": {
            "batch": effort.batch,
            "time": effort.time,
            "repeats": effort.repeats,
            "dtype": "float32",
        },
        "cases": {
            name: {
                "checks": [check.to_dict() for check in result.checks],
                "measurements": {key: value.to_dict() for key, value in result.measurements.items()},
            }
            for name, result in results.items()
        },
        "summary": {
            verdict: sum(check["verdict"] == verdict for check in checks)
            for verdict in ("met", "missed", "not measured")
        },
    }


def machine() -> dict[str, Any]:
    """Processor, number of cores and operating system."""
    return {"cpu": cpu_model(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"}


def cpu_model() -> str:
    """The processor's name, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that are timed; None for one that is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "rpgssm": __version__}
    for package in ("jax", "jaxlib", "dynamax"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def show(results: dict[str, CaseResult], effort: Effort, console: Console) -> None:
    """Print one line for each check, and one for each error."""
    table = Table(title=f"rpgssm-study speed core: {effort.batch} sequences of {effort.time} frames, float32")
    table.add_column("case", no_wrap=True)
    table.add_column("quantity", overflow="fold")
    for column in ("value", "target"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("met?", no_wrap=True)
    for name, result in results.items():
        for position, check in enumerate(result.checks):
            summary = check.to_dict()
            table.add_row(
                name if position == 0 else "",
                escape(f"{check.quantity} ({check.detail})" if check.detail else check.quantity),
                number(check),
                summary["target"] or "",
                _VERDICTS[summary["verdict"]],
                end_section=position == len(result.checks) - 1,
            )
    console.print(table)
    for note in dict.fromkeys(c.note for result in results.values() for c in result.checks if c.note):
        console.print(f"[yellow]![/] {escape(note)}")


def number(check: Check) -> str:
    """A value with three significant digits and its unit."""
    if check.value is None:
        return "-"
    text = f"{check.value:.3g}" if abs(check.value) < 1000 else f"{check.value:.0f}"
    return text if check.unit == "relative" else f"{text} {check.unit}"


def write(path: Path, content: dict[str, Any]) -> None:
    """Write the JSON file, making its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
