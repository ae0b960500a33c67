"""The estimators that users meet."""

from .inference import Online as Online
from .results import Latents as Latents
from .results import Prediction as Prediction
from .rpgssm import RPGSSM as RPGSSM
