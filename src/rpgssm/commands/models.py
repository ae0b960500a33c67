"""`rpgssm fit`, `transform`, `forecast` and `info`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rpgssm.data import Recording, as_sequences, read
from rpgssm.estimator import RPGSSM

from . import config as c


def read_data(path: Path, reading: c.Reading) -> Recording:
    keys = list(reading.key) or None
    return read(path, key=keys, grey=True if reading.grey else None, size=reading.size, every=reading.every)


def fit(command: c.Fit) -> None:
    checkpoints = command.out / "training"
    if (command.out / "config.json").exists() and not (command.overwrite or command.resume):
        raise ValueError(f"{command.out} holds a model already: choose another folder, or pass --overwrite")
    if command.resume and not checkpoints.exists():
        raise ValueError(f"there is nothing to resume in {command.out}: leave --resume out")
    recording = read_data(command.data, command.reading)
    settings: dict[str, Any] = asdict(command.model) | asdict(command.training)
    estimator = RPGSSM(**settings, checkpoint_dir=checkpoints, verbose=not command.quiet)
    data, notes = as_sequences(
        recording.data,
        mask=recording.mask,
        controls=recording.controls,
        lengths=recording.lengths,
        frame_ndim=estimator._frame_ndim(recording.data),
    )
    if not command.quiet:
        print("\n".join([data.describe(), *(f"note: {note}" for note in notes)]), flush=True)
    estimator.fit(data, resume=command.resume, overwrite=command.overwrite)
    if command.decoder_steps:
        estimator.fit_decoder(data, steps=command.decoder_steps)
    estimator.save(command.out, overwrite=True)
    if not command.quiet:
        print(estimator.summary())
    print(f"Saved to {command.out}")


def load(run: Path) -> RPGSSM:
    return RPGSSM.load(run)


def transform(command: c.Transform) -> None:
    estimator = load(command.run)
    check_output(command.output, (".npz", ".npy"), command.overwrite)
    data = sequences(estimator, read_data(command.data, command.reading))
    latents = (estimator.filter if command.causal else estimator.smooth)(data)
    arrays = {"mean": latents.mean, "cov": latents.cov, "log_z": latents.log_z}
    write(command.output, arrays, data)


def forecast(command: c.ForecastCommand) -> None:
    estimator = load(command.run)
    check_output(command.output, (".npz",), command.overwrite)
    recording = read_data(command.data, command.reading)
    future = recording.controls
    data = sequences(estimator, Recording(recording.data, recording.mask, None, recording.lengths), future is not None)
    out = estimator.forecast(data, command.steps, controls=future, samples=command.samples)
    arrays = {"mean": out.mean, "cov": out.cov} | ({} if out.samples is None else {"samples": out.samples})
    write(command.output, arrays, None)


def info(command: c.Info) -> None:
    print(load(command.run).summary())


def sequences(estimator: RPGSSM, recording: Recording, any_controls: bool = True) -> Any:
    del any_controls
    data, _ = as_sequences(recording, frame_shapes=estimator._data_info.frame_shapes)
    return data


def check_output(path: Path, suffixes: tuple[str, ...], overwrite: bool) -> None:
    if path.suffix not in suffixes:
        raise ValueError(f"{path} must end in {' or '.join(suffixes)}")
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists: choose another name, or pass --overwrite")


def write(path: Path, arrays: dict[str, Any], data: Any) -> None:
    """Write arrays; ragged ones (lists) are padded with NaN, and their lengths added."""
    if isinstance(arrays["mean"], list):
        longest = max(len(x) for x in arrays["mean"])
        lengths = np.array([len(x) for x in arrays["mean"]])

        def pad(rows):
            return np.stack(
                [np.pad(x, [(0, longest - len(x))] + [(0, 0)] * (x.ndim - 1), constant_values=np.nan) for x in rows]
            )

        arrays = {name: pad(x) if isinstance(x, list) else x for name, x in arrays.items()} | {"lengths": lengths}
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, arrays["mean"])
    else:
        np.savez(path, **{name: np.asarray(x) for name, x in arrays.items()})
    shape = "×".join(map(str, np.shape(arrays["mean"])))
    print(f"Wrote {path}: means {shape}")
