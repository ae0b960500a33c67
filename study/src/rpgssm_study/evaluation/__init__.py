"""Scoring a model on a task: all scores at once, robustness to backgrounds, and ceilings."""

from .ceiling import angle_noise as angle_noise
from .ceiling import ceiling as ceiling
from .ceiling import exact_smoother as exact_smoother
from .ceiling import linear_ceiling as linear_ceiling
from .ceiling import pendulum_ceiling as pendulum_ceiling
from .evaluate import Evaluation as Evaluation
from .evaluate import evaluate as evaluate
from .pendulum_smoother import smooth_pendulum as smooth_pendulum
from .robustness import Robustness as Robustness
from .robustness import background_spread as background_spread
from .robustness import robustness as robustness
