"""Does the background move the inferred state? The same trajectories are shown with several backgrounds.

Spread is the variance across backgrounds relative to the variance of the inferred states themselves: 0 if the model
ignores the background, 1 if it sees nothing else. For latents it is measured so that any invertible linear change of
coordinates leaves it as it is: tr(total⁻¹ within) / K.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from rpgssm.evaluation.latents import Marginals, collect
from rpgssm.evaluation.regression import LinearReadout


@dataclass(frozen=True)
class Robustness:
    """Spread of latents and of decoded targets, as fractions of their variance."""

    latents: float
    targets: dict[str, float]


def background_spread(means: Float[np.ndarray, "variants n t k"]) -> float:
    """Spread of latents across variants of the background, between 0 and 1."""
    if len(means) < 2:
        raise ValueError(f"a spread needs at least two backgrounds, but there is {len(means)}")
    k = means.shape[-1]
    within = (means - means.mean(0)).reshape(-1, k)
    total = (means - means.mean((0, 1, 2))).reshape(-1, k)
    # unused latents (no variance at all) count as not moved
    return float(np.trace(np.linalg.pinv(total.T @ total, rcond=1e-10, hermitian=True) @ (within.T @ within)) / k)


def robustness(means: Float[np.ndarray, "variants n t k"], readout: LinearReadout) -> Robustness:
    """Spread of latents and of the targets decoded from them."""
    decoded = [readout.predict(mean) for mean in means]
    spread = {}
    for name in readout.weights:
        y = np.stack([d[name] for d in decoded])
        spread[name] = float((y - y.mean(0)).var() / max((y - y.mean((0, 1, 2))).var(), 1e-300))
    return Robustness(background_spread(means), spread)


def infer_variants(
    infer: Callable[..., Marginals], observations: np.ndarray, batch: int = 50
) -> Float[np.ndarray, "variants n t k"]:
    """Means inferred from each variant of the observations (variants, N, T, ...)."""
    return np.stack([collect(infer, variant, batch).mean for variant in observations])
