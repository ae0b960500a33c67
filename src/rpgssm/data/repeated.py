"""Arrays with equal entries along the first axis, such as covariances shared by all sequences: stored once."""

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray


def repeat(x: Shaped[ndarray, "..."], count: int) -> Shaped[ndarray, "..."]:
    """Repeat the only entry `count` times along the first axis, without a copy; return longer arrays as they are."""
    return np.broadcast_to(x, (count, *x.shape[1:])) if len(x) == 1 and count > 1 else x


def is_repeated(x: Shaped[ndarray, "..."]) -> bool:
    """Whether all entries of the first axis share their memory, as `repeat` makes them."""
    return len(x) > 1 and x.strides[0] == 0


def concatenate(*parts: Shaped[ndarray, "..."]) -> Shaped[ndarray, "..."]:
    """Concatenate along the first axis; equal repeated parts give a repeated array."""
    if len(parts) == 1:
        return parts[0]
    first, count = parts[0][:1], sum(map(len, parts))
    if is_repeated(parts[0]) and all(np.array_equal(x[:1], first) and (len(x) == 1 or is_repeated(x)) for x in parts):
        return repeat(first, count)
    return np.concatenate(parts)
