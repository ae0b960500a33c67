"""One run: what is trained, what is stored, and what happens when it ends otherwise than hoped."""

import json

import numpy as np
import pytest

from rpgssm import Stack
from rpgssm.settings import check
from rpgssm.training import TrainingDiverged
from rpgssm_study import running, store
from rpgssm_study.methods import METHODS
from rpgssm_study.plans import plan
from rpgssm_study.recipes import recipe
from rpgssm_study.running import Interrupted, execute, make, rescore
from rpgssm_study.scoring import curve

from .fakes import Fake, small_task, write_result


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(running, "load_task", small_task)
    monkeypatch.setattr(running, "estimator_class", lambda method: Fake)
    monkeypatch.setattr(Fake, "fits", [])


@pytest.fixture
def run():
    return plan("accuracy", tasks=["linear-small"], seeds=[1])[0]


def do(run, tmp_path, kind=Fake):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "estimator_class", lambda method: kind)
        return execute(run, tmp_path / "results", tmp_path / "work")


def test_a_run_is_stored_with_all_that_its_numbers_rest_on(run, tmp_path, lenient_promotion):
    result = do(run, tmp_path)
    stored = json.loads((tmp_path / "results" / run.path).read_text())
    assert stored == result.content
    assert stored["run"] == run.to_json()
    assert stored["data"]["seed"] == 1
    assert stored["parameters"]["learning_rate"] == run.settings["learning_rate"]
    assert stored["scores"]["linear"]["z"] <= stored["scores"]["ceiling"]["z"] <= 1
    assert stored["training"]["seconds"] == 20.0
    assert stored["training"]["steps_per_second"] == 50.0
    assert stored["training"]["validation_r2"]["step"] == list(range(50, 1001, 50))
    assert set(stored["machine"]) == {"cores", "cores_used", "compilation_cache", "system", "architecture"}
    assert str(tmp_path) not in json.dumps(stored)
    (fit,) = Fake.fits
    assert fit["resume"]
    assert fit["random_state"] == 1
    assert fit["validation"].shape[0] == 4
    assert fit["checkpoint_dir"].is_relative_to(tmp_path / "work")


def test_two_stages_make_a_stack(monkeypatch, tmp_path):
    monkeypatch.undo()
    (run,) = plan("accuracy", tasks=["cifar10-double-pendulum"], seeds=[3])
    estimator = make(run, tmp_path, verbose=False, checkpoint_every=7)
    given = recipe(run.task)["stages"]
    assert isinstance(estimator, Stack)
    for stage, settings in zip(estimator.stages, given, strict=True):
        assert {name: getattr(stage, name) for name in settings} == settings
        assert (stage.random_state, stage.checkpoint_every, stage.verbose) == (3, 7, False)
    first, second = estimator.stages
    assert (first.checkpoint_dir, second.checkpoint_dir) == (tmp_path / "training", None)
    stored = running._parameters(estimator)
    assert json.loads(json.dumps(stored)) == stored
    assert [stage["max_steps"] for stage in stored["stages"]] == [1000, 100]
    assert stored["stages"][1]["encoder"] == {"kind": "WideLayer", "units": 256}
    assert not {"checkpoint_dir", "checkpoint_every", "verbose"} & set(stored["stages"][0])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_made(method, monkeypatch, tmp_path):
    monkeypatch.undo()
    run, *_ = plan("comparison", tasks=["pendulum"], methods=[method])
    estimator = make(run, tmp_path, verbose=False, checkpoint_every=7)
    for one in getattr(estimator, "stages", [estimator]):
        check(one)
    assert estimator.total_steps > 0


def test_the_validation_score_is_of_the_validation_sequences(run, tmp_path, lenient_promotion):
    result = do(run, tmp_path)
    task = small_task("linear-small", seed=1)

    def design(x):
        flat = (x @ np.random.default_rng(1).standard_normal((5, 3))).reshape(-1, 3)
        return np.concatenate([flat, np.ones((len(flat), 1))], 1)

    weights = np.linalg.lstsq(design(task.train.observations), task.train.targets["z"].reshape(-1, 3))[0]
    truth = task.validation.targets["z"].reshape(-1, 3)
    error = truth - design(task.validation.observations) @ weights
    expected = np.mean(1 - error.var(0) / truth.var(0) - error.mean(0) ** 2 / truth.var(0))
    assert result.content["validation"]["mean"] == pytest.approx(expected, rel=1e-4)


def test_a_finished_run_is_not_repeated(run, tmp_path, lenient_promotion):
    first = do(run, tmp_path)
    assert do(run, tmp_path).content == first.content
    assert len(Fake.fits) == 1


def test_no_validation_where_the_settings_want_none(run, tmp_path, lenient_promotion):
    do(run.with_settings(validation_fraction=None), tmp_path)
    assert Fake.fits[0]["validation"] is None


def test_divergence_is_a_result(run, tmp_path):
    class Diverging(Fake):
        error = TrainingDiverged("it did", step=7, terms=("loss",), sequences=(), model=None, state=None)

    result = do(run, tmp_path, Diverging)
    assert not result.finished
    assert result.content["error"] == "step 7: loss not finite"
    assert result.selection == -np.inf


def test_latents_that_are_not_finite_after_training_are_a_divergence(run, tmp_path):
    class Astray(Fake):
        def fit(self, X, **options):
            super().fit(X, **options)
            self.spoil(X[2, 5])
            return self

    result = do(run, tmp_path, Astray)
    assert not result.finished
    assert "sequence 2 from frame 5 on" in result.content["error"]
    assert result.training["steps"] == 1000
    assert (tmp_path / "work" / run.identity / "model" / "mixing.npy").exists()  # to be looked at


def test_an_interrupted_run_leaves_no_result(run, tmp_path):
    class Stopping(Fake):
        stopped = "interrupted"

    with pytest.raises(Interrupted):
        do(run, tmp_path, Stopping)
    assert store.missing(tmp_path / "results", [run]) == [run]


def test_checkpoints_of_another_version_are_dropped(run, tmp_path, capsys, lenient_promotion):
    class Changed(Fake):
        error = ValueError("Cannot resume the run in x: clip_norm is 10 and was 5.")

    assert do(run, tmp_path, Changed).finished
    assert "Starting afresh" in capsys.readouterr().out


def test_other_errors_are_not_taken_for_that(run, tmp_path):
    class Wrong(Fake):
        error = ValueError("latent_dim is -1")

    with pytest.raises(ValueError, match="latent_dim"):
        do(run, tmp_path, Wrong)


def test_a_damaged_result_is_named(run, tmp_path):
    path = tmp_path / run.path
    path.parent.mkdir(parents=True)
    path.write_text('{"format": 2')
    with pytest.raises(ValueError, match=f"{run.name}.json is not a stored result"):
        store.read(tmp_path, run)


def test_results_of_another_format_are_refused(run, tmp_path):
    path = write_result(tmp_path, run, {"mean": 0.9})
    path.write_text(path.read_text().replace('"format": 2', '"format": 1'))
    with pytest.raises(ValueError, match="has format 1, and this version reads format 2"):
        store.read(tmp_path, run)


def test_results_hold_no_infinite_numbers_and_no_paths(run, tmp_path):
    path = store.write(tmp_path, run, {"status": "diverged", "x": np.array([1 / 3, np.nan, np.inf])})
    assert json.loads(path.read_text())["x"] == [0.333333, None, None]
    with pytest.raises(TypeError, match="paths"):
        store.write(tmp_path, run, {"x": tmp_path})


def test_curves_are_thinned_to_validated_steps():
    steps = np.arange(1, 10001)
    history = {"step": steps, "loss": 1.0 / steps, "validation_loss": np.where(steps % 100 == 0, 2.0 / steps, np.nan)}
    thin = curve(history)
    assert len(thin["step"]) == 50
    assert thin["step"][-1] == 10000
    assert None not in thin["validation_loss"]
    assert [2 * x for x in thin["loss"]] == pytest.approx(thin["validation_loss"])


def test_scoring_again_changes_scores_and_nothing_else(run, tmp_path, lenient_promotion):
    results, work = tmp_path / "results", tmp_path / "work"
    assert not rescore(run, results, work)  # nothing is done yet
    first = do(run, tmp_path).content
    spoilt = json.loads((results / run.path).read_text())
    spoilt["scores"]["linear"]["z"] = -1.0
    (results / run.path).write_text(json.dumps(spoilt))
    assert rescore(run, results, work)
    again = json.loads((results / run.path).read_text())
    assert again.pop("rescored_with_version") == first["version"]
    changing = ("evaluation_seconds",)
    assert {k: v for k, v in again.items() if k not in changing} == {
        k: v for k, v in first.items() if k not in changing
    }
    assert len(Fake.fits) == 1
    (work / run.identity / "model" / "mixing.npy").unlink()
    (work / run.identity / "model").rmdir()
    assert not rescore(run, results, work)
