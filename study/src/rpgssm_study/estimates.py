"""Estimate how long a run takes: from stored results of the same method and task, else from a rough table."""

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from .recipes import FAMILIES
from .runs import Run, stages
from .store import Result

# Milliseconds per step of 32 sequences of 100 frames (of EM, per iteration), medians of the results of the compact
# protocol in this repository, most of them of a worker on one core. Rough: used until there are results to go by.
_ORDER = (
    "linear-small",
    "linear-medium",
    "linear-large",
    "pendulum",
    "pendulum-64",
    "cifar10-pendulum",
    "double-pendulum",
    "cifar10-double-pendulum",
    "tracking",
    "davis-tracking",
)
_MILLISECONDS: dict[str, tuple[float, ...]] = {
    "rpgssm": (2.2, 3.5, 4.3, 160, 170, 810, 1600, 690, 1700, 2500),
    "svae": (7.1, 17, 17, 1500, 1900, 1500, 2000, 4600, 9300, 11000),
    "dkf-mf": (8.1, 76, 110, 1100, 1600, 1100, 1700, 4100, 11000, 9500),
    "dkf-l": (8.3, 89, 100, 1200, 1700, 1200, 1600, 4200, 8200, 10000),
    "dkf-nl": (15, 44, 51, 1500, 1400, 1400, 1500, 3800, 9600, 9500),
    "dkf-cl": (43, 120, 140, 1900, 1800, 1600, 1600, 4200, 13000, 13000),
    "kvae": (15, 130, 120, 1800, 1700, 1600, 1800, 4700, 18000, 17000),
    "cpc": (31, 33, 35, 510, 440, 500, 560, 610, 3500, 2500),
    "lgssm": (9.5, 16, 25, 450, 33, 350, 280, 290, 5100, 4800),
    "rkn": (5.8, 11, 30, 1100, 1100, 1300, 1800, 1600, 8900, 9200),
    "dcl": (64, 68, 70, 510, 490, 550, 580, 1500, 4700, 4300),
}
SECONDS: dict[str, dict[str, float]] = {
    method: dict(zip(_ORDER, row, strict=True)) for method, row in _MILLISECONDS.items()
}
PAPER_ENCODER = 6.5  # how many times as long a step takes with the paper's networks
BATCH, FRAMES = 32, 100
OVERHEAD = {"linear": 28.0, "vector": 28.0, "pendulum": 48.0, "double-pendulum": 61.0, "tracking": 190.0}
"""Seconds for all else: compiling and scoring."""
STEPS = 3000  # where the settings leave it to the estimator
DEFAULTS = {"batch_size": BATCH, "window": "auto"}  # what makes steps alike, unless it is set


class Clock:
    """Estimates of the seconds that runs take."""

    def __init__(self, results: Iterable[Result]) -> None:
        rates: dict[tuple, list[float]] = {}
        self._done = set()
        for result in results:
            self._done.add(_training(result.run))
            if result.finished:
                rates.setdefault(_kind(result.run), []).append(result.training["steps_per_second"])
        self._rates = {kind: statistics.median(found) for kind, found in rates.items()}

    def seconds(self, run: Run) -> float:
        if _training(run) in self._done:  # for another experiment: it is only taken over
            return 0.0
        steps, overhead = sum(map(_steps, stages(run.settings))), OVERHEAD[FAMILIES[run.task]]
        if _kind(run) in self._rates:
            return overhead + steps / self._rates[_kind(run)]
        first = stages(run.settings)[0]
        slow = PAPER_ENCODER if first.get("encoder") == "cnn-paper" else 1.0
        window = first.get("window")
        frames = window if isinstance(window, int) else FRAMES
        size = int(first.get("batch_size", BATCH)) * frames / (BATCH * FRAMES)
        return overhead + steps * SECONDS[run.method][run.task] / 1000 * slow * size


def _training(run: Run) -> tuple:
    return run.task, run.method, run.digest, run.seed, run.task_seed


def _steps(settings: Mapping[str, Any]) -> int:
    return int(settings.get("max_steps", settings.get("iterations", STEPS)))


def _kind(run: Run) -> tuple:
    """What decides how long a step takes. Of several stages the first counts."""
    first = stages(run.settings)[0]
    precision = first.get("precision", {})
    form = precision.get("kind"), precision.get("data_dependent", False)
    names = ("encoder", "latent_dim", "batch_size", "window")
    return (run.task, run.method, form, *(first.get(name, DEFAULTS.get(name)) for name in names))


def duration(seconds: float | int) -> str:
    """Seconds in words: 40 s, 12 min, 3.5 h, 5 days, 2.5 years."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    days = seconds / 86400
    return f"{days:.0f} days" if days < 730 else f"{days / 365:.1f} years"
