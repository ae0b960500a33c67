"""Choose settings by their results on validation sequences. All seeds of the chosen ones are shown."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .store import Result


@dataclass(frozen=True)
class Group:
    """The results of one method on one task with the same settings, from different seeds."""

    results: tuple[Result, ...]

    @property
    def selection(self) -> float:
        """The mean over seeds of the R² on validation sequences; one seed that diverged makes it the worst."""
        return statistics.fmean(result.selection for result in self.results)

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.results[0].run.settings)

    def values(self, kind: str, target: str) -> list[float]:
        """A score of all seeds that have it."""
        scores = [(result.scores.get(kind) or {}).get(target) for result in self.results if result.finished]
        return [float(x) for x in scores if x is not None]

    def median(self, kind: str, target: str) -> float:
        return statistics.median(self.values(kind, target))

    @property
    def first(self) -> Result:
        """The finished one of the lowest seed: what figures of single films show, never the best."""
        return min((r for r in self.results if r.finished), key=lambda r: r.run.seed)


def groups(results: Iterable[Result]) -> list[Group]:
    """Group results that differ in seeds only."""
    found: dict[tuple, list[Result]] = {}
    for result in results:
        run = result.run
        found.setdefault((run.task, run.method, run.protocol, run.digest), []).append(result)
    return [Group(tuple(sorted(rs, key=lambda r: (r.run.seed, r.run.task_seed)))) for rs in found.values()]


def best(results: Iterable[Result]) -> Group | None:
    """The settings that do best on validation sequences, among those tried with the most seeds; None if all diverged.

    Settings tried with fewer seeds do not compete: the luckiest of them would win.
    """
    return max(competing(results), key=lambda group: group.selection, default=None)


def competing(results: Iterable[Result]) -> list[Group]:
    """The settings that were tried with the most seeds, but for those that diverged with all."""
    candidates = [group for group in groups(results) if any(r.finished for r in group.results)]
    most = max((len(group.results) for group in candidates), default=0)
    return [group for group in candidates if len(group.results) == most]
