"""Naive oracle: posterior, log Z and free energy through the dense joint Gaussian of all `T K` variables, in numpy."""

import numpy as np


def dense_posterior(A, h, Λ):
    """`(log Z, means (T, K), marginal covariances (T, K, K))` of one sequence; h is (T, K), Λ is (T, K, K).

    The prior over `(z_1, ..., z_T)` is N(0, S) with blocks `S[t, s] = A^(t-s)` for t >= s. With block-diagonal Λ,

        log Z = ½ h'(S⁻¹ + Λ)⁻¹h - ½ log|S⁻¹ + Λ| - ½ log|S|
    """
    T, K = h.shape
    S = np.zeros((T, K, T, K))
    for t in range(T):
        for s in range(t + 1):
            block = np.linalg.matrix_power(A, t - s)
            S[t, :, s, :] = block
            S[s, :, t, :] = block.T
    S = S.reshape(T * K, T * K)
    precision = np.linalg.inv(S)
    for t in range(T):
        precision[t * K : (t + 1) * K, t * K : (t + 1) * K] += Λ[t]
    cov = np.linalg.inv(precision)
    mean = cov @ h.reshape(-1)
    log_z = 0.5 * h.reshape(-1) @ mean - 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * np.linalg.slogdet(S)[1]
    blocks = cov.reshape(T, K, T, K)
    return log_z, mean.reshape(T, K), np.stack([blocks[t, :, t, :] for t in range(T)])


def dense_free_energy(A, h, Λ):
    """`G^n` of every sequence by the definition; h is (N, T, K), Λ is (N, T, K, K)."""
    N, T, K = h.shape
    I = np.eye(K)
    G = np.zeros(N)
    for n in range(N):
        G[n], mean, cov = dense_posterior(A, h[n], Λ[n])
        for t in range(T):
            Λ_q = np.linalg.inv(cov[t])
            h_q = Λ_q @ mean[t]
            ratios = [Φ(h_q + h[m, t], Λ_q + Λ[m, t]) - Φ(h[m, t], I + Λ[m, t]) for m in range(N)]
            G[n] += Φ(h_q, Λ_q) - Φ(h[n, t], I + Λ[n, t]) - np.log(np.mean(np.exp(ratios)))
    return G


def Φ(h, Λ):
    """`½ h'Λ⁻¹h - ½ log|Λ|`."""
    return 0.5 * h @ np.linalg.solve(Λ, h) - 0.5 * np.linalg.slogdet(Λ)[1]
