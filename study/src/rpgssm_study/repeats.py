"""Which runs of a plan there is still need for: where a protocol sweeps once, later seeds repeat what the first chose.

The settings of a method on a task are then all tried with the first seed, the best of them on its validation sequences
are chosen, and the other seeds are spent on these alone. Until the choice is made its repetitions cannot begin.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from . import store
from .protocols import PROTOCOLS
from .runs import Run

Point = tuple[str, str, str, int]


def ready(results: Path, runs: Iterable[Run]) -> list[Run]:
    """The runs that have no result and can be done now."""
    plan = _Plan(results, runs)
    return [run for run in store.missing(results, plan.runs) if plan.allows(run) is True]


def needed(results: Path, runs: Iterable[Run]) -> list[Run]:
    """The plan without what is ruled out. Where nothing is chosen yet, the first of the settings stands for it."""
    plan = _Plan(results, runs)
    stands = {plan.rivals(run)[0] for run in plan.runs}
    return [run for run in plan.runs if plan.allows(run) or (plan.allows(run) is None and run in stands)]


class _Plan:
    """The runs of a plan, by what they differ in, and what was chosen as far as results tell."""

    def __init__(self, results: Path, runs: Iterable[Run]) -> None:
        self.results, self.runs = results, list(runs)
        self._rivals: dict[Point, list[Run]] = {}
        for run in self.runs:
            self._rivals.setdefault(_point(run), []).append(run)
        self._chosen: dict[Point, str | None] = {}

    def rivals(self, run: Run) -> list[Run]:
        """The runs that differ from it in settings only, itself among them."""
        return self._rivals[_point(run)]

    def allows(self, run: Run) -> bool | None:
        """Whether the run is needed; None if that is not decided yet. One that has a result is not doubted."""
        rivals, protocol = self.rivals(run), PROTOCOLS.get(run.protocol)
        if protocol is None or not protocol.sweep_once or len(rivals) == 1:
            return True
        first = protocol.seeds(run.task)[0]
        if run.seed == first or (self.results / run.path).is_file():
            return True
        tried = [replace(rival, seed=first, task_seed=first if rival.task_seed else 0) for rival in rivals]
        lacking = store.missing(self.results, tried)
        if lacking:  # if they are not going to be run, nothing can be learnt from them
            planned = {one.identity for one in self.runs}
            return None if any(one.identity in planned for one in lacking) else True
        if _point(run) not in self._chosen:
            found = [result for one in tried if (result := store.read(self.results, one)) is not None]
            self._chosen[_point(run)] = max(found, key=lambda result: result.selection).run.digest
        return run.digest == self._chosen[_point(run)]


def _point(run: Run) -> Point:
    return run.experiment, run.task, run.method, run.seed
