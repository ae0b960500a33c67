"""How long a run will take: from stored results of the same method and task, else from a rough table."""

import statistics
from collections.abc import Iterable

from .recipes import FAMILIES
from .runs import Run
from .store import Result

# Seconds per step of 32 sequences of 100 frames on two CPU cores: of the RP-GSSM with the light encoder, and how many
# times as long it takes with the paper's encoder and with other methods. Rough: used until there are results to go by.
SECONDS = {"linear": 0.006, "vector": 0.03, "pendulum": 0.14, "double-pendulum": 0.55, "tracking": 0.9}
PAPER_ENCODER = 6.5
FACTORS = {
    "rpgssm": 1.0,
    "svae": 4.5,
    "dkf-mf": 3.7,
    "dkf-l": 3.8,
    "dkf-nl": 4.0,
    "dkf-cl": 3.8,
    "kvae": 4.5,
    "cpc": 0.8,
    "lgssm": 0.2,
    "rkn": 2.5,
    "dcl": 1.0,
}
BATCH, FRAMES = 32, 100
OVERHEAD = {"linear": 20.0, "vector": 20.0, "pendulum": 40.0, "double-pendulum": 60.0, "tracking": 120.0}  # all else
STEPS = 3000  # where the settings leave it to the estimator


class Clock:
    """Estimates the seconds that runs take."""

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
        steps, overhead = int(run.settings.get("max_steps", STEPS)), OVERHEAD[FAMILIES[run.task]]
        if _kind(run) in self._rates:
            return overhead + steps / self._rates[_kind(run)]
        slow = PAPER_ENCODER if run.settings.get("encoder") == "cnn-paper" else 1.0
        window = run.settings.get("window")
        frames = window if isinstance(window, int) else FRAMES
        size = int(run.settings.get("batch_size", BATCH)) * frames / (BATCH * FRAMES)
        return overhead + steps * SECONDS[FAMILIES[run.task]] * FACTORS[run.method] * slow * size


def _training(run: Run) -> tuple:
    return run.task, run.method, run.digest, run.seed, run.task_seed


def _kind(run: Run) -> tuple:
    names = ("encoder", "latent_dim", "precision", "data_dependent", "batch_size", "window")
    return (run.task, run.method, *(run.settings.get(name) for name in names))


def duration(seconds: float | int) -> str:
    """For people: 40 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
