"""All scores at once, against scores computed by hand; targets that are not known; data of every form."""

from types import SimpleNamespace

import numpy as np
import pytest

from rpgssm import RPGSSM
from rpgssm.data import Recording
from rpgssm.evaluation import Labelled, evaluate

N, T, K, CONTEXT = 8, 12, 2, 7


class Linear:
    """Latents are the first numbers of a frame, with a covariance that all share; forecasts decay to zero."""

    def __init__(self):
        self.asked = []

    def smooth(self, x):
        self.asked.append(len(x))
        mean = np.asarray(x, float)[..., :K]
        return SimpleNamespace(mean=mean, cov=np.broadcast_to(0.3 * np.eye(K), (1, *mean.shape[1:], K)))

    def filter(self, x):
        return SimpleNamespace(mean=0.5 * self.smooth(x).mean, cov=None)

    def forecast(self, x, steps):
        last = self.smooth(x).mean[:, -1]
        mean = np.stack([0.8 ** (h + 1) * last for h in range(steps)], 1)
        return SimpleNamespace(mean=mean, cov=np.broadcast_to(np.eye(K), (*mean.shape, K)))


class Silent:
    """Latents and nothing else."""

    def smooth(self, x):
        return SimpleNamespace(mean=np.asarray(x, float)[..., :K], cov=None)


def made(n=N, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, T, 3))
    y = np.stack([x[..., 0] + x[..., 2], x[..., 1] - x[..., 0]], -1) + 0.1 * rng.normal(size=(n, T, 2))
    return Labelled(x, {"y": y, "first": x[..., 0] + 0.3 * rng.normal(size=(n, T))})


def regression(latents, y):
    """Weights with intercept of the frames in which y is known."""
    flat, y = latents.reshape(-1, latents.shape[-1]), y.reshape(-1, y.shape[-1])
    there = np.isfinite(y).all(-1)
    return np.linalg.lstsq(np.c_[flat, np.ones(len(flat))][there], y[there], rcond=None)[0]


def predicted(weights, latents):
    return latents @ weights[:-1] + weights[-1]


def r2(truth, guess):
    truth, guess = truth.reshape(-1, truth.shape[-1]), guess.reshape(-1, guess.shape[-1])
    there = np.isfinite(truth).all(-1)
    truth, guess = truth[there], guess[there]
    return np.mean(1 - ((truth - guess) ** 2).sum(0) / ((truth - truth.mean(0)) ** 2).sum(0))


def with_gaps(data, seed):
    rng = np.random.default_rng(seed)
    targets = {name: np.array(y) for name, y in data.targets.items()}
    targets["y"][rng.random((len(data.observations), T)) < 0.3] = np.nan
    targets["first"][rng.random((len(data.observations), T)) < 0.2] = np.nan
    return Labelled(data.observations, targets)


@pytest.mark.parametrize("gaps", [False, True])
def test_scores_are_those_computed_by_hand(gaps):
    train, test = made(), made(5, seed=1)
    if gaps:
        train, test = with_gaps(train, 3), with_gaps(test, 4)
    found = evaluate(Linear(), train, test, context=CONTEXT, horizon=3)
    a, b = train.observations[..., :K], test.observations[..., :K]
    for name in ("y", "first"):
        y, truth = (np.asarray(d.targets[name]).reshape(len(d.observations), T, -1) for d in (train, test))
        w = regression(a, y)
        assert found.linear[name] == pytest.approx(r2(truth, predicted(w, b)))
        assert found.filtering[name] == pytest.approx(r2(truth, predicted(w, 0.5 * b)))
        assert found.kernel[name] == pytest.approx(found.linear[name], abs=0.35)
        np.testing.assert_allclose(found.decoded[name], predicted(w, b))
        residual, expected = np.nanmean((y - predicted(w, a)) ** 2, (0, 1)), 0.3 * (w[:K] ** 2).sum(0)
        factor, extra = np.minimum(residual / expected, 1), np.maximum(residual - expected, 0)
        deviation = np.broadcast_to(np.sqrt(factor * expected + extra), truth.shape)
        np.testing.assert_allclose(found.deviation[name], deviation)
        errors = (np.abs(truth - predicted(w, b)) / deviation)[np.isfinite(truth).all(-1)]
        for kind, scale in (("with_misfit", 1), ("posterior", deviation[0, 0] / np.sqrt(expected))):
            covered = found.calibration[kind][name].coverage["90%"]
            assert covered == pytest.approx((errors * scale <= 1.6449).mean())
        for h in range(3):
            ahead = predicted(w, 0.8 ** (h + 1) * b[:, CONTEXT - 1])
            assert found.forecast.scores[name].r_squared[h] == pytest.approx(r2(truth[:, CONTEXT + h], ahead))
    for h in range(3):
        later, ahead = b[:, CONTEXT + h], 0.8 ** (h + 1) * b[:, CONTEXT - 1]
        agreement = 1 - ((later - ahead) ** 2).sum() / ((later - later.mean(0)) ** 2).sum()
        assert found.forecast.latents[h] == pytest.approx(agreement)


def test_training_latents_are_computed_once():
    model = Linear()
    evaluate(model, made(6), made(4), context=CONTEXT, horizon=3)
    # training, test, filter of the test (which smooths here), forecasts of the test and of the training sequences
    assert model.asked == [6, 4, 4, 4, 6]


def test_what_a_model_cannot_do_is_none():
    found = evaluate(Silent(), made(), made(5, seed=1))
    for name in ("filtered", "filtering", "forecast", "calibration", "deviation", "misfit"):
        assert getattr(found, name) is None
    assert found.linear["y"] > 0


def test_without_targets_there_are_latents_and_forecasts():
    x = made().observations
    found = evaluate(Linear(), None, x)
    assert found.train is None
    assert found.readout is None
    assert found.linear is None
    assert found.test.mean.shape == (N, T, K)
    assert (found.forecast.context, len(found.forecast.latents)) == (T // 2, T - T // 2)


def test_frames_without_targets_do_not_matter():
    """Values of latents where no target is known change nothing, in any readout."""
    train, test = with_gaps(made(), 3), made(5, seed=1)
    one = {"y": train.targets["y"]}
    other = np.where(np.isnan(one["y"]).any(-1)[..., None], 100.0, train.observations)
    goal = {"y": test.targets["y"]}
    a, b = (
        evaluate(Silent(), Labelled(x, one), Labelled(test.observations, goal)) for x in (train.observations, other)
    )
    assert a.linear == b.linear
    assert a.kernel == b.kernel


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"y": np.zeros((N, T - 1))}, r"target 'y' has shape \(8, 11\), but the data has 8 sequences of 12 frames"),
        ({"y": [np.zeros(T)] * 3}, "target 'y' has 3 sequences, but the data has 8"),
        ({"y": [*[np.zeros(T)] * 7, np.zeros(4)]}, r"target 'y'\[7\] has shape \(4, 1\), but sequence 7"),
        ({"y": np.where(np.arange(T) == 3, np.inf, np.zeros((N, T)))}, "infinite in sequence 0, frame 3"),
        ({"z": np.zeros((N, T))}, "both need the same"),
        ({"y": np.full((N, T), np.nan)}, "not known in any frame"),
    ],
)
def test_wrong_targets_are_named(targets, message):
    x = made().observations
    with pytest.raises(ValueError, match=message):
        evaluate(Silent(), Labelled(x, targets), Labelled(x, {"y": np.random.default_rng(0).normal(size=(N, T))}))


def test_targets_have_names():
    x = made().observations
    with pytest.raises(ValueError, match="targets are not named"):
        evaluate(Silent(), SimpleNamespace(observations=x, targets=x[..., 0]), x)


@pytest.fixture(scope="module")
def fitted(compile_quickly):
    x = made().observations.astype(np.float32)
    with compile_quickly():
        return RPGSSM(K, "linear", max_steps=3, verbose=False, validation_fraction=None).fit(x)


def test_ragged_data_are_scored_where_they_exist(fitted, compile_quickly):
    train, test = made(), made(5, seed=1)
    lengths = {"train": [12, 9, 12, 5, 12, 8, 12, 12], "test": [12, 10, 6, 12, 11]}

    def cut(data, split):
        rows = [row[:n].astype(np.float32) for row, n in zip(data.observations, lengths[split], strict=True)]
        return Labelled(rows, {"y": [row[:n] for row, n in zip(data.targets["y"], lengths[split], strict=True)]})

    a, b = cut(train, "train"), cut(test, "test")
    with compile_quickly():
        found = evaluate(fitted, a, b, context=CONTEXT, horizon=4)
        latents = [fitted.transform(part.observations) for part in (a, b)]
    x, z = (np.concatenate([np.asarray(row, float) for row in part]) for part in latents)
    w = regression(x, np.concatenate(a.targets["y"]))
    assert found.linear["y"] == pytest.approx(r2(np.concatenate(b.targets["y"]), predicted(w, z)), abs=1e-5)
    assert found.forecast.rows.tolist() == [0, 1, 3, 4]
    assert found.test.lengths.tolist() == lengths["test"]
    assert np.isfinite(found.forecast.scores["y"].r_squared).all()


def test_one_long_recording_and_missing_frames(fitted, compile_quickly):
    x = made().observations.astype(np.float32).reshape(-1, 3)
    y = x[:, 0] + 0.5
    x[20:23] = np.nan
    with compile_quickly():
        found = evaluate(fitted, Labelled(x[:60], {"y": y[:60]}), Labelled(x[60:], {"y": y[60:, None]}), context=20)
        same = evaluate(
            fitted,
            Labelled(Recording(x[None, :60]), {"y": y[None, :60]}),
            Labelled(x[None, 60:], {"y": y[None, 60:]}),
            context=20,
        )
    assert found.test.mean.shape == (1, 36, K)
    assert found.linear == same.linear
    assert np.isnan(found.forecast.scores["y"].r_squared).all()  # of one forecast there is no variance
