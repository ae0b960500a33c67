"""The estimator of the recurrent Kalman network."""

from dataclasses import dataclass
from typing import Any, NoReturn

import equinox as eqx
import numpy as np

from rpgssm.data import Sequences
from rpgssm.estimator.base import DataInfo
from rpgssm.estimator.building import build_recognition
from rpgssm.models.baselines.rkn import RKNModel, objective

from .generative import GenerativeEstimator
from .representation import keys_of, mean_score, no_online


@dataclass(eq=False, repr=False)
class RKN(GenerativeEstimator):
    """Recurrent Kalman network: a filter with elementwise gains between an encoder and a decoder.

    Gives filtered latents, forecasts and reconstructions. Its covariances weigh new frames against the past; nothing
    makes them agree with the errors of the latents. It does not smooth: `smooth` is the same as `filter`.

    Parameters
    ----------
    latent_dim : size of the state, an even number: frames show its first half, the second remembers.
    encoder : as for `RPGSSM`.
    decoder, output, noise, mask_size, mask_mode : as for `SVAE`; frames that are hidden are missing for the filter.
    mixed : number of transition matrices that are mixed, with weights that depend on the state.
    bandwidth : diagonals on either side of the main one, in each quarter of these matrices.
    data_dependent : whether the precision of what is seen in a frame depends on the frame.
    initial_precision : of what is seen in a frame, where it starts.
    initial_variance : of the state before the first frame; stays fixed.
    max_gain : the transition matrices are scaled after each step so that none stretches a vector by more; None: no
        limit. 1 keeps states from growing without bound: for training that diverges.

    The other parameters, and the attributes, are those of `RPGSSM`.
    """

    mixed: int = 15
    bandwidth: int = 3
    data_dependent: bool = True
    initial_precision: float = 1.0
    initial_variance: float = 10.0
    max_gain: float | None = None

    _project = RKNModel.project

    def _objective(self) -> Any:
        return eqx.Partial(objective, mask_size=int(self.mask_size), mask_mode=self.mask_mode)

    def _build(self, info: DataInfo, data: Sequences | None, seed: int) -> RKNModel:
        self._refuse_controls(info)
        k, count = int(self.latent_dim), len(info.frame_shapes)
        if k % 2:
            raise ValueError(f"latent_dim is {k}: the state of an RKN has two halves, so it must be even")
        key, keys = keys_of(seed, info, 3)
        recognition = build_recognition(
            self.encoder,
            info.frame_shapes,
            data,
            keys[: 2 * count],
            precision="diagonal",
            data_dependent=bool(self.data_dependent),
            latent_dim=k // 2,
            initial_precision=self.initial_precision,
        )
        emissions = self._emissions(info, data, keys[2 * count :], k)
        sizes = {"mixed": int(self.mixed), "bandwidth": int(self.bandwidth)}
        limits = {
            "initial_variance": float(self.initial_variance),
            "max_gain": None if self.max_gain is None else float(self.max_gain),
        }
        return RKNModel(recognition, emissions, k, **sizes, **limits, key=key)

    @property
    def transition_(self) -> np.ndarray:
        raise AttributeError("an RKN has no single transition matrix: its matrices are mixed by the state")

    def score(self, X: Any, y: Any = None, *, mask: Any = None, controls: Any = None) -> float:
        """The log-likelihood of a frame given its filtered mean, with nothing hidden: higher is better."""
        data, _ = self._sequences(X, mask, controls)
        return mean_score(self, data)

    def sample(self, *_: Any, **__: Any) -> NoReturn:
        """Not offered: raises ValueError."""
        raise ValueError("RKN draws no trajectories from its prior: use forecast(X, steps, samples=...)")

    def sample_posterior(self, *_: Any, **__: Any) -> NoReturn:
        """Not defined: raises ValueError."""
        raise ValueError("RKN has no posterior over trajectories, only filtered marginals: use filter(X)")

    def online(self) -> NoReturn:
        """Not offered: raises ValueError."""
        raise no_online(self)

    def _headline(self) -> str:
        return f"RKN with {self.latent_dim} latent dimensions, {self.mixed} mixed transitions, noise {self.noise:g}"

    def _parts(self, name: str) -> str:
        of, to = self.model_.recognition[name].encoder, self.model_.emissions[name].decoder
        return f"{type(of).__name__} and {type(to).__name__}"

    def _dynamics(self) -> list[str]:
        return []
