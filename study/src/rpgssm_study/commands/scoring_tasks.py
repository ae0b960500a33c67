"""`rpgssm-study tasks` and `rpgssm-study evaluate`."""

from pathlib import Path
from typing import Any

import numpy as np

import rpgssm
from rpgssm_study.tasks import TASKS, Task, load_task

from . import settings as c


def tasks(command: c.Tasks) -> None:
    if command.what == "list":
        for name, entry in TASKS.items():
            print(f"{name:<26}{entry.summary}")
        return
    if not command.name:
        raise ValueError(
            f"name the task to {command.what}: rpgssm-study tasks {command.what} NAME; `rpgssm-study tasks` lists them"
        )
    task = load_task(command.name, seed=command.seed, data_dir=command.data_dir, background=command.background)
    if command.what == "save":
        folder = command.output or Path(command.name)
        folder.mkdir(parents=True, exist_ok=True)
        for name, observations in task.observations.items():
            np.save(folder / f"{name}.npy", observations)
        print(f"Wrote {', '.join(f'{name}.npy' for name in task.observations)} to {folder}")
        return
    from rpgssm_study.tasks.sheet import contact_sheet

    path = command.output or Path(f"{command.name}.png")
    contact_sheet(task, path)
    print(task.description)
    print(f"Wrote {path}")


def evaluate(command: c.Evaluate) -> None:
    from rpgssm_study.evaluation import evaluate as score

    estimator = rpgssm.load(command.run)
    task = load_task(command.task, seed=command.seed, data_dir=command.data_dir, background=command.background)
    result = score(estimator, task, prepare=preparation(estimator, task))
    print(result.table())
    folder = command.output or command.run / f"evaluation-{command.task}"
    folder.mkdir(parents=True, exist_ok=True)
    result.to_json(folder / "evaluation.json")
    result.figures(folder)
    print(f"Written to {folder}")


def preparation(estimator: Any, task: Task) -> Any:
    """The function that prepares the task's observations for a model; None if they are shown as they are.

    A model fitted to integer images scales them itself. One fitted to floating point numbers has seen what
    `task.frames` makes of them.
    """
    fitted_to_integers = any(scale != 1.0 for scale in estimator._data_info.scales.values())
    integers = task.train.observations.dtype.kind in "iu"
    return task.frames if integers and not fitted_to_integers else None
