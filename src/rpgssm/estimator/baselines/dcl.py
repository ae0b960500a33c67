"""The estimator of contrastive learning with linear or switching dynamics."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import numpy as np

from rpgssm.data import Sequences
from rpgssm.estimator import inference
from rpgssm.estimator.base import DataInfo
from rpgssm.estimator.results import Prediction, form_of, in_form
from rpgssm.estimator.settings import is_whole
from rpgssm.estimator.timescales import timescales
from rpgssm.models.baselines.dcl import DCLModel, objective

from .representation import RepresentationEstimator, keys_of


@dataclass(eq=False, repr=False)
class DCL(RepresentationEstimator):
    """Dynamics contrastive learning: an encoder whose output moves linearly, or by one of several matrices.

    Gives a representation of each frame by itself, dynamics, and forecasts without uncertainty. On stationary data they
    have the true frequencies, but what decays in truth grows in the model (see `rpgssm.models.baselines.dcl`), so
    forecasts are good for a few steps.

    Parameters
    ----------
    latent_dim : size of the embedding of a frame, which is the representation.
    encoder : as for `RPGSSM`.
    modes : number of transition matrices; more than 1 for switching dynamics.
    temperature : of the choice between them in training; the lower, the harder the choice.
    negatives : frames of the batch that each frame's successor is compared with, drawn anew at each step; None: all.

    The other parameters, and the attributes, are those of `RPGSSM`.

    Attributes
    ----------
    transitions_ : the matrices, (modes, K, K).
    """

    modes: int = 1
    temperature: float = 1.0
    negatives: int | None = None

    def _objective(self) -> Any:
        return eqx.Partial(objective, temperature=self.temperature, negatives=self.negatives)

    def _build(self, info: DataInfo, data: Sequences | None, seed: int) -> DCLModel:
        key, keys = keys_of(seed, info)
        return DCLModel(self._encoders(info, data, keys), int(self.latent_dim), int(self.modes), key=key)

    @property
    def transitions_(self) -> np.ndarray:
        """The matrices A, (modes, K, K)."""
        self._check_fitted()
        return np.array(self.model_.A)

    @property
    def transition_(self) -> np.ndarray:
        """The matrix A."""
        if self.modes > 1:
            raise AttributeError("these dynamics switch: there are several matrices, in transitions_")
        return self.transitions_[0]

    def infer_modes(self, X: Any, *, mask: Any = None) -> Any:
        """Which matrix best leads from each frame to the next, (N, T) integers; at the last frame that before it."""
        data, _ = self._sequences(X, mask, None)
        modes = inference.in_batches(partial(_modes, self.model_), data)
        return in_form(form_of(X, data), modes, data.lengths)

    def forecast(
        self,
        X: Any,
        steps: int,
        *,
        mask: Any = None,
        controls: Any = None,
        samples: int = 0,
        random_state: int | None = None,
    ) -> Prediction:
        """The embeddings of the `steps` frames after the last of each sequence, without covariances.

        With several matrices the one that acted last goes on to act. There is no noise, hence nothing to sample.
        """
        if not is_whole(steps, 1):
            raise ValueError(f"steps is {steps!r}: it must be a whole number of at least 1")
        if samples:
            raise ValueError("DCL has no noise: there are no trajectories to sample, leave samples= out")
        del random_state
        data, _ = self._sequences(X, mask, controls)
        mean = inference.in_batches(partial(_ahead, self.model_, steps=int(steps)), data)
        return Prediction(in_form(form_of(X, data), mean, None), None)

    def _headline(self) -> str:
        dynamics = "linear dynamics" if self.modes == 1 else f"dynamics that switch between {self.modes} matrices"
        return f"DCL with {self.latent_dim} latent dimensions, {dynamics}"

    def _dynamics(self) -> list[str]:
        lines = []
        for i, A in enumerate(self.transitions_):
            lines += [f"dynamics (eigenvalues of {'A' if self.modes == 1 else f'matrix {i}'})", *timescales(A)]
        return lines


@eqx.filter_jit
def _modes(model: DCLModel, batch: Sequences):
    return model.track(batch).mode


@eqx.filter_jit
def _ahead(model: DCLModel, batch: Sequences, *, steps: int):
    return model.forecast(batch, steps)
