"""`rpgssm tasks` and `rpgssm evaluate`."""

from pathlib import Path

from rpgssm.tasks import TASKS, load_task

from . import config as c


def tasks(command: c.Tasks) -> None:
    if command.what == "list":
        for name, entry in TASKS.items():
            print(f"{name:<26}{entry.summary}")
        return
    if not command.name:
        raise ValueError("name the task to show: rpgssm tasks show NAME; `rpgssm tasks` lists them")
    from rpgssm.tasks.sheet import contact_sheet

    task = load_task(command.name, seed=command.seed, data_dir=command.data_dir, background=command.background)
    path = command.output or Path(f"{command.name}.png")
    contact_sheet(task, path)
    print(task.description)
    print(f"Wrote {path}")


def evaluate(command: c.Evaluate) -> None:
    from rpgssm.evaluation import evaluate as score

    from .models import load

    estimator = load(command.run)
    task = load_task(command.task, seed=command.seed, data_dir=command.data_dir, background=command.background)
    result = score(estimator, task)
    print(result.table())
    folder = command.output or command.run / f"evaluation-{command.task}"
    folder.mkdir(parents=True, exist_ok=True)
    result.to_json(folder / "evaluation.json")
    result.figures(folder)
    print(f"Written to {folder}")
