"""DATA on the command line: files and folders, or the sequences of a built-in task."""

from pathlib import Path
from typing import Any

from rpgssm.data import Recording, read

from . import config as c

TASK = "task:"


def is_task(path: Path) -> bool:
    return str(path).startswith(TASK)


def read_data(path: Path, reading: c.Reading, split: str = "test") -> Recording:
    """What DATA names; `split` is that of a task unless DATA says it (`task:NAME:SPLIT`)."""
    if not is_task(path):
        keys = list(reading.key) or None
        images: dict[str, Any] = {"grey": True if reading.grey else None, "size": reading.size, "every": reading.every}
        return read(path, key=keys, **images, bin_seconds=reading.bin_seconds, trials=reading.trials)
    from rpgssm.tasks import load_task

    name, _, given = str(path).removeprefix(TASK).partition(":")
    task = load_task(name, seed=reading.task_seed, data_dir=reading.data_dir, background=reading.background)
    if (given or split) not in task.splits:
        raise ValueError(f"{path} asks for the split {given!r}: a task has {', '.join(task.splits)}")
    return Recording(task.splits[given or split].observations)
