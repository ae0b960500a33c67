"""What a model knows while it is trained: linear R² on the validation sequences, now and then."""

import json
from pathlib import Path
from typing import Any

from rpgssm.training import LatentsNotFinite
from rpgssm_study.tasks import Task

from . import scoring

POINTS = 20
SEQUENCES = 100  # of the training set, for the readout


class Curve:
    """A callback of `fit`. Points are kept in a file, so that a resumed run has those of its first part."""

    def __init__(self, task: Task, max_steps: int, path: Path) -> None:
        self._task, self._path = task, path
        self._every, self._last = max_steps / POINTS, max_steps
        self.points: list[dict[str, float]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        self._began = False

    def __call__(self, estimator: Any, report: Any) -> None:
        if not self._began:  # what comes after the checkpoint that a resumed run started from is done again
            self._began = True
            first = report.rows[0]["step"] if report.rows else report.step
            self.points = [point for point in self.points if point["step"] < first]
        due = self.points[-1]["step"] + self._every if self.points else self._every
        if report.step < min(due, self._last) or not report.rows:
            return
        when = {"step": float(report.step), "seconds": report.rows[-1]["seconds"]}
        try:
            self.points.append(when | self._scores(estimator))
        except LatentsNotFinite:  # a model that is about to diverge, which the training will tell
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_suffix(".part")
        partial.write_text(json.dumps(self.points), encoding="utf-8")
        partial.replace(self._path)

    def _scores(self, estimator: Any) -> dict[str, float]:
        found = scoring.validation(estimator, self._task, scoring.readout(estimator, self._task, SEQUENCES))
        return {name: float(value) for name, value in found.items()}

    def columns(self) -> dict[str, list[float]]:
        """By name, as it is stored."""
        names = list(self.points[0]) if self.points else []
        return {name: [point[name] for point in self.points] for name in names}
