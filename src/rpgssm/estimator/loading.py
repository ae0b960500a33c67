"""Any saved model, by the class that its settings name."""

import importlib
from pathlib import Path
from typing import Any

from . import persistence

ESTIMATORS = {
    "RPGSSM": "rpgssm",
    "SVAE": "baselines.svae",
    "DKF": "baselines.dkf",
    "KVAE": "baselines.kvae",
    "LinearGaussianSSM": "baselines.linear_gaussian",
    "CPC": "baselines.cpc",
    "DCL": "baselines.dcl",
    "RKN": "baselines.rkn",
}


def estimator_class(name: str) -> Any:
    """The class of this name."""
    return getattr(importlib.import_module(f"{__package__}.{ESTIMATORS[name]}"), name)


def load(directory: str | Path, *, encoder: Any = None) -> Any:
    """Read a saved model of any kind; an encoder of your own is passed as to `RPGSSM.load`."""
    name = persistence.read_config(Path(directory)).get("estimator")
    if name not in ESTIMATORS:
        raise ValueError(f"{directory} holds a model of {name!r}, which this version does not know")
    return estimator_class(name).load(directory, encoder=encoder)
