"""From latents to targets: how much of the truth can be read off, linearly and by kernel ridge regression.

A readout is fitted on training sequences and scored on others. R² is 1 - (squared error) / (squared deviation from the
mean of the scored data), for each dimension of a target, averaged over its dimensions. Frames with NaN in a target are
left out, both when its readout is fitted and when it is scored.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from rpgssm.data.repeated import is_repeated

RIDGE = 0.1
"""Regulariser of kernel ridge regression (added to the kernel's diagonal), the same for all models and tasks."""
FIT_POINTS = 2000
"""At most this many frames are used to fit a kernel ridge regression."""

Targets = dict[str, np.ndarray]


def known(target: Float[np.ndarray, "*lead d"]) -> Bool[np.ndarray, "*lead"]:
    """The frames for which all dimensions of a target are known."""
    return np.asarray(np.isfinite(target).all(-1))


def r_squared(truth: Float[np.ndarray, "*lead d"], prediction: Float[np.ndarray, "*lead d"]) -> float:
    """R², averaged over the dimensions of the target."""
    return float(np.mean(r_squared_per_dimension(truth, prediction)))


def r_squared_per_dimension(
    truth: Float[np.ndarray, "*lead d"], prediction: Float[np.ndarray, "*lead d"]
) -> Float[np.ndarray, " d"]:
    truth = truth.reshape(-1, truth.shape[-1]).astype(np.float64)
    prediction = prediction.reshape(truth.shape)
    if not (there := known(truth)).all():
        truth, prediction = truth[there], prediction[there]
    if not len(truth):
        raise ValueError("the target is not known in any of the scored frames: R² has no meaning")
    error = ((truth - prediction) ** 2).sum(0)
    spread = ((truth - truth.mean(0)) ** 2).sum(0)
    if (spread == 0).any():
        constant = int((spread == 0).argmax())
        raise ValueError(f"dimension {constant} of the target is constant over the scored frames: R² has no meaning")
    return 1 - error / spread


def mean_score(scores: dict[str, float], secondary: tuple[str, ...] = ()) -> float:
    """The mean over targets, each counting once however many dimensions it has; secondary ones do not count."""
    counted = [score for name, score in scores.items() if name not in secondary]
    return float(np.mean(counted))


@dataclass(frozen=True)
class LinearReadout:
    """Ordinary least squares with intercept, one for each target."""

    weights: dict[str, np.ndarray]
    intercept: dict[str, np.ndarray]

    @classmethod
    def fit(cls, mean: Float[np.ndarray, "n t k"], targets: Targets) -> "LinearReadout":
        from sklearn.linear_model import LinearRegression

        flat = _flat(mean)
        weights, intercept = {}, {}
        for name, target in targets.items():
            x, y = _known_rows(name, flat, _flat(_same_frames(name, target, mean)))
            model = LinearRegression().fit(x, y)
            weights[name], intercept[name] = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
        return cls(weights, intercept)

    def predict(self, mean: Float[np.ndarray, "n t k"]) -> Targets:
        return {name: mean @ W.T + self.intercept[name] for name, W in self.weights.items()}

    def variance(self, cov: Float[np.ndarray, "n t k k"]) -> Targets:
        """Variance of each dimension of the targets that the latents' covariance means."""
        once = cov[:1] if is_repeated(cov) else cov
        return {
            name: np.broadcast_to(np.einsum("dk,ntkl,dl->ntd", W, once, W, optimize=True), (*cov.shape[:2], W.shape[0]))
            for name, W in self.weights.items()
        }

    def score(self, mean: Float[np.ndarray, "n t k"], targets: Targets) -> dict[str, float]:
        predicted = self.predict(mean)
        return {name: r_squared(targets[name], predicted[name]) for name in targets}


class KernelReadout:
    """Kernel ridge regression (RBF) on standardised latents and targets.

    The bandwidth is the median distance between frames. Fit points are drawn by seed. The regulariser and all else are
    fixed, so that models are compared on equal terms. Targets that are known in the same frames share a regression.
    """

    def __init__(self, mean: Float[np.ndarray, "n t k"], targets: Targets, *, seed: int = 0, points: int = FIT_POINTS):
        together: dict[bytes, Targets] = {}
        for name, target in targets.items():
            there = known(_same_frames(name, target, mean))
            together.setdefault(there.tobytes(), {})[name] = target
        self._regressions = [_KernelRegression(_flat(mean), group, seed, points) for group in together.values()]
        self._names = tuple(targets)

    @property
    def bandwidth(self) -> float:
        """The bandwidth, of the first regression if there are several."""
        return self._regressions[0].bandwidth

    def predict(self, mean: Float[np.ndarray, "n t k"]) -> Targets:
        found: Targets = {}
        for regression in self._regressions:
            found |= regression.predict(mean)
        return {name: found[name] for name in self._names}

    def score(self, mean: Float[np.ndarray, "n t k"], targets: Targets) -> dict[str, float]:
        predicted = self.predict(mean)
        return {name: r_squared(targets[name], predicted[name]) for name in targets}


class _KernelRegression:
    """One kernel ridge regression, to targets that are known in the same frames."""

    def __init__(self, flat: Float[np.ndarray, "frames k"], targets: Targets, seed: int, points: int):
        from sklearn.kernel_ridge import KernelRidge

        rows = [_known_rows(name, flat, _flat(target)) for name, target in targets.items()]
        flat = rows[0][0]
        rng = np.random.default_rng(seed)
        chosen = rng.permutation(len(flat))[:points]
        self._centre, self._spread = flat.mean(0), np.maximum(flat.std(0), 1e-12)
        z = self._standardise(flat[chosen])
        self._names = {name: target.shape[-1] for name, target in targets.items()}
        y = np.concatenate([target[chosen] for _, target in rows], -1)
        self._level, self._scale = y.mean(0), np.maximum(y.std(0), 1e-12)
        self.bandwidth = _median_distance(z, rng)
        self._model = KernelRidge(kernel="rbf", gamma=1 / (2 * self.bandwidth**2)).set_params(alpha=RIDGE)
        self._model.fit(z, (y - self._level) / self._scale)

    def _standardise(self, flat: np.ndarray) -> np.ndarray:
        return (flat - self._centre) / self._spread

    def predict(self, mean: Float[np.ndarray, "n t k"]) -> Targets:
        z = self._standardise(_flat(mean))
        y = np.concatenate([self._model.predict(z[i : i + 4096]) for i in range(0, len(z), 4096)])
        y = (y * self._scale + self._level).reshape(*mean.shape[:2], -1)
        ends = np.cumsum(list(self._names.values()))
        return {name: y[..., end - d : end] for (name, d), end in zip(self._names.items(), ends, strict=True)}


def angular_error(truth: Float[np.ndarray, "*lead 1"], vector: Float[np.ndarray, "*lead 2"]) -> float:
    """Mean absolute angle, in degrees, between a true angle and the direction of a predicted vector."""
    there = known(truth)
    difference = np.arctan2(vector[there, 1], vector[there, 0]) - truth[there, 0]
    return float(np.rad2deg(np.abs(np.angle(np.exp(1j * difference))).mean()))


def _median_distance(z: np.ndarray, rng: np.random.Generator, pairs: int = 20000) -> float:
    i, j = rng.integers(len(z), size=(2, pairs))
    different = i != j
    return float(max(np.median(np.linalg.norm(z[i[different]] - z[j[different]], axis=-1)), 1e-12))


def _flat(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, x.shape[-1]).astype(np.float64)


def _known_rows(name: str, flat: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Latents and target of the frames in which the target is known."""
    there = known(target)
    if there.all():
        return flat, target
    if not there.any():
        raise ValueError(f"target {name!r} is not known in any frame that a readout could be fitted to: leave it out")
    return flat[there], target[there]


def _same_frames(name: str, target: np.ndarray, mean: np.ndarray) -> np.ndarray:
    if target.shape[:2] != mean.shape[:2]:
        raise ValueError(
            f"target {name!r} has {target.shape[0]} sequences of {target.shape[1]} frames, the latents have "
            f"{mean.shape[0]} of {mean.shape[1]}: they must be the same frames"
        )
    return target
