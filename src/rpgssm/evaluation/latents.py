"""What any model gives to be scored: means and covariances of its latents, as NumPy arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from rpgssm.data.shared import joined, spread, stored_once
from rpgssm.training import check_finite


@dataclass(frozen=True)
class Latents:
    """Gaussian marginals of N sequences of T frames in K dimensions. Without `cov` there is no uncertainty to score."""

    mean: Float[np.ndarray, "n t k"]
    cov: Float[np.ndarray, "n t k k"] | None = None

    def __len__(self) -> int:
        return self.mean.shape[0]


@runtime_checkable
class Estimator(Protocol):
    """A fitted model: sequences (N, T, ...) in, marginals with `.mean` (N, T, K) and `.cov` (N or 1, T, K, K) out."""

    def smooth(self, x: Any, /) -> Any: ...

    def filter(self, x: Any, /) -> Any: ...

    def forecast(self, x: Any, steps: int, /) -> Any: ...


def collect(infer: Callable[[np.ndarray], Any], observations: np.ndarray, batch: int = 50) -> Latents:
    """Run a model over sequences, a batch at a time, and gather its marginals in 64-bit floating point.

    Covariances that are the same for all sequences may come with a batch axis of length 1, and are kept once.
    """
    means, covs = [], []
    for start in range(0, len(observations), batch):
        part = observations[start : start + batch]
        out = infer(part)
        mean = np.asarray(out.mean, np.float64)
        if mean.ndim != 3 or len(mean) != len(part):
            raise ValueError(
                f"the model gave means of shape {mean.shape} for {len(part)} sequences: (n, t, k) is needed"
            )
        check_finite(mean, "the model", start)
        means.append(mean)
        cov = getattr(out, "cov", None)
        if cov is not None:
            cov = np.asarray(cov)
            different = cov[:1] if stored_once(cov) else cov
            covs.append(spread(different.astype(np.float64), len(mean)))
    return Latents(np.concatenate(means), joined(*covs) if covs else None)
