"""`rpgssm-study`: run, rescore, status, table, report."""

import signal
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from rpgssm_study import accuracy, store
from rpgssm_study.estimates import Clock, duration
from rpgssm_study.plans import plan
from rpgssm_study.repeats import needed
from rpgssm_study.running import Interrupted, execute, rescore
from rpgssm_study.runs import Run, describe
from rpgssm_study.tasks.cache import cache_directory

from . import settings as c

INTERRUPTED = 130  # exit code: what comes after it in a script should not go on
LISTED = 40  # runs that are shown one by one; of more, a line per task and method


def perform(action: object) -> None:
    """What the subcommand asks for."""
    match action:
        case c.RunExperiment():
            run(action)
        case c.Rescore():
            score_again(action)
        case c.Status():
            status(action)
        case c.Table():
            table(action)
        case c.Report():
            report(action)


def run(command: c.RunExperiment) -> None:
    at_least("workers", command.workers)
    at_least("checkpoint-every", command.checkpoint_every)
    if command.scheduler is not None and command.workers != 1:
        raise ValueError("--workers is for a cluster that this command starts: with --scheduler, leave it out")
    work, results = folders(command.places, command.which)
    asked = planned(command.name, command.which)
    runs = needed(results, asked)
    missing = store.missing(results, runs)
    show_plan(runs, missing, Clock(store.read_all(results)), command.workers)
    if command.dry_run or not missing:
        return
    writable(results, "results")  # now, and not after an hour of training
    writable(work, "work")
    alone = command.workers == 1 and command.scheduler is None
    absolute = {"results": results.absolute(), "work": work.absolute()}  # as workers elsewhere must know them
    do = partial(
        execute,
        **absolute,
        data_dir=command.data_dir and command.data_dir.absolute(),
        verbose=alone and not command.quiet,
        checkpoint_every=command.checkpoint_every,
    )
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        from rpgssm_study.cluster import run_all

        errors = run_all(asked, **absolute, do=do, workers=command.workers, scheduler=command.scheduler)
    except (KeyboardInterrupt, Interrupted):
        print("Interrupted: the same command goes on from here.")
        raise SystemExit(INTERRUPTED) from None
    if errors:
        first, message = next(iter(errors.items()))
        raise ValueError(f"{len(errors)} runs failed, the first of them {first}: {message}")
    runs = needed(results, asked)
    left = store.missing(results, runs)
    print(f"{len(runs) - len(left)} of {len(runs)} runs are done; results are in {results}")


def score_again(command: c.Rescore) -> None:
    work, results = folders(command.places, command.which)
    for one in planned(command.name, command.which):
        began = time.perf_counter()
        if rescore(one, results, work, data_dir=command.data_dir):
            print(f"{one.identity}: scored in {duration(time.perf_counter() - began)}", flush=True)
        elif (results / one.path).is_file():
            print(f"{one.identity}: its model is not in {work}; the result stays as it is", flush=True)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def status(command: c.Status) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if not command.watch:
        console.print(_overview(command))
        return
    with Live(_overview(command), console=console, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(2.0)
                live.update(_overview(command), refresh=True)
        except KeyboardInterrupt:
            return


def _overview(command: c.Status) -> Any:
    """A row per task, a column per method: best mean R², or how far it is."""
    from rich.console import Group
    from rich.table import Table

    results = folders(command.places, command.which)[1]
    runs = needed(results, planned(command.name, command.which))
    found = {one.identity: store.read(results, one) for one in runs}
    methods = list(dict.fromkeys(one.method for one in runs))
    done = sum(result is not None for result in found.values())
    clock = Clock(store.read_all(results))
    left = sum(clock.seconds(one) for one in runs if found[one.identity] is None)
    caption = f"{done} of {len(runs)} runs done, about {duration(left)} to go for one worker"
    if any(result is None for result in found.values()):
        caption += "; 1/4: one of four is done"
    table = Table(box=None, padding=(0, 1, 0, 0), row_styles=("", "cyan"))
    table.add_column("task")
    for method in methods:
        table.add_column(method, justify="right")
    for task in dict.fromkeys(one.task for one in runs):
        cells = []
        for method in methods:
            these = [one for one in runs if one.task == task and one.method == method]
            cells.append(_cell(these, [found[one.identity] for one in these]))
        # so that eleven methods fit beside it in 80 columns
        table.add_row(task.replace("-", "-\n") if len(methods) > 6 else task, *cells)
    return Group(f"{command.name}: mean held-out linear R², median over seeds\n", table, f"\n{caption}")


def _cell(runs: list[Run], results: list[store.Result | None]) -> str:
    from rpgssm_study.choosing import best

    if not runs:
        return ""
    present = [result for result in results if result is not None]
    chosen = best(present)
    score = [f"{chosen.median('linear', 'mean'):.3f}"] if chosen else ["failed"] if present else []
    count = [] if len(present) == len(runs) else [f"{len(present)}/{len(runs)}"]
    return "\n".join(score + count)


def table(command: c.Table) -> None:
    from rpgssm_study.report.collection import Collection
    from rpgssm_study.report.tables import summary

    there(command.results)
    collection = Collection.read(command.results, "compact")
    own, all_methods = accuracy.table(command.results), summary(collection)
    print(f"{own}\n\n{all_methods}")
    if command.insert is not None:
        if not collection.results and not collection.accuracy:
            raise ValueError(f"there are no results in {command.results}: {command.insert} is left as it is")
        text = command.insert.read_text(encoding="utf-8")
        text = accuracy.insert(accuracy.insert(text, own), all_methods, "comparison")
        command.insert.write_text(text, encoding="utf-8")


def report(command: c.Report) -> None:
    from rpgssm_study.report import build

    there(command.results)
    writable(command.output, "output")
    written, missing = build(command.results, command.output, command.protocol)
    if missing:
        print(f"No results yet for: {', '.join(missing)}")
    print(f"Wrote {len(written)} files to {command.output}; read {written[-1]}")


def planned(name: str, which: c.Which) -> list[Run]:
    """The runs that the command line asks for."""
    overrides = {} if which.max_steps is None else {"max_steps": at_least("max-steps", which.max_steps)}
    if name == "accuracy" and which.protocol != "compact":
        raise ValueError("the experiment 'accuracy' has no protocols: leave --protocol out, or run 'comparison'")
    return plan(
        name,
        protocol=which.protocol,
        tasks=listed(which.tasks, "tasks"),
        methods=listed(which.methods, "methods"),
        seeds=numbers(which.seeds),
        background=which.background,
        overrides=overrides,
    )


def folders(places: c.Places, which: c.Which) -> tuple[Path, Path]:
    """The working folder and that of the results; trials leave the latter alone."""
    work = places.work or cache_directory() / "experiments"
    return work, (work / "trials" if which.max_steps is not None else places.results)


def at_least(name: str, value: int, least: int = 1) -> int:
    if value < least:
        raise ValueError(f"--{name} is {value}; at least {least} is needed")
    return value


def there(results: Path) -> None:
    if not results.is_dir():
        raise FileNotFoundError(f"there is no folder {results}: name that of the results with --results")


def writable(folder: Path, option: str) -> None:
    """Make a folder, if need be, and see that files can be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"cannot write to {folder} ({reason}): name another folder with --{option}") from None


def show_plan(runs: list[Run], missing: list[Run], clock: Clock, workers: int = 1) -> None:
    """The list of runs, with what is done and what the rest will take."""
    waiting = {one.identity for one in missing}
    if len(runs) <= LISTED:
        for one in runs:
            todo = f"about {duration(clock.seconds(one))}" if one.identity in waiting else "done"
            print(f"{one.task:<24} {one.method:<8} seed {one.seed}  {todo:<14} {describe(one.settings)}")
    else:
        for task, method in dict.fromkeys((one.task, one.method) for one in runs):
            these = [one for one in runs if (one.task, one.method) == (task, method)]
            todo = [one for one in these if one.identity in waiting]
            time_left = f"about {duration(sum(clock.seconds(one) for one in todo))}" if todo else "done"
            print(f"{task:<24} {method:<8} {len(these):>4} runs, {len(todo):>4} to do  {time_left}")
    total = sum(clock.seconds(one) for one in missing) / workers
    by = "one worker" if workers == 1 else f"{workers} workers"
    slow = ", on CPUs: for GPUs there is no estimate" if any(one.protocol == "paper" for one in missing) else ""
    print(f"{len(runs)} runs, {len(missing)} to do: about {duration(total)} for {by}{slow}")


def listed(text: str | None, option: str) -> list[str] | None:
    """What is between the commas, each once."""
    if text is None:
        return None
    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise ValueError(f"--{option} names nothing: leave it out for all, or separate names by commas")
    return names


def numbers(text: str | None) -> list[int] | None:
    names = listed(text, "seeds")
    try:
        return None if names is None else [at_least("seeds", int(name), 0) for name in names]
    except ValueError as error:
        if str(error).startswith("--"):
            raise
        raise ValueError(f"--seeds {text}: whole numbers are needed, separated by commas, for example 0,1,2") from None
