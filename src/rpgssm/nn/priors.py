"""Priors over latent trajectories: learned parameters, and the Gaussian chain that they define.

| prior             | learned       | chain                                                                          |
|-------------------|---------------|--------------------------------------------------------------------------------|
| `StationaryPrior` | A             | z_1 ~ N(0, I), z_{t+1} ~ N(A z_t, I - AA'): every z_t ~ N(0, I)                |
| `FreePrior`       | m1, Q1, A, b, Q | z_1 ~ N(m1, Q1), z_{t+1} ~ N(A z_t + b, Q)                                   |
| `ControlledPrior` | A, B          | z_1 ~ N(0, I), z_{t+1} ~ N(A z_t + B u_t, I - AA')                             |
| `NetworkPrior`    | a network     | z_1 ~ N(0, I), z_{t+1} ~ N(A(u_t) z_t + b(u_t), I - A(u_t)A(u_t)')             |

All have the same methods. `chain(length, controls)` builds the chain; priors without controls ignore them.
`project(limit)` bounds the singular values of A by `limit` after every optimiser step, unless they are bounded by
construction. `reference()` is p̄ of the free energy, or None for the core's choice. With controls every sequence has
its own marginals, and the shared p̄ is N(0, I).

Controls are vectors (n, t, u) or integers (n, t) from 0 to `n_control_values - 1`. `controls[n, t]` acts on the step
from frame t to t + 1, so the control of the last frame has no effect.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy import ndarray

from rpgssm.core import GaussianChain, Natural, StationaryChain, project_singular_values
from rpgssm.core.checks import is_concrete
from rpgssm.core.linalg import eye_like, inverse_factor, mm, mv, sym, transpose
from rpgssm.core.types import standard_normal
from rpgssm.model import Controls
from rpgssm.settings import Behaviour, setting

LIMIT = 1 - 1e-3
JITTER = 1e-6  # smallest variance that a free prior can learn
PERIODS = (4.0, 100.0)  # of the rotations that `initial="rotation"` starts from, in frames
TIMES = (3.0, 30.0)  # time constants of the smooth processes that `initial="smooth"` starts from, in frames

AnyArray = Array | ndarray
P = TypeVar("P", bound="_OneMatrix")


class _OneMatrix(eqx.Module):
    """A prior with one learned transition matrix."""

    A: eqx.AbstractVar[Float[Array, "k k"]]

    @property
    def latent_dim(self) -> int:
        return self.A.shape[-1]

    def project(self: P, limit: float = LIMIT) -> P:
        return eqx.tree_at(lambda p: p.A, self, project_singular_values(self.A, limit))

    def reference(self) -> Natural | None:
        return None


class StationaryPrior(_OneMatrix):
    """The canonical chain with marginals N(0, I): only A is learned."""

    A: Float[Array, "k k"]

    def chain(self, length: int, controls: Controls | None = None) -> StationaryChain:
        return StationaryChain(self.A)


class FreePrior(_OneMatrix):
    """A chain with its own first frame, bias and noise.

    Covariances are LL' + 1e-6 I. `factor1` and `factor` hold L below the diagonal, and the argument of a softplus on
    it. With `bounded=False` the singular values of A have no bound, and the chain can be unstable.
    """

    m1: Float[Array, " k"]
    factor1: Float[Array, "k k"]
    A: Float[Array, "k k"]
    b: Float[Array, " k"]
    factor: Float[Array, "k k"]
    bounded: bool = eqx.field(static=True, default=True)

    @property
    def Q1(self) -> Float[Array, "k k"]:
        return covariance_of(self.factor1)

    @property
    def Q(self) -> Float[Array, "k k"]:
        return covariance_of(self.factor)

    def chain(self, length: int, controls: Controls | None = None) -> GaussianChain:
        return GaussianChain.time_invariant(self.m1, self.Q1, self.A, self.b, self.Q, length)

    def project(self, limit: float = LIMIT) -> "FreePrior":
        return super().project(limit) if self.bounded else self


class ControlledPrior(_OneMatrix):
    """The canonical chain with the bias B u_t; a discrete input chooses a column of B."""

    A: Float[Array, "k k"]
    B: Float[Array, "k u"]
    discrete: bool = eqx.field(static=True)

    def chain(self, length: int, controls: Controls | None = None) -> GaussianChain:
        u = _steps(controls, length, self.B.shape[1], self.discrete)
        b = self.B.T[u] if self.discrete else mv(self.B, u.astype(self.B.dtype))
        A = jnp.broadcast_to(self.A, (*b.shape, self.latent_dim))
        Q = jnp.broadcast_to(_stationary_noise(self.A), A.shape)
        return _from_standard_normal(A, b, Q)

    def reference(self) -> Natural | None:
        return standard_normal(self.latent_dim, self.A.dtype)


class NetworkPrior(eqx.Module):
    """The canonical chain with A(u_t) and a bias b(u_t) from a network.

    The network has K + K² outputs. The first K are b(u). The others plus `M` become a contraction: all singular values
    of A(u) are below `limit` for any output (`contraction`). A discrete input is one-hot; then the network is evaluated
    once per value and not once per frame.
    """

    M: Float[Array, "k k"]
    network: eqx.nn.MLP
    discrete: bool = eqx.field(static=True)
    limit: float = eqx.field(static=True, default=LIMIT)

    @property
    def latent_dim(self) -> int:
        return self.M.shape[-1]

    @property
    def control_size(self) -> int:
        """The length of control vectors, or the number of values of a discrete control."""
        return int(self.network.in_size)

    def transitions(self, u: Float[Array, "m u"]) -> tuple[Float[Array, "m k k"], Float[Array, "m k"]]:
        """A(u) and b(u)."""
        k = self.latent_dim
        out = jax.vmap(self.network)(u)
        return contraction(self.M + out[:, k:].reshape(-1, k, k), self.limit), out[:, :k]

    def chain(self, length: int, controls: Controls | None = None) -> GaussianChain:
        u = _steps(controls, length, self.control_size, self.discrete)
        if self.discrete:
            A, b = self.transitions(jnp.eye(self.control_size, dtype=self.M.dtype))
            return _from_standard_normal(A[u], b[u], _stationary_noise(A)[u])
        n, steps, size = u.shape
        A, b = self.transitions(u.reshape(n * steps, size).astype(self.M.dtype))
        A, b = (x.reshape(n, steps, *x.shape[1:]) for x in (A, b))
        return _from_standard_normal(A, b, _stationary_noise(A))

    def project(self, limit: float = LIMIT) -> "NetworkPrior":
        return self

    def reference(self) -> Natural | None:
        return standard_normal(self.latent_dim, self.M.dtype)


AnyPrior = StationaryPrior | FreePrior | ControlledPrior | NetworkPrior


def contraction(M: Float[Array, "*n k k"], limit: float = LIMIT) -> Float[Array, "*n k k"]:
    """Map any matrix to one with singular values below `limit`: M L'⁻¹ times the limit, with LL' = I + M'M.

    With singular values σ of M those of the result are limit · σ / √(1 + σ²), because
    (M L'⁻¹)(M L'⁻¹)' = M (I + M'M)⁻¹ M'. Smooth, and every contraction is reached (`inverse_contraction`).
    """
    Z = inverse_factor(eye_like(M) + sym(mm(transpose(M), M)), 1.0)
    return limit * mm(M, transpose(Z))


def inverse_contraction(A: Float[ndarray, "k k"], limit: float = LIMIT) -> Float[ndarray, "k k"]:
    """The M with A = `contraction(M)`, on the host."""
    # C = A / limit = M L'⁻¹ with LL' = I + M'M gives M = CL' and LL' = I + LC'CL', so L⁻¹L'⁻¹ = I - C'C:
    # L⁻¹ is the Cholesky factor of I - C'C
    C = A / limit
    return np.linalg.solve(np.linalg.cholesky(np.eye(len(A)) - C.T @ C), C.T).T


def covariance_of(factor: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """LL' + 1e-6 I, with L the lower triangle of `factor` and softplus on its diagonal."""
    L = jnp.tril(factor, -1) + jnp.diag(jax.nn.softplus(jnp.diagonal(factor)))
    return sym(mm(L, L.T)) + JITTER * eye_like(L)


def factor_of(covariance: Float[ndarray, "k k"]) -> Float[ndarray, "k k"]:
    """The inverse of `covariance_of`, on the host."""
    L = np.linalg.cholesky(covariance - JITTER * np.eye(len(covariance)))
    d = np.diagonal(L)
    # softplus⁻¹(d) = log(eᵈ - 1) = d + log(1 - e⁻ᵈ)
    return np.tril(L, -1) + np.diag(d + np.log(-np.expm1(-d)))


def _stationary_noise(A: Float[Array, "*n k k"]) -> Float[Array, "*n k k"]:
    return sym(eye_like(A) - mm(A, transpose(A)))


def _from_standard_normal(
    A: Float[Array, "n s k k"], b: Float[Array, "n s k"], Q: Float[Array, "n s k k"]
) -> GaussianChain:
    """A chain per sequence, each with z_1 ~ N(0, I)."""
    n, _, k = b.shape
    eye = jnp.broadcast_to(jnp.eye(k, dtype=b.dtype), (n, k, k))
    return GaussianChain(jnp.zeros((n, k), b.dtype), eye, A, b, Q)


def _steps(controls: Controls | None, length: int, size: int, discrete: bool) -> Array:
    """The controls of the `length - 1` steps, checked; under `jit` without a check of values."""
    wanted = f"integers (n, t) from 0 to {size - 1}" if discrete else f"vectors (n, t, {size})"
    if controls is None:
        raise ValueError(f"this prior needs controls, {wanted}, and none were given: pass controls=")
    is_integer = jnp.issubdtype(controls.dtype, jnp.integer)
    if (
        is_integer != discrete
        or controls.ndim != (2 if discrete else 3)
        or (not discrete and controls.shape[2] != size)
    ):
        raise ValueError(
            f"controls have shape {controls.shape} and dtype {controls.dtype}, but this prior takes {wanted}"
        )
    if controls.shape[1] not in (length - 1, length):
        raise ValueError(
            f"controls have {controls.shape[1]} frames but the chain has {length}: give one control for each frame "
            "(that of the last has no effect)"
        )
    if discrete and is_concrete(controls):
        values = np.asarray(controls)
        wrong = (values < 0) | (values >= size)
        if wrong.any():
            n, t = np.argwhere(wrong)[0]
            raise ValueError(f"controls[{n}, {t}] is {values[n, t]}, but this prior takes {wanted}")
    return jnp.asarray(controls)[:, : length - 1]


def make_prior(
    kind: Literal["stationary", "free", "controlled", "network"],
    latent_dim: int,
    *,
    key: PRNGKeyArray,
    control_dim: int | None = None,
    n_control_values: int | None = None,
    initial: str | Float[AnyArray, "k k"] = "identity",
    scale: float = 0.9,
    width: int = 64,
    dtype=jnp.float32,
) -> AnyPrior:
    """A prior to start learning from.

    `initial` is the first A: a matrix, or `scale` times one of
    - `"identity"`: I;
    - `"rotation"`: rotations of pairs of dimensions, with periods from 4 to 100 frames;
    - `"smooth"`: pairs of a smooth process and its velocity (Matérn 3/2), with time constants from 3 to 30 frames.

    All priors start as the stationary chain of that A, with weak random effects of the controls. These are vectors of
    `control_dim` numbers or integers below `n_control_values`. `width` is the number of hidden units of the network.
    """
    if latent_dim < 1:
        raise ValueError(f"latent_dim is {latent_dim}: at least one latent dimension is needed")
    A = initial_transition(initial, latent_dim, scale)
    if kind in ("stationary", "free"):
        if control_dim is not None or n_control_values is not None:
            raise ValueError(f"a {kind} prior has no controls: choose kind='controlled' or kind='network'")
        if kind == "stationary":
            return StationaryPrior(jnp.asarray(A, dtype))
        zero, eye = jnp.zeros(latent_dim, dtype), np.eye(latent_dim)
        factor1, factor = (jnp.asarray(factor_of(x), dtype) for x in (eye, eye - A @ A.T))
        return FreePrior(zero, factor1, jnp.asarray(A, dtype), zero, factor)
    if kind not in ("controlled", "network"):
        raise ValueError(f"kind is {kind!r}, not 'stationary', 'free', 'controlled' or 'network'")
    if (control_dim is None) == (n_control_values is None):
        raise ValueError(
            f"a {kind} prior needs control_dim (controls are vectors) or n_control_values (controls are integers), and "
            "not both"
        )
    discrete, size = control_dim is None, control_dim if n_control_values is None else n_control_values
    assert size is not None
    if size < 1:
        raise ValueError(f"controls need at least one {'value' if discrete else 'dimension'}, not {size}")
    if kind == "controlled":
        spread = 0.1 if discrete else 0.1 / size**0.5
        return ControlledPrior(
            jnp.asarray(A, dtype), spread * jax.random.normal(key, (latent_dim, size), dtype), discrete
        )
    network = eqx.nn.MLP(size, latent_dim * (latent_dim + 1), width, 1, jax.nn.tanh, dtype=dtype, key=key)
    network = eqx.tree_at(lambda n: n.layers[-1], network, replace_fn=lambda x: jax.tree.map(lambda w: 0.1 * w, x))
    return NetworkPrior(jnp.asarray(inverse_contraction(A), dtype), network, discrete)


def initial_transition(initial: str | Float[AnyArray, "k k"], latent_dim: int, scale: float) -> Float[ndarray, "k k"]:
    """The first matrix A, on the host and in float64, with singular values below 1."""
    if not isinstance(initial, str):
        A = np.asarray(initial, np.float64)
        if A.shape != (latent_dim, latent_dim):
            raise ValueError(
                f"initial has shape {A.shape}, but {latent_dim} latent dimensions need a square of that size"
            )
        if not np.isfinite(A).all():
            raise ValueError("initial holds values that are not finite: pass a matrix of numbers")
        if (largest := np.linalg.norm(A, 2)) >= LIMIT:
            raise ValueError(
                f"the largest singular value of initial is {largest:.6g}, not below {LIMIT:.6g}: use "
                "rpgssm.core.project_singular_values"
            )
        return A
    if not 0 < scale < LIMIT:
        raise ValueError(f"scale is {scale}, not between 0 and {LIMIT:.6g}: the chain would not be stationary")
    A, pairs = np.eye(latent_dim), latent_dim // 2
    if initial == "rotation":
        for i, period in enumerate(np.geomspace(*PERIODS, max(pairs, 1))[:pairs]):
            angle = 2 * np.pi / period
            c, s = np.cos(angle), np.sin(angle)
            A[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[c, -s], [s, c]]
    elif initial == "smooth":
        # (x, v/λ) with dx = v dt, dv = -(λ²x + 2λv) dt + noise is stationary with covariance I, and over one frame
        # the drift [[0, λ], [-λ, -2λ]] becomes its exponential; λ is its only eigenvalue, twice
        for i, frames in enumerate(np.geomspace(*TIMES, max(pairs, 1))[:pairs]):
            λ = 1 / frames
            A[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = np.exp(-λ) * np.array([[1 + λ, λ], [-λ, 1 - λ]])
    elif initial != "identity":
        raise ValueError(f"initial is {initial!r}, not 'identity', 'rotation', 'smooth' or a matrix")
    return scale * A


def _is_start(value: object) -> bool:
    if isinstance(value, str):
        return value in STARTS
    if not isinstance(value, tuple) or len(value) == 0:
        return False
    try:
        matrix = np.array(value, float)
    except (TypeError, ValueError):
        return False
    return matrix.shape == (len(value), len(value)) and bool(np.isfinite(matrix).all())


STARTS = ("identity", "rotation", "smooth")


class Prior(Behaviour):
    """The prior of the latents: controlled if there are controls, else stationary."""

    start: str | Sequence[Sequence[float]] | ndarray = setting(
        "identity",
        "First transition matrix A: 'identity', 'rotation' (of pairs) or 'smooth' (pairs of a smooth process and its "
        "velocity, for latents with a velocity), each times `scale`; or a matrix.",
        fits=_is_start,
        wanted="'identity', 'rotation', 'smooth' or a square matrix",
    )
    scale: float | None = setting(
        None, "Size of A at the start. None: 0.9 if all encoders are linear, else 0.98.", above=0, below=1
    )

    kind: ClassVar[Literal["stationary", "free", "controlled", "network"] | None] = None

    def __post_init__(self) -> None:
        if isinstance(self.start, np.ndarray | Sequence) and not isinstance(self.start, str):
            with suppress(TypeError, ValueError):  # the check below refuses everything but a matrix of numbers
                object.__setattr__(self, "start", tuple(tuple(float(x) for x in row) for row in self.start))
        super().__post_init__()

    def kind_for(self, controlled: bool) -> Literal["stationary", "free", "controlled", "network"]:
        """The kind of prior, with controls or without."""
        if self.kind is None:
            return "controlled" if controlled else "stationary"
        takes = self.kind in ("controlled", "network")
        if takes and not controlled:
            raise ValueError(f"prior={self!r} needs controls: pass fit(X, controls=...)")
        if controlled and not takes:
            raise ValueError(
                f"prior={self!r} has no use for controls: choose Controlled() or Network(), or leave them out"
            )
        return self.kind

    def make(
        self, latent_dim: int, scale: float, control_dim: int | None, n_control_values: int | None, key: PRNGKeyArray
    ) -> AnyPrior:
        """Make the prior. Controls are vectors of `control_dim` numbers, or integers below `n_control_values`."""
        kind = self.kind_for(control_dim is not None or n_control_values is not None)
        more: dict[str, Any] = {}
        if kind in ("controlled", "network"):
            more = {"control_dim": control_dim, "n_control_values": n_control_values}
        initial = self.start if isinstance(self.start, str) else np.asarray(self.start)
        return make_prior(kind, latent_dim, key=key, initial=initial, scale=scale, **more)


class Stationary(Prior):
    """The canonical stationary chain: only A is learned."""

    kind = "stationary"


class Free(Prior):
    """A chain with its own first frame, bias and noise."""

    kind = "free"


class Controlled(Prior):
    """The stationary chain with a linear effect of the controls."""

    kind = "controlled"


class Network(Prior):
    """A chain with a transition matrix and a bias that a network computes from the controls."""

    kind = "network"
