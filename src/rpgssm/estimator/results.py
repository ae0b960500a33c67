"""What the estimators return: NumPy arrays in the form in which the data came.

One long sequence in, arrays without a sequence axis out; a list of ragged sequences in, lists out.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rpgssm.data import Sequences

Form = Literal["one", "array", "list"]


@dataclass(frozen=True)
class Latents:
    """Gaussian marginals of the latents: `mean` (N, T, K), `cov` (N, T, K, K), and log Z of each sequence (N,).

    For one long sequence without the axis N; for ragged ones lists with one entry per sequence.
    """

    mean: Any
    cov: Any
    log_z: Any


@dataclass(frozen=True)
class Prediction:
    """The frames after the last one: `mean` (N, steps, K), `cov` (N, steps, K, K), `samples` (S, N, steps, K) or None.

    For one long sequence without the axis N.
    """

    mean: Any
    cov: Any
    samples: Any = None


def form_of(data: Any, sequences: Sequences) -> Form:
    """How the user's data were shaped."""
    data = getattr(data, "data", data) if type(data).__name__ == "Recording" else data
    if isinstance(data, Sequences):
        return "array" if sequences.lengths is None else "list"
    value = next(iter(data.values())) if isinstance(data, dict) or hasattr(data, "values") else data
    if isinstance(value, list | tuple):
        return "list"
    if sequences.lengths is not None:
        return "list"
    return "array" if len(sequences) > 1 or np.shape(value)[:2] == (1, sequences.time) else "one"


def in_form(form: Form, x: np.ndarray | None, lengths: Any, axis: int = 0) -> Any:
    """An array over sequences (on `axis`) and, if there are more axes, frames, as the user expects it."""
    if x is None:
        return None
    if form == "one":
        return np.take(x, 0, axis)
    if form == "array":
        return x
    rows = [np.take(x, n, axis) for n in range(x.shape[axis])]
    if lengths is None or x.ndim <= axis + 1:
        return rows if x.ndim > axis + 1 else x
    return [np.take(row, np.arange(length), axis) for row, length in zip(rows, lengths, strict=True)]
