"""Latent dynamics from time series and video, learnt without reconstructing the observations.

The recognition-parametrised Gaussian state space model (RP-GSSM) has a linear Gaussian chain of latents as prior and a
recognition network that turns each observation into a Gaussian potential on the latent of its time. There is no
decoder: the model is trained by maximum likelihood through a free energy that only ever compares recognition factors.

Importing this package is cheap and changes no global state. Subpackages are imported when first touched:

>>> from rpgssm import RPGSSM  # imports JAX now, not before
>>> latents = RPGSSM(latent_dim=8).fit_transform(videos)
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import core as core
    from . import data as data
    from . import evaluation as evaluation
    from . import models as models
    from . import tasks as tasks
    from . import training as training
    from .estimator import RPGSSM as RPGSSM
    from .estimator.baselines import CPC as CPC
    from .estimator.baselines import DCL as DCL
    from .estimator.baselines import DKF as DKF
    from .estimator.baselines import KVAE as KVAE
    from .estimator.baselines import RKN as RKN
    from .estimator.baselines import SVAE as SVAE
    from .estimator.baselines import LinearGaussianSSM as LinearGaussianSSM
    from .estimator.loading import load as load

__version__ = "0.1.0"

_SUBPACKAGES = ("core", "data", "evaluation", "models", "tasks", "training")
_BASELINES = ("CPC", "DCL", "DKF", "KVAE", "RKN", "SVAE", "LinearGaussianSSM")
_NAMES = {"RPGSSM": "estimator", "load": "estimator.loading", **dict.fromkeys(_BASELINES, "estimator.baselines")}

__all__ = [
    "CPC",
    "DCL",
    "DKF",
    "KVAE",
    "RKN",
    "RPGSSM",
    "SVAE",
    "LinearGaussianSSM",
    "__version__",
    "core",
    "data",
    "evaluation",
    "load",
    "models",
    "tasks",
    "training",
]


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBPACKAGES, *_NAMES})
