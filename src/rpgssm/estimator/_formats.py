"""Formats of saved models, and the way from each one to the next.

| format | since | what changed                                                                                      |
|--------|-------|---------------------------------------------------------------------------------------------------|
| 1      | 0.1   | `parameters` are plain values, weights in `weights.safetensors`                                   |
| 2      | 0.2   | `settings` may be objects, {"kind": ...}; the file of weights is named, with its hash; second     |
|        |       | trainings (`widen`) are stages of a `Stack`                                                       |

A reader for each format brings a configuration and its arrays to the next one.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

FORMAT = 2

Config = dict[str, Any]
Arrays = dict[str, np.ndarray]


def newest(config: Config, arrays: Arrays) -> tuple[Config, Arrays]:
    """A configuration and its arrays in the newest format."""
    readers = {1: _from_1}
    while config["format"] in readers:
        config, arrays = readers[config["format"]](config, arrays)
    return config, arrays


# --- 1 to 2 -----------------------------------------------------------------------------------------------------------


def _from_1(config: Config, arrays: Arrays) -> tuple[Config, Arrays]:
    method, old = str(config["estimator"]), dict(config["parameters"])
    structure: dict[str, Any] = {}
    if method == "RPGSSM" and old.get("widen") is not None:
        wide = bool(config.get("structure", {}).get("wide"))
        method, structure = "Stack", {"stages": 2 if wide else 1}
        settings: dict[str, Any] = {"stages": [_rpgssm(_first(old), config), _rpgssm(_second(old), {})]}
        settings["stages"][1]["encoder"] = _layer(old)
    elif method == "RPGSSM":
        settings = _rpgssm(old, config)
    elif method == "LinearGaussianSSM":
        settings = {name: old[name] for name in ("latent_dim", "components", "tolerance", "random_state", "verbose")}
        settings["iterations"] = old["max_steps"]
    else:
        settings = _trained(old, config)
        kept = set(old) - set(_REPLACED) - {"precision", "data_dependent", "initial_precision"}
        settings |= {name: old[name] for name in kept if name not in settings}
        if "initial_precision" in old:  # SVAE and RKN
            settings["precision"] = _precision(old)
        if method == "RKN":
            settings["start_variance"] = settings.pop("initial_variance")
    settings.pop("kind", None)
    if "model.steps" in arrays:  # the count of a KVAE has become a module
        arrays = arrays | {"model.steps.value": arrays["model.steps"]}
        del arrays["model.steps"]
    config = {
        "format": 2,
        "rpgssm": config.get("rpgssm"),
        "method": method,
        "settings": settings,
        "structure": structure,
        **{name: config[name] for name in ("data", "decoders", "training")},
    }
    return config, arrays


_REPLACED = (
    *("prior_learning_rate", "schedule", "clip_norm", "batches", "mirror", "validate_every", "patience"),
    "checkpoint_dir",
)


def _trained(old: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of all methods that are trained by gradients."""
    same = ("latent_dim", "max_steps", "batch_size", "learning_rate", "window", "validation_fraction")
    same += ("n_init", "checkpoint_every", "random_state", "verbose")
    optimizer = {"kind": "Adam", "prior_rate": old["prior_learning_rate"], "schedule": old["schedule"]}
    return {name: old[name] for name in same if name in old} | {
        "encoder": _encoder(old["encoder"], config.get("custom_encoders", [])),
        "optimizer": optimizer | {"clip_norm": old["clip_norm"]},
        "sampler": {"kind": "SimilarWindows" if old.get("batches") == "alike" else "RandomWindows"},
        "augment": {"kind": "RandomFlips"} if old.get("mirror") else None,
        "stopping": {"kind": "Stopping", "validate_every": old["validate_every"], "patience": old["patience"]},
    }


def _encoder(stored: Any, own: list[str]) -> Any:
    """The setting `encoder`, with a sign where there was a module of the user's own."""
    if not own:
        return stored
    if isinstance(stored, Mapping):
        return {name: {"custom": "a module"} if name in own else one for name, one in stored.items()}
    return {"custom": "a module"}


def _precision(old: Mapping[str, Any]) -> dict[str, Any]:
    kind = "Cholesky" if old.get("precision", "diagonal") == "cholesky" else "Diagonal"
    return {"kind": kind, "data_dependent": old["data_dependent"], "start": old["initial_precision"]}


def _rpgssm(old: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {name: name.capitalize() for name in ("stationary", "free", "controlled", "network")} | {"auto": "Prior"}
    marginals = {"empirical": "EmpiricalMarginal", "gaussian": "GaussianMarginal", "pooled": "PooledMarginal"}
    marginal: Any = "auto"
    if old.get("marginal", "auto") != "auto":
        marginal = {"kind": marginals[old["marginal"]]}
        marginal |= {"times": old["mixture_times"]} if old["marginal"] == "pooled" else {}
    prior = {"kind": kinds[old["prior"]], "start": old["initial_transition"], "scale": old["initial_scale"]}
    return _trained(old, config) | {
        "kind": "RPGSSM",
        "precision": _precision(old),
        "prior": prior,
        "marginal": marginal,
        "posterior_gradient": old.get("posterior_gradient", True),
    }


def _first(old: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in old.items() if not name.startswith("widen")}


def _second(old: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the second training, with nothing left open."""
    changes = dict(old.get("widen_settings") or {})
    encoder = old["encoder"]
    names = encoder.values() if isinstance(encoder, Mapping) else (encoder,)
    linear = all(name == "linear" for name in names)
    rate, of_prior = (3e-2, 3e-2) if linear else (3e-3, 1e-3)
    if old["learning_rate"] is not None:
        rate, of_prior = old["learning_rate"], old["prior_learning_rate"]
    elif old["prior_learning_rate"] is not None:
        of_prior = old["prior_learning_rate"]
    if "learning_rate" not in changes:
        changes = {"learning_rate": rate, "prior_learning_rate": of_prior} | changes
    if changes.get("initial_scale") is None:
        scale = 0.9 if linear else 0.98
        changes["initial_scale"] = scale if old["initial_scale"] is None else old["initial_scale"]
    settings = _first(old) | changes | {"max_steps": old["widen_steps"]}
    settings |= {"encoder": "linear", "mirror": False, "n_init": 1}
    if settings.get("marginal", "auto") == "auto":
        settings["marginal"] = "empirical"
    return settings


def _layer(old: Mapping[str, Any]) -> Any:
    """What lies between the two stages."""
    units = old["widen"]
    if units == 0:
        return "linear"
    if (old.get("widen_settings") or {}).get("marginal", old.get("marginal")) == "gaussian":
        return {"kind": "FixedFeatures", "units": units, "components": old.get("widen_components", 25)}
    return {"kind": "WideLayer", "units": units}
