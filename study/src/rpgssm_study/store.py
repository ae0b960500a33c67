"""Results on disk: one small JSON file per run, complete or absent.

A file holds what was asked for (the run), what the numbers rest on (data, sources, all parameters, versions, machine)
and the numbers. Machines are described by their kind, never by name; no file holds a path of the machine it came from.
"""

import json
import math
import os
import platform
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .runs import Run

FORMAT = 2
DIGITS = 6  # significant digits of a stored number


@dataclass(frozen=True)
class Result:
    """The result of one run, as it is stored."""

    run: Run
    content: dict[str, Any]

    @property
    def finished(self) -> bool:
        """Whether there are scores; a run whose training diverged has none."""
        return self.content["status"] == "finished"

    @property
    def scores(self) -> dict[str, Any]:
        return self.content["scores"]

    @property
    def training(self) -> dict[str, Any]:
        return self.content["training"]

    @property
    def selection(self) -> float:
        """The number that settings are chosen by: the mean linear R² on the validation sequences. No table shows it."""
        return float(self.content["validation"]["mean"]) if self.finished else -math.inf


def write(results: Path, run: Run, content: dict[str, Any]) -> Path:
    """Store a result, all at once."""
    path = results / run.path
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_plain({"format": FORMAT, "run": run.to_json(), **content}), allow_nan=False)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(_in_lines(json.loads(text)) + "\n")
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def read(results: Path, run: Run) -> Result | None:
    """The result of a run; None if it has not been done."""
    path = results / run.path
    return _read(path) if path.is_file() else None


def read_all(results: Path, experiment: str | None = None) -> list[Result]:
    """All stored results, or those of one experiment, in a fixed order."""
    pattern = f"{experiment or '*'}/*/*.json"
    return [_read(path) for path in sorted(results.glob(pattern)) if not path.name.startswith(".")]


def missing(results: Path, runs: Iterable[Run]) -> list[Run]:
    """The runs that have no result yet."""
    return [run for run in runs if not (results / run.path).is_file()]


def same_training(results: Path, run: Run) -> Result | None:
    """The result of the same training for another experiment, if there is one."""
    for path in sorted(results.glob(f"*/{run.task}/{run.method}-*-{run.digest}-seed{run.seed}*.json")):
        other = _read(path)
        same = {**other.run.to_json(), "experiment": run.experiment, "protocol": run.protocol}
        if same == run.to_json():
            return other
    return None


def machine() -> dict[str, Any]:
    """The kind of machine, without its name, and what of it this process may use.

    Both matter for times: workers share the cores, and programs that are found in a cache need not be compiled.
    """
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cores": os.cpu_count(),
        "cores_used": own,
        "compilation_cache": bool(os.environ.get("JAX_COMPILATION_CACHE_DIR")),
        "system": platform.system(),
        "architecture": platform.machine(),
    }


def _read(path: Path) -> Result:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"it has format {content['format']}, and this version reads format {FORMAT}")
        if content["status"] not in ("finished", "diverged"):
            raise ValueError(f"it has the unknown status {content['status']!r}")
        return Result(Run.from_json(content["run"]), content)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a stored result: {error}. Remove it, and the run is done again; results of another version "
            "are read by that version of the study"
        ) from None


def _plain(value: Any) -> Any:
    """Make a value one that JSON can hold: numbers are rounded, those that are not finite become null."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        return float(f"{number:.{DIGITS}g}") if math.isfinite(number) else None
    if isinstance(value, Path):
        raise TypeError(f"a result must not hold paths of this machine, but here is {value.name!r}")
    return value


def _in_lines(value: Any, depth: int = 0) -> str:
    """JSON with an entry per line, and lists of numbers in one line: files that can be read and compared."""
    if isinstance(value, dict) and value:
        pad = "  " * (depth + 1)
        lines = (f"{pad}{json.dumps(name)}: {_in_lines(item, depth + 1)}" for name, item in value.items())
        return "{\n" + ",\n".join(lines) + "\n" + "  " * depth + "}"
    return json.dumps(value, ensure_ascii=False)
