"""The estimators that users meet."""

from .base import SequenceEstimator as SequenceEstimator
from .online import Online as Online
from .results import Latents as Latents
from .results import Prediction as Prediction
from .rpgssm import RPGSSM as RPGSSM
