"""What the estimators of the generative baselines share: their settings, encoders and emissions, and their score."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import numpy as np

from rpgssm.data import Sequences
from rpgssm.estimator import inference
from rpgssm.estimator.base import DataInfo
from rpgssm.estimator.building import encoder_for, standards
from rpgssm.estimator.gradient import GradientEstimator
from rpgssm.estimator.latents import LatentEstimator
from rpgssm.estimator.saving import SavedEstimator
from rpgssm.estimator.timescales import timescales
from rpgssm.models.baselines.generative import Emission, make_emission, objective
from rpgssm.models.encoders import make_encoder


class BaselineEstimator(LatentEstimator, SavedEstimator):
    """A model other than the RP-GSSM: it refuses controls."""

    @property
    def transition_(self) -> np.ndarray:
        """The matrix A of the prior chain."""
        self._check_fitted()
        return np.array(self.model_.prior.A)

    def _refuse_controls(self, info: DataInfo) -> None:
        if info.controlled:
            raise ValueError(
                f"{type(self).__name__} has no use for controls: leave controls= out, or use RPGSSM(prior='controlled')"
            )

    def _dynamics(self) -> list[str]:
        return ["dynamics (eigenvalues of A)", *timescales(self.transition_)]


@dataclass(eq=False, repr=False)
class TrainedBaseline(GradientEstimator, BaselineEstimator):
    """Settings of all baselines that are trained by gradients, and their encoders; `RPGSSM` explains them."""

    latent_dim: int = 8
    encoder: Any = "auto"
    max_steps: int = 3000
    batch_size: int = 32
    learning_rate: float = 1e-3
    prior_learning_rate: float | None = None
    schedule: Literal["constant", "cosine", "exponential", "warmup-cosine"] = "cosine"
    clip_norm: float | None = 10.0
    batches: Literal["random", "alike"] = "random"
    mirror: bool = False
    window: int | Literal["auto"] | None = "auto"
    validation_fraction: float | None = 0.1
    validate_every: int = 100
    patience: int | None = None
    n_init: int = 1
    checkpoint_dir: str | Path | None = None
    checkpoint_every: int = 500
    random_state: int = 0
    verbose: bool = True

    def _encoders(self, info: DataInfo, data: Sequences | None, keys: Any) -> dict[str, Any]:
        """The networks up to the features, the same as those of the RP-GSSM, for each modality."""
        self._refuse_controls(info)
        encoders = {}
        for key, (name, shape) in zip(keys, sorted(info.frame_shapes.items()), strict=True):
            shift, scale = standards(shape, None if data is None else data.modalities[name])
            spec = encoder_for(self.encoder, name, shape)
            encoders[name] = make_encoder(spec, shape, key=key, shift=shift, scale=scale)
        return encoders

    def _parts(self, name: str) -> str:
        return type(self.model_.encoders[name]).__name__


@dataclass(eq=False, repr=False)
class GenerativeEstimator(TrainedBaseline):
    """Settings that all variational baselines have; `SVAE` explains them."""

    decoder: Literal["auto", "linear", "mlp", "conv", "conv-paper"] = "auto"
    output: Literal["auto", "sigmoid", "linear"] = "auto"
    noise: float = 0.1
    mask_size: int = 20
    mask_mode: Literal["window", "random"] = "window"

    score_weight: ClassVar[float | None] = None  # of the reconstruction, where a model trains with another

    def _objective(self) -> Any:
        return partial(objective, mask_size=int(self.mask_size), mask_mode=self.mask_mode)

    def _emissions(self, info: DataInfo, data: Sequences | None, keys: Any, latent_dim: int) -> dict[str, Emission]:
        emissions = {}
        for key, (name, shape) in zip(keys, sorted(info.frame_shapes.items()), strict=True):
            shift, scale = standards(shape, None if data is None else data.modalities[name])
            output: Any = self.output
            if output == "auto":  # integer images, and only they, are sure to be between 0 and 1
                output = "sigmoid" if info.scales[name] != 1.0 else "linear"
            emissions[name] = make_emission(
                self.decoder,
                latent_dim,
                shape,
                key=key,
                noise=float(self.noise),
                output=output,
                shift=shift,
                scale=scale,
            )
        return emissions

    def _decoders(self) -> dict[str, Any]:
        """The model has decoders of its own; auxiliary ones take their place once they are trained."""
        return self.decoders_ or self.model_.emissions

    def reconstruct(self, X: Any, *, mask: Any = None, controls: Any = None) -> Any:
        """The frames that the model expects for the smoothed latents."""
        return super().reconstruct(X, mask=mask, controls=controls)

    def decode(self, latents: Any) -> Any:
        """The frames that the model expects for given latents (..., K)."""
        return super().decode(latents)

    def score(self, X: Any, y: Any = None, *, mask: Any = None, controls: Any = None) -> float:
        """The ELBO per observed frame, with nothing hidden: higher is better. One sample, the same at every call."""
        data, _ = self._sequences(X, mask, controls)
        key = jax.random.key(int(self.random_state))
        total = inference.in_batches(partial(_elbo, self.model_, self.score_weight), data, key=key)
        return float(np.sum(total, dtype=np.float64) / max(int(data.observed()), 1))


@eqx.filter_jit
def _elbo(model: Any, weight: float | None, batch: Sequences, key: Any):
    bound = model.bound(batch, key) if weight is None else model.bound(batch, key, weight=weight)
    return bound.reconstruction - bound.kl
