"""Functions that are compiled as a whole.

Outside of a user's own `jit` their many small operations would be compiled one by one, which takes longer.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import jax

P = ParamSpec("P")
R = TypeVar("R")


def compiled(*static: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`jit`, for functions some of whose arguments, `static`, are no arrays."""
    return lambda function: cast(Callable[P, R], jax.jit(function, static_argnames=static))
