"""Samples of whole trajectories, from the prior and from the posterior.

Posterior trajectories are drawn backwards. The last frame comes from its filtered marginal, and each earlier frame from
its law given the next one and the frames so far, z_t | z_{t+1} ~ N(r_t + J_t z_{t+1}, C_t). This is a linear
recurrence, differentiable (reparametrised), with the same drivers as the smoother.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from .compiling import compiled
from .general import GeneralInference, time_first
from .layout import Rows, to_rows
from .linalg import cholesky_psd, eye_like, inverse_factor, mm, mv, spd_covariance, sym, transpose
from .recurrence import linear_recurrence
from .smoother import Covariance, Method, choose_driver, infer
from .stationary import StationaryInference
from .types import Chain, GaussianChain, Moments, Potentials, StationaryChain


@compiled("length", "samples")
def sample_prior(
    key: PRNGKeyArray, chain: Chain, length: int, samples: int = 1
) -> Float[Array, "samples *batch length k"]:
    """Draw trajectories from the prior: `samples`, or as many for each member of a chain with a batch axis."""
    if isinstance(chain, StationaryChain):
        chain = as_general(chain, length)
    prior = time_first(chain)
    if prior.A.shape[0] != length - 1:
        raise ValueError(f"the chain has {prior.A.shape[0] + 1} frames, not the {length} asked for")
    first, rest = draw_path(key, Moments(prior.m1, prior.Q1), prior.A, prior.b, prior.Q, samples)
    z = jnp.moveaxis(jnp.concatenate([first[None], rest]), 0, 2)
    return z if chain.batched else z[:, 0]


def draw_path(key, start: Moments, A, b, Q, samples: int):
    """Draw first frames (samples, batch, k), then the frames after each transition, time first."""
    noise = jax.random.normal(key, (len(A) + 1, samples, *start.mean.shape), start.mean.dtype)
    first = start.mean + mv(cholesky_psd(start.cov), noise[0])

    def step(z, inputs):
        A, b, L, eps = inputs
        z = mv(A, z) + b + mv(L, eps)
        return z, z

    return first, lax.scan(step, first, (A, b, cholesky_psd(Q), noise[1:]))[1]


@compiled("samples", "method", "covariance")
def sample_posterior(
    key: PRNGKeyArray,
    chain: Chain,
    potentials: Potentials | tuple[Potentials, ...],
    samples: int = 1,
    *,
    method: Method = "auto",
    covariance: Covariance = "auto",
) -> Float[Array, "samples batch time k"]:
    """Draw trajectories from the exact posterior given all frames."""
    i = infer(chain, potentials, method=method, covariance=covariance, directions=1)
    r, J, C = _stationary(i) if isinstance(i, StationaryInference) else _general(i, chain)
    noise = jax.random.normal(key, (samples, *r.shape), r.dtype)
    a = r + _matvec(C, noise)
    # z_t = a_t + J_t z_{t+1}: from the end x_{s+1} = J (x_s + a_{T-s}) with x_0 = 0, and z_{T-s} = x_s + a_{T-s}
    backwards = a[:, ::-1, None]
    x = jax.vmap(lambda a: linear_recurrence(J[::-1, None], a[:-1], None, choose_driver(method)))(backwards)[:, :, 0]
    z = a + jnp.concatenate([x[:, ::-1], jnp.zeros_like(a[:, :1])], 1)
    if isinstance(i, GeneralInference):
        z = z + i.prior_mean
    return jnp.moveaxis(z, 1, 2)


def _matvec(C: Float[Array, "t c k k"], eps: Float[Array, "n t b k"]) -> Float[Array, "n t b k"]:
    return jnp.einsum("tcij,ntbj->ntbi", C, eps) if C.shape[1] == 1 else jnp.einsum("tbij,ntbj->ntbi", C, eps)


def _stationary(i: StationaryInference):
    """Offsets r, gains J and factors C of the conditionals; the last frame has its filtered marginal."""
    last = spd_covariance(i.precision()[-1:], i.layout)
    cov = jnp.concatenate([i.backward_covariance(), last])
    g = i.layout.apply(cov, i.information_vector())
    # (N⁻¹ + M)⁻¹ is at least as well conditioned as N: a plain factor, with a plain derivative
    r = g if i.layout is Rows else jnp.swapaxes(g, -1, -2)
    return r, to_rows(i.layout, i.backward_gain()), jnp.linalg.cholesky(to_rows(i.layout, cov))


def _general(i: GeneralInference, chain):
    """The same: J = F A'P⁻¹ with filtered F and next predicted P, and C from Joseph's form."""
    prior = time_first(chain)
    mean, F = i.update(i.h, i.Lam)
    A = jnp.broadcast_to(prior.A, F[:-1].shape)
    Z = inverse_factor(i.P[1:])
    J = mm(mm(transpose(mm(A, F[:-1])), transpose(Z)), Z)
    rest = eye_like(F) - mm(J, A)
    cov = sym(mm(mm(rest, F[:-1]), transpose(rest)) + mm(mm(J, prior.Q), transpose(J)))
    r = mean.at[:-1].add(-Rows.apply(J, i.m[1:]))
    return r, J, cholesky_psd(jnp.concatenate([cov, F[-1:]]))


def as_general(chain: StationaryChain, length: int) -> GaussianChain:
    """Convert a stationary chain to a general chain."""
    A, eye = chain.A, eye_like(chain.A)
    zero = jnp.zeros_like(A[0])
    return GaussianChain.time_invariant(zero, eye, A, zero, sym(eye - mm(A, A.T)), length)
