"""Checkpoints: a run that stops, in whatever way, goes on to the same bits as one that never did."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.data import Modality, Sequences
from rpgssm.settings import declared, differences, identity
from rpgssm.training import (
    SGD,
    Adam,
    History,
    RandomFlips,
    SimilarWindows,
    Stopping,
    Training,
    train,
    train_many,
)
from rpgssm.training.checkpoint import Checkpoints

from .toys import Line, assert_equal, line, regression, squared_error

SETTINGS = Training(
    max_steps=60, batch_size=4, learning_rate=0.03, optimizer=Adam(schedule="constant"), window=None,
    stopping=Stopping(validate_every=15, patience=50), checkpoint_every=10,
)  # fmt: skip
UNTIMED = ("seconds", "steps_per_second")


def run(directory=None, settings=SETTINGS, **others):
    options = {"model": line(), "objective": squared_error, "data": regression(), "validation": regression(7, seed=1)}
    return train(**options | {"log_every": 4, "progress": False} | others, settings=settings, directory=directory)


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
        stopped = run(directory, callbacks=[Interrupt(step)], resume=True, steps_per_dispatch=1 if step < 20 else 3)
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
    directory = tmp_path / "run"
    for steps in (7, 40):
        last = run(directory, replace(SETTINGS, max_steps=steps), validation=None, resume=True)
        assert (last.step, last.stopped) == (steps, "max_steps")
    once = run(settings=replace(SETTINGS, max_steps=40), validation=None)
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
    with pytest.raises(ValueError, match="about a folder of checkpoints: name it"):
        run(resume=True)


# --- what a resumed run must share ------------------------------------------------------------------------------------

# A changed value of every setting, and whether it is refused (as declared, where the effect is a fixed one).
CHANGED = {
    "max_steps": (70, False),  # with this optimizer, whose schedule does not depend on it
    "batch_size": (5, True),
    "learning_rate": (0.1, True),
    "optimizer": (SGD(schedule="constant"), True),
    "sampler": (SimilarWindows(), True),
    "augment": (RandomFlips(), True),
    "window": (3, True),
    "stopping": (Stopping(validate_every=7, patience=49, keep_best=False), False),
    "checkpoint_every": (5, False),
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """The folder of a run of 10 steps."""
    directory = tmp_path_factory.mktemp("begun") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rpgssm.training.program.compiled", lambda f, *arguments: jax.jit(f).lower(*arguments).compile())
        run(directory, callbacks=[Interrupt(10)], steps_per_dispatch=10)
    return directory


def resumed(begun, tmp_path, settings=SETTINGS, **others):
    """Try to go on from a copy of the folder, by one step at most."""
    shutil.copytree(begun, tmp_path / "run")
    stop = [Interrupt(1)]
    return run(tmp_path / "run", settings, resume=True, callbacks=stop, steps_per_dispatch=1, **others)


def test_every_setting_is_tried():
    assert set(CHANGED) == set(declared(Training)), "add a changed value of the new setting"
    for name, about in declared(Training).items():
        assert CHANGED[name][1] == (about.effect_in(SETTINGS) == "steps"), name
        assert CHANGED[name][0] != getattr(SETTINGS, name), name


@pytest.mark.parametrize("name", declared(Training))
def test_other_settings(begun, tmp_path, name):
    value, refused = CHANGED[name]
    settings = replace(SETTINGS, **{name: value})
    if refused:
        with pytest.raises(ValueError, match=rf"Cannot resume the run in .*: {name}.* is .* and was .*\. Use the"):
            resumed(begun, tmp_path, settings)
    else:
        assert resumed(begun, tmp_path, settings).step == 11


OPTIMIZERS = {
    "prior_rate": 0.01,
    "schedule": "exponential",
    "decay_steps": 50,
    "final_fraction": 0.1,
    "warmup_steps": 3,
    "clip_norm": None,
    "weight_decay": 0.1,
    "beta1": 0.8,
    "beta2": 0.9,
}


@pytest.mark.parametrize("name", declared(Adam))
def test_other_settings_of_the_optimizer(begun, tmp_path, name):
    changed = replace(SETTINGS, optimizer=replace(SETTINGS.optimizer, **{name: OPTIMIZERS[name]}))
    with pytest.raises(ValueError, match=name):
        resumed(begun, tmp_path, changed)


def with_mask(data, n, t):
    """The same with one frame missing."""
    mask = np.ones((len(data), data.time), bool)
    mask[n, t] = False
    parts = {name: Modality(np.where(mask[..., None], m.values, 0), mask) for name, m in data.modalities.items()}
    return Sequences(parts, data.controls, data.lengths)


def with_controls(data, first=0.0):
    controls = np.zeros((len(data), data.time, 1), np.float32)
    controls[0, 0] = first
    return replace(data, controls=controls)


def with_lengths(data, last=5):
    """The last sequence is that long; nothing is masked, so that only `lengths` tells them apart."""
    return replace(data, lengths=np.r_[np.full(len(data) - 1, data.time), last].astype(np.int32))


def with_value(data):
    x = data.modalities["x"].values.copy()
    x[3, 2, 1] += 1e-6
    return replace(data, modalities={**data.modalities, "x": Modality(x)})


def with_scale(data):
    return replace(data, modalities={**data.modalities, "x": replace(data.modalities["x"], scale=0.5)})


NOW, WAS = r"is 'float32\[20, 5, 3\] \w+'", r"and was 'float32\[20, 5"
DATA = {
    "another value": (
        lambda d: d,
        with_value,
        rf"data\.modalities\.x\.values {NOW} {WAS}",
    ),
    "another scale": (lambda d: d, with_scale, r"data\.modalities\.x\.scale is '0\.5' and was not set"),
    "more sequences": (
        lambda d: d,
        lambda d: regression(21),
        rf"values is 'float32\[21, 5, 3\] \w+' {WAS}",
    ),
    "a mask": (
        lambda d: d,
        lambda d: with_mask(d, 0, 0),
        r"modalities\.x\.mask is 'bool\[20, 5\] \w+' and was not set",
    ),
    "another mask": (lambda d: with_mask(d, 0, 0), lambda d: with_mask(d, 1, 0), r"data\.modalities\.x\.mask"),
    "lengths": (lambda d: d, with_lengths, r"data\.lengths is 'int32\[20\] \w+' and was not set"),
    "other lengths": (
        with_lengths,
        lambda d: with_lengths(d, 4),
        r"lengths is 'int32\[20\] \w+' and was 'int32\[20\]",
    ),
    "controls": (lambda d: d, with_controls, r"data\.controls is 'float32\[20, 5, 1\] \w+' and was not set"),
    "no controls": (with_controls, lambda d: d, r"data\.controls is not set and was 'float32"),
    "other controls": (with_controls, lambda d: with_controls(d, 1.0), r"data\.controls is .* and was"),
}


@pytest.mark.parametrize("case", DATA)
def test_other_data(tmp_path, case):
    before, after, message = DATA[case]
    run(tmp_path / "run", replace(SETTINGS, max_steps=2), data=before(regression()))
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "run", data=after(regression()), resume=True)


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        (with_value(regression(7, seed=1)), r"validation\.modalities\.x\.values is .* and was"),
        (regression(8, seed=1), r"validation\.modalities\.x\.values is 'float32\[8"),
        (None, r"validation\.modalities\.x\.values is not set and was 'float32\[7"),
    ],
)
def test_other_validation_data(begun, tmp_path, validation, message):
    with pytest.raises(ValueError, match=message):
        resumed(begun, tmp_path, validation=validation)


def test_other_seeds(begun, tmp_path):
    with pytest.raises(ValueError, match="seed is 1 and was 0"):
        resumed(begun, tmp_path, seed=1)


def test_other_seeds_of_several_models(tmp_path):
    def many(seeds, **others):
        settings = replace(SETTINGS, max_steps=4)
        models = [line(), line()]
        train_many(
            models, squared_error, regression(), settings, seeds=seeds, directory=tmp_path, progress=False, **others
        )

    many([1, 2])
    many([1, 2], resume=True)
    with pytest.raises(ValueError, match="seed is 3 and was 2"):
        many([1, 3], resume=True)


def test_rows_of_other_steps(begun, tmp_path):
    with pytest.raises(ValueError, match="log_every is 5 and was 4"):
        resumed(begun, tmp_path, log_every=5)


def test_a_given_identity_is_what_counts(tmp_path):
    """It replaces settings and data: who passes it knows what matters. Seed and rows of the history count always."""
    run(tmp_path / "run", replace(SETTINGS, max_steps=2), identity={"method": "line"})
    settings, data = replace(SETTINGS, max_steps=4), regression(seed=5)
    assert run(tmp_path / "run", settings, data=data, identity={"method": "line"}, resume=True).step == 4
    with pytest.raises(ValueError, match="method is 'curve' and was 'line'"):
        run(tmp_path / "run", settings, identity={"method": "curve"}, resume=True)
    with pytest.raises(ValueError, match="seed is 1 and was 0"):
        run(tmp_path / "run", settings, identity={"method": "line"}, seed=1, resume=True)


def test_another_model_or_objective(begun, tmp_path):
    wider = Line(jnp.zeros(3, jnp.float32), jnp.zeros(2, jnp.float32))

    def broadcast(model, batch, key):
        return squared_error(Line(model.weight, jnp.sum(model.prior)), batch, key)

    with pytest.raises(ValueError, match=r"state\.params\.prior is float32\[2\] in the model and float32\[\] in the"):
        resumed(begun, tmp_path / "model", model=wider, objective=broadcast)

    def other_terms(model, batch, key):
        loss, info = squared_error(model, batch, key)
        return loss, {"fit": info["fit"]}

    with pytest.raises(ValueError, match="terms of the objective"):
        resumed(begun, tmp_path / "objective", objective=other_terms)


def test_another_training_step(begun, tmp_path):
    """Settings and data are the same, and so are the shapes; what a function of the user's does is not."""

    def doubled(model, batch, key):
        loss, info = squared_error(model, batch, key)
        return 2.0 * loss, info

    with pytest.raises(ValueError, match=r"training step is another one.*of your own changed"):
        resumed(begun, tmp_path, objective=doubled)


@pytest.mark.parametrize("what", ["jax", "rpgssm", "device"])
def test_another_version_or_device_is_a_warning(begun, tmp_path, monkeypatch, what):
    def program(self):
        return {"digest": "of another version", "jax": "1", "rpgssm": "1", "device": "1"} | before

    before = {}
    monkeypatch.setattr("rpgssm.training.loop._Session._about_program", program)
    run(tmp_path / "run", replace(SETTINGS, max_steps=2))
    before = {what: "2"}
    with pytest.warns(UserWarning, match=f"was begun with {what} 1: it goes on"):
        assert run(tmp_path / "run", replace(SETTINGS, max_steps=4), resume=True).step == 4


def test_a_step_that_calls_back_into_python_has_no_digest(tmp_path):
    def told(model, batch, key):
        jax.debug.callback(lambda: None)
        return squared_error(model, batch, key)

    run(tmp_path / "run", replace(SETTINGS, max_steps=2), objective=told)
    assert run(tmp_path / "run", replace(SETTINGS, max_steps=4), objective=told, resume=True).step == 4


def test_checkpoints_of_another_format(begun, tmp_path, monkeypatch):
    monkeypatch.setattr("rpgssm.training.checkpoint.FORMAT", 1)
    with pytest.raises(ValueError, match=r"have format 2; this version reads 1.*overwrite=True"):
        resumed(begun, tmp_path)


def test_max_steps_may_not_change_under_a_schedule_that_depends_on_it(tmp_path):
    cosine = replace(SETTINGS, optimizer=Adam(schedule="cosine"), max_steps=10)
    run(tmp_path / "run", cosine)
    with pytest.raises(ValueError, match="max_steps is 20 and was 10"):
        run(tmp_path / "run", replace(cosine, max_steps=20), resume=True)


def test_several_models_go_on_together(tmp_path):
    models, data = [line(0), line(1)], regression()
    options = {"settings": replace(SETTINGS, max_steps=30), "steps_per_dispatch": 7, "progress": False}
    stopped = train_many(models, squared_error, data, directory=tmp_path, callbacks=[Interrupt(15)], **options)
    assert [one.stopped for one in stopped] == ["interrupted"] * 2
    again = train_many(models, squared_error, data, directory=tmp_path, resume=True, **options)
    whole = train_many(models, squared_error, data, **options)
    for one, other in zip(again, whole, strict=True):
        assert_same_run(one, other)


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import toys
from rpgssm.training import Adam, Stopping, Training, train
settings = Training(max_steps=1000, batch_size=4, learning_rate=1e-3, optimizer=Adam(schedule="constant"), window=None,
                    stopping=Stopping(validate_every=50), checkpoint_every=50)
print("begin", flush=True)
for directory in sys.argv[1:]:
    run = train(toys.line(), toys.squared_error, toys.regression(), settings, validation=toys.regression(7, seed=1),
                log_every=50, steps_per_dispatch={steps}, directory=directory, resume=True, progress=False)
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


def test_a_setting_that_an_older_version_did_not_have_was_neutral():
    older = {name: value for name, value in identity(Training()).items() if name != "augment"}
    assert differences(identity(Training()), older) == []
    assert differences(identity(Training(augment=RandomFlips())), older) == ["augment is RandomFlips() and was not set"]
