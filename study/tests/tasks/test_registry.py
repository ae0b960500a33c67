import json
import re

import numpy as np
import pytest

from rpgssm.datasets.streams import stream
from rpgssm_study.tasks import TASKS, load_task, task_names

SMALL = {"n_train": 3, "n_validation": 2, "n_test": 2}
NAMES = (
    "linear-small", "linear-medium", "linear-large", "pendulum", "pendulum-64", "cifar10-pendulum", "double-pendulum",
    "cifar10-double-pendulum", "tracking", "davis-tracking", "pendulum-vector",
)  # fmt: skip


def test_all_are_there():
    assert set(task_names()) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_task_keeps_its_promises(name, data):
    task = load_task(name, data_dir=data, **SMALL, cache=False)
    assert [len(s) for s in task.splits.values()] == [3, 2, 2]
    for split in task.splits.values():
        assert split.time == 100
        assert split.observations.dtype in (np.uint8, np.float32)
        for values in (*split.targets.values(), *split.states.values()):
            assert values.dtype == np.float32
            assert np.isfinite(values).all()
    assert not np.array_equal(task.validation.observations, task.test.observations)
    assert not np.array_equal(task.train.observations[:2], task.test.observations)
    described = json.loads(json.dumps(task.description))
    assert described["seed"] == 0
    assert described["generator_version"] >= 1
    assert described["background"] in ("none", "cifar10", "davis")
    again = load_task(name, data_dir=data, **SMALL, cache=False)
    other = load_task(name, data_dir=data, **SMALL, seed=1, cache=False)
    np.testing.assert_array_equal(again.train.observations, task.train.observations)
    assert not np.array_equal(other.train.observations, task.train.observations)
    fewer = load_task(name, data_dir=data, n_train=2, n_validation=1, n_test=1, cache=False)
    np.testing.assert_array_equal(fewer.train.observations, task.train.observations[:2])


@pytest.mark.parametrize("name", ["cifar10-pendulum", "davis-tracking", "cifar10-double-pendulum"])
@pytest.mark.parametrize("background", ["auto", "real"])
def test_missing_files_are_explained(name, background, tmp_path):
    for where in (None, tmp_path):
        with pytest.raises(FileNotFoundError) as caught:
            load_task(name, data_dir=where, background=background, **SMALL)
        message = str(caught.value)
        assert re.search(r"Download \S+ from https://\S+ and unpack it so that", message)
        assert "background='procedural'" in message
        assert ("RPGSSM_DATA" if where is None else str(tmp_path)) in message


def test_missing_recordings_are_explained():
    with pytest.raises(FileNotFoundError, match=r"dpc_dataset_csv.*source='simulated'"):
        load_task("double-pendulum", **SMALL)


@pytest.mark.parametrize("name", ["cifar10-pendulum", "davis-tracking"])
def test_procedural_backgrounds_need_nothing(name):
    task = load_task(name, background="procedural", **SMALL, cache=False)
    assert task.description["background"] == "procedural"
    fewer = load_task(name, background="procedural", n_train=2, n_validation=1, n_test=1, cache=False)
    np.testing.assert_array_equal(fewer.train.observations, task.train.observations[:2])
    x = task.train.observations.astype(float)
    assert 5 < x.std()
    corners = x[:, :, :3, :3]
    assert (np.abs(np.diff(corners, axis=1)) > 0).mean() > 0.5
    smooth = np.abs(np.diff(x, axis=3)).mean() / x.std()
    assert smooth < 0.5


def test_data_directory_from_the_environment(made_files, monkeypatch):
    monkeypatch.setenv("RPGSSM_DATA", str(made_files))
    assert load_task("cifar10-pendulum", **SMALL, cache=False).description["background"] == "cifar10"
    monkeypatch.setenv("RPGSSM_DATA", str(made_files / "nowhere"))
    with pytest.raises(FileNotFoundError, match="RPGSSM_DATA names"):
        load_task("cifar10-pendulum", **SMALL, cache=False)
    load_task("linear-small", **SMALL, cache=False)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="choose one of linear-small"):
        load_task("pendulums")
    with pytest.raises(ValueError, match="n_test must be at least 1, but is 0"):
        load_task("linear-small", n_test=0)
    with pytest.raises(ValueError, match="has no background"):
        load_task("pendulum", background="procedural")
    with pytest.raises(ValueError, match="double pendulum only"):
        load_task("pendulum", source="video")
    with pytest.raises(ValueError, match="must not be negative"):
        stream(-1, "x")


def test_every_entry_has_a_summary():
    for entry in TASKS.values():
        assert 10 < len(entry.summary) < 80
