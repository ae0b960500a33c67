"""Saved models: a folder with a configuration (JSON), weights (safetensors) and a README. Nothing is pickled.

A file from a stranger is safe to open: loading reads numbers and settings, and builds the networks from the library's
own code. Code of the user's own, such as an encoder, is not stored; it is passed again when the model is loaded.

The configuration names the file of the weights, and its hash. It is written last and moved to its place in one step,
so a folder holds the model from before or the new one, whenever a save is interrupted.
"""

import copy
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from rpgssm import __version__
from rpgssm.settings import check, declared, read, written
from rpgssm.training import from_arrays, to_arrays

from . import _decoders, _formats
from ._prepare import DataInfo

if TYPE_CHECKING:
    from ._estimator import Estimator

CONFIG, CARD = "config.json", "README.md"


def save(estimator: "Estimator", directory: Path, overwrite: bool) -> Path:
    """Write a fitted model. A folder that holds anything is refused unless `overwrite`, which replaces the model in it
    and leaves other files alone."""
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory} is a file: choose a folder to save the model to")
    if directory.is_dir() and any(directory.iterdir()) and not overwrite:
        raise ValueError(f"{directory} is not empty: choose another folder, or pass overwrite=True")
    config = describe(estimator)
    trees = {"model": estimator.model_} | {f"decoder-{name}": d for name, d in estimator.decoders_.items()}
    arrays: dict[str, np.ndarray] = {}
    for name, tree in trees.items():
        arrays |= to_arrays(eqx.filter(tree, eqx.is_array), name)
    from safetensors.numpy import save as to_bytes

    weights = to_bytes({name: np.array(x, order="C") for name, x in arrays.items()})
    digest = hashlib.sha256(weights).hexdigest()
    config["weights"] = {"file": f"weights-{digest[:16]}.safetensors", "sha256": digest}
    directory.mkdir(parents=True, exist_ok=True)
    old = _weights_of(directory)  # first: it refuses a folder of something else
    _place(directory / config["weights"]["file"], weights)
    if _is_ours(directory / CARD):
        _place(directory / CARD, card(estimator, config).encode())
    _place(directory / CONFIG, (json.dumps(config, indent=2) + "\n").encode())
    if old is not None and old != config["weights"]["file"]:
        (directory / old).unlink(missing_ok=True)
    return directory


def describe(estimator: "Estimator") -> dict[str, Any]:
    """The configuration of a fitted estimator, without its weights."""
    settings = settings_of(estimator)
    config = {
        "format": _formats.FORMAT,
        "rpgssm": __version__,
        "method": type(estimator).__name__,
        "settings": settings,
        "resolved": written(getattr(estimator, "resolved", dict)()),
        "data": asdict(estimator._data_info),
        "structure": estimator._structure(),
        "decoders": sorted(estimator.decoders_),
        "training": {
            "steps": estimator.n_steps_,
            "best_step": estimator.best_step_,
            "stopped": estimator.stopped_,
            "notes": estimator.notes_,
            "history": {k: [float(v) if np.isfinite(v) else None for v in x] for k, x in estimator.history_.items()},
        },
    }
    return json.loads(json.dumps(config))


def settings_of(estimator: "Estimator") -> dict[str, Any]:
    """All settings of an estimator as plain values; folders of this machine are left out."""
    return _without_folders({name: written(getattr(estimator, name)) for name in declared(type(estimator))})


def _without_folders(value: object) -> Any:
    if isinstance(value, Mapping):
        return {name: None if name == "checkpoint_dir" else _without_folders(one) for name, one in value.items()}
    return [_without_folders(one) for one in value] if isinstance(value, list) else value


def load(directory: Path, cls: Any, custom: Mapping[str, Any]) -> Any:
    """Read a saved model, of this class if it is given (a subclass of `Estimator`, or a function from name to class).

    `custom` are the settings that were objects of the user's own, by name: their code is not stored.
    """
    config, arrays = read_folder(directory)
    name = str(config.get("method"))
    if isinstance(cls, type):
        if name != cls.__name__:
            raise ValueError(f"{directory} holds a model of {name}, not of {cls.__name__}")
    else:
        cls = cls(name)
        if cls is None:
            raise ValueError(f"{directory} holds a model of {name!r}, which this version does not know")
    try:
        self = from_settings(cls, config["settings"], custom, directory)
        data, training = config["data"], config["training"]
        shapes = {name: tuple(shape) for name, shape in data["frame_shapes"].items()}
        info = DataInfo(**{**data, "frame_shapes": shapes})
        self._data_info, self._fitted = info, self._settings()
        self.n_steps_, self.best_step_, self.stopped_ = (training[k] for k in ("steps", "best_step", "stopped"))
        self.notes_ = list(training["notes"])
        self.history_ = {
            name: np.array([np.nan if v is None else v for v in x], float) for name, x in training["history"].items()
        }
        decoders = list(config["decoders"])
        seed = int(self.random_state)
        trees = {"model": self._skeleton(info, dict(config.get("structure", {})))}
        k = trees["model"].latent_dim
        trees |= {f"decoder-{name}": _decoders.build(k, name, info.frame_shapes, None, seed) for name in decoders}
    except (KeyError, TypeError, AttributeError) as error:
        what = f"has no entry {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{directory / CONFIG} is damaged: {what}") from None
    filled = {name: _filled(directory, name, tree, arrays) for name, tree in trees.items()}
    self.model_ = filled.pop("model")
    self.decoders_ = {name.removeprefix("decoder-"): d for name, d in filled.items()}
    self.n_features_in_ = int(np.prod(shapes[min(shapes)]))
    return self


def from_settings(cls: type, stored: Mapping[str, Any], custom: Mapping[str, Any], directory: Path) -> Any:
    """An estimator with stored settings; ValueError if one of them cannot be used."""
    about = declared(cls)
    if unknown := sorted(set(stored) - set(about)):
        raise ValueError(f"{directory / CONFIG} is damaged: {cls.__name__} has no setting {unknown[0]!r}")
    stored = _with_custom(cls, stored, custom, directory)
    self = cls(**{name: read(value, about[name].kind) for name, value in stored.items()})
    check(self)
    return self


def _with_custom(cls: type, stored: Mapping[str, Any], custom: Mapping[str, Any], directory: Path) -> Mapping[str, Any]:
    """Stored settings with the user's objects in their places, those of the stages of a stack too."""
    stored = copy.deepcopy(stored)
    groups = _groups(stored)
    wanted = {name for group in groups for name, value in group.items() if _custom_parts(value)}
    for name in sorted(wanted | {name for name, value in custom.items() if value is not None}):
        if not any(name in group for group in groups):
            raise ValueError(f"{cls.__name__} has no setting {name!r}: leave {name}= out")
        places, given = [group for group in groups if _custom_parts(group.get(name))], custom.get(name)
        if not places:
            raise ValueError(f"the model in {directory} has the library's own {name}: leave {name}= out")
        if len(places) == 1:
            given = [given]
        elif not isinstance(given, list | tuple) or len(given) != len(places):
            raise ValueError(
                f"the model in {directory} was fitted with an {name} of your own in {len(places)} stages: pass them "
                f"again, load(directory, {name}=[first, ...])"
            )
        for group, one in zip(places, given, strict=True):
            group[name] = _with_objects(directory, name, group[name], one)
    return stored


def _groups(stored: Mapping[str, Any]) -> list[Any]:
    """The settings of an estimator, and those of the estimators that are settings of it."""
    return [stored, *(one for value in stored.values() if isinstance(value, list) for one in value if _is_group(one))]


def _is_group(value: object) -> bool:
    return isinstance(value, Mapping) and "kind" in value


def _with_objects(directory: Path, name: str, stored: Any, given: object) -> Any:
    """A stored setting with the user's objects in the places of what was not stored."""
    missing = _custom_parts(stored)
    whole = missing == [""]
    who = "" if whole else f" for {', '.join(missing)}"
    if given is None:
        raise ValueError(
            f"the model in {directory} was fitted with an {name} of your own{who}: pass it again, "
            f"load(directory, {name}=...)"
        )
    if whole:
        return given
    parts = given if isinstance(given, Mapping) else dict.fromkeys(missing, given) if len(missing) == 1 else {}
    if absent := [part for part in missing if part not in parts]:
        raise ValueError(
            f"the model in {directory} has an {name} of your own{who}: pass a mapping with {', '.join(absent)}"
        )
    return {part: parts[part] if part in missing else value for part, value in stored.items()}


def _custom_parts(stored: object) -> list[str]:
    """Which parts of a stored setting were objects of the user's own; [""] for all of it."""
    if not isinstance(stored, Mapping):
        return []
    if "custom" in stored:
        return [""]
    return sorted(name for name, value in stored.items() if isinstance(value, Mapping) and "custom" in value)


def read_folder(directory: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The configuration of a saved model, in the newest format, and its arrays."""
    path = directory / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no saved model: there is no {CONFIG} in it")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("format"), int):
        raise ValueError(f"{path} is not the configuration of a model saved by this library")
    if config["format"] > _formats.FORMAT:
        raise ValueError(
            f"{directory} was saved by rpgssm {config.get('rpgssm')}, in a format that this version ({__version__}) "
            "does not know: install a newer rpgssm"
        )
    arrays = _arrays(directory, config)
    try:
        return _formats.newest(config, arrays)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}") from None


def _arrays(directory: Path, config: Mapping[str, Any]) -> dict[str, np.ndarray]:
    from safetensors.numpy import load as from_bytes

    about = config.get("weights", {"file": "weights.safetensors"})  # format 1 has one name, and no hash
    file = about.get("file") if isinstance(about, dict) else None
    if not isinstance(file, str) or Path(file).name != file:
        raise ValueError(f"{directory / CONFIG} is damaged: it names no file of weights in this folder")
    path = directory / file
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no {file}: the model was not saved completely")
    content = path.read_bytes()
    wanted = about.get("sha256")
    if wanted is not None and hashlib.sha256(content).hexdigest() != wanted:
        raise ValueError(f"{path} is damaged: its content has changed since it was saved")
    try:
        return from_bytes(content)
    except Exception as error:  # safetensors has no public class for it
        raise ValueError(f"{path} is damaged: {error}") from None


def _filled(directory: Path, name: str, tree: PyTree, arrays: dict[str, np.ndarray]) -> PyTree:
    """A pytree like the given one, with the stored arrays."""
    dynamic, static = eqx.partition(tree, eqx.is_array)
    try:
        filled = from_arrays(dynamic, name, arrays)
    except ValueError as error:
        raise ValueError(
            f"the weights in {directory} do not fit the model: {error}. If the encoder is your own module, pass one of "
            "the same shapes as encoder="
        ) from None
    return eqx.combine(jax.tree.map(jax.numpy.asarray, filled), static)


def _weights_of(directory: Path) -> str | None:
    """The file of weights that the configuration in a folder names. A configuration that is not ours is refused."""
    path = directory / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        config = None  # damaged: perhaps by an older version, which wrote it in several steps
    if config is not None and not (isinstance(config, dict) and {"method", "estimator"} & set(config)):
        raise ValueError(f"{path} is not of a model saved by this library: choose another folder")
    about = {} if config is None else config.get("weights", {"file": "weights.safetensors"})
    file = about.get("file") if isinstance(about, dict) else None
    ours = isinstance(file, str) and Path(file).name == file and Path(file).match("weights*.safetensors")
    return str(file) if ours else None


def _is_ours(card: Path) -> bool:
    """Whether there is no README yet, or one of a saved model: that of the user stays."""
    return not card.exists() or "Saved by rpgssm" in card.read_text(encoding="utf-8", errors="replace")


def _place(path: Path, content: bytes) -> None:
    """Write a file in one step: it is complete, or what it was before."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def card(estimator: "Estimator", config: Mapping[str, Any]) -> str:
    """A README for the folder of a model."""
    info = estimator._data_info
    shapes = "\n".join(f"| `{n}` | {'×'.join(map(str, shape))} |" for n, shape in sorted(info.frame_shapes.items()))
    groups = _groups(config["settings"])
    own = sorted({name for group in groups for name, value in group.items() if _custom_parts(value)})
    arguments = "".join(f", {name}=yours" for name in own)
    more = ", controls=u" if info.controlled else ""
    return (
        f"# {type(estimator).__name__} model\n\n"
        f"Saved by rpgssm {__version__} (jax {jax.__version__}).\n\n"
        f"```python\nimport rpgssm\n\n"
        f'model = rpgssm.load("path/to/this/folder"{arguments})\n'
        f"latents = model.transform(x{more})  # (N, T, {estimator._n_latents})\n```\n\n"
        f"| modality | frame |\n|---|---|\n{shapes}\n\n```\n{estimator.summary()}\n```\n"
    )
