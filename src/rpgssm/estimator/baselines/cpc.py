"""The estimator of contrastive predictive coding."""

from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import equinox as eqx
import numpy as np

from rpgssm.data import Sequences
from rpgssm.estimator.base import DataInfo
from rpgssm.models.baselines.cpc import CPCModel, objective

from .representation import RepresentationEstimator, keys_of


@dataclass(eq=False, repr=False)
class CPC(RepresentationEstimator):
    """Contrastive predictive coding: a recurrent summary of the past that tells which frames come next.

    Gives a representation of the past at each frame; neither dynamics, hence forecasts, nor uncertainty.

    Parameters
    ----------
    latent_dim : size of the context, which is the representation.
    encoder : as for `RPGSSM`.
    embedding_dim : size of the embedding of a frame.
    horizons : frames ahead that are to be recognised, from 1 to this many.
    mask_size : frames of each sequence that are zeros for the recurrent network at each step, and have to be recognised
        all the same (at most half of the sequence); 0: none.
    mask_mode : "window" hides frames that follow each other, "random" frames anywhere.

    The other parameters, and the attributes, are those of `RPGSSM`.
    """

    embedding_dim: int = 64
    horizons: int = 12
    mask_size: int = 20
    mask_mode: Literal["window", "random"] = "window"

    can_forecast = False

    def _objective(self) -> Any:
        return eqx.Partial(objective, mask_size=int(self.mask_size), mask_mode=self.mask_mode)

    def _build(self, info: DataInfo, data: Sequences | None, seed: int) -> CPCModel:
        key, keys = keys_of(seed, info)
        encoders = self._encoders(info, data, keys)
        return CPCModel(encoders, int(self.latent_dim), int(self.embedding_dim), int(self.horizons), key=key)

    @property
    def transition_(self) -> np.ndarray:
        raise AttributeError("CPC has no dynamics: there is no transition matrix")

    def forecast(self, *_: Any, **__: Any) -> NoReturn:
        """Not defined: raises ValueError."""
        raise ValueError("CPC has no dynamics: forecasts are not defined")

    def _headline(self) -> str:
        return f"CPC with a context of {self.latent_dim} dimensions, {self.horizons} horizons"
