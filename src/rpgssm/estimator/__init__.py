"""Estimators: a user's arrays in, a model trained and asked, arrays in the user's form out."""

from ._estimator import Estimator as Estimator
from ._estimator import joined as joined
from ._gradient import GradientEstimator as GradientEstimator
from ._inference import FRAMES as FRAMES
from ._inference import answers as answers
from ._inference import in_batches as in_batches
from ._online import Online as Online
from ._prepare import DataInfo as DataInfo
from ._prepare import Prepared as Prepared
from ._results import Latents as Latents
from ._results import Prediction as Prediction
from ._saving import load as load_folder  # noqa: F401
from ._timescales import timescales as timescales
