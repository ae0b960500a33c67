"""JAX transformations of whole functions, as decorators that keep the functions' types.

Without `compiled`, outside of a user's own `jit`, JAX would compile their many small operations one by one, which takes
longer.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import jax

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Differentiable(Protocol[P, R_co]):
    """A function with its own derivative rule, set by `defvjp`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None: ...


def compiled(*static: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: `jax.jit` with the arguments named `static` not traced."""
    return lambda function: cast(Callable[P, R], jax.jit(function, static_argnames=static))


def custom_vjp(*static: int) -> Callable[[Callable[P, R]], Differentiable[P, R]]:
    """Decorator: `jax.custom_vjp` with the arguments number `static` not differentiated."""
    return lambda function: cast(Differentiable[P, R], jax.custom_vjp(function, nondiff_argnums=static))
