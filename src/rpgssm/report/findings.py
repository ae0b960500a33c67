"""What a report is made of, and how its parts are brought into the form of figures."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float

from rpgssm.data import Sequences
from rpgssm.estimator import Estimator
from rpgssm.evaluation import Evaluation, Forecasts, Latents, collect
from rpgssm.evaluation.labelled import Part as Data

from .arrange import Arranged
from .figures import EXCERPT, Clock

SHOWN = 3  # sequences in figures


@dataclass(frozen=True)
class Findings:
    """A fitted model, what it was shown, and what was found. `marks` are known periods in frames, by name."""

    model: Estimator
    data: Data
    arranged: Arranged
    found: Evaluation
    clock: Clock
    notes: tuple[str, ...] = ()
    marks: Mapping[str, float] = field(default_factory=dict)

    @property
    def test(self) -> Data:
        """The sequences that the report is of."""
        return self.arranged.test

    @property
    def method(self) -> str:
        """The name of the method."""
        return type(self.model).__name__

    @property
    def shown(self) -> list[int]:
        """The sequences in figures: the first ones; of blocks of a recording some from all over it."""
        count = len(self.test)
        if self.arranged.blocks:
            return sorted({round(i * (count - 1) / (SHOWN - 1)) for i in range(SHOWN)})
        return list(range(min(SHOWN, count)))

    def name(self, n: int) -> str:
        """What sequence n is."""
        return self.arranged.names[n]

    def frames(self, n: int) -> int:
        """How many frames of sequence n are in figures."""
        return min(int(self.test.lengths[n]), EXCERPT)

    def missing(self, n: int) -> Bool[np.ndarray, " t"]:
        """The frames of sequence n in which nothing was observed."""
        observed = np.zeros(self.test.time, bool)
        for modality in sequences(self.test).modalities.values():
            observed |= True if modality.mask is None else np.asarray(modality.mask[n])
        return ~observed[: self.frames(n)]

    def places(self, forecasts: Forecasts, most: int = SHOWN - 1) -> list[int]:
        """The forecasts in figures: of the shown sequences, if they are long enough, else of the first ones."""
        rows = forecasts.rows.tolist()
        return ([rows.index(n) for n in self.shown if n in rows] or list(range(len(rows))))[:most]

    def before(self, forecasts: Forecasts, places: list[int]) -> Latents:
        """Latents of what these forecasts start from, smoothed without anything that comes later."""
        context = self.test.take(forecasts.rows[places]).first_frames(forecasts.context)
        return collect(self.model.smooth, context.observations, len(places))


def sequences(data: Data) -> Sequences:
    """The observations, as the data of estimators are."""
    assert isinstance(data.observations, Sequences)
    return data.observations


@dataclass(frozen=True)
class Directions:
    """The leading principal directions of latents, (K, P), from their mean; and the share of variance of all K."""

    centre: Float[np.ndarray, " k"]
    directions: Float[np.ndarray, "k p"]
    share: Float[np.ndarray, " k"]
    variance: float

    @classmethod
    def of(cls, latents: Latents, most: int) -> "Directions":
        """Of all frames that exist."""
        flat = latents.mean[latents.exist()]
        centre = flat.mean(0)
        values, vectors = np.linalg.eigh(np.cov((flat - centre).T).reshape(flat.shape[-1], -1))
        values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
        vectors = vectors * np.where(vectors.sum(0) < 0, -1.0, 1.0)  # one of two signs, always the same
        total = float(values.sum())
        return cls(centre, vectors[:, :most], values / max(total, 1e-300), total)

    def count(self, share: float) -> int:
        """How many directions hold this share of the variance."""
        return min(int(np.searchsorted(np.cumsum(self.share), share)) + 1, len(self.share))

    def mean(self, mean: Float[np.ndarray, "*lead k"]) -> Float[np.ndarray, "*lead p"]:
        """Latents along the directions."""
        return (mean - self.centre) @ self.directions

    def deviation(self, cov: Float[np.ndarray, "*lead k k"]) -> Float[np.ndarray, "*lead p"]:
        """Standard deviations along the directions."""
        return np.sqrt(np.maximum(np.einsum("kp,...kl,lp->...p", self.directions, cov, self.directions), 0))
