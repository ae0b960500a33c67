"""The auxiliary decoder: trained on the latents of a fitted model, to see what they hold. The model stays as it is."""

from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import NotFittedError

from rpgssm.data import Modality, Sequences
from rpgssm.data.shared import stored_once
from rpgssm.models.decoder import decoder_loss, sample_latents
from rpgssm.models.rpgssm import label
from rpgssm.training import TrainingConfig, train

from . import inference
from .base import SequenceEstimator
from .building import build_decoder
from .results import form_of, in_form

T = TypeVar("T", bound="DecodingEstimator")


class DecodingEstimator(SequenceEstimator):
    """An estimator with decoders from latents to frames, one for each modality, in `decoders_`."""

    def fit_decoder(
        self: T,
        X: Any,
        *,
        mask: Any = None,
        controls: Any = None,
        steps: int = 1000,
        learning_rate: float = 2e-3,
        samples: int = 0,
    ) -> T:
        """Train decoders from the smoothed latents to the frames, to see what the latents hold. The model stays.

        They learn from the posterior's means, or, as in the paper, from `samples` draws of the posterior of each frame:
        that takes so many times as long.
        """
        data, _ = self._sequences(X, mask, controls)
        posterior = inference.in_batches(partial(inference.smooth, self.model_), data)
        latents = np.asarray(posterior.mean)
        if samples:
            latents = self._draws(posterior, int(samples))
        config = TrainingConfig(
            max_steps=steps,
            batch_size=min(self.batch_size, 8),
            learning_rate=learning_rate,
            schedule="cosine",
            window=self._window(data),
            seed=int(self.random_state),
        )
        for name in data.names:
            modality = data.modalities[name]
            pair = Sequences({"frames": modality, "latents": Modality(latents)}, None, data.lengths)
            decoder = self._build_decoder(name, modality)
            trained = train(decoder, _objective, pair, config, label=label, progress=bool(self.verbose))
            self.decoders_[name] = trained.model
        return self

    def reconstruct(self, X: Any, *, mask: Any = None, controls: Any = None) -> Any:
        """The frames that the auxiliary decoder expects for the smoothed latents; `fit_decoder` first."""
        data, _ = self._sequences(X, mask, controls)
        self._check_decoders()
        form = form_of(X, data)
        latents = inference.in_batches(partial(inference.smooth, self.model_), data).mean
        return self._decoded(latents, lambda x: in_form(form, x, data.lengths))

    def decode(self, latents: Any) -> Any:
        """The frames that the auxiliary decoder expects for given latents (..., K)."""
        self._check_fitted()
        self._check_decoders()
        z = np.asarray(latents, np.float32)
        if z.ndim == 0 or z.shape[-1] != self._n_latents:
            raise ValueError(f"latents have shape {z.shape}: the last axis must be {self._n_latents} long")
        return self._decoded(z, lambda x: x)

    def _decoded(self, z, shaped) -> Any:
        rows, out = z.reshape(-1, z.shape[-1]), {}
        for name, decoder in self._decoders().items():
            parts = [
                np.asarray(inference.decode(decoder, rows[start : start + inference.FRAMES]))
                for start in range(0, len(rows), inference.FRAMES)
            ]
            frames = np.concatenate(parts)
            out[name] = shaped(frames.reshape(*z.shape[:-1], *frames.shape[1:]))
        return next(iter(out.values())) if len(out) == 1 else out

    def _decoders(self) -> dict[str, Any]:
        """From latents to frames, by modality."""
        return self.decoders_

    def _draws(self, posterior: Any, samples: int) -> np.ndarray:
        """Draws of each frame's posterior (N, T, samples, K)."""
        if samples < 0:
            raise ValueError(f"samples is {samples}: at least 1, or 0 for the posterior's means")
        if getattr(posterior, "cov", None) is None:
            raise ValueError(f"samples is {samples}, but {type(self).__name__} has no posterior to draw from: use 0")
        key = jax.random.fold_in(jax.random.key(int(self.random_state)), 999)
        cov = posterior.cov[:1] if stored_once(posterior.cov) else posterior.cov
        draws = sample_latents(key, jnp.asarray(posterior.mean), jnp.asarray(cov), samples)
        return np.moveaxis(np.asarray(draws), 0, 2)

    def _check_decoders(self) -> None:
        if not self._decoders():
            raise NotFittedError("there is no auxiliary decoder yet: call fit_decoder(X) first")

    def _build_decoder(self, name: str, modality: Modality | None) -> Any:
        shapes = self._data_info.frame_shapes
        key = jax.random.fold_in(jax.random.key(int(self.random_state)), 1000 + sorted(shapes).index(name))
        return build_decoder(self._n_latents, shapes[name], modality, key)


def _objective(decoder, batch, key):
    del key  # nothing here is random
    frames, latents = batch.modalities["frames"], batch.modalities["latents"].values
    if latents.ndim == 4:  # draws
        latents = jnp.moveaxis(latents, 2, 0)
    return decoder_loss(decoder, latents, frames.frames(), frames.mask)
