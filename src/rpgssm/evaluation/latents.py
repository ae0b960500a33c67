"""What any model gives to be scored: means and covariances of its latents, as NumPy arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int, Shaped

from rpgssm.data import Sequences
from rpgssm.data.repeated import concatenate, is_repeated, repeat
from rpgssm.training import check_finite


@dataclass(frozen=True)
class Latents:
    """Gaussian marginals of N sequences of T frames in K dimensions. Without `cov` there is no uncertainty to score.

    Of sequence n the first `lengths[n]` frames exist; None: all of them. Numbers after them have no meaning.
    """

    mean: Float[np.ndarray, "n t k"]
    cov: Float[np.ndarray, "n t k k"] | None = None
    lengths: Int[np.ndarray, " n"] | None = None

    def __len__(self) -> int:
        return self.mean.shape[0]

    def exist(self) -> Shaped[np.ndarray, "n t"]:
        """Which frames exist."""
        time = self.mean.shape[1]
        lengths = np.full(len(self), time) if self.lengths is None else self.lengths
        return np.arange(time) < lengths[:, None]


@runtime_checkable
class Marginals(Protocol):
    """An answer of a model: `mean` (N, T, K), and `cov` (N or 1, T, K, K) or None; lists of arrays if ragged."""

    @property
    def mean(self) -> object: ...


@runtime_checkable
class Smoother(Protocol):
    """A fitted model: sequences in, marginals out. It may also have `filter(x)` and `forecast(x, steps)`."""

    def smooth(self, X: object, /) -> Marginals: ...


def collect(
    infer: Callable[..., Marginals], observations: Shaped[np.ndarray, "n t *frame"] | Sequences, batch: int = 50
) -> Latents:
    """Run a model over sequences, a batch at a time, and gather its marginals in 64-bit floating point.

    Batches of `Sequences` are filled up with repeats, so that parts of any size need one compiled program. Covariances
    that are the same for all sequences may come with a batch axis of length 1, and are kept once.
    """
    means, covs = [], []
    for start in range(0, len(observations), batch):
        count = min(batch, len(observations) - start)
        if isinstance(observations, Sequences):
            part = observations.take(np.minimum(np.arange(start, start + batch), len(observations) - 1))
        else:
            part = observations[start : start + batch]
        out = infer(part)
        mean = np.asarray(_padded(out.mean), np.float64)
        if mean.ndim != 3 or len(mean) != len(part):
            raise ValueError(
                f"the model gave means of shape {mean.shape} for {len(part)} sequences: (n, t, k) is needed"
            )
        mean = mean[:count]
        check_finite(mean, "the model", start)
        means.append(mean)
        cov = getattr(out, "cov", None)
        if cov is not None:
            cov = _padded(cov)
            cov = cov[:count] if len(cov) > 1 else cov
            different = cov[:1] if is_repeated(cov) else cov
            covs.append(repeat(different.astype(np.float64), len(mean)))
    time = max(mean.shape[1] for mean in means)
    mean, lengths = np.concatenate([_longer(mean, time) for mean in means]), None
    if isinstance(observations, Sequences) and observations.lengths is not None and time == observations.time:
        lengths = np.asarray(observations.lengths)
    return Latents(mean, concatenate(*(_longer(cov, time) for cov in covs)) if covs else None, lengths)


def _padded(rows: object) -> Shaped[np.ndarray, "..."]:
    """One array of what may be a list of arrays, one for each sequence, filled up with zeros."""
    if not isinstance(rows, list):
        return np.asarray(rows)
    return np.concatenate([_longer(row[None], max(map(len, rows))) for row in rows])


def _longer(x: Shaped[np.ndarray, "n t *rest"], time: int) -> Shaped[np.ndarray, "n time *rest"]:
    if x.shape[1] == time:
        return x
    return np.concatenate([x, np.zeros((len(x), time - x.shape[1], *x.shape[2:]), x.dtype)], 1)
