"""The estimator of the deep Kalman filter."""

from dataclasses import dataclass
from typing import Literal

from rpgssm.data import Sequences
from rpgssm.estimator.base import DataInfo
from rpgssm.estimator.building import keys_for
from rpgssm.models.baselines.dkf import DKFModel
from rpgssm.models.baselines.generative import make_chain_prior

from .generative import GenerativeEstimator


@dataclass(eq=False, repr=False)
class DKF(GenerativeEstimator):
    """Deep Kalman filter: a linear Gaussian prior chain, a decoder, and a network that gives the posterior.

    Parameters
    ----------
    posterior : "mean-field" (independent frames), "linear" (a chain with a matrix of its own), "nonlinear" (a recurrent
        network over samples), all on a bidirectional recurrent network over frames; or "convolutional" (as "linear",
        on convolutions over time).
    hidden_dim : units of the recurrent networks, in each direction; None: twice the latent dimensions.
    covariance : "diagonal" or "cholesky" (full) covariances of the posterior's steps, and `initial_variance` where they
        start.
    share_transition : let the posteriors "linear" and "convolutional" use the matrix A of the prior as theirs.

    The other parameters are those of `SVAE`. The posterior looks at all frames at once: there is no filter.
    """

    posterior: Literal["mean-field", "linear", "nonlinear", "convolutional"] = "linear"
    hidden_dim: int | None = None
    covariance: Literal["diagonal", "cholesky"] = "diagonal"
    share_transition: bool = False
    initial_variance: float = 0.1

    can_filter = False
    _project = DKFModel.project

    def _build(self, info: DataInfo, data: Sequences | None, seed: int) -> DKFModel:
        count, k = len(info.frame_shapes), int(self.latent_dim)
        first, *keys = keys_for(seed, 1 + 2 * count)
        return DKFModel(
            make_chain_prior(k, seed),
            self._encoders(info, data, keys[:count]),
            self._emissions(info, data, keys[count:], k),
            self.posterior,
            hidden_dim=None if self.hidden_dim is None else int(self.hidden_dim),
            covariance=self.covariance,
            share_transition=bool(self.share_transition),
            initial_variance=float(self.initial_variance),
            key=first,
        )

    def _headline(self) -> str:
        return f"DKF with {self.latent_dim} latent dimensions, {self.posterior} posterior, noise {self.noise:g}"

    def _parts(self, name: str) -> str:
        return f"{type(self.model_.encoders[name]).__name__} and {type(self.model_.emissions[name].decoder).__name__}"
