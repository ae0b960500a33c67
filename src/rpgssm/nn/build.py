"""Networks from settings: encoders and heads for each modality of the data, standardised by the data."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from rpgssm.data import Modality, Sequences

from .encoders import IMAGE_ENCODERS, NAMES, EncoderKind, FixedFeatures, LinearEncoder, make_encoder
from .heads import PrecisionForm, Recognition, make_head
from .layers import standardisation
from .random_features import RandomFeatures

Keys = Key[Array, " count"] | list[PRNGKeyArray]
"""Keys for the networks of several modalities."""

MANY_VALUES = 100_000_000  # for more values, means and standard deviations come from some sequences only


def are_encoders(value: object) -> bool:
    """Whether a value can be the setting `encoder`."""
    if isinstance(value, Mapping):
        return len(value) > 0 and all(are_encoders(x) and not isinstance(x, Mapping) for x in value.values())
    if isinstance(value, str):
        return value in ("auto", *NAMES)
    return isinstance(value, EncoderKind) or (callable(value) and not isinstance(value, type))


def frame_ndim(encoder: object) -> int | dict[str, int] | None:
    """The number of axes of frames, if the encoder is for images (see `as_sequences`)."""
    if isinstance(encoder, Mapping):
        return {name: 2 for name, one in encoder.items() if frame_ndim(one)}
    return 2 if isinstance(encoder, str) and encoder in IMAGE_ENCODERS else None


def encoder_for(encoder: Any, name: str, shape: tuple[int, ...]) -> Any:
    """The encoder of one modality: its name, its kind, or the user's own module."""
    if isinstance(encoder, Mapping):
        if name not in encoder:
            raise ValueError(f"encoder has no entry for the modality {name!r}: it has {', '.join(map(repr, encoder))}")
        encoder = encoder[name]
    if isinstance(encoder, str) and encoder == "auto":
        return "cnn" if len(shape) in (2, 3) and min(shape[:2]) >= 8 else "mlp"
    return encoder


def all_linear(encoder: object) -> bool:
    """Whether all encoders are "linear"."""
    encoders = encoder.values() if isinstance(encoder, Mapping) else (encoder,)
    return all(isinstance(e, str) and e == "linear" for e in encoders)


def nothing_trained(encoder: object) -> bool:
    """Whether encoders are fixed functions of the frames, so that recognition is affine in their features."""
    encoders = encoder.values() if isinstance(encoder, Mapping) else (encoder,)
    fixed = (FixedFeatures, LinearEncoder, RandomFeatures)
    return all(isinstance(e, fixed) or (isinstance(e, str) and e == "linear") for e in encoders)


def build_encoders(
    encoder: Any, shapes: Mapping[str, tuple[int, ...]], data: Sequences | None, keys: Keys, common: bool = False
) -> dict[str, Any]:
    """An encoder for each modality, from one key each. Without data, the standardisation holds placeholders.

    With `common`, all features of a frame are divided by one scale.
    """
    if isinstance(encoder, Mapping) and (unknown := sorted(set(encoder) - set(shapes))):
        raise ValueError(f"encoder has an entry for {unknown[0]!r}, but the modalities are {', '.join(sorted(shapes))}")
    encoders = {}
    for key, (name, shape) in zip(keys, sorted(shapes.items()), strict=True):
        modality = None if data is None else data.modalities[name]
        shift, scale = standards(shape, modality)
        scale = np.sqrt(np.mean(scale**2)) if common else scale
        spec = encoder_for(encoder, name, shape)
        frames = observed_frames(modality) if isinstance(spec, EncoderKind) and modality is not None else None
        encoders[name] = make_encoder(spec, shape, key=key, shift=shift, scale=scale, frames=frames)
    return encoders


def build_recognition(
    encoder: Any,
    shapes: Mapping[str, tuple[int, ...]],
    data: Sequences | None,
    keys: Keys,
    *,
    precision: PrecisionForm,
    latent_dim: int,
    start: float,
) -> dict[str, Recognition]:
    """An encoder and a head for each modality, from two keys each. `start` is the default size of precisions."""
    encoders = build_encoders(encoder, shapes, data, keys[::2])
    first, networks = float(start if precision.start is None else precision.start), {}
    for key, (name, one) in zip(keys[1::2], encoders.items(), strict=True):
        dependent = precision.data_dependent
        head = make_head(precision.kind, dependent, one.out_dim, latent_dim, key=key, initial_precision=first)
        networks[name] = Recognition(one, head)
    return networks


def keys_for(seed: int, count: int) -> Key[Array, " count"]:
    return jax.random.split(jax.random.key(seed), count)


def observed_frames(modality: Modality) -> np.ndarray:
    """All observed frames (n, *frame), on the host."""
    mask = ... if modality.mask is None else np.asarray(modality.mask)
    return np.asarray(modality.values)[mask].reshape(-1, *modality.frame_shape)


def standards(shape: tuple[int, ...], modality: Modality | None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of frames, by feature or channel; placeholders of the same shape without data."""
    if modality is None:
        features = shape if len(shape) == 1 else shape[2:]
        return np.zeros(features, np.float32), np.ones(features, np.float32)
    step = max(1, modality.values.size // MANY_VALUES)
    frames = np.asarray(modality.values[::step], np.float32) * np.float32(modality.scale)
    return standardisation(frames, None if modality.mask is None else np.asarray(modality.mask[::step]))
