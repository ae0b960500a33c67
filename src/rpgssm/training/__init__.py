"""The training loop: one for every model, with its settings, history and checkpoints.

The names below are imported when first touched, so that the command line can read the settings without JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import TrainingConfig as TrainingConfig
    from .errors import LatentsNotFinite as LatentsNotFinite
    from .errors import TrainingDiverged as TrainingDiverged
    from .errors import check_finite as check_finite
    from .history import History as History
    from .loop import Report as Report
    from .loop import train as train
    from .loop import train_many as train_many
    from .run import Trained as Trained
    from .state import TrainingState as TrainingState
    from .tensorboard import TensorBoard as TensorBoard

_HOME = {
    "History": "history",
    "LatentsNotFinite": "errors",
    "Report": "loop",
    "TensorBoard": "tensorboard",
    "Trained": "run",
    "TrainingConfig": "config",
    "TrainingDiverged": "errors",
    "TrainingState": "state",
    "check_finite": "errors",
    "train": "loop",
    "train_many": "loop",
}

__all__ = [
    "History",
    "LatentsNotFinite",
    "Report",
    "TensorBoard",
    "Trained",
    "TrainingConfig",
    "TrainingDiverged",
    "TrainingState",
    "check_finite",
    "train",
    "train_many",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
