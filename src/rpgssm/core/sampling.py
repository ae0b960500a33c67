"""Samples of whole trajectories, from the prior and from the posterior.

Posterior trajectories are drawn backwards: the last frame from its filtered marginal, then every earlier frame given
the one after it and the frames up to its own, z_t | z_{t+1} ~ N(r_t + J_t z_{t+1}, C_t). With the gains known this is a
linear recurrence, so it runs with the same drivers as everything else, and is differentiable (reparametrised).
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
from .types import Chain, GaussianChain, Potentials, StationaryChain


@compiled("length", "samples")
def sample_prior(
    key: PRNGKeyArray, chain: Chain, length: int, samples: int = 1
) -> Float[Array, "samples *batch length k"]:
    """Trajectories from the prior. A chain with a batch axis gives `samples` trajectories for each of its members."""
    if isinstance(chain, StationaryChain):
        chain = as_general(chain, length)
    prior = time_first(chain)
    if prior.A.shape[0] != length - 1:
        raise ValueError(f"the chain has {prior.A.shape[0] + 1} frames, not the {length} asked for")
    batch, k = prior.m1.shape
    noise = jax.random.normal(key, (length, samples, batch, k), prior.m1.dtype)
    first = prior.m1 + mv(cholesky_psd(prior.Q1), noise[0])
    L = cholesky_psd(prior.Q)

    def step(z, inputs):
        A, b, L, eps = inputs
        z = mv(A, z) + b + mv(L, eps)
        return z, z

    _, rest = lax.scan(step, first, (prior.A, prior.b, L, noise[1:]))
    z = jnp.moveaxis(jnp.concatenate([first[None], rest]), 0, 2)
    return z if chain.batched else z[:, 0]


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
    """Trajectories from the exact posterior given all frames."""
    i = infer(chain, potentials, method=method, covariance=covariance, directions=1)
    r, J, C = _stationary(i) if isinstance(i, StationaryInference) else _general(i, chain)
    noise = jax.random.normal(key, (samples, *r.shape), r.dtype)
    a = r + matvec_each(C, noise)
    # z_t = a_t + J_t z_{t+1}. From the end: x_{s+1} = J (x_s + a_{T-s}), x_0 = 0, and z_{T-s} = x_s + a_{T-s}
    backwards = a[:, ::-1, None]
    x = jax.vmap(lambda a: linear_recurrence(J[::-1, None], a[:-1], None, choose_driver(method)))(backwards)[:, :, 0]
    z = a + jnp.concatenate([x[:, ::-1], jnp.zeros_like(a[:, :1])], 1)
    if isinstance(i, GeneralInference):
        z = z + i.prior_mean
    return jnp.moveaxis(z, 1, 2)


def matvec_each(C: Float[Array, "t c k k"], eps: Float[Array, "n t b k"]) -> Float[Array, "n t b k"]:
    return jnp.einsum("tcij,ntbj->ntbi", C, eps) if C.shape[1] == 1 else jnp.einsum("tbij,ntbj->ntbi", C, eps)


def _stationary(i: StationaryInference):
    """Offsets r, gains J and factors C of the conditionals; the last frame's is its filtered marginal."""
    last = spd_covariance(i.precision()[-1:], i.layout)
    cov = jnp.concatenate([i.backward_covariance(), last])
    g = i.layout.apply(cov, i.shift())
    # (N⁻¹ + M)⁻¹ is at least as well conditioned as N: a plain factor, with a plain derivative
    r = g if i.layout is Rows else jnp.swapaxes(g, -1, -2)
    return r, to_rows(i.layout, i.backward_gain()), jnp.linalg.cholesky(to_rows(i.layout, cov))


def _general(i: GeneralInference, chain):
    """J = F A'P⁻¹ with F the filtered and P the next predicted covariance; Joseph's form for what remains."""
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
    """The stationary chain written out as a general one."""
    A, eye = chain.A, eye_like(chain.A)
    zero = jnp.zeros_like(A[0])
    return GaussianChain.time_invariant(zero, eye, A, zero, sym(eye - mm(A, A.T)), length)
