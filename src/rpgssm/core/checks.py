"""Checks of chains and potentials; errors name the array, the place and the remedy.

Compiled code cannot raise on the values in an array, and a wrong one shows as NaN far from its origin. So call these
functions once, outside of `jit`, before the work starts. Under `jit` they check shapes and dtypes, but not the unknown
values.

Messages count positions from 0, as in indexing. Masked frames may hold anything. A Cholesky factorisation checks
definiteness; only if it fails are eigenvalues computed.
"""

from collections.abc import Sequence
from typing import NoReturn

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from .types import Chain, GaussianChain, Potentials, StationaryChain, as_potentials

AnyArray = Shaped[Array | np.ndarray, "..."]
Axes = tuple[str, ...]  # names of the leading axes of an array
Dims = tuple[tuple[str, int | None], ...]  # names of axes, with the length required or None
BLOCK = 2**21  # entries of matrices to check together, which bounds the memory of their copies in float64


def check(chain: Chain, potentials: Potentials | Sequence[Potentials]) -> None:
    """Raise ValueError if the chain or the potentials are not valid, or do not fit together."""
    check_chain(chain)
    check_potentials(potentials, chain)


def check_chain(chain: Chain) -> None:
    """Raise ValueError if the chain's arrays do not fit together or do not define a chain of Gaussians."""
    check_array("chain.A", chain.A)
    latent = ("latent", chain.A.shape[-1] if chain.A.ndim else None)
    if isinstance(chain, StationaryChain):
        check_shape("chain.A", chain.A, (latent, latent))
        check_finite("chain.A", chain.A)
        if is_concrete(chain.A) and (largest := np.linalg.norm(np.asarray(chain.A, np.float64), 2)) >= 1:
            raise ValueError(
                f"the largest singular value of chain.A is {largest:.6g}, not below 1, so I - AA' is no covariance: "
                "use project_singular_values(A), also after every change of A"
            )
        return

    check_array("chain.m1", chain.m1)
    if chain.m1.ndim not in (1, 2):
        raise ValueError(
            f"chain.m1 has shape {chain.m1.shape}, not (latent,), or (batch, latent) for a chain per sequence"
        )
    batch = (("batch", chain.m1.shape[0]),) if chain.batched else ()
    steps = (("transitions", chain.A.shape[-3] if chain.A.ndim >= 3 else None),)
    sequence, transition = ("sequence",) * chain.batched, ("transition",)
    shapes: list[tuple[str, Dims, Axes]] = [
        ("A", (*batch, *steps, latent, latent), sequence + transition),
        ("m1", (*batch, latent), sequence),
        ("Q1", (*batch, latent, latent), sequence),
        ("b", (*batch, *steps, latent), sequence + transition),
        ("Q", (*batch, *steps, latent, latent), sequence + transition),
    ]
    hint = "all arrays of a chain have the batch axis (a chain per sequence), or none has it"
    for name, dims, axes in shapes:
        value = getattr(chain, name)
        check_array(f"chain.{name}", value)
        check_shape(f"chain.{name}", value, dims, hint)
        _check_same_dtype(f"chain.{name}", value, "chain.A", chain.A)
        check_finite(f"chain.{name}", value, axes)
    check_covariance("chain.Q1", chain.Q1, sequence)
    check_covariance("chain.Q", chain.Q, sequence + transition)


def check_potentials(potentials: Potentials | Sequence[Potentials], chain: Chain) -> None:
    """Raise ValueError if the potentials are not valid, or do not fit the (valid) chain.

    Several modalities are a tuple of potentials.
    """
    if not isinstance(potentials, (Potentials, tuple)):
        raise ValueError(f"potentials is a {type(potentials).__name__}, not Potentials or a tuple of them")
    modalities = as_potentials(potentials)
    if not modalities:
        raise ValueError("potentials is empty: there must be at least one modality")
    names = [f"potentials[{j}]" for j in range(len(modalities))] if isinstance(potentials, tuple) else ["potentials"]
    for name, modality in zip(names, modalities, strict=True):
        _check_shapes(name, modality, chain, names[0], modalities[0])
    batch, time, _ = modalities[0].shape
    if isinstance(chain, GaussianChain):
        if chain.batched and chain.m1.shape[0] != batch:
            raise ValueError(
                f"the chain is for {chain.m1.shape[0]} sequences but {names[0]}.h has {batch}: give the chain one "
                "entry per sequence of the batch, or no batch axis at all"
            )
        if (transitions := chain.A.shape[-3]) != time - 1:
            raise ValueError(
                f"the chain has {transitions} transitions but {names[0]}.h has {time} frames, which need {time - 1}: "
                f"build it with GaussianChain.time_invariant(..., length={time}), or give A, b and Q {time - 1} "
                "entries along time"
            )
    for name, modality in zip(names, modalities, strict=True):
        _check_values(name, modality)


def _check_shapes(name: str, modality: Potentials, chain: Chain, first_name: str, first: Potentials) -> None:
    h, precision, mask = modality.h, modality.precision, modality.mask
    check_array(f"{name}.h", h)
    free: Dims = (("batch", None), ("time", None), ("latent", None))
    check_shape(f"{name}.h", h, free, "a single sequence needs a batch axis of length 1, h[None]")
    if 0 in h.shape:
        raise ValueError(f"{name}.h has shape {h.shape}, which holds nothing: pass at least one frame of one sequence")
    if h.shape[-1] != chain.latent_dim:
        raise ValueError(
            f"{name}.h has {h.shape[-1]} latent dimensions but chain.A has {chain.latent_dim}: make the recognition "
            "network and the chain agree"
        )
    if h.shape != first.h.shape:
        raise ValueError(
            f"{name}.h has {h.shape[0]} sequences of {h.shape[1]} frames but {first_name}.h has {first.h.shape[0]} of "
            f"{first.h.shape[1]}: all modalities need the same frames; pad where there is no observation and mask it"
        )
    _check_same_dtype(f"{name}.h", h, "chain.A", chain.A)

    dims = tuple(zip(("batch", "time", "latent"), h.shape, strict=True))
    expected = (() if precision.shared else dims[:2]) + dims[2:] * (1 if precision.diagonal else 2)
    check_array(f"{name}.precision.value", precision.value)
    hint = f"that is what shared={precision.shared}, diagonal={precision.diagonal} means"
    check_shape(f"{name}.precision.value", precision.value, expected, hint)
    _check_same_dtype(f"{name}.precision.value", precision.value, f"{name}.h", h)

    if mask is not None:
        check_array(f"{name}.mask", mask, floating=False)
        if mask.dtype != np.bool_:
            raise ValueError(
                f"{name}.mask has dtype {mask.dtype}, not bool: pass mask.astype(bool), True where there is "
                "an observation"
            )
        check_shape(f"{name}.mask", mask, dims[:2])


def _check_values(name: str, modality: Potentials) -> None:
    precision, mask = modality.precision, modality.mask
    if mask is not None and not is_concrete(mask):
        return
    observed = None if mask is None else np.asarray(mask)
    frame = ("sequence", "frame")
    hint = "mask missing frames instead of passing NaN"
    check_finite(f"{name}.h", modality.h, frame, observed, hint)
    name, value = f"{name}.precision.value", precision.value
    axes = () if precision.shared else frame
    observed = None if precision.shared else observed
    check_finite(name, value, axes, observed, None if precision.shared else hint)
    if not precision.diagonal:
        check_covariance(name, value, axes, observed)
    elif is_concrete(value):
        x = np.asarray(value)
        axes = axes or ("latent dimension",)
        bad = _reduce(x < 0, axes, observed)
        if bad.any():
            smallest = f"smallest entry {np.min(x[_first(bad)]):.3g}"
            _fail(f"{name} is negative", bad, axes, "pass it through softplus or exp", smallest)


# ---------------------------------------------------------------------------------------------------------------------
# single arrays


def is_concrete(x: object) -> bool:
    """Whether x is an array with known values, not one that `jit`, `grad` or `vmap` traces."""
    return isinstance(x, np.ndarray | jax.Array) and not isinstance(x, jax.core.Tracer)


def check_array(name: str, x: object, floating: bool = True) -> None:
    """Raise if x is not an array, or not an array of floating-point numbers."""
    dtype = getattr(x, "dtype", None)
    if dtype is None or not hasattr(x, "shape"):
        raise ValueError(f"{name} is a {type(x).__name__}, not an array: convert it with jnp.asarray")
    if floating and not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"{name} has dtype {dtype}, not a floating-point one: convert it with .astype(jnp.float32)")


def check_shape(name: str, x: AnyArray, dims: Dims, hint: str | None = None) -> None:
    """Raise if the number of axes or a length differs from `dims`."""
    if len(x.shape) == len(dims) and all(n in (None, m) for (_, n), m in zip(dims, x.shape, strict=True)):
        return
    expected = ", ".join(axis if n is None else f"{axis}={n}" for axis, n in dims)
    raise ValueError(f"{name} has shape {x.shape}, not ({expected})" + (f": {hint}" if hint else ""))


def check_finite(
    name: str, x: AnyArray, axes: Axes = (), observed: Bool[np.ndarray, "..."] | None = None, hint: str | None = None
) -> None:
    """Raise if an observed value is NaN or infinite. `axes` name the leading axes of x."""
    if is_concrete(x):
        bad = _reduce(~np.isfinite(np.asarray(x)), axes, observed)
        if bad.any():
            _fail(f"{name} is not finite", bad, axes, hint or "look for a division by zero or an overflow before it")


def check_covariance(name: str, x: AnyArray, axes: Axes = (), observed: Bool[np.ndarray, "..."] | None = None) -> None:
    """Raise if a (finite) matrix is not symmetric or has a negative eigenvalue, beyond rounding errors."""
    if not is_concrete(x):
        return
    x = np.asarray(x)
    lead, k = x.shape[: len(axes)], x.shape[-1]
    x, asymmetry, negative = x.reshape(-1, k, k), np.zeros(lead), np.zeros(lead)
    index = np.arange(len(x)) if observed is None else np.flatnonzero(observed)
    block = max(1, BLOCK // k**2)
    for start in range(0, len(index), block):
        i = index[start : start + block]
        asymmetry.flat[i], negative.flat[i] = _defects(x[i].astype(np.float64), float(jnp.finfo(x.dtype).eps))
    if (bad := np.asarray(asymmetry > 0)).any():
        size = f"entries (i, j) and (j, i) differ by {asymmetry[_first(bad)]:.3g}"
        _fail(f"{name} is not symmetric", bad, axes, "pass (X + X') / 2, X' its transpose", size)
    if (bad := np.asarray(negative < 0)).any():
        size = f"smallest eigenvalue {negative[_first(bad)]:.3g}"
        _fail(f"{name} is not positive semidefinite", bad, axes, "build it as a product L L'", size)


def _defects(M: Float[np.ndarray, "n k k"], eps: float) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """The asymmetry and the most negative eigenvalue of each matrix; zero if within rounding errors."""
    k = M.shape[-1]
    rounding = 32 * k * eps * np.abs(M).max((-2, -1))
    asymmetry = np.abs(M - M.swapaxes(-1, -2)).max((-2, -1))
    asymmetry[asymmetry <= rounding] = 0
    negative = np.zeros(len(M))
    try:  # the diagonal is raised by the rounding error, and by a little more for matrices of zeros
        np.linalg.cholesky(M + (rounding + 1e-300)[:, None, None] * np.eye(k))
    except np.linalg.LinAlgError:
        smallest = np.linalg.eigvalsh(M)[:, 0]
        negative = np.where(smallest < -rounding, smallest, 0)
    return asymmetry, negative


def _check_same_dtype(name: str, x: AnyArray, other_name: str, other: AnyArray) -> None:
    if x.dtype != other.dtype:
        raise ValueError(
            f"{name} has dtype {x.dtype} but {other_name} has {other.dtype}: convert one of them with .astype"
        )


def _reduce(
    bad: Bool[np.ndarray, "..."], axes: Axes, observed: Bool[np.ndarray, "..."] | None
) -> Bool[np.ndarray, "..."]:
    """Whether an observed value is bad, along all axes without a name."""
    bad = np.asarray(bad.any(tuple(range(len(axes), bad.ndim))))
    return bad if observed is None else bad & observed


def _first(bad: Bool[np.ndarray, "..."]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(np.argmax(bad), bad.shape))


def _fail(problem: str, bad: Bool[np.ndarray, "..."], axes: Axes, todo: str, detail: str | None = None) -> NoReturn:
    """Raise, naming the first bad place and the number of others."""
    place = ", ".join(f"{axis} {i}" for axis, i in zip(axes, _first(bad), strict=True))
    more = int(bad.sum()) - 1
    notes = [detail] if detail else []
    notes += [f"and {more} more place{'s' * (more > 1)}"] if more else []
    raise ValueError(
        problem + (f" at {place}" if place else "") + (f" ({'; '.join(notes)})" if notes else "") + f": {todo}"
    )
