"""What any model gives to be scored: means and covariances of its latents, as NumPy arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float


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

    Covariances that are the same for all sequences may come with a batch axis of length 1.
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
        if not np.isfinite(mean).all():
            sequence, frame = np.argwhere(~np.isfinite(mean))[0, :2]
            raise ValueError(f"the model's mean is not finite in sequence {start + sequence}, frame {frame}")
        means.append(mean)
        cov = getattr(out, "cov", None)
        if cov is not None:
            covs.append(np.asarray(cov, np.float64))
    return Latents(np.concatenate(means), _joined(covs, means) if covs else None)


def _joined(covs: list[np.ndarray], means: list[np.ndarray]) -> np.ndarray:
    """Covariances of all sequences; if they are all the same, one that is stored once."""
    if all(len(cov) == 1 and np.array_equal(cov, covs[0]) for cov in covs):
        return np.broadcast_to(covs[0], (sum(map(len, means)), *covs[0].shape[1:]))
    return np.concatenate(
        [np.broadcast_to(cov, (len(mean), *cov.shape[1:])) for cov, mean in zip(covs, means, strict=True)]
    )
