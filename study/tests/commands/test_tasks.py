"""`rpgssm-study tasks`, and how a task's frames are shown to a model that is to be evaluated."""

from types import SimpleNamespace

import numpy as np
import pytest

from rpgssm_study.cli import main
from rpgssm_study.commands.scoring_tasks import preparation
from rpgssm_study.tasks import Split, Task, load_task, task_names


def test_the_list(capsys):
    main(["tasks"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(task_names())


def test_a_picture(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RPGSSM_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "x.png"
    main(["tasks", "show", "pendulum-vector", "-o", str(path)])
    assert path.read_bytes().startswith(b"\x89PNG")
    assert f"Wrote {path}" in capsys.readouterr().out


def test_sequences_are_saved(tmp_path, monkeypatch):
    monkeypatch.setenv("RPGSSM_CACHE", str(tmp_path / "cache"))
    main(["tasks", "save", "linear-small", "-o", str(tmp_path / "made")])
    for split, observations in load_task("linear-small").observations.items():
        np.testing.assert_array_equal(np.load(tmp_path / "made" / f"{split}.npy"), observations)


def test_errors(capsys):
    for arguments, message in ((["show"], "name the task to show"), (["show", "chess"], "there is no task 'chess'")):
        with pytest.raises(SystemExit) as end:
            main(["tasks", *arguments])
        assert end.value.code == 2
        assert message in capsys.readouterr().err


def make_task(dtype):
    split = Split(np.full((2, 3, 4, 4), 100, dtype), {}, {})
    return Task("toy", split, split, split, None, {}, scale=0.1, offset=90.0)


@pytest.mark.parametrize(
    ("dtype", "scale", "shown"), [("uint8", 1 / 255, None), ("uint8", 1.0, 1.0), ("float32", 1.0, None)]
)
def test_frames_are_shown_as_they_were_in_training(dtype, scale, shown):
    task = make_task(dtype)
    estimator = SimpleNamespace(_data_info=SimpleNamespace(scales={"observations": scale}))
    prepare = preparation(estimator, task)
    if shown is None:
        assert prepare is None
    else:
        np.testing.assert_allclose(prepare(task.test.observations), shown)
