"""The curve of validation scores: regular, complete after an interruption, and of the validation sequences."""

import numpy as np
import pytest

from rpgssm_study.curves import Curve

from .fakes import Fake, report, small_task


@pytest.fixture(scope="module")
def task():
    return small_task("linear-small", seed=1)


@pytest.fixture
def estimator(task):
    return Fake(random_state=1, latent_dim=3).fit(task.train.observations)


def test_points_are_regular_and_the_last_step_is_one(task, estimator, tmp_path):
    curve = Curve(task, 1000, tmp_path / "curve.json")
    for step in range(30, 1001, 30):
        curve(estimator, report(step, step / 10))
    curve(estimator, report(1000, 100))
    found = curve.columns()
    assert found["step"] == [*range(60, 961, 60), 1000]
    assert found["seconds"] == [step / 10 for step in found["step"]]


def test_scores_are_of_the_validation_sequences(task, estimator, tmp_path):
    curve = Curve(task, 10, tmp_path / "curve.json")
    curve(estimator, report(10))

    def design(x):
        flat = estimator.transform(x).reshape(-1, 3)
        return np.concatenate([flat, np.ones((len(flat), 1))], 1)

    truth = task.validation.targets["z"].reshape(-1, 3)
    weights = np.linalg.lstsq(design(task.train.observations), task.train.targets["z"].reshape(-1, 3))[0]
    error = ((design(task.validation.observations) @ weights - truth) ** 2).sum(0)
    expected = np.mean(1 - error / ((truth - truth.mean(0)) ** 2).sum(0))
    np.testing.assert_allclose(curve.columns()["z"], [expected], atol=1e-6)
    np.testing.assert_allclose(curve.columns()["mean"], [expected], atol=1e-6)


@pytest.mark.parametrize(("first", "kept"), [(510, [100, 200, 300, 400, 500]), (410, [100, 200, 300, 400]), (10, [])])
def test_a_resumed_run_keeps_the_points_before_its_checkpoint(task, estimator, tmp_path, first, kept):
    before = Curve(task, 2000, tmp_path / "curve.json")
    for step in range(100, 501, 100):
        before(estimator, report(step))
    after = Curve(task, 2000, tmp_path / "curve.json")
    assert after.columns()["step"] == [100, 200, 300, 400, 500]
    after(estimator, report(first))
    assert after.columns().get("step", []) == kept
    after(estimator, report(first + 100))
    assert after.columns()["step"] == [*kept, first + 100]


def test_dispatches_without_a_new_row_are_passed_over(task, estimator, tmp_path):
    curve = Curve(task, 100, tmp_path / "curve.json")
    told = report(50)
    told.rows.clear()
    curve(estimator, told)
    assert curve.columns() == {}


def test_a_model_that_is_about_to_diverge_has_no_point(task, estimator, tmp_path):
    curve = Curve(task, 100, tmp_path / "curve.json")
    curve(estimator, report(50))
    estimator.spoil(task.train.observations[3, 20])
    curve(estimator, report(100))
    assert curve.columns()["step"] == [50]
