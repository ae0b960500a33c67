"""Checkpoints: a run that stops, in whatever way, goes on to the same bits as one that never did."""

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.training import History, TrainingConfig, train, train_many
from rpgssm.training.checkpoint import Checkpoints

from .toys import Line, assert_equal, line, regression, squared_error

CONFIG = TrainingConfig(
    max_steps=60, batch_size=4, learning_rate=0.03, log_every=4, validate_every=15, checkpoint_every=10, patience=50
)
UNTIMED = ("seconds", "steps_per_second")


def run(directory=None, config=CONFIG, **others):
    return train(
        line(), squared_error, regression(), config, validation=regression(7, seed=1), directory=directory,
        progress=False, **others,
    )  # fmt: skip


def assert_same_run(a, b):
    assert_equal((a.model, a.last_model), (b.model, b.last_model))
    assert (a.step, a.best_step, a.stopped) == (b.step, b.best_step, b.stopped)
    assert_same_history(a.history, b.history)


def assert_same_history(a, b):
    assert a.names == b.names
    for name in a.names:
        if name not in UNTIMED:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.fixture
def whole():
    return run()


class Interrupt:
    def __init__(self, step):
        self.step = step

    def __call__(self, report):
        if report.step >= self.step:
            raise KeyboardInterrupt


def test_interrupts_leave_a_usable_model_and_no_trace(tmp_path, whole):
    directory = tmp_path / "run"
    for step in (1, 23, 45):
        config = dataclasses.replace(CONFIG, steps_per_dispatch=1 if step < 20 else 3)
        stopped = run(directory, config, callbacks=[Interrupt(step)], resume=True)
        assert stopped.stopped == "interrupted"
        assert step <= stopped.step < step + 3
        assert np.isfinite(stopped.model.weight).all()
        assert History.from_csv(directory / "history.csv").to_array().shape == stopped.history.to_array().shape
    assert_same_run(run(directory, resume=True), whole)
    written = History.from_csv(directory / "history.csv")
    assert_same_history(written, whole.history)
    assert (np.diff(written["seconds"]) >= 0).all()
    assert_same_run(run(directory, resume=True), whole)  # a finished run has nothing left to do


def test_interrupt_before_the_first_step_is_done(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("rpgssm.training.program.compiled", interrupted)
        stopped = run(tmp_path / "run")
    assert (stopped.step, stopped.stopped, len(stopped.history)) == (0, "interrupted", 0)
    assert_equal(stopped.model, line())


def test_a_longer_run_after_a_finished_one(tmp_path):
    """The short runs end between validations, whose last ones are therefore extra."""
    directory, config = tmp_path / "run", dataclasses.replace(CONFIG, max_steps=40)
    for steps in (7, 40):
        last = train(
            line(), squared_error, regression(), dataclasses.replace(config, max_steps=steps), directory=directory,
            resume=True, progress=False,
        )  # fmt: skip
        assert (last.step, last.stopped) == (steps, "max_steps")
    once = train(line(), squared_error, regression(), config, progress=False)
    assert_equal(last.model, once.model)


def test_a_directory_is_not_used_twice(tmp_path, whole):
    directory = tmp_path / "run"
    run(directory)
    with pytest.raises(FileExistsError, match="resume=True"):
        run(directory)
    with pytest.raises(ValueError, match="not both"):
        run(directory, resume=True, overwrite=True)
    assert_same_run(run(directory, overwrite=True), whole)
    assert Checkpoints(directory).steps == [50, 60], "the last two are kept"


def test_no_directory_to_resume():
    with pytest.raises(ValueError, match="need a `directory`"):
        run(resume=True)


def test_resuming_another_run_is_refused(tmp_path):
    directory = tmp_path / "run"
    run(directory, dataclasses.replace(CONFIG, max_steps=10))

    def resume(config=CONFIG, model=None, data=None, objective=squared_error):
        train(
            model or line(), objective, data or regression(), config, validation=regression(7, seed=1),
            directory=directory, resume=True, progress=False,
        )  # fmt: skip

    with pytest.raises(ValueError, match=r"learning_rate is 0\.1 and was 0\.03"):
        resume(dataclasses.replace(CONFIG, learning_rate=0.1))
    with pytest.raises(ValueError, match="seed is 1 and was 0"):
        resume(dataclasses.replace(CONFIG, seed=1))
    with pytest.raises(
        ValueError, match=r"data\.modalities\.x\.values is float32\[21, 5, 3\] and was float32\[20, 5, 3\]"
    ):
        resume(data=regression(21))
    wider = Line(jnp.zeros(3, jnp.float32), jnp.zeros(2, jnp.float32))

    def broadcast(model, batch, key):
        return squared_error(Line(model.weight, jnp.sum(model.prior)), batch, key)

    with pytest.raises(ValueError, match=r"state\.params\.prior is float32\[2\] in the model and float32\[\] in the"):
        resume(model=wider, objective=broadcast)

    def other_terms(model, batch, key):
        loss, info = squared_error(model, batch, key)
        return loss, {"fit": info["fit"]}

    with pytest.raises(ValueError, match="terms of the objective"):
        resume(objective=other_terms)


def test_max_steps_may_not_change_under_a_schedule_that_depends_on_it(tmp_path):
    cosine = dataclasses.replace(CONFIG, schedule="cosine", max_steps=10)
    run(tmp_path / "run", cosine)
    with pytest.raises(ValueError, match="max_steps is 20 and was 10"):
        run(tmp_path / "run", dataclasses.replace(cosine, max_steps=20), resume=True)


def test_several_models_go_on_together(tmp_path):
    models, data = [line(0), line(1)], regression()
    config = dataclasses.replace(CONFIG, max_steps=30, steps_per_dispatch=7)
    stopped = train_many(
        models, squared_error, data, config, directory=tmp_path, callbacks=[Interrupt(15)], progress=False
    )
    assert [one.stopped for one in stopped] == ["interrupted"] * 2
    resumed = train_many(models, squared_error, data, config, directory=tmp_path, resume=True, progress=False)
    whole = train_many(models, squared_error, data, config, progress=False)
    for one, other in zip(resumed, whole, strict=True):
        assert_same_run(one, other)


SCRIPT = """
import dataclasses, sys
sys.path.insert(0, {folder!r})
import toys
from rpgssm.training import TrainingConfig, train
config = TrainingConfig(max_steps=1000, batch_size=4, learning_rate=1e-3, log_every=50, validate_every=50,
                        checkpoint_every=50, steps_per_dispatch={steps})
print("begin", flush=True)
for directory in sys.argv[1:]:
    run = train(toys.line(), toys.squared_error, toys.regression(), config, validation=toys.regression(7, seed=1),
                directory=directory, resume=True, progress=False)
    print(run.step, flush=True)
"""


@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_killed_at_any_moment(tmp_path, kills):
    """SIGKILL at random moments, until a run gets through; against one run that was left alone."""
    source = Path(__file__).resolve().parents[2] / "src"
    environment = os.environ | {"PYTHONPATH": str(source), "JAX_PLATFORMS": "cpu"}
    if kills == 1:  # compile quickly
        environment["XLA_FLAGS"] = "--xla_backend_optimization_level=0"

    def start(steps, *directories):
        code = SCRIPT.format(folder=str(Path(__file__).parent), steps=steps)
        return subprocess.Popen(
            [sys.executable, "-c", code, *map(str, directories)], env=environment, stdout=subprocess.PIPE, text=True
        )

    def stored(directory):
        return [int(p.name) for p in (directory / "checkpoints").glob("*") if p.name.isdigit()]

    draw, killed = random.Random(time.time_ns()), []
    for _ in range(kills):
        process = start(draw.choice([7, 23, 50]), tmp_path / "killed")
        before = max(stored(tmp_path / "killed"), default=0)
        deadline = time.monotonic() + 60
        while (
            process.poll() is None
            and max(stored(tmp_path / "killed"), default=0) <= before
            and time.monotonic() < deadline
        ):
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.1))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        killed.append((process.returncode, max(stored(tmp_path / "killed"))))
    assert killed[0][0] == -signal.SIGKILL, killed
    assert 0 < killed[0][1] < 1000, killed
    last = start(1000, tmp_path / "killed", tmp_path / "alone")
    assert last.communicate(timeout=120)[0].split() == ["begin", "1000", "1000"], killed

    left, right = (Checkpoints(tmp_path / name).load(1000) for name in ("alone", "killed"))
    assert set(left[0]) == set(right[0])
    for name in left[0]:
        if name != "history":
            assert left[0][name].tobytes() == right[0][name].tobytes(), (name, killed)
    histories = [History.from_csv(tmp_path / name / "history.csv") for name in ("alone", "killed")]
    assert_same_history(*histories)
    assert len(histories[0]) == 20
    assert left[1]["best"] == right[1]["best"]


def test_a_setting_that_an_older_version_did_not_have_was_its_default():
    older = {name: value for name, value in dataclasses.asdict(TrainingConfig()).items() if name != "batches"}
    assert TrainingConfig().differences(older) == []
    assert TrainingConfig(batches="alike").differences(older) == ["batches is 'alike' and was 'random'"]
