"""Scoring latents against the truth: what can be read off them, forecasts, calibration."""

from .calibration import Calibration as Calibration
from .calibration import Misfit as Misfit
from .calibration import calibrate as calibrate
from .calibration import coverage as coverage
from .evaluate import Evaluation as Evaluation
from .evaluate import Forecasts as Forecasts
from .evaluate import evaluate as evaluate
from .forecasting import ForecastScores as ForecastScores
from .forecasting import forecast_scores as forecast_scores
from .forecasting import look_ahead as look_ahead
from .labelled import Labelled as Labelled
from .latents import Latents as Latents
from .latents import collect as collect
from .regression import KernelReadout as KernelReadout
from .regression import LinearReadout as LinearReadout
from .regression import mean_score as mean_score
from .regression import r_squared as r_squared
