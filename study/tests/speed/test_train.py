"""The measurement of training steps, on tiny shapes: numbers, tables, files and figure."""

import json
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from rpgssm_study.methods import METHODS
from rpgssm_study.speed import methods_compared, train
from rpgssm_study.speed.config import SpeedTrain

TINY = methods_compared.Shape(batch=4, time=6, mask_size=2)


@pytest.fixture
def tiny(monkeypatch):
    """Small batches and calls of one step."""
    monkeypatch.setattr(train, "BATCH", TINY.batch)
    monkeypatch.setattr(train, "TIME", TINY.time)
    monkeypatch.setattr(train, "STEPS", 1)
    monkeypatch.setattr(methods_compared, "STEPS", {1: 2, 2: 1})


def test_every_option_names_what_exists():
    config = SpeedTrain()
    assert config.tasks == tuple(methods_compared.TASKS)
    assert config.methods == tuple(METHODS)


@pytest.mark.parametrize("task", methods_compared.TASKS)
def test_all_methods_get_batches_of_one_shape(task):
    for method in METHODS:
        estimator = methods_compared.make(method, task, TINY)
        assert getattr(estimator, "batch_size", TINY.batch) == TINY.batch
        assert getattr(estimator, "mask_size", 2) == 2
        assert getattr(estimator, "window", None) is None


def cheap(loss: float) -> Any:
    """An estimator whose objective is quick to compile."""
    estimator = methods_compared.make("dcl", "linear-small", TINY)
    estimator.objective = lambda: lambda model, batch, key: (loss * jnp.sum(model.A), {})
    return estimator


def test_a_call_does_the_steps_it_is_timed_for():
    result = methods_compared.steps_of(cheap(1.0), methods_compared.random_data("linear-small", TINY), 3)()
    assert int(result.state.step) == 3


def test_steps_that_fail_are_not_timed():
    with pytest.raises(RuntimeError, match="DCL stopped after 0 of 2 steps"):
        methods_compared.steps_of(cheap(float("nan")), methods_compared.random_data("linear-small", TINY), 2)


def test_turns_rotate_and_times_are_medians_per_step(monkeypatch):
    asked = []
    monkeypatch.setattr(methods_compared, "_call", lambda method, task, shape, steps: (task, method))

    def turn(call):
        asked.append(call)
        task, _ = call
        return {"linear-small": 0.016, "pendulum": 0.008}[task] * (10 if len(asked) == 1 else 1)

    monkeypatch.setattr(methods_compared, "turn", turn)
    rows = methods_compared.measure(["svae", "rpgssm", "lgssm"], ["pendulum", "linear-small"], 3)
    order = [method for task, method in asked if task == "linear-small"]
    assert order == ["rpgssm", "svae", "lgssm", "svae", "lgssm", "rpgssm", "lgssm", "rpgssm", "svae"]
    found = {(row.method, row.task): (row.median_ms, row.relative) for row in rows}
    assert found["rpgssm", "linear-small"] == pytest.approx((1.0, 1.0))
    assert found["svae", "pendulum"] == pytest.approx((4.0, 4.0))
    assert found["lgssm", "pendulum"] == pytest.approx((8.0, 0.5))  # an iteration is a call


def test_tables_files_and_figure(tiny, tmp_path, capsys, monkeypatch):
    output, figure = tmp_path / "train.json", tmp_path / "times.png"
    output.write_text(json.dumps({"rows": ["kept"], "methods": "replaced"}))
    monkeypatch.setattr(methods_compared, "_call", lambda *_: lambda: time.sleep(0.01))
    some: dict = {"methods": ("rpgssm", "lgssm"), "tasks": ("linear-small", "linear-medium"), "repeats": 1}
    train.run(SpeedTrain(output=output, figure=figure, encoders=(), mask_size=2, **some))
    written = json.loads(output.read_text())
    assert written["rows"] == ["kept"]
    assert written["methods"]["shape"] == {"batch": 4, "time": 6, "mask_size": 2}
    rows = written["methods"]["rows"]
    assert {(row["method"], row["task"]) for row in rows} == {(m, t) for m in some["methods"] for t in some["tasks"]}
    for row in rows:
        small = next(r for r in rows if r["method"] == row["method"] and r["task"] == "linear-small")
        assert row["relative"] == pytest.approx(row["median_ms"] / small["median_ms"])
        assert row["median_ms"] >= row["min_ms"] > 0
    assert figure.read_bytes().startswith(b"\x89PNG")
    lines = capsys.readouterr().out.splitlines()
    heads = [i for i, line in enumerate(lines) if "linear-medium" in line and "compiling" not in line]
    assert [lines[i + 1].split()[0] for i in heads] == ["RP-GSSM", "RP-GSSM"]
    assert float(lines[heads[1] + 2].split()[1]) == 1.0


@pytest.mark.slow
def test_encoder_alone_is_compared_with_the_step(tiny, tmp_path):
    output = tmp_path / "train.json"
    output.write_text(json.dumps({"methods": "kept"}))
    train.run(SpeedTrain(output=output, encoders=("cnn",), methods=(), repeats=1))
    written = json.loads(output.read_text())
    assert written["methods"] == "kept"
    (row,) = written["rows"]
    assert row["ratio"] == pytest.approx(row["step_ms"] / row["encoder_ms"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"methods": ("svea",)}, "no method 'svea': choose from rpgssm, svae"),
        ({"tasks": ("pendulums",)}, "no task 'pendulums': choose from linear-small"),
        ({"methods": (), "figure": Path("times.png")}, "name some"),
    ],
)
def test_errors_say_what_to_do(wrong, message):
    with pytest.raises(ValueError, match=message):
        train.run(SpeedTrain(encoders=(), **wrong))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["linear-small", "pendulum"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_timed(tiny, method, task):
    (row,) = methods_compared.measure([method], [task], 1, TINY)
    assert row.median_ms > 0
