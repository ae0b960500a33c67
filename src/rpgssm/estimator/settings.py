"""Checks of an estimator's settings, made when it is fitted: each message names the setting and what it may be."""

from collections.abc import Callable, Mapping
from typing import Any, get_args

import numpy as np

from rpgssm.models import encoders
from rpgssm.training.config import BatchName, ScheduleName

PRIORS = ("auto", "stationary", "free", "controlled", "network")
ENCODERS = ("auto", *encoders.NAMES)
PRECISIONS = ("diagonal", "cholesky")
MARGINALS = ("auto", "empirical", "pooled", "gaussian")
DECODERS = ("auto", "linear", "mlp", "conv", "conv-paper")
OUTPUTS = ("auto", "sigmoid", "linear")
POSTERIORS = ("mean-field", "linear", "nonlinear", "convolutional")
MASK_MODES = ("window", "random")


WHOLE_NUMBERS = {
    0: ("random_state", "mask_size", "warmup_steps", "bandwidth"),
    1: (
        *("latent_dim", "max_steps", "batch_size", "n_init", "validate_every", "checkpoint_every", "mixture_times"),
        *("widen_steps", "widen_components"),
        *("embedding_dim", "horizons", "modes", "mixed"),
    ),
}

FOR_WIDENING = (
    *("latent_dim", "precision", "data_dependent", "marginal", "mixture_times", "initial_transition", "initial_scale"),
    *("initial_precision", "batch_size", "batches", "learning_rate", "prior_learning_rate", "schedule"),
    *("clip_norm", "window", "validate_every", "patience"),
)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise ValueError for settings that cannot be used. Those that an estimator does not have are passed over."""
    for least, names in WHOLE_NUMBERS.items():
        for name in names:
            _check(settings, name, lambda x, least=least: is_whole(x, least), f"a whole number of at least {least}")
    for name in ("hidden_dim", "code_dim", "components", "negatives"):
        _check(settings, name, lambda x: x is None or is_whole(x, 1), "a whole number of at least 1, or None")
    _check(settings, "widen", lambda x: x is None or is_whole(x, 0), "a whole number (0: no layer), or None")
    if settings.get("widen_settings") is not None and settings.get("widen") is None:
        raise ValueError("widen_settings are given, but widen is None: pass widen=0 for a second training with them")
    _check(settings, "widen_settings", _are_for_widening, f"None, or a mapping with any of {', '.join(FOR_WIDENING)}")
    for name in ("initial_precision", "initial_variance", "noise", "reconstruction_weight", "temperature"):
        _check(settings, name, _is_positive, "a positive number")
    for name in ("learning_rate", "prior_learning_rate", "clip_norm", "max_gain"):
        _check(settings, name, lambda x: x is None or _is_positive(x), "a positive number, or None")
    _check(settings, "patience", lambda x: x is None or is_whole(x, 1), "a whole number of at least 1, or None")
    fraction = "between 0 and 1, or None for no validation"
    _check(settings, "validation_fraction", lambda x: x is None or (_is_positive(x) and x < 1), fraction)
    frames = "'auto', None for whole sequences, or a number of frames of at least 2"
    _check(settings, "window", lambda x: x is None or is_whole(x, 2) or (isinstance(x, str) and x == "auto"), frames)
    for name, choices in {
        "prior": PRIORS,
        "precision": PRECISIONS,
        "marginal": MARGINALS,
        "covariance": PRECISIONS,
        "schedule": get_args(ScheduleName),
        "batches": get_args(BatchName),
        "decoder": DECODERS,
        "output": OUTPUTS,
        "posterior": POSTERIORS,
        "mask_mode": MASK_MODES,
    }.items():
        _check(settings, name, lambda x, choices=choices: x in choices, f"one of {', '.join(map(repr, choices))}")
    names = ", ".join(map(repr, ENCODERS))
    modules = "a module or function from a frame to a vector, or a mapping from modalities to these"
    _check(settings, "encoder", _are_encoders, f"one of {names}, {modules}")


def _are_encoders(value: Any) -> bool:
    if isinstance(value, Mapping):
        return len(value) > 0 and all(_are_encoders(x) and not isinstance(x, Mapping) for x in value.values())
    return value in ENCODERS if isinstance(value, str) else callable(value) and not isinstance(value, type)


def _are_for_widening(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping) and set(value) <= set(FOR_WIDENING))


def is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def _is_positive(value: Any) -> bool:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return number and bool(np.isfinite(value)) and bool(value > 0)


def _check(settings: Mapping[str, Any], name: str, holds: Callable[[Any], bool], wanted: str) -> None:
    if name in settings and not holds(settings[name]):
        raise ValueError(f"{name} is {settings[name]!r}: it must be {wanted}")
