"""`rpgssm fit`, `transform`, `forecast` and `info`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rpgssm.data import Recording, as_sequences
from rpgssm.estimator.building import frame_ndim
from rpgssm.estimator.loading import estimator_class, load
from rpgssm.training import TrainingDiverged

from . import config as c
from .methods import METHODS
from .reading import is_task, read_data

CHECKPOINTS = "training"


def fit(command: c.Fit) -> None:
    checkpoints = command.out / CHECKPOINTS
    if command.resume and command.overwrite:
        raise ValueError("either --resume the run in the folder or --overwrite it, not both")
    if command.out.exists() and not command.out.is_dir():
        raise ValueError(f"{command.out} is a file: choose a folder for the model")
    if command.resume and not checkpoints.exists():
        raise ValueError(f"there is nothing to resume in {command.out}: leave --resume out")
    if ((command.out / "config.json").exists() or checkpoints.exists()) and not (command.overwrite or command.resume):
        raise ValueError(f"{command.out} holds a run already: choose another folder, or pass --resume or --overwrite")
    recording = read_data(command.data, command.reading, "train")
    settings: dict[str, Any] = asdict(command.settings) | asdict(command.training)
    method = METHODS[command.model]
    if "checkpoint_every" in settings:
        settings["checkpoint_dir"] = checkpoints
    estimator = estimator_class(method.estimator)(**settings, verbose=not command.quiet)
    data, notes = as_sequences(recording, frame_ndim=frame_ndim(estimator.encoder, recording))
    if not command.quiet:
        print("\n".join([data.describe(), *(f"note: {note}" for note in notes)]), flush=True)
    try:
        estimator.fit(data, validation=_validation(command), resume=command.resume, overwrite=command.overwrite)
    except TrainingDiverged as error:
        raise ValueError(str(error)) from error
    if command.decoder_steps:
        estimator.fit_decoder(data, steps=command.decoder_steps)
    estimator.save(command.out, overwrite=True)
    if not command.quiet:
        print(estimator.summary())
    if estimator.stopped_ == "interrupted":
        print("Interrupted: the same command with --resume goes on.")
    print(f"Saved to {command.out}")


def _validation(command: c.Fit) -> Recording | None:
    """Files named on the command line, or the task's own."""
    if command.validation is not None:
        return read_data(command.validation, command.reading, "validation")
    whole_task = is_task(command.data) and str(command.data).count(":") == 1
    if whole_task and getattr(command.training, "validation_fraction", 0.1) is not None:
        return read_data(command.data, command.reading, "validation")
    return None


def transform(command: c.Transform) -> None:
    estimator = load(command.run)
    check_output(command.output, (".npz", ".npy"), command.overwrite)
    recording = read_data(command.data, command.reading)
    latents = (estimator.filter if command.causal else estimator.smooth)(recording)
    arrays = {"mean": latents.mean, "cov": latents.cov, "log_z": latents.log_z}
    write(command.output, {name: x for name, x in arrays.items() if x is not None})


def forecast(command: c.ForecastCommand) -> None:
    estimator = load(command.run)
    check_output(command.output, (".npz",), command.overwrite)
    recording = read_data(command.data, command.reading)
    out = estimator.forecast(recording, command.steps, samples=command.samples, random_state=command.random_state)
    arrays = {"mean": out.mean} if out.cov is None else {"mean": out.mean, "cov": out.cov}
    if out.samples is not None:
        listed = isinstance(out.samples, list)
        arrays["samples"] = np.stack(out.samples, 1) if listed else out.samples
    write(command.output, {name: np.stack(x) if isinstance(x, list) else x for name, x in arrays.items()})


def info(command: c.Info) -> None:
    print(load(command.run).summary())


def check_output(path: Path, suffixes: tuple[str, ...], overwrite: bool) -> None:
    if path.suffix not in suffixes:
        raise ValueError(f"{path} must end in {' or '.join(suffixes)}")
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists: choose another name, or pass --overwrite")


def write(path: Path, arrays: dict[str, Any]) -> None:
    """Write arrays; ragged ones (lists) are padded with NaN, and their lengths added."""
    if isinstance(rows := arrays["mean"], list):
        lengths = np.array([len(x) for x in rows])
        arrays = {name: _padded(x, int(lengths.max())) if isinstance(x, list) else x for name, x in arrays.items()}
        arrays["lengths"] = lengths
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, arrays["mean"])
    else:
        named: dict[str, Any] = {name: np.asarray(x) for name, x in arrays.items()}
        np.savez(path, **named)
    print(f"Wrote {path}: means {'×'.join(map(str, np.shape(arrays['mean'])))}")


def _padded(rows: list[np.ndarray], length: int) -> np.ndarray:
    out = np.full((len(rows), length, *rows[0].shape[1:]), np.nan, rows[0].dtype)
    for row, x in zip(out, rows, strict=True):
        row[: len(x)] = x
    return out
