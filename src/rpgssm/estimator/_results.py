"""What the estimators return: NumPy arrays in the form in which the data came.

One long sequence in, arrays without a sequence axis out; a list of ragged sequences in, lists out.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Latents:
    """Gaussian marginals of the latents: `mean` (N, T, K), `cov` (N, T, K, K), and log Z of each sequence (N,).

    For one long sequence without the axis N; for ragged ones lists with one entry per sequence. Covariances that all
    sequences share are one array shown N times, and so cannot be written to; copy it first. `log_z` is None for models
    that have none.
    """

    mean: Any
    cov: Any
    log_z: Any


@dataclass(frozen=True)
class Prediction:
    """The frames after the last one: `mean` (N, steps, K), `cov` (N, steps, K, K), `samples` (S, N, steps, K) or None.

    For one long sequence without the axis N; for a list of sequences lists with one entry for each.
    """

    mean: Any
    cov: Any
    samples: Any = None
