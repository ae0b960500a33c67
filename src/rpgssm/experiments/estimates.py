"""How long a run will take: from stored results of the same method and task, else from a rough table."""

import statistics
from collections.abc import Iterable

from .recipes import FAMILIES
from .runs import Run
from .store import Result

# Seconds per step on two CPU cores, of the RP-GSSM with the light and with the paper's encoder; and how many times as
# long the other methods take. Rough: only used until there are results to go by.
SECONDS = {"linear": 0.01, "vector": 0.03, "pendulum": 0.15, "double-pendulum": 0.5, "tracking": 0.8}
PAPER_ENCODER = 6.0
FACTORS = {
    "rpgssm": 1.0,
    "svae": 2.0,
    "dkf-mf": 2.0,
    "dkf-l": 2.0,
    "dkf-nl": 2.5,
    "dkf-cl": 2.0,
    "kvae": 2.5,
    "cpc": 1.0,
    "lgssm": 2.0,
    "rkn": 2.0,
    "dcl": 1.5,
}
OVERHEAD = 20.0  # data, compilation and scores
STEPS = 3000  # where the settings leave it to the estimator


class Clock:
    """Estimates the seconds that runs take."""

    def __init__(self, results: Iterable[Result]) -> None:
        rates: dict[tuple, list[float]] = {}
        for result in results:
            if result.finished:
                rates.setdefault(_kind(result.run), []).append(result.training["steps_per_second"])
        self._rates = {kind: statistics.median(found) for kind, found in rates.items()}

    def seconds(self, run: Run) -> float:
        steps = int(run.settings.get("max_steps", STEPS))
        if _kind(run) in self._rates:
            return OVERHEAD + steps / self._rates[_kind(run)]
        slow = PAPER_ENCODER if run.settings.get("encoder") == "cnn-paper" else 1.0
        return OVERHEAD + steps * SECONDS[FAMILIES[run.task]] * FACTORS[run.method] * slow


def _kind(run: Run) -> tuple:
    names = ("encoder", "latent_dim", "precision", "data_dependent")
    return (run.task, run.method, *(run.settings.get(name) for name in names))


def duration(seconds: float) -> str:
    """For people: 40 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
