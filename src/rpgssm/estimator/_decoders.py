"""Auxiliary decoders: trained on the latents of a fitted model, to see what they hold. The model stays as it is."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from rpgssm.data import Modality, Sequences
from rpgssm.data.repeated import is_repeated
from rpgssm.nn.build import standards
from rpgssm.nn.decoder import Decoder, DecoderInfo, decoder_loss, make_decoder, sample_latents
from rpgssm.training import Training, train


def fit(
    data: Sequences,
    posterior: Any,
    *,
    steps: int,
    learning_rate: float,
    samples: int,
    batch_size: int,
    window: int | None,
    seed: int,
    progress: bool,
) -> dict[str, Any]:
    """Train a decoder for each modality, on posterior means or on `samples` draws of each frame's posterior."""
    latents = np.asarray(posterior.mean)
    k = latents.shape[-1]
    if samples:
        latents = _draws(posterior, samples, seed)
    settings = Training(max_steps=steps, batch_size=batch_size, learning_rate=learning_rate, window=window)
    decoders = {}
    for name in data.names:
        pair = Sequences({"frames": data.modalities[name], "latents": Modality(latents)}, None, data.lengths)
        start = build(k, name, data.frame_shapes, data.modalities[name], seed)
        decoders[name] = train(start, _objective, pair, settings, seed=seed, progress=progress).model
    return decoders


def build(
    latent_dim: int, name: str, frame_shapes: dict[str, tuple[int, ...]], modality: Modality | None, seed: int
) -> Any:
    """A decoder of a modality to start from; without data, when a saved one is loaded, only shapes matter."""
    key = jax.random.fold_in(jax.random.key(seed), 1000 + sorted(frame_shapes).index(name))
    shift, scale = standards(frame_shapes[name], modality)
    return make_decoder("auto", latent_dim, frame_shapes[name], key=key, shift=shift, scale=scale)


def _draws(posterior: Any, samples: int, seed: int) -> np.ndarray:
    """Draws of each frame's posterior (N, T, samples, K)."""
    key = jax.random.fold_in(jax.random.key(seed), 999)
    cov = posterior.cov[:1] if is_repeated(posterior.cov) else posterior.cov
    draws = sample_latents(key, jnp.asarray(posterior.mean), jnp.asarray(cov), samples)
    return np.moveaxis(np.asarray(draws), 0, 2)


def _objective(decoder: Decoder, batch: Sequences, key: PRNGKeyArray | None) -> tuple[Array, DecoderInfo]:
    del key  # nothing here is random
    frames, latents = batch.modalities["frames"], batch.modalities["latents"].values
    if latents.ndim == 4:  # draws
        latents = jnp.moveaxis(latents, 2, 0)
    return decoder_loss(decoder, latents, frames.frames(), frames.mask)
