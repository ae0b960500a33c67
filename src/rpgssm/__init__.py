"""Latent dynamics from time series and video, learnt without reconstructing the observations.

The recognition-parametrised Gaussian state space model (RP-GSSM) has a linear Gaussian chain of latents as prior and a
recognition network that turns each observation into a Gaussian potential on the latent of its time. There is no
decoder: the model is trained by maximum likelihood through a free energy that only ever compares recognition factors.

Importing this package is cheap and changes no global state. What it lists is imported when first touched:

>>> from rpgssm import RPGSSM  # imports JAX now, not before
>>> latents = RPGSSM(latent_dim=8).fit_transform(videos)
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import core as core
    from . import data as data
    from . import datasets as datasets
    from . import evaluation as evaluation
    from . import methods as methods
    from . import nn as nn
    from . import report as report
    from . import training as training
    from .methods import *  # noqa: F403
    from .methods import EmpiricalMarginal as EmpiricalMarginal
    from .methods import GaussianMarginal as GaussianMarginal
    from .methods import PooledMarginal as PooledMarginal
    from .methods import load as load
    from .nn import Cholesky as Cholesky
    from .nn import Controlled as Controlled
    from .nn import Diagonal as Diagonal
    from .nn import FixedFeatures as FixedFeatures
    from .nn import Free as Free
    from .nn import Network as Network
    from .nn import Prior as Prior
    from .nn import Stationary as Stationary
    from .nn import WideLayer as WideLayer
    from .training import SGD as SGD
    from .training import Adam as Adam
    from .training import RandomFlips as RandomFlips
    from .training import RandomWindows as RandomWindows
    from .training import SimilarWindows as SimilarWindows
    from .training import Stopping as Stopping

__version__ = "0.2.0"

_SUBPACKAGES = ("core", "data", "datasets", "evaluation", "methods", "nn", "report", "training")
_OBJECTS = {
    "methods": ("EmpiricalMarginal", "GaussianMarginal", "PooledMarginal", "load"),
    "nn": (
        *("Cholesky", "Diagonal", "FixedFeatures", "WideLayer"),
        *("Controlled", "Free", "Network", "Prior", "Stationary"),
    ),
    "training": (
        *("Adam", "SGD", "Stopping"),
        *("RandomFlips", "RandomWindows", "SimilarWindows"),
    ),
}
_HOMES = {name: home for home, names in _OBJECTS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    if not name.startswith("_"):
        from .methods import all_methods

        if name in (found := all_methods()):
            return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from .methods import all_methods

    return sorted({*_SUBPACKAGES, *_HOMES, *all_methods(), "__version__"})
