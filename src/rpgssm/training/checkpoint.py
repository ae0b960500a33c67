"""Checkpoints on disk, by orbax: named arrays and a JSON of everything else, one folder per step.

A folder gets its final name when it is complete, so a run killed at any moment leaves whole checkpoints or none. The
last two are kept; each also holds the best model so far. They are written in the background.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 2  # since 0.2: checkpoints hold the identity of their run
FOLDER, TABLE = "checkpoints", "history.csv"


class Checkpoints:
    """The checkpoints of one run directory."""

    def __init__(self, directory: Path) -> None:
        import orbax.checkpoint as ocp  # takes most of a second

        self.directory = directory
        options = ocp.CheckpointManagerOptions(max_to_keep=2, cleanup_tmp_directories=True)
        self._manager = ocp.CheckpointManager((directory / FOLDER).absolute(), options=options)
        self._args = ocp.args

    @property
    def steps(self) -> list[int]:
        return sorted(self._manager.all_steps())

    def save(self, step: int, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
        """Write a checkpoint, unless there is one of this step, in the background: see `wait`."""
        if step in self._manager.all_steps():
            return
        stored = {name: np.asarray(array) for name, array in arrays.items() if np.size(array)}
        empty = {name: [np.dtype(a.dtype).name, *np.shape(a)] for name, a in arrays.items() if not np.size(a)}
        table = json.loads(json.dumps({"format": FORMAT, "empty": empty, **meta}))
        args = self._args.Composite(arrays=self._args.StandardSave(stored), meta=self._args.JsonSave(table))
        self._manager.save(step, args=args, force=True)

    def load(self, step: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Read the checkpoint of a step: its arrays, and everything else."""
        meta = self._manager.restore(step, args=self._args.Composite(meta=self._args.JsonRestore()))["meta"]
        if meta.get("format") != FORMAT:
            raise ValueError(
                f"Cannot resume the run in {self.directory}: its checkpoints have format {meta.get('format')}; this "
                f"version reads {FORMAT}. Pass overwrite=True to start afresh, or another directory."
            )
        restored = self._manager.restore(step, args=self._args.Composite(arrays=self._args.StandardRestore()))["arrays"]
        arrays = {name: np.asarray(array) for name, array in restored.items()}
        arrays |= {name: np.zeros(shape, dtype) for name, (dtype, *shape) in meta["empty"].items()}
        return arrays, meta

    def wait(self) -> None:
        """Wait until everything is on disk."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        self._manager.close()


def holds_run(directory: Path) -> bool:
    return (directory / FOLDER).exists() or (directory / TABLE).exists()


def prepare(directory: Path, resume: bool, overwrite: bool) -> None:
    """Make a directory for a run; raise if it holds another one."""
    if resume and overwrite:
        raise ValueError("Either resume the run in the directory or overwrite it, not both.")
    if holds_run(directory):
        if overwrite:
            shutil.rmtree(directory / FOLDER, ignore_errors=True)
            (directory / TABLE).unlink(missing_ok=True)
        elif not resume:
            raise FileExistsError(
                f"{directory} already holds a training run: pass resume=True to go on with it, overwrite=True to "
                "start afresh, or another directory."
            )
    directory.mkdir(parents=True, exist_ok=True)
