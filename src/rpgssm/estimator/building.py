"""A model from the settings of an estimator and what is known of its data."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from rpgssm.data import Modality, Recording, Sequences
from rpgssm.models.decoder import make_decoder
from rpgssm.models.encoders import IMAGE_ENCODERS, LinearEncoder, MLPEncoder, make_encoder
from rpgssm.models.heads import Recognition, make_head
from rpgssm.models.layers import standardisation
from rpgssm.models.random_features import RandomFeatures

MANY_VALUES = 100_000_000  # above which only some sequences are used for means and standard deviations


def frame_ndim(encoder: Any, X: Any) -> Any:
    """What frames are, as far as the encoder says it, for the door."""
    X = X.data if isinstance(X, Recording) else X

    def ndim(spec):
        return 2 if isinstance(spec, str) and spec in IMAGE_ENCODERS else None

    if not isinstance(X, Mapping):
        return ndim(encoder)
    given = encoder if isinstance(encoder, Mapping) else dict.fromkeys(X, encoder)
    return {name: n for name in X if (n := ndim(given.get(name))) is not None} or None


def encoder_for(encoder: Any, name: str, shape: tuple[int, ...]) -> Any:
    """The encoder of one modality: its name, or the user's own module."""
    if isinstance(encoder, Mapping):
        if name not in encoder:
            raise ValueError(f"encoder has no entry for the modality {name!r}: it has {', '.join(map(repr, encoder))}")
        encoder = encoder[name]
    if isinstance(encoder, str) and encoder == "auto":
        return "cnn" if len(shape) in (2, 3) and min(shape[:2]) >= 8 else "mlp"
    return encoder


def prior_kind(prior: str, controlled: bool) -> Any:
    """Which prior is meant, given whether there are controls."""
    if prior == "auto":
        return "controlled" if controlled else "stationary"
    if prior in ("controlled", "network") and not controlled:
        raise ValueError(f"prior={prior!r} needs controls: pass fit(X, controls=...)")
    if controlled and prior in ("stationary", "free"):
        raise ValueError(
            f"prior={prior!r} has no use for controls: choose 'controlled' or 'network', or leave them out"
        )
    return prior


def all_linear(encoder: Any) -> bool:
    encoders = encoder.values() if isinstance(encoder, Mapping) else (encoder,)
    return all(isinstance(e, str) and e == "linear" for e in encoders)


def marginal_kind(marginal: str, encoder: Any, data_dependent: bool) -> Any:
    """Which distribution of observations is meant, given what recognises them."""
    linear = all_linear(encoder)
    if marginal == "auto":
        return "gaussian" if linear and not data_dependent else "empirical"
    if marginal == "gaussian" and not linear:
        raise ValueError("marginal='gaussian' needs linear encoders: pass encoder='linear', or another marginal")
    if marginal == "gaussian" and data_dependent:
        raise ValueError("marginal='gaussian' needs a constant precision: leave data_dependent out")
    return marginal


def build_recognition(
    encoders: Any,
    shapes: Mapping[str, tuple[int, ...]],
    data: Sequences | None,
    keys: Any,
    *,
    precision: Any,
    data_dependent: bool,
    latent_dim: int,
    initial_precision: float,
) -> dict[str, Recognition]:
    """An encoder and a head for each modality, from two keys for each."""
    if isinstance(encoders, Mapping) and (unknown := sorted(set(encoders) - set(shapes))):
        raise ValueError(f"encoder has an entry for {unknown[0]!r}, but the modalities are {', '.join(sorted(shapes))}")
    recognition = {}
    for i, (name, shape) in enumerate(sorted(shapes.items())):
        spec = encoder_for(encoders, name, shape)
        shift, scale = standards(shape, None if data is None else data.modalities[name])
        encoder = make_encoder(spec, shape, key=keys[2 * i], shift=shift, scale=scale)
        head = make_head(
            precision,
            data_dependent,
            encoder.out_dim,
            latent_dim,
            key=keys[2 * i + 1],
            initial_precision=float(initial_precision),
        )
        recognition[name] = Recognition(encoder, head)
    return recognition


def wide_layer(
    shape: tuple[int, ...], units: int, key: Any, modality: Modality | None, fixed: int | None = None
) -> MLPEncoder | LinearEncoder | RandomFeatures:
    """A random layer (or none) on recognised latents, all of them in units of their common standard deviation.

    `fixed`: so many of its principal components, and the layer is not trained.
    """
    shift, scale = standards(shape, modality)
    common = np.sqrt(np.mean(scale**2))
    if units == 0:
        return LinearEncoder(shape, shift=shift, scale=common)
    if fixed is None:
        return MLPEncoder(shape, units, 1, key=key, shift=shift, scale=common)
    frames = None
    if modality is not None:
        frames = np.asarray(modality.values)[... if modality.mask is None else np.asarray(modality.mask)]
        frames = frames.reshape(-1, *shape)
    return RandomFeatures(shape[0], units, fixed, key=key, shift=shift, scale=float(common), frames=frames)


def build_decoder(latent_dim: int, shape: tuple[int, ...], modality: Modality | None, key: Any) -> Any:
    shift, scale = standards(shape, modality)
    return make_decoder("auto", latent_dim, shape, key=key, shift=shift, scale=scale)


def keys_for(seed: int, count: int) -> Any:
    return jax.random.split(jax.random.key(seed), count)


def standards(shape: tuple[int, ...], modality: Modality | None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of frames, by feature or channel; placeholders of the same shape without data."""
    if modality is None:
        features = shape if len(shape) == 1 else shape[2:]
        return np.zeros(features, np.float32), np.ones(features, np.float32)
    step = max(1, modality.values.size // MANY_VALUES)
    frames = np.asarray(modality.values[::step], np.float32) * np.float32(modality.scale)
    return standardisation(frames, None if modality.mask is None else np.asarray(modality.mask[::step]))
