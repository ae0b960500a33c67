"""The form of the user's data, in which results go back.

One long sequence gives arrays without a sequence axis; a list of sequences gives lists.
"""

from collections.abc import Mapping
from typing import Literal, cast

import numpy as np
from jaxtyping import Int, Shaped
from numpy import ndarray
from numpy.typing import ArrayLike

from .convert import Recording
from .sequences import AnyArray, Sequences
from .shapes import fits

Form = Literal["one", "array", "list"]


def form_of(data: object, sequences: Sequences) -> Form:
    """The form of the data from which `sequences` were converted; a single array has the shape of known frames."""
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
    if all(fits(np.shape(cast(ArrayLike, value))[1:], sequences.frame_shapes[name]) for name, value in data.items()):
        return "one"
    return "array"


def in_form(
    form: Form, x: Shaped[ndarray, "..."], lengths: Int[AnyArray, " n"] | None, axis: int = 0
) -> Shaped[ndarray, "..."] | np.generic | list[Shaped[ndarray, "..."]]:
    """Bring an array over sequences (on `axis`) and perhaps frames (on the next axis) to the user's form."""
    if form == "one":
        return np.take(x, 0, axis)
    if form == "array" or x.ndim <= axis + 1:
        # results of JAX are read-only: copy them. Repeated views (covariances stored once) stay views, to save memory.
        return x if x.flags.writeable or 0 in x.strides else x.copy()
    rows = [np.take(x, n, axis) for n in range(x.shape[axis])]
    if lengths is None:
        return rows
    return [np.take(row, np.arange(length), axis) for row, length in zip(rows, lengths, strict=True)]
