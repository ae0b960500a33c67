"""What the inference core should return, computed the naive way in NumPy.

Everything goes through the dense joint Gaussian of all T·K latents of one sequence, with one loop per index of the
formulas. The functions take the library's own chains and potentials, so that they can stand in for it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rpgssm.core.types import Natural, Potentials, StationaryChain

# ---------------------------------------------------------------------------------------------------------------------
# the library's types written out in full


def chain_of(chain, n: int, time: int):
    """(m1, Q1, A, b, Q) of sequence n, with one transition for each step."""
    if isinstance(chain, StationaryChain):
        A = np.asarray(chain.A, np.float64)
        I, steps = np.eye(len(A)), time - 1
        return np.zeros(len(A)), I, np.stack([A] * time)[:steps], np.zeros((steps, len(A))), [I - A @ A.T] * steps
    arrays = (np.asarray(x, np.float64) for x in (chain.m1, chain.Q1, chain.A, chain.b, chain.Q))
    return tuple(x[n] if chain.batched else x for x in arrays)


def observed_of(p: Potentials) -> np.ndarray:
    """(batch, time): where there is an observation."""
    return np.ones(p.h.shape[:2], bool) if p.mask is None else np.asarray(p.mask)


def natural_of(p: Potentials, n: int, t: int):
    """(h, Λ) of one frame; zero if it is masked."""
    k = p.h.shape[-1]
    if not observed_of(p)[n, t]:
        return np.zeros(k), np.zeros((k, k))
    value = np.asarray(p.precision.value, np.float64)
    value = value if p.precision.shared else value[n, t]
    return np.asarray(p.h[n, t], np.float64), np.diag(value) if p.precision.diagonal else value


def total_of(potentials: Sequence[Potentials], n: int):
    """h (T, K) and Λ (T, K, K) of sequence n, summed over modalities."""
    frames = [[natural_of(p, n, t) for t in range(p.h.shape[1])] for p in potentials]
    h = sum(np.stack([h for h, _ in modality]) for modality in frames)
    return h, sum(np.stack([Λ for _, Λ in modality]) for modality in frames)


# ---------------------------------------------------------------------------------------------------------------------
# one sequence through its joint Gaussian


def prior_joint(m1, Q1, A, b, Q):
    """Mean (TK,) and covariance (TK, TK) of z_1 .. z_T."""
    time, k = len(A) + 1, len(m1)
    mean, S = np.zeros((time, k)), np.zeros((time, k, time, k))
    mean[0], S[0, :, 0] = m1, Q1
    for t in range(1, time):
        mean[t] = A[t - 1] @ mean[t - 1] + b[t - 1]
        S[t, :, t] = A[t - 1] @ S[t - 1, :, t - 1] @ A[t - 1].T + Q[t - 1]
        for s in range(t):
            S[t, :, s] = A[t - 1] @ S[t - 1, :, s]
            S[s, :, t] = S[t, :, s].T
    return mean.reshape(-1), S.reshape(time * k, time * k)


def block_diagonal(Λ):
    time, k, _ = Λ.shape
    out = np.zeros((time, k, time, k))
    for t in range(time):
        out[t, :, t] = Λ[t]
    return out.reshape(time * k, time * k)


def joint_posterior(m, S, h, Λ):
    """log Z, mean (TK,) and covariance (TK, TK) of N(m, S) times exp(-½ z'Λz + h'z). S and Λ may be singular.

    With V = (S⁻¹ + Λ)⁻¹ = (I + SΛ)⁻¹S and r = h - Λm:   log Z = ½r'Vr - ½log|I + SΛ| + h'm - ½m'Λm.
    """
    Λ, h = block_diagonal(Λ), h.reshape(-1)
    M = np.eye(len(m)) + S @ Λ
    V = np.linalg.solve(M, S)
    r = h - Λ @ m
    return 0.5 * r @ V @ r - 0.5 * np.linalg.slogdet(M)[1] + h @ m - 0.5 * m @ Λ @ m, m + V @ r, V


class Smoothed(NamedTuple):
    """Everything about the posterior of a batch."""

    log_z: np.ndarray
    mean: np.ndarray
    cov: np.ndarray
    cross: np.ndarray  # Cov(z_t, z_{t+1})
    filtered_mean: np.ndarray
    filtered_cov: np.ndarray


def smoothed(chain, potentials: Sequence[Potentials]) -> Smoothed:
    """Smoother and filter by dense linear algebra, the filter by leaving the future out."""
    batch, time, k = potentials[0].h.shape
    sequences = []
    for n in range(batch):
        m, S = prior_joint(*chain_of(chain, n, time))
        h, Λ = total_of(potentials, n)
        log_z, mean, V = joint_posterior(m, S, h, Λ)
        V = V.reshape(time, k, time, k)
        cov = np.stack([V[t, :, t] for t in range(time)])
        cross = np.array([V[t, :, t + 1] for t in range(time - 1)]).reshape(time - 1, k, k)
        past_mean, past_cov = np.zeros((time, k)), np.zeros((time, k, k))
        for t in range(time):
            past = np.arange(time) <= t
            _, filtered, F = joint_posterior(m, S, h * past[:, None], Λ * past[:, None, None])
            past_mean[t], past_cov[t] = filtered.reshape(time, k)[t], F.reshape(time, k, time, k)[t, :, t]
        sequences.append(Smoothed(log_z, mean.reshape(time, k), cov, cross, past_mean, past_cov))
    return Smoothed(*(np.stack(x) for x in zip(*sequences, strict=True)))


# ---------------------------------------------------------------------------------------------------------------------
# the free energy


def Φ(h, Λ) -> float:
    return 0.5 * h @ np.linalg.solve(Λ, h) - 0.5 * np.linalg.slogdet(Λ)[1]


def default_reference(chain, batch: int, time: int):
    """p̄_t as (h, Λ): N(0, I) for the stationary chain, else its marginals, moment-matched over the batch."""
    k = chain.latent_dim
    if isinstance(chain, StationaryChain):
        return np.zeros((time, k)), np.stack([np.eye(k)] * time)
    joints = [prior_joint(*chain_of(chain, n, time)) for n in range(batch)]
    h, Λ = np.zeros((time, k)), np.zeros((time, k, k))
    for t in range(time):
        means = [m.reshape(time, k)[t] for m, _ in joints]
        second = [
            S.reshape(time, k, time, k)[t, :, t] + np.outer(m, m) for m, (_, S) in zip(means, joints, strict=True)
        ]
        mean = np.mean(means, 0)
        Λ[t] = np.linalg.inv(np.mean(second, 0) - np.outer(mean, mean))
        h[t] = Λ[t] @ mean
    return h, Λ


def reference_of(reference: Natural | None, chain, batch: int, time: int):
    """p̄_t as (h, Λ) for every t."""
    if reference is None:
        return default_reference(chain, batch, time)
    h, Λ = np.asarray(reference.h, np.float64), np.asarray(reference.precision, np.float64)
    return np.broadcast_to(h, (time, h.shape[-1])), np.broadcast_to(Λ, (time, *Λ.shape[-2:]))


class Terms(NamedTuple):
    """The free energy G of each sequence and its terms, the last three (modality, batch)."""

    free_energy: np.ndarray
    log_z: np.ndarray
    posterior: np.ndarray
    recognition: np.ndarray
    mixture: np.ndarray
    observed: int

    @property
    def loss(self) -> float:
        return -np.sum(self.free_energy) / max(self.observed, 1)


def free_energy(
    chain, potentials, reference: Natural | None = None, marginals: Smoothed | None = None, offsets=(0,)
) -> Terms:
    """G^n = log Z + Σ_tj [Φ(q_t) - Φ(p̄ ⊕ f) - log 1/N Σ_n' exp(Φ(q_t ⊕ f') - Φ(p̄ ⊕ f'))], as it stands.

    `marginals`, if given, replace the posterior marginals q_t everywhere but in log Z. The mixture runs over the frames
    of all sequences at t + offset, round the end.
    """
    batch, time, _ = potentials[0].h.shape
    q = smoothed(chain, potentials)
    log_z, q = q.log_z, marginals or q
    h0, Λ0 = reference_of(reference, chain, batch, time)
    posterior, recognition, mixture = np.zeros((3, len(potentials), batch))
    count = 0
    for j, p in enumerate(potentials):
        observed = observed_of(p)
        for n in range(batch):
            for t in np.flatnonzero(observed[n]):
                Λq = np.linalg.inv(q.cov[n, t])
                hq = Λq @ q.mean[n, t]
                logits = []
                for s in ((t + offset) % time for offset in offsets):
                    for other in np.flatnonzero(observed[:, s]):
                        h, Λ = natural_of(p, other, s)
                        logits.append(Φ(hq + h, Λq + Λ) - Φ(h0[t] + h, Λ0[t] + Λ))
                h, Λ = natural_of(p, n, t)
                posterior[j, n] += Φ(hq, Λq)
                recognition[j, n] += Φ(h0[t] + h, Λ0[t] + Λ)
                mixture[j, n] += np.logaddexp.reduce(logits) - np.log(len(logits))
                count += 1
    G = log_z + np.sum(posterior - recognition - mixture, 0)
    return Terms(G, log_z, posterior, recognition, mixture, count)


def gaussian_free_energy(chain, potentials, reference: Natural | None = None) -> np.ndarray:
    """G^n where F is a Gaussian: log Z + Σ_tj <log p̄ + log f - log p̄ fΔ - log F>_q with normalised f."""
    batch, time, k = potentials[0].h.shape
    q = smoothed(chain, potentials)
    h0, Λ0 = reference_of(reference, chain, batch, time)
    G = q.log_z.copy()
    for p in potentials:
        observed = observed_of(p)
        frames = [natural_of(p, n, t) for n in range(batch) for t in np.flatnonzero(observed[n])]
        vectors = np.array([h for h, _ in frames])
        for n in range(batch):
            for t in np.flatnonzero(observed[n]):
                h, Λ = natural_of(p, n, t)
                S0 = np.linalg.inv(Λ0[t] + Λ)
                factors = vectors + h0[t]
                mean, cov = S0 @ factors.mean(0), S0 + S0 @ np.cov(factors.T, bias=True).reshape(k, k) @ S0
                m, V = q.mean[n, t], q.cov[n, t]
                second = V + np.outer(m, m)
                log_reference = -0.5 * np.trace(Λ0[t] @ second) + h0[t] @ m
                log_F = log_normal(m, mean, cov) - 0.5 * np.trace(np.linalg.solve(cov, V))
                G[n] += log_reference - Φ(h0[t] + h, Λ0[t] + Λ) - log_F - 0.5 * k * np.log(2 * np.pi)
    return G


def log_normal(z, mean, cov) -> float:
    """log N(z; mean, cov)."""
    r = z - mean
    return -0.5 * r @ np.linalg.solve(cov, r) - 0.5 * np.linalg.slogdet(2 * np.pi * cov)[1]


def textbook_free_energy(chain: StationaryChain, potentials: Potentials) -> np.ndarray:
    """The same quantity from the smoother, the chain's KL divergence and normalised densities; one modality, no mask.

    G = Σ_t <log fΔ>_q - KL(q‖p) - Σ_t log ∫p fΔ - Σ_t log 1/N Σ_n' ∫ f' q/p, with f' = p fΔ'/∫p fΔ'. Integrals of
    exp(-½z'Λz + h'z) against densities are read off at one point: ∫p fΔ = p(z) fΔ(z) / f(z) for any z, say z = 0.
    """
    batch, time, k = potentials.h.shape
    zero, I = np.zeros(k), np.eye(k)

    def log_integral(mean, cov, h, Λ):
        """log ∫ N(z; mean, cov) exp(-½z'Λz + h'z) dz."""
        product = np.linalg.inv(np.linalg.inv(cov) + Λ)
        return log_normal(zero, mean, cov) - log_normal(zero, product @ (np.linalg.solve(cov, mean) + h), product)

    G = np.zeros(batch)
    for n in range(batch):
        m, S = prior_joint(*chain_of(chain, n, time))
        h, Λ = total_of([potentials], n)
        _, mean, V = joint_posterior(m, S, h, Λ)
        Si = np.linalg.inv(S)
        logdets = np.linalg.slogdet(S)[1] - np.linalg.slogdet(V)[1]
        G[n] -= 0.5 * (np.trace(Si @ V) + (mean - m) @ Si @ (mean - m) - time * k + logdets)
        for t in range(time):
            μ, Σ = mean.reshape(time, k)[t], V.reshape(time, k, time, k)[t, :, t]
            G[n] += h[t] @ μ - 0.5 * np.trace(Λ[t] @ (Σ + np.outer(μ, μ)))
            G[n] -= log_integral(zero, I, h[t], Λ[t])
            pairs = [natural_of(potentials, other, t) for other in range(batch)]
            ratios = [np.exp(log_integral(μ, Σ, *f) - log_integral(zero, I, *f)) for f in pairs]
            G[n] -= np.log(np.mean(ratios))
    return G


# ---------------------------------------------------------------------------------------------------------------------
# derivatives


def slope(f: Callable[[float], float], step: float = 2e-3) -> float:
    """df/dε at 0 by central differences of fourth order."""
    return (8 * (f(step) - f(-step)) - (f(2 * step) - f(-2 * step))) / (12 * step)
