"""`rpgssm experiment`: run, status, table."""

import time
from pathlib import Path

from rpgssm.estimator.loading import estimator_class
from rpgssm.experiments import accuracy, store
from rpgssm.experiments.estimates import Clock, duration
from rpgssm.experiments.plans import plan
from rpgssm.experiments.running import Interrupted, execute
from rpgssm.experiments.runs import Run, describe
from rpgssm.tasks.cache import cache_directory

from . import experiment_config as c


def perform(action: object) -> None:
    """What the subcommand asks for."""
    match action:
        case c.RunExperiment():
            run(action)
        case c.Status():
            status(action)
        case c.Table():
            table(action)


def run(command: c.RunExperiment) -> None:
    runs = planned(command.name, command.which)
    work, results = folders(command.places, command.which)
    missing = store.missing(results, runs)
    show_plan(runs, missing, Clock(store.read_all(results)))
    if command.dry_run:
        return
    for number, one in enumerate(missing, 1):
        print(f"\n[{number}/{len(missing)}] {one.identity}", flush=True)
        began = time.perf_counter()
        options = {"data_dir": command.data_dir, "verbose": not command.quiet}
        try:
            result = execute(one, results, work, estimator_class, checkpoint_every=command.checkpoint_every, **options)
        except Interrupted:
            print("Interrupted: the same command goes on from here.")
            return
        print(f"{outcome(result)}, {duration(time.perf_counter() - began)}", flush=True)
    print(f"\nAll {len(runs)} runs are done; results are in {results}")


def status(command: c.Status) -> None:
    runs = planned(command.name, command.which)
    _, results = folders(command.places, command.which)
    for one in runs:
        result = store.read(results, one)
        print(f"{one.identity:<70} {'waiting' if result is None else outcome(result)}")
    print(f"{len(runs) - len(store.missing(results, runs))} of {len(runs)} runs are done")


def table(command: c.Table) -> None:
    text = accuracy.table(command.results)
    print(text)
    if command.insert is not None:
        old = command.insert.read_text(encoding="utf-8")
        command.insert.write_text(accuracy.insert(old, text), encoding="utf-8")


def planned(name: str, which: c.Which) -> list[Run]:
    """The runs that the command line asks for."""
    overrides = {} if which.max_steps is None else {"max_steps": which.max_steps}
    return plan(
        name,
        tasks=listed(which.tasks),
        methods=listed(which.methods),
        seeds=numbers(which.seeds),
        background=which.background,
        overrides=overrides,
    )


def folders(places: c.Places, which: c.Which) -> tuple[Path, Path]:
    """The working folder and that of the results; trials leave the latter alone."""
    work = places.work or cache_directory() / "experiments"
    return work, (work / "trials" if which.max_steps is not None else places.results)


def show_plan(runs: list[Run], missing: list[Run], clock: Clock) -> None:
    """The list of runs, with what is done and what the rest will take."""
    waiting = {one.identity for one in missing}
    for one in runs:
        todo = f"about {duration(clock.seconds(one))}" if one.identity in waiting else "done"
        print(f"{one.task:<24} {one.method:<8} seed {one.seed}  {todo:<14} {describe(one.settings)}")
    total = sum(clock.seconds(one) for one in missing)
    print(f"{len(runs)} runs, {len(missing)} to do: about {duration(total)} on two cores, one after the other")


def outcome(result: store.Result) -> str:
    """A result in a few words."""
    if not result.finished:
        return f"diverged ({result.content['error']})"
    scores = ", ".join(f"{name} {value:.3f}" for name, value in result.scores["linear"].items())
    return f"R²: {scores}; trained in {duration(result.training['seconds'])}"


def listed(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def numbers(text: str | None) -> list[int] | None:
    names = listed(text)
    try:
        return None if names is None else [int(name) for name in names]
    except ValueError:
        raise ValueError(f"--seeds {text}: whole numbers are needed, separated by commas, for example 0,1,2") from None
