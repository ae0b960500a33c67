"""Estimators to and from a folder: what is written, and how a model is put together again (files: `persistence.py`)."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from . import persistence
from .base import DataInfo
from .building import encoder_for
from .decoding import DecodingEstimator

T = TypeVar("T", bound="SavedEstimator")


class SavedEstimator(DecodingEstimator):
    """An estimator that can be saved and loaded."""

    def save(self, directory: str | Path, *, overwrite: bool = False) -> Path:
        """Write the model to a folder: config.json, weights.safetensors and a README. See `load`."""
        self._check_fitted()
        directory, info = Path(directory), self._data_info
        own = [n for n, s in sorted(info.frame_shapes.items()) if not isinstance(encoder_for(self.encoder, n, s), str)]
        params = self.get_params(deep=False)
        params |= {"checkpoint_dir": None} if "checkpoint_dir" in params else {}
        if own and "encoder" in params:  # code is not stored: None stands for a module to be passed again
            each = self.encoder
            params["encoder"] = {n: None if n in own else e for n, e in each.items()} if _by_name(each) else None
        config = {
            "estimator": type(self).__name__,
            "parameters": params,
            "data": asdict(info),
            "structure": self._structure(),
            "custom_encoders": own,
            "decoders": sorted(self.decoders_),
            "training": {
                "steps": self.n_steps_,
                "best_step": self.best_step_,
                "stopped": self.stopped_,
                "notes": self.notes_,
                "history": {k: [float(v) if np.isfinite(v) else None for v in x] for k, x in self.history_.items()},
            },
        }
        try:
            config = json.loads(json.dumps(config, default=_plain))
        except TypeError as error:
            raise ValueError(f"a setting of this estimator cannot be saved: {error}") from None
        trees = {"model": self.model_} | {f"decoder-{name}": d for name, d in self.decoders_.items()}
        persistence.write(directory, config, trees, self._card(own), overwrite)
        return directory

    @classmethod
    def load(cls: type[T], directory: str | Path, *, encoder: Any = None) -> T:
        """Read a saved model.

        If its encoder was a module of your own, pass one like it (its weights are replaced): a module, or a mapping by
        modality if there were several.
        """
        directory = Path(directory)
        config = persistence.read_config(directory)
        if config.get("estimator") != cls.__name__:
            raise ValueError(f"{directory} holds a model of {config.get('estimator')}, not of {cls.__name__}")
        try:
            parameters, own = dict(config["parameters"]), list(config["custom_encoders"])
            if "encoder" in parameters:
                parameters["encoder"] = _encoders(directory, parameters["encoder"], own, encoder)
            if not isinstance(parameters.get("initial_transition", ""), str):
                parameters["initial_transition"] = np.asarray(parameters["initial_transition"])
            self = cls(**parameters)
            data = config["data"]
            shapes = {name: tuple(shape) for name, shape in data["frame_shapes"].items()}
            self._data_info = DataInfo(**{**data, "frame_shapes": shapes})
            decoders, training = list(config["decoders"]), config["training"]
            self.n_steps_, self.best_step_, self.stopped_ = (training[k] for k in ("steps", "best_step", "stopped"))
            self.notes_ = list(training["notes"])
            self.history_ = {
                name: np.array([np.nan if v is None else v for v in x], float)
                for name, x in training["history"].items()
            }
        except (KeyError, TypeError, AttributeError) as error:
            what = f"has no entry {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{directory / persistence.CONFIG} is damaged: {what}") from None
        self.model_ = self._skeleton(self._data_info, dict(config.get("structure", {})))
        trees = {"model": self.model_} | {f"decoder-{name}": self._build_decoder(name, None) for name in decoders}
        loaded = persistence.read_weights(directory, trees)
        self.model_ = loaded.pop("model")
        self.decoders_ = {name.removeprefix("decoder-"): d for name, d in loaded.items()}
        self.n_features_in_ = int(np.prod(shapes[min(shapes)]))
        return self

    def _card(self, own: list[str]) -> str:
        shapes = "\n".join(
            f"| `{name}` | {'×'.join(map(str, shape))} |"
            for name, shape in sorted(self._data_info.frame_shapes.items())
        )
        name, argument = type(self).__name__, ", encoder=your_module" if own else ""
        more = ", controls=u" if self._data_info.controlled else ""
        return (
            f"# {name} model\n\n"
            f"Saved by rpgssm {persistence.__version__} (jax {jax.__version__}).\n\n"
            f"```python\nfrom rpgssm import {name}\n\n"
            f'model = {name}.load("path/to/this/folder"{argument})\n'
            f"latents = model.transform(x{more})  # (N, T, {self._n_latents})\n```\n\n"
            f"| modality | frame |\n|---|---|\n{shapes}\n\n```\n{self.summary()}\n```\n"
        )


def _by_name(encoder: Any) -> bool:
    return isinstance(encoder, Mapping)


def _encoders(directory: Path, stored: Any, own: list[str], given: Any) -> Any:
    """The setting `encoder` of a loaded model, with the user's modules in their places."""
    if not own:
        if given is not None:
            raise ValueError(f"the model in {directory} has the library's own encoder: leave encoder= out")
        return stored
    if given is None:
        raise ValueError(
            f"the model in {directory} was fitted with an encoder of your own for {', '.join(own)}: pass the module "
            "again, load(directory, encoder=module)"
        )
    if not _by_name(stored):
        return given
    modules = given if _by_name(given) else dict.fromkeys(own, given) if len(own) == 1 else {}
    if missing := [name for name in own if name not in modules]:
        raise ValueError(
            f"the model in {directory} has an encoder of your own for {', '.join(own)}: pass a mapping with "
            f"{', '.join(missing)} as encoder="
        )
    return {name: modules[name] if name in own else spec for name, spec in stored.items()}


def _plain(value: Any) -> Any:
    """What JSON does not know, as something that it does."""
    if isinstance(value, np.ndarray | jax.Array):
        return np.asarray(value).tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r}")
