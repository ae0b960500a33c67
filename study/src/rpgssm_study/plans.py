"""The runs of each experiment.

`accuracy` is the RP-GSSM with its recipe on every task that has an aim, from three seeds. `comparison` is every method
on every task, by a protocol. Seeds are those of the training; the linear tasks also take their data from them, so that
each seed is another system.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from rpgssm_study.tasks import TASKS as MADE

from .methods import METHODS
from .protocols import PROTOCOLS, TASKS
from .recipes import TRUE_DIMENSIONS, recipe
from .runs import Run
from .targets import AIMS

SEEDS = (0, 1, 2)
DECODER_STEPS = 1000  # of the auxiliary decoder
DECODED = ("cifar10-pendulum",)  # tasks whose reconstructions are shown

Names = Sequence[str] | None


def accuracy(protocol: str, tasks: Names, methods: Names, seeds: Sequence[int] | None) -> list[Run]:
    """The RP-GSSM with its recipes."""
    del protocol  # there is none to choose
    if methods is not None and list(methods) != ["rpgssm"]:
        raise ValueError("the experiment 'accuracy' is about rpgssm alone: leave --methods out, or run 'comparison'")
    _known("task", tasks, AIMS)
    return [
        seeded("accuracy", "recipe", task, "rpgssm", recipe(task), seed)
        for task in tasks or AIMS
        for seed in seeds or SEEDS
    ]


def comparison(protocol: str, tasks: Names, methods: Names, seeds: Sequence[int] | None) -> list[Run]:
    """All methods on all tasks. First seeds come first, so that half of a plan has something of everything."""
    _known("protocol", [protocol], PROTOCOLS)
    _known("task", tasks, TASKS)
    p = PROTOCOLS[protocol]
    wanted = [(task, method) for task in TASKS for method in METHODS]
    wanted = [w for w in wanted if (tasks is None or w[0] in tasks) and (methods is None or w[1] in methods)]
    numbers = {task: tuple(seeds) if seeds is not None else p.seeds(task) for task, _ in wanted}
    return [
        seeded("comparison", protocol, task, method, settings, seed)
        for seed in sorted({seed for found in numbers.values() for seed in found})
        for task, method in wanted
        if seed in numbers[task]
        for settings in p.settings(task, method)
    ]


EXPERIMENTS: dict[str, Callable[..., list[Run]]] = {"accuracy": accuracy, "comparison": comparison}


def plan(
    experiment: str,
    *,
    protocol: str = "compact",
    tasks: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    background: str = "auto",
    overrides: dict[str, Any] | None = None,
) -> list[Run]:
    """All runs of an experiment, or those of the named tasks, methods and seeds, in the order in which they are done.

    With `overrides` of settings it is not the experiment any more: its runs then belong to "<experiment>-trial".
    """
    if experiment not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {experiment!r}; choose one of {', '.join(EXPERIMENTS)}")
    _known("method", methods, METHODS)
    runs = EXPERIMENTS[experiment](protocol, tasks, methods, seeds)
    return [_changed(run, background, overrides or {}) for run in runs]


def seeded(
    experiment: str, protocol: str, task: str, method: str, settings: dict[str, Any], seed: int, **more: Any
) -> Run:
    """A run with the seed of its data, and with a decoder where its reconstructions are shown."""
    wanted = task in DECODED and METHODS[method].decoder == "auxiliary" and method != "dcl"
    task_seed = seed if task in TRUE_DIMENSIONS else 0
    steps = DECODER_STEPS if wanted else 0
    return Run(experiment, protocol, task, method, settings, seed, task_seed, decoder_steps=steps, **more)


def _changed(run: Run, background: str, overrides: dict[str, Any]) -> Run:
    if background != "auto" and MADE[run.task].background is not None:
        run = replace(run, background=background)
    if not overrides:
        return run
    steps = min(run.decoder_steps, int(overrides.get("max_steps", run.decoder_steps)))
    changed = replace(run, experiment=f"{run.experiment}-trial", decoder_steps=steps)
    if METHODS[run.method].estimator == "LinearGaussianSSM":
        overrides = {"iterations" if name == "max_steps" else name: value for name, value in overrides.items()}
    return changed.with_settings(**overrides)


def _known(what: str, names: Iterable[str] | None, known: Iterable[str]) -> None:
    for name in names or ():
        if name not in known:
            raise ValueError(f"there is no {what} {name!r} in this experiment; choose from {', '.join(known)}")
