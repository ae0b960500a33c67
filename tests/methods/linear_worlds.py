"""A small linear Gaussian world, models with its parameters, and what they should give by the dense joint Gaussian."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rpgssm.data import Modality, Sequences
from rpgssm.methods._generative import FLOOR, ChainPrior
from rpgssm.nn.emission import Emission, make_emission
from rpgssm.nn.encoders import LinearEncoder
from rpgssm.nn.heads import Recognition, make_head
from rpgssm.nn.priors import JITTER, FreePrior, factor_of

N, T, K, D = 3, 6, 2, 4
NOISE = 0.7


class World(NamedTuple):
    """Parameters with a first mean and a bias, and frames drawn from them."""

    m1: np.ndarray
    Q1: np.ndarray
    A: np.ndarray
    b: np.ndarray
    Q: np.ndarray
    C: np.ndarray
    d: np.ndarray
    x: np.ndarray


def world(seed: int = 0) -> World:
    rng = np.random.default_rng(seed)

    def covariance():
        L = rng.normal(size=(K, K))
        return L @ L.T + 0.3 * np.eye(K)

    m1, b, d = rng.normal(size=K), rng.normal(size=K), rng.normal(size=D)
    A = 0.8 * np.linalg.qr(rng.normal(size=(K, K)))[0]
    Q1, Q, C = covariance(), covariance(), rng.normal(size=(D, K))
    z = np.zeros((N, T, K))
    z[:, 0] = m1 + rng.normal(size=(N, K)) @ np.linalg.cholesky(Q1).T
    for t in range(1, T):
        z[:, t] = z[:, t - 1] @ A.T + b + rng.normal(size=(N, K)) @ np.linalg.cholesky(Q).T
    return World(m1, Q1, A, b, Q, C, d, z @ C.T + d + NOISE * rng.normal(size=(N, T, D)))


def batch_of(w: World, mask: np.ndarray | None = None, lengths: np.ndarray | None = None) -> Sequences:
    return Sequences({"x": Modality(jnp.asarray(w.x), None if mask is None else jnp.asarray(mask))}, None, lengths)


def prior_of(w: World) -> ChainPrior:
    def factor(Q):
        return jnp.asarray(factor_of(Q - (FLOOR - JITTER) * np.eye(K)))

    m1, A, b = (jnp.asarray(x) for x in (w.m1, w.A, w.b))
    return ChainPrior(FreePrior(m1, factor(w.Q1), A, b, factor(w.Q)))


def emission_of(w: World) -> Emission:
    e = make_emission("linear", K, (D,), key=jax.random.key(0), noise=NOISE, dtype=jnp.float64)
    values = (jnp.asarray(w.C.T), jnp.asarray(w.d))
    decoder: Any = e.decoder
    layer = eqx.tree_at(lambda x: (x.layers.layers[0].weight, x.layers.layers[0].bias), decoder, values)
    return Emission(layer, e.noise, e.output)


def true_recognition(w: World) -> Recognition:
    """The recognition network whose potentials are those of the emission: h = C'(x - d)/ν², Λ = C'C/ν²."""
    encoder = LinearEncoder((D,), shift=w.d, dtype=jnp.float64)
    head = make_head("cholesky", False, D, K, key=jax.random.key(0), floor=0.0, dtype=jnp.float64)
    L = np.linalg.cholesky(w.C.T @ w.C / NOISE**2)
    diagonal = np.log(np.expm1(np.diagonal(L)))
    raw = np.concatenate([diagonal, L[np.tril_indices(K, -1)]])
    values = (jnp.asarray(w.C / NOISE**2), jnp.asarray(raw))
    return Recognition(encoder, eqx.tree_at(lambda h: (h.to_h.weight, h.raw), head, values))


def joint(m1, Q1, A, b, Q) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of all latents of a chain; A, b, Q with one entry for each step."""
    steps, k = len(A), len(m1)
    mean, cov = np.zeros((steps + 1, k)), np.zeros((steps + 1, steps + 1, k, k))
    mean[0], cov[0, 0] = m1, Q1
    for t in range(steps):
        mean[t + 1] = A[t] @ mean[t] + b[t]
        for s in range(t + 1):
            cov[t + 1, s] = A[t] @ cov[t, s]
            cov[s, t + 1] = cov[t + 1, s].T
        cov[t + 1, t + 1] = A[t] @ cov[t, t] @ A[t].T + Q[t]
    return mean.reshape(-1), cov.transpose(0, 2, 1, 3).reshape((steps + 1) * k, -1)


def world_joint(w: World, time: int = T) -> tuple[np.ndarray, np.ndarray]:
    return joint(w.m1, w.Q1, [w.A] * (time - 1), [w.b] * (time - 1), [w.Q] * (time - 1))


def log_normal(x: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> float:
    apart = x - mean
    return float(-0.5 * (apart @ np.linalg.solve(cov, apart) + np.linalg.slogdet(2 * np.pi * cov)[1]))


def dense_kl(q: tuple[np.ndarray, np.ndarray], p: tuple[np.ndarray, np.ndarray]) -> float:
    (mq, Sq), (mp, Sp) = q, p
    apart, inverse = mp - mq, np.linalg.inv(Sp)
    logs = np.linalg.slogdet(Sp)[1] - np.linalg.slogdet(Sq)[1]
    return float(0.5 * (np.trace(inverse @ Sq) + apart @ inverse @ apart - len(mq) + logs))


def log_marginal(w: World, n: int, seen: np.ndarray | None = None) -> float:
    """log p(x) of a sequence, over the frames that were seen, by the joint Gaussian of its frames."""
    mean, cov = world_joint(w)
    C = np.kron(np.eye(T), w.C)
    mean_x, cov_x = C @ mean + np.tile(w.d, T), C @ cov @ C.T + NOISE**2 * np.eye(T * D)
    rows = np.repeat(np.ones(T, bool) if seen is None else seen, D)
    return log_normal(w.x[n].reshape(-1)[rows], mean_x[rows], cov_x[np.ix_(rows, rows)])
