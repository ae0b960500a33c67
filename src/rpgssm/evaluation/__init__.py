"""Scoring latents against the truth: what can be read off them, forecasts, calibration, robustness, and ceilings."""

from .calibration import Calibration as Calibration
from .calibration import Misfit as Misfit
from .calibration import calibrate as calibrate
from .calibration import coverage as coverage
from .ceiling import angle_noise as angle_noise
from .ceiling import ceiling as ceiling
from .ceiling import exact_smoother as exact_smoother
from .ceiling import linear_ceiling as linear_ceiling
from .ceiling import pendulum_ceiling as pendulum_ceiling
from .forecasting import ForecastScores as ForecastScores
from .forecasting import forecast_scores as forecast_scores
from .forecasting import look_ahead as look_ahead
from .latents import Estimator as Estimator
from .latents import Latents as Latents
from .latents import collect as collect
from .pendulum_smoother import smooth_pendulum as smooth_pendulum
from .regression import KernelReadout as KernelReadout
from .regression import LinearReadout as LinearReadout
from .regression import mean_score as mean_score
from .regression import r_squared as r_squared
from .report import Evaluation as Evaluation
from .report import evaluate as evaluate
from .robustness import Robustness as Robustness
from .robustness import background_spread as background_spread
from .robustness import robustness as robustness
