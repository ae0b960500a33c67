"""The estimator of the Kalman variational autoencoder."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import numpy as np

from rpgssm.data import Sequences
from rpgssm.estimator import inference
from rpgssm.estimator.base import DataInfo
from rpgssm.estimator.building import keys_for
from rpgssm.estimator.results import form_of, in_form
from rpgssm.models.baselines.kvae import KVAEModel
from rpgssm.models.rpgssm import label

from .generative import GenerativeEstimator


def _label(path: str) -> str:
    return "frozen" if path == "steps" else label(path)


@dataclass(eq=False, repr=False)
class KVAE(GenerativeEstimator):
    """Kalman variational autoencoder: a code for each frame, and a linear Gaussian model of the codes.

    Parameters
    ----------
    code_dim : numbers in the code of a frame; None: half the latent dimensions, at least 2.
    mixtures : matrices that the transition and the emission of codes are mixed of.
    reconstruction_weight : of log p(x|a) in training; it is 1 in `score`.
    warmup_steps : steps before the weights of the mixture begin to learn.

    The other parameters are those of `SVAE`; `noise` is that of frames around what the decoder makes of a code.
    """

    code_dim: int | None = None
    mixtures: int = 3
    reconstruction_weight: float = 0.3
    warmup_steps: int = 500

    score_weight = 1.0
    _project = KVAEModel.project
    _label = staticmethod(_label)

    def _build(self, info: DataInfo, data: Sequences | None, seed: int) -> KVAEModel:
        count, k = len(info.frame_shapes), int(self.latent_dim)
        code = max(2, k // 2) if self.code_dim is None else int(self.code_dim)
        first, *keys = keys_for(seed, 1 + 2 * count)
        return KVAEModel(
            self._encoders(info, data, keys[:count]),
            self._emissions(info, data, keys[count:], code),
            k,
            code,
            int(self.mixtures),
            weight=float(self.reconstruction_weight),
            warmup_steps=int(self.warmup_steps),
            key=first,
        )

    @property
    def transition_(self) -> np.ndarray:
        """There is no single one."""
        raise AttributeError(
            "the transition matrix of a KVAE changes with the codes; model_.A holds what it is mixed of"
        )

    def reconstruct(self, X: Any, *, mask: Any = None, controls: Any = None) -> Any:
        """The frames that the model expects for the smoothed latents."""
        self._check_fitted()
        if self.decoders_:
            return super().reconstruct(X, mask=mask, controls=controls)
        data, _ = self._sequences(X, mask, controls)
        form = form_of(X, data)
        codes = inference.in_batches(partial(_expected_codes, self.model_), data)
        return self._decoded(codes, lambda x: in_form(form, x, data.lengths))

    def decode(self, latents: Any) -> Any:
        """Frames for given latents, by auxiliary decoders (`fit_decoder`): the model's own decoder takes codes."""
        self._check_fitted()
        if not self.decoders_:
            raise ValueError(
                "a KVAE decodes codes, which depend on the frames before and not on the latent alone: use "
                "reconstruct(X), or fit_decoder(X) first"
            )
        return super().decode(latents)

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """Not defined without data: how a KVAE moves on depends on the codes so far."""
        raise ValueError("a KVAE has no prior over latents apart from codes: use forecast(X, steps, samples=...)")

    def online(self) -> Any:
        """Not available."""
        raise ValueError("KVAE has no online filter here: use filter(X) on the frames so far")

    def _headline(self) -> str:
        size = f"{self.latent_dim} latent dimensions, codes of {self.model_.code_dim}"
        return f"KVAE with {size}, {self.mixtures} mixed matrices, noise {self.noise:g}"

    def _parts(self, name: str) -> str:
        return f"{type(self.model_.encoders[name]).__name__} and {type(self.model_.emissions[name].decoder).__name__}"

    def _dynamics(self) -> list[str]:
        return []


@eqx.filter_jit
def _expected_codes(model: KVAEModel, batch: Sequences):
    return model.expected_codes(batch)
