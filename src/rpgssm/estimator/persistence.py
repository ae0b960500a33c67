"""Saved models: a folder with settings (JSON), weights (safetensors) and a card to read. Nothing is pickled.

A file from a stranger is safe to open: loading reads numbers and settings, and builds the networks from the library's
own code. An encoder of the user's own is code that is not stored; it is passed again when the model is loaded.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from rpgssm import __version__
from rpgssm.training.state import from_arrays, to_arrays

FORMAT = 1
CONFIG, WEIGHTS, CARD = "config.json", "weights.safetensors", "README.md"


def write(directory: Path, config: Mapping[str, Any], trees: Mapping[str, Any], card: str, overwrite: bool) -> None:
    """Write a model. A folder that holds anything is refused unless `overwrite`, which replaces these three files."""
    from safetensors.numpy import save_file

    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory} is a file: choose a folder to save the model to")
    if directory.is_dir() and any(directory.iterdir()) and not overwrite:
        raise ValueError(f"{directory} is not empty: choose another folder, or pass overwrite=True")
    directory.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, np.ndarray] = {}
    for name, tree in trees.items():
        arrays |= to_arrays(eqx.filter(tree, eqx.is_array), name)
    arrays = {name: np.array(x, order="C") for name, x in arrays.items()}
    text = json.dumps({"format": FORMAT, "rpgssm": __version__, **config}, indent=2) + "\n"
    # each file complete or absent: written beside its place, then moved; the settings, which make it a model, last
    save_file(arrays, directory / (WEIGHTS + ".part"))
    (directory / (WEIGHTS + ".part")).replace(directory / WEIGHTS)
    for name, content in ((CARD, card), (CONFIG, text)):
        (directory / (name + ".part")).write_text(content, encoding="utf-8")
        (directory / (name + ".part")).replace(directory / name)


def read_config(directory: Path) -> dict[str, Any]:
    """The settings of a saved model."""
    path = directory / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no saved model: there is no {CONFIG} in it")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("format"), int):
        raise ValueError(f"{path} is not the settings of a model saved by this library")
    if config["format"] > FORMAT:
        raise ValueError(
            f"{directory} was saved by rpgssm {config.get('rpgssm')}, in a format that this version ({__version__}) "
            "does not know: install a newer rpgssm"
        )
    return config


def read_weights(directory: Path, trees: Mapping[str, Any]) -> dict[str, Any]:
    """Pytrees like the given ones, with the stored arrays."""
    from safetensors.numpy import load_file

    path = directory / WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no {WEIGHTS}: the model was not saved completely")
    try:
        arrays = load_file(path)
    except Exception as error:  # safetensors has no public class for it
        raise ValueError(f"{path} is damaged: {error}") from None
    result = {}
    for name, tree in trees.items():
        dynamic, static = eqx.partition(tree, eqx.is_array)
        try:
            filled = from_arrays(dynamic, name, arrays)
        except ValueError as error:
            raise ValueError(
                f"the weights in {directory} do not fit the model: {error}. If the encoder is your own module, pass "
                "one of the same shapes as encoder="
            ) from None
        result[name] = eqx.combine(jax.tree.map(jax.numpy.asarray, filled), static)
    return result
