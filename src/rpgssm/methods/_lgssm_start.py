"""Initial parameters of EM for the linear Gaussian model, from principal components of the frames.

The first K principal components of all modalities together, scaled to unit variance, take the place of the latents. C
holds their loadings, r the residual variances, A their regression on the components of the frame before.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from rpgssm.data import Modality, Sequences

from .lgssm import LinearChain, LinearEmission, LinearGaussianModel

FRAMES = 20_000  # to use at most


def start_model(latent_dim: int, data: Sequences, most: int, seed: int, dtype=jnp.float32) -> LinearGaussianModel:
    """A model to start from. Frames of more than `most` numbers are reduced to that many principal components."""
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.permutation(len(data))[: max(1, FRAMES // data.time)])
    centres, components, scores = {}, {}, {}
    for name in data.names:
        x, seen = _values(data.modalities[name], chosen)
        centres[name] = x[seen].mean(0)
        x = np.where(seen[..., None], x - centres[name], 0.0)
        if x.shape[-1] > most:
            components[name] = principal_components(x[seen], most, seed)
            x = x @ components[name].T
        scores[name] = x
    y = np.concatenate(list(scores.values()), -1)
    rows = y.reshape(-1, y.shape[-1])
    _, spread, V = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    k = min(latent_dim, len(spread))
    scale = np.maximum(spread[:k] / len(rows) ** 0.5, 1e-6 * max(spread.max() / len(rows) ** 0.5, 1e-6))
    loadings = np.zeros((rows.shape[1], latent_dim))
    loadings[:, :k] = V[:k].T * scale
    loadings[:, k:] = 0.01 * scale.min() * rng.standard_normal((rows.shape[1], latent_dim - k))
    z = np.zeros((*y.shape[:2], latent_dim))
    z[..., :k] = (y @ V[:k].T) / scale
    left = np.maximum((rows - (z.reshape(len(rows), -1)) @ loadings.T).var(0), 0.01 * max(rows.var(0).max(), 1e-12))

    def array(x: np.ndarray) -> Array:
        return jnp.asarray(x, dtype)

    emissions, stop = {}, 0
    for name, score in scores.items():
        start, stop = stop, stop + score.shape[-1]
        C, r = array(loadings[start:stop]), array(left[start:stop])
        W = array(components[name]) if name in components else None
        d = jnp.zeros(stop - start, dtype)
        emissions[name] = LinearEmission(C, d, r, array(centres[name]), W, data.frame_shapes[name])
    A, eye, zero = _moved(z), np.eye(latent_dim), jnp.zeros(latent_dim, dtype)
    prior = LinearChain(zero, array(eye), array(A), zero, array(eye - A @ A.T))
    return LinearGaussianModel(prior=prior, emissions=emissions)


def principal_components(rows: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The directions (count, d) in which the rows vary most, orthonormal."""
    from sklearn.utils.extmath import randomized_svd

    components = np.zeros((count, rows.shape[1]))
    found = min(count, *rows.shape)
    components[:found] = randomized_svd(rows - rows.mean(0), found, random_state=seed)[2]
    return components


def _values(part: Modality, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Frames as vectors in float64, and a mask of the observed ones."""
    x = np.asarray(part.values)[chosen]
    x = x.reshape(*x.shape[:2], -1).astype(np.float64) * part.scale
    seen = np.ones(x.shape[:2], bool) if part.mask is None else np.asarray(part.mask)[chosen]
    return x, seen


def _moved(z: np.ndarray) -> np.ndarray:
    """The regression of each frame on the one before, with singular values at most 0.95."""
    k = z.shape[-1]
    before, after = z[:, :-1].reshape(-1, k), z[:, 1:].reshape(-1, k)
    A = np.linalg.solve(before.T @ before + 1e-3 * max(len(before), 1) * np.eye(k), before.T @ after).T
    U, values, V = np.linalg.svd(A)
    return (U * np.minimum(values, 0.95)) @ V
