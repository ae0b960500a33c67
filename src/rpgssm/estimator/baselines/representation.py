"""What the contrastive estimators share: their settings, their score, and what they cannot give.

Their latents come out of a network without covariances, and never look ahead: filtering and smoothing are the same.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from rpgssm.data import Sequences
from rpgssm.estimator import inference
from rpgssm.estimator.base import DataInfo
from rpgssm.estimator.building import keys_for
from rpgssm.estimator.results import Latents, form_of, in_form

from .generative import TrainedBaseline


class RepresentationEstimator(TrainedBaseline):
    """What the contrastive models have in common."""

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
        return mean_score(self, data)

    def sample(self, *_: Any, **__: Any) -> NoReturn:
        """Not defined: raises ValueError."""
        raise ValueError(f"{type(self).__name__} is no probabilistic model: there is no prior to draw from")

    def sample_posterior(self, *_: Any, **__: Any) -> NoReturn:
        """Not defined: raises ValueError."""
        raise ValueError(f"{type(self).__name__} is no probabilistic model: there is no posterior to draw from")

    def online(self) -> NoReturn:
        """Not offered: raises ValueError."""
        raise no_online(self)

    def _parts(self, name: str) -> str:
        return type(self.model_.embedding.encoders[name]).__name__

    def _dynamics(self) -> list[str]:
        return []


def mean_score(estimator: Any, data: Sequences) -> float:
    """Minus the loss over all data, with a key of None: nothing random, nothing hidden."""
    objective = estimator._objective()

    def scores(batch, index):
        del index
        terms = inference.per_sequence(objective, estimator.model_, batch, None)
        return terms["log_score"], terms["count"]

    return inference.mean_of_compared(scores, data, int(estimator.batch_size))


def no_online(estimator: Any) -> ValueError:
    return ValueError(f"{type(estimator).__name__} has no filter for single frames: use filter(X) on the frames so far")


def keys_of(seed: int, info: DataInfo, sets: int = 1) -> tuple[Any, Any]:
    """A key for the model, and `sets` for each modality."""
    first, *rest = keys_for(seed, 1 + sets * len(info.frame_shapes))
    return first, rest
