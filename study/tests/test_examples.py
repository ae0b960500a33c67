"""What is stored for figures of single films."""

from types import SimpleNamespace

import numpy as np
import pytest

from rpgssm.evaluation import LinearReadout
from rpgssm_study import examples
from rpgssm_study.pictures import from_picture
from rpgssm_study.plans import plan
from rpgssm_study.tasks import background_variants, load_task

SIZES = {"n_train": 6, "n_validation": 1, "n_test": 2, "cache": False, "background": "procedural"}


class Still:
    """Latents are some averages over rows of the picture; the "decoder" draws them as stripes."""

    def __init__(self):
        self.decoder_steps = None

    def transform(self, X):
        rows = np.asarray(X, np.float64).reshape(*X.shape[:4], -1).mean((3, 4)) / 255
        return rows.reshape(*rows.shape[:2], 4, -1).mean(-1)

    def smooth(self, X):
        mean = self.transform(X)
        return SimpleNamespace(mean=mean, cov=np.broadcast_to(0.01 * np.eye(4), (*mean.shape, 4)))

    def fit_decoder(self, X, steps):
        self.decoder_steps = steps

    def reconstruct(self, X):
        rows = self.transform(X).repeat(X.shape[2] // 4, 2)
        return np.broadcast_to(rows[..., None], (*rows.shape, X.shape[3]))


class Blurred(Still):
    """The same, with forecasts: the last latents."""

    def forecast(self, X, steps):
        last = self.smooth(X[:, -1:])
        return SimpleNamespace(mean=np.repeat(last.mean, steps, 1), cov=np.repeat(4 * last.cov, steps, 1))


def collect(model, task, run):
    return examples.collect(model, task, run, model.transform(task.train.observations))


def make(task, method, **options):
    run, *_ = plan("comparison", tasks=[task], methods=[method], seeds=[0], background="procedural", **options)
    return load_task(task, **SIZES), run


def test_reconstructions_by_an_auxiliary_decoder():
    task, run = make("cifar10-pendulum", "rpgssm")
    model = Blurred()
    found = collect(model, task, run)["reconstructions"]
    assert found["decoder"] == "auxiliary"
    assert model.decoder_steps == run.decoder_steps > 0
    assert (found["moments"][0], found["moments"][-1]) == (0, 99)
    seen = from_picture(found["seen"])
    expected = task.test.observations[0][found["moments"]] / 255
    np.testing.assert_allclose(seen, expected.reshape(seen.shape), atol=1e-6)
    decoded = model.reconstruct(task.test.observations[:1])[0][found["moments"]]
    np.testing.assert_allclose(from_picture(found["decoded"]), decoded, atol=0.5 / 255)


def test_models_with_a_decoder_of_their_own_use_it():
    task, run = make("cifar10-pendulum", "svae")
    model = Blurred()
    assert collect(model, task, run)["reconstructions"]["decoder"] == "own"
    assert model.decoder_steps is None


def test_forecasts_see_the_context_only():
    task, run = make("cifar10-pendulum", "svae")
    found = collect(Blurred(), task, run)["forecast"]
    model = Blurred()
    readout = LinearReadout.fit(model.transform(task.train.observations), task.train.targets)
    context = readout.predict(model.transform(task.test.observations[:, :50]))["velocity"]
    mean = np.array(found["mean"]["velocity"])
    np.testing.assert_allclose(mean[:, :50], context)
    np.testing.assert_allclose(mean[:, 50:], np.repeat(context[:, -1:], 50, 1))
    learnt = task.train.observations, task.train.targets["velocity"]
    ahead = readout.predict(np.repeat(model.transform(learnt[0][:, :50])[:, -1:], 50, 1))["velocity"]
    spread = np.sqrt(((ahead - learnt[1][:, 50:]) ** 2).mean(0))  # of the model's training forecasts at each horizon
    np.testing.assert_allclose(np.array(found["deviation"]["velocity"])[:, 50:], np.stack([spread] * 2), rtol=1e-6)
    np.testing.assert_array_equal(found["truth"]["velocity"], task.test.targets["velocity"])


def test_models_without_dynamics_have_no_forecast():
    task, run = make("cifar10-pendulum", "cpc")
    assert set(collect(Still(), task, run)) == {"reconstructions"}


def test_paths_before_five_backgrounds():
    task, run = make("davis-tracking", "rpgssm")
    found = collect(Blurred(), task, run)["paths"]
    model = Blurred()
    readout = LinearReadout.fit(model.transform(task.train.observations), task.train.targets)
    shown = background_variants("davis-tracking", variants=5, n=1, background="procedural")
    for line, film in zip(found["inferred"], shown, strict=True):
        np.testing.assert_allclose(line, readout.predict(model.transform(film))["position"][0])
    np.testing.assert_array_equal(found["truth"], task.test.targets["position"][0])
    assert np.ptp(found["inferred"], axis=0).max() > 0


@pytest.mark.parametrize("task", ["linear-small", "pendulum-vector"])
def test_other_tasks_have_none(task):
    made = load_task(task, n_train=2, n_validation=1, n_test=1, cache=False)
    (run,) = plan("accuracy", tasks=["linear-small"], seeds=[0])
    assert examples.collect(Blurred(), made, run, np.zeros((2, 100, 4))) == {}
