"""What the contrastive estimators share: their settings, their score, and what they cannot give.

Their latents come out of a network without covariances, and never look ahead: filtering and smoothing are the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn

import equinox as eqx
import jax
import numpy as np

from rpgssm.data import Sequences
from rpgssm.estimator import inference
from rpgssm.estimator.base import DataInfo
from rpgssm.estimator.building import encoder_for, keys_for, standards
from rpgssm.estimator.results import Latents, form_of, in_form
from rpgssm.estimator.settings import is_whole
from rpgssm.models.encoders import make_encoder

from .generative import BaselineEstimator


@dataclass(eq=False, repr=False)
class RepresentationEstimator(BaselineEstimator):
    """Settings that the contrastive models have in common; `RPGSSM` explains them."""

    latent_dim: int = 8
    encoder: Any = "auto"
    max_steps: int = 3000
    batch_size: int = 32
    learning_rate: float = 1e-3
    prior_learning_rate: float | None = None
    schedule: Literal["constant", "cosine", "exponential", "warmup-cosine"] = "cosine"
    clip_norm: float | None = 10.0
    window: int | Literal["auto"] | None = "auto"
    validation_fraction: float | None = 0.1
    validate_every: int = 100
    patience: int | None = None
    n_init: int = 1
    checkpoint_dir: str | Path | None = None
    checkpoint_every: int = 500
    random_state: int = 0
    verbose: bool = True

    def _latents(self, function: Callable[..., Any], X: Any, mask: Any, controls: Any) -> Latents:
        data, _ = self._sequences(X, mask, controls)
        mean = inference.in_batches(partial(function, self.model_), data).mean
        return Latents(in_form(form_of(X, data), mean, data.lengths), None, None)

    def score(self, X: Any, y: Any = None, *, mask: Any = None, controls: Any = None) -> float:
        """Minus the training loss, with nothing hidden: higher is better. For the same data and `batch_size` only.

        The loss compares sequences with each other, so several are needed; a single one is cut into windows, as in
        training.
        """
        data, _ = self._sequences(X, mask, controls)
        if len(data) == 1:
            data = self._in_windows(data)
        return mean_score(self.model_, self._objective(), data, int(self.batch_size))

    def sample(self, *_: Any, **__: Any) -> NoReturn:
        """Not defined: raises ValueError."""
        raise ValueError(f"{type(self).__name__} is no probabilistic model: there is no prior to draw from")

    def sample_posterior(self, *_: Any, **__: Any) -> NoReturn:
        """Not defined: raises ValueError."""
        raise ValueError(f"{type(self).__name__} is no probabilistic model: there is no posterior to draw from")

    def online(self) -> NoReturn:
        """Not offered: raises ValueError."""
        raise no_online(self)

    def _build_encoders(self, info: DataInfo, data: Sequences | None, keys: Any) -> dict[str, Any]:
        """An encoder for each modality, the same as those of the RP-GSSM."""
        self._refuse_controls(info)
        encoders = {}
        for key, (name, shape) in zip(keys, sorted(info.frame_shapes.items()), strict=True):
            shift, scale = standards(shape, None if data is None else data.modalities[name])
            encoders[name] = make_encoder(
                encoder_for(self.encoder, name, shape), shape, key=key, shift=shift, scale=scale
            )
        return encoders

    def _parts(self, name: str) -> str:
        return type(self.model_.embedding.encoders[name]).__name__

    def _dynamics(self) -> list[str]:
        return []


def mean_score(model: Any, objective: Any, data: Sequences, batch_size: int) -> float:
    """Minus the loss over all data, from batches of one size, with a key of None: nothing random, nothing hidden."""
    size = min(batch_size, len(data))
    total, count = 0.0, 0.0
    for start in range(0, len(data), size):
        first = min(start, len(data) - size)  # the last batch reaches back, so that all have the same size
        terms = jax.device_get(_terms(model, objective, data.take(np.arange(first, first + size))))
        total = total + float(terms["log_score"][start - first :].sum())
        count = count + float(terms["count"][start - first :].sum())
    return total / max(count, 1.0)


@eqx.filter_jit
def _terms(model: Any, objective: Any, batch: Sequences) -> Any:
    return objective(model, batch, None)[1]["per_sequence"]


def no_online(estimator: Any) -> ValueError:
    return ValueError(f"{type(estimator).__name__} has no filter for single frames: use filter(X) on the frames so far")


def keys_of(seed: int, info: DataInfo, sets: int = 1) -> tuple[Any, Any]:
    """A key for the model, and `sets` for each modality."""
    first, *rest = keys_for(seed, 1 + sets * len(info.frame_shapes))
    return first, rest


def check_whole(estimator: Any, name: str, least: int, *, none: bool = False) -> None:
    """Raise ValueError unless a setting is a whole number of at least so much (or None, where that is allowed)."""
    value = getattr(estimator, name)
    if not (is_whole(value, least) or (none and value is None)):
        also = ", or None" if none else ""
        raise ValueError(f"{name} is {value!r}: it must be a whole number of at least {least}{also}")


def check_positive(estimator: Any, name: str) -> None:
    """Raise ValueError unless a setting is a positive, finite number."""
    value = getattr(estimator, name)
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not np.isfinite(value) or value <= 0:
        raise ValueError(f"{name} is {value!r}: it must be a positive number")
