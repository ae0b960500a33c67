"""The methods, and their one table: a method is a file in this folder and a line here.

Other packages add methods by an entry point of the group `rpgssm.methods`, which names a subclass of `Estimator`.
"""

from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rpgssm.estimator import Estimator as _Estimator
from rpgssm.estimator import load_folder as _load_folder

from .cpc import CPC as CPC
from .dcl import DCL as DCL
from .dkf import DKF as DKF
from .kvae import KVAE as KVAE
from .lgssm import LinearGaussianSSM as LinearGaussianSSM
from .rkn import RKN as RKN
from .rpgssm import RPGSSM as RPGSSM
from .rpgssm import EmpiricalMarginal as EmpiricalMarginal
from .rpgssm import GaussianMarginal as GaussianMarginal
from .rpgssm import PooledMarginal as PooledMarginal
from .stack import Stack as Stack
from .svae import SVAE as SVAE


@cache
def all_methods() -> dict[str, type[_Estimator]]:
    """All methods by the names of their classes: the ones above, and those of other packages."""
    own = {name: x for name, x in globals().items() if isinstance(x, type) and issubclass(x, _Estimator)}
    others = {point.name: point.load() for point in entry_points(group="rpgssm.methods")}
    return {name: cls for name, cls in (own | others).items() if not name.startswith("_")}


def load(directory: str | Path, **custom: object) -> Any:
    """Read a saved model of any method.

    Pass a setting that was an object of your own, such as an encoder, again by its name: `load(folder,
    encoder=module)`. The saved weights replace those of a module. For several modalities pass a mapping.
    """
    return _load_folder(Path(directory), all_methods().get, custom)
