"""The stored results for figures and tables: by task and method, with the chosen settings."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rpgssm_study import store
from rpgssm_study.choosing import Group, best, competing
from rpgssm_study.methods import METHODS
from rpgssm_study.store import Result

TITLES = {
    "linear-small": "3 latents, 5 observations",
    "linear-medium": "5 latents, 10 observations",
    "linear-large": "10 latents, 20 observations",
    "pendulum": "Pendulum",
    "pendulum-64": "Pendulum, 64 sequences",
    "cifar10-pendulum": "CIFAR10-Pendulum",
    "double-pendulum": "Double pendulum",
    "cifar10-double-pendulum": "CIFAR10-Double pendulum",
    "tracking": "Tracking",
    "davis-tracking": "DAVIS-Tracking",
}
LINEAR = ("linear-small", "linear-medium", "linear-large")
PAIRS = (
    ("pendulum", "cifar10-pendulum"),
    ("double-pendulum", "cifar10-double-pendulum"),
    ("tracking", "davis-tracking"),
)
VIDEO = tuple(task for pair in PAIRS for task in pair)
DISTRACTED = tuple(pair[1] for pair in PAIRS)
SECONDARY = ("head_angle",)  # scored, but neither shown nor counted: an angle jumps where its vector does not
TARGETS = {
    "sin_angle": "sin θ",
    "velocity": "velocity",
    "position": "position",
    "head_direction": "head direction",
    "sin_first": "sin θ₁",
    "sin_second_relative": "sin θ₂, relative",
    "sin_second_absolute": "sin θ₂, absolute",
    "mean": "mean",
    "z": "latent state",
}


@dataclass(frozen=True)
class Collection:
    """Results of one experiment and protocol, and those of the accuracy runs."""

    protocol: str
    results: tuple[Result, ...]
    accuracy: tuple[Result, ...]
    folder: Path

    @classmethod
    def read(cls, folder: Path, protocol: str) -> "Collection":
        compared = (r for r in store.read_all(folder, "comparison") if r.run.protocol == protocol)
        return cls(protocol, tuple(compared), tuple(store.read_all(folder, "accuracy")), folder)

    def of(self, task: str, method: str | None = None) -> list[Result]:
        return [r for r in self.results if r.run.task == task and method in (None, r.run.method)]

    def chosen(self, task: str, method: str) -> Group | None:
        """The settings of a method that validation chose; None if there is no finished run."""
        return best(self.of(task, method))

    def competed(self, task: str, method: str) -> int:
        """The number of settings that the chosen one was chosen from."""
        return len(competing(self.of(task, method)))

    def forecast(self, task: str, method: str) -> list[float] | None:
        """R² of forecasts 1, 2, ... frames ahead, median over seeds; None if the method gives none."""
        group = self.chosen(task, method)
        found = [] if group is None else [r.scores["forecast"] for r in group.results if r.finished]
        curves = [f["r_squared"]["mean"] for f in found if f is not None and "mean" in f["r_squared"]]
        return [statistics.median(values) for values in zip(*curves, strict=True)] if curves else None

    def scored(self, task: str, method: str) -> int:
        """The number of settings that were scored on the test sequences, by either experiment."""
        runs = (r.run for r in (*self.results, *self.accuracy))
        return len({run.digest for run in runs if (run.task, run.method) == (task, method)})

    def methods(self, tasks: Iterable[str]) -> list[str]:
        """The methods that have a result on any of these tasks, in their order."""
        found = {r.run.method for task in tasks for r in self.of(task)}
        return [method for method in METHODS if method in found]

    def targets(self, task: str) -> list[str]:
        """The names of what is scored, without their mean."""
        for result in self.of(task):
            if result.finished:
                return [name for name in result.scores["linear"] if name not in ("mean", *SECONDARY)]
        return []

    def best_of(self, task: str, kind: str, example: str) -> str | None:
        """The published method of a kind that validation prefers, among those with such an example."""
        found = {}
        for method in self.methods([task]):
            group = self.chosen(task, method)
            if METHODS[method].kind != kind or not METHODS[method].published or group is None:
                continue
            if example in group.first.content["examples"]:
                found[method] = group.selection
        return max(found, key=lambda method: found[method]) if found else None


def label(method: str) -> str:
    return METHODS[method].label


def title(task: str) -> str:
    return TITLES.get(task, task)


def long_title(task: str) -> str:
    """The title of a task where it does not stand among others of its kind."""
    return f"Linear: {title(task)}" if task in LINEAR else title(task)


def plain(value: float, digits: int = 3) -> str:
    """A score as text, without a sign that rounding leaves of nothing."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if not float(text) else text


def target_name(name: str) -> str:
    return TARGETS.get(name, name.replace("_", " "))
