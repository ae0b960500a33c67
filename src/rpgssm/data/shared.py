"""Arrays over sequences whose entries are all the same, such as covariances that no data change: kept once."""

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray


def spread(x: Shaped[ndarray, "..."], count: int) -> Shaped[ndarray, "..."]:
    """What is there once, `count` times along the first axis, without a copy; longer arrays stay as they are."""
    return np.broadcast_to(x, (count, *x.shape[1:])) if len(x) == 1 and count > 1 else x


def stored_once(x: Shaped[ndarray, "..."]) -> bool:
    """Whether all entries of the first axis are the same memory, as `spread` makes them."""
    return len(x) > 1 and x.strides[0] == 0


def joined(*parts: Shaped[ndarray, "..."]) -> Shaped[ndarray, "..."]:
    """One after the other along the first axis; what is the same everywhere and stored once stays so."""
    if len(parts) == 1:
        return parts[0]
    first, count = parts[0][:1], sum(map(len, parts))
    if stored_once(parts[0]) and all(np.array_equal(x[:1], first) and (len(x) == 1 or stored_once(x)) for x in parts):
        return spread(first, count)
    return np.concatenate(parts)
