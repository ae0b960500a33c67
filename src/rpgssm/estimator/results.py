"""What the estimators return: NumPy arrays in the form in which the data came.

One long sequence in, arrays without a sequence axis out; a list of ragged sequences in, lists out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rpgssm.data import Recording, Sequences

Form = Literal["one", "array", "list"]


@dataclass(frozen=True)
class Latents:
    """Gaussian marginals of the latents: `mean` (N, T, K), `cov` (N, T, K, K), and log Z of each sequence (N,).

    For one long sequence without the axis N; for ragged ones lists with one entry per sequence. Covariances that all
    sequences share are one array shown N times, and so cannot be written to; copy it first. `log_z` is None for models
    that have none.
    """

    mean: Any
    cov: Any
    log_z: Any


@dataclass(frozen=True)
class Prediction:
    """The frames after the last one: `mean` (N, steps, K), `cov` (N, steps, K, K), `samples` (S, N, steps, K) or None.

    For one long sequence without the axis N; for a list of sequences lists with one entry for each.
    """

    mean: Any
    cov: Any
    samples: Any = None


def form_of(data: Any, sequences: Sequences) -> Form:
    """How the user's data were shaped, by the rule by which the door reads them once the shape of frames is known."""
    if isinstance(data, Recording):
        data = data.data
    if sequences.lengths is not None:
        return "list"
    if isinstance(data, Sequences):
        return "array"
    if not isinstance(data, Mapping):
        data = {sequences.names[0]: data}
    if any(isinstance(value, list | tuple) for value in data.values()):
        return "list"
    for name, value in data.items():
        found, frame = np.shape(value)[1:], sequences.frame_shapes[name]
        if found != frame and (*found, 1) != frame:
            return "array"
    return "one"


def in_form(form: Form, x: np.ndarray, lengths: Any, axis: int = 0) -> Any:
    """An array over sequences (on `axis`) and, if there are more axes, frames, as the user expects it."""
    if form == "one":
        return np.take(x, 0, axis)
    if form == "array" or x.ndim <= axis + 1:
        # what JAX hands over cannot be written to; neither can a view that repeats, which stays one to save memory
        return x if x.flags.writeable or 0 in x.strides else x.copy()
    rows = [np.take(x, n, axis) for n in range(x.shape[axis])]
    if lengths is None:
        return rows
    return [np.take(row, np.arange(length), axis) for row, length in zip(rows, lengths, strict=True)]
