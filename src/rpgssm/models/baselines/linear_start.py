"""Where EM of the linear Gaussian model starts: principal components of the frames, and how they move on.

The first K principal components of all modalities together, scaled to unit variance, stand for the latents. C is how
they enter the frames, r what they leave over, A the regression of each frame's on those of the frame before.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from rpgssm.data import Modality, Sequences

from .linear_gaussian import LinearChain, LinearEmission, LinearGaussianModel, blank_model

FRAMES = 20_000  # that are looked at, at most


def start_model(latent_dim: int, data: Sequences, most: int, seed: int, dtype=jnp.float32) -> LinearGaussianModel:
    """A model to start from. Frames of more than `most` numbers are reduced to that many principal components."""
    rng = np.random.default_rng(seed)
    counts = {name: min(int(np.prod(shape)), most) for name, shape in data.frame_shapes.items()}
    blank = blank_model(latent_dim, {n: (data.frame_shapes[n], c) for n, c in counts.items()}, dtype)
    chosen = np.sort(rng.permutation(len(data))[: max(1, FRAMES // data.time)])
    emissions, scores = {}, []
    for name in data.names:
        part = data.modalities[name]
        x, seen = _values(part, chosen)
        centre = x[seen].mean(0)
        x = np.where(seen[..., None], x - centre, 0.0)
        W = None
        if counts[name] < x.shape[-1]:
            W = principal_components(x[seen], counts[name], seed)
            x = x @ W.T
        scores.append(x)
        old: LinearEmission = blank.emissions[name]
        emissions[name] = eqx.tree_at(lambda e: e.centre, old, jnp.asarray(centre, dtype))
        if W is not None:
            emissions[name] = eqx.tree_at(lambda e: e.components, emissions[name], jnp.asarray(W, dtype))
    y = np.concatenate(scores, -1)
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
    start = 0
    for name in data.names:
        d = counts[name]
        place = slice(start, start + d)
        start += d
        values = (jnp.asarray(loadings[place], dtype), jnp.asarray(left[place], dtype))
        emissions[name] = eqx.tree_at(lambda e: (e.C, e.r), emissions[name], values)
    A = _moved(z)
    eye = np.eye(latent_dim)
    prior = LinearChain(
        jnp.zeros((latent_dim,), dtype),
        jnp.asarray(eye, dtype),
        jnp.asarray(A, dtype),
        jnp.zeros((latent_dim,), dtype),
        jnp.asarray(eye - A @ A.T, dtype),
    )
    return LinearGaussianModel(prior, emissions)


def principal_components(rows: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The directions (count, d) in which the rows vary most, orthonormal."""
    from sklearn.utils.extmath import randomized_svd

    components = np.zeros((count, rows.shape[1]))
    found = min(count, *rows.shape)
    components[:found] = randomized_svd(rows - rows.mean(0), found, random_state=seed)[2]
    return components


def _values(part: Modality, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Frames as vectors in float64, and which were observed."""
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
