from pathlib import Path

import numpy as np
import pytest

from rpgssm_study.tasks import load_task
from rpgssm_study.tasks.double_pendulum import render, windows
from rpgssm_study.tasks.double_pendulum_files import read_run, split_runs
from rpgssm_study.tasks.double_pendulum_physics import GRAVITY, L1, L2, MASS, UNITS, simulate

from .publishers import pendulum_markers, write_markers

SMALL = {"n_train": 4, "n_validation": 2, "n_test": 2}


def marker_files(folder: Path) -> list[Path]:
    return sorted((folder / "double-pendulum-chaotic/original/dpc_dataset_csv").glob("*.csv"))


def test_runs_are_read_and_checked(data):
    paths = marker_files(data)
    run = read_run(paths[0])
    assert run.markers.shape[1:] == (3, 2)
    assert run.lengths == pytest.approx((602, 461), rel=0.03)
    assert windows(run).shape == (len(run.markers[::3]) // 100, 100, 3, 2)
    np.testing.assert_array_equal(windows(run)[1, 0], run.markers[300])


def test_no_run_is_in_two_splits(data):
    task = load_task("double-pendulum", data_dir=data, **SMALL, cache=False)
    runs = task.description["sources"]["runs"]
    together = [run for part in runs.values() for run in part]
    assert len(together) == len(set(together)) == len(marker_files(data))
    assert all(runs.values())
    assert task.description["source"] == "rendered"
    assert task.dt == 0.0075
    assert split_runs(marker_files(data)[::-1])["train"][0].stem == "0"


def test_frames_show_the_recorded_angles(data):
    """Centre of mass of each arm's picture, from the picture alone."""
    task = load_task("double-pendulum", data_dir=data, **SMALL, cache=False)
    x = task.frames(task.train.observations)[..., 0]
    assert x.shape == (4, 100, 50, 50)
    assert x.max() == 1
    grid = np.arange(50) + 0.5 - 25
    unit = 25 / 1.08 / (602 + 461)
    first, second = (task.train.states[f"angle_{i}"][..., 0] for i in ("first", "second"))
    joint = 602 * unit * np.stack([np.sin(first), np.cos(first)])
    tip = joint + 461 * unit * np.stack([np.sin(second), np.cos(second)])
    for point in (joint, tip, joint / 2):
        column, row = np.rint(point + 24.5).astype(int)
        n, t = np.indices(column.shape)
        assert x[n, t, row, column].mean() > 0.9
    extent = np.sqrt(((grid[:, None] ** 2 + grid[None, :] ** 2) * (x > 0.5)).max((2, 3)))
    assert extent.max() < 25
    relative = task.train.targets["sin_second_relative"][..., 0]
    np.testing.assert_allclose(relative, np.sin(second - first), atol=1e-5)


def test_swapped_columns_are_noticed(tmp_path):
    markers = pendulum_markers(500, 1)
    np.savetxt(tmp_path / "0.csv", markers[:, :, ::-1].reshape(-1, 6), fmt="%d", delimiter=",")
    with pytest.raises(ValueError, match="vertical first"):
        read_run(tmp_path / "0.csv")


def test_stretched_rods_are_noticed(tmp_path):
    markers = pendulum_markers(500, 1)
    markers[123, 2] += 80
    np.savetxt(tmp_path / "0.csv", markers.reshape(-1, 6), fmt="%d", delimiter=",")
    with pytest.raises(ValueError, match=r"frame 123: rod 2 is .* long, but usually 461"):
        read_run(tmp_path / "0.csv")


def test_too_many_windows_are_refused(made_files):
    with pytest.raises(ValueError, match="n_validation=2 or less"):
        load_task("double-pendulum", data_dir=made_files, n_train=4, n_validation=9, n_test=1, cache=False)


def test_simulated_pendulum_conserves_energy_but_for_friction(monkeypatch):
    monkeypatch.setattr("rpgssm_study.tasks.double_pendulum_physics.FRICTION", 0.0)
    dt = 0.002
    markers, reach = simulate(0, "train", 5, 200, dt)
    places = markers / UNITS
    speed = (places[:, 2:] - places[:, :-2]) / (2 * dt)
    kinetic = 0.5 * (speed[:, :, 1] ** 2).sum(-1) + 0.5 * MASS * (speed[:, :, 2] ** 2).sum(-1)
    potential = -GRAVITY * (places[:, 1:-1, 1, 0] + MASS * places[:, 1:-1, 2, 0])
    energy = kinetic + potential
    scale = GRAVITY * (L1 + L2)
    assert np.ptp(energy, axis=1).max() < 0.02 * scale
    np.testing.assert_allclose(reach, UNITS * (L1 + L2))


def test_simulated_needs_no_files():
    task = load_task("cifar10-double-pendulum", source="simulated", background="procedural", **SMALL, cache=False)
    assert task.description["source"] == "simulated"
    assert task.description["background"] == "procedural"
    assert task.train.observations.shape == (4, 100, 50, 50, 1)


def test_video_is_decoded_as_it_was_rendered(tmp_path):
    """Draw a run as the camera would see it, encode it, and compare with what is drawn from its markers."""
    av = pytest.importorskip("av")
    all_markers = write_markers(tmp_path, runs=3, frames=312, lengths=(200.0, 153.0))
    folder = tmp_path / "double-pendulum-chaotic" / "original" / "dpc_dataset_h264"
    folder.mkdir()
    for run, markers in enumerate(all_markers):
        encode(av, folder / f"{run}.mp4", markers)
    one = {"n_train": 1, "n_validation": 1, "n_test": 1}
    video = load_task("double-pendulum", data_dir=tmp_path, source="video", **one, cache=False)
    drawn = load_task("double-pendulum", data_dir=tmp_path, source="rendered", **one, cache=False)
    assert video.description["source"] == "video"
    for split in ("train", "test"):
        seen, expected = video.splits[split], drawn.splits[split]
        np.testing.assert_array_equal(seen.targets["sin_first"], expected.targets["sin_first"])
        a, b = seen.observations.astype(float), expected.observations.astype(float)
        assert np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.97
        assert abs(a.sum() / b.sum() - 1) < 0.15  # the pen draws whole pixels


def encode(av, path: Path, markers: np.ndarray) -> None:
    """A 160×160 video with the pivot at (80, 81), arms as wide as `render` draws them."""
    from PIL import Image, ImageDraw

    width = 2.2 / 50 * 2 * 1.08 * (200 + 153) / 5
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=400)
        stream.width = stream.height = 160
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "18", "preset": "ultrafast"}
        for pivot, joint, tip in markers / 5:
            image = Image.new("L", (160, 160))
            pen = ImageDraw.Draw(image)
            for start, end in ((pivot, joint), (joint, tip)):
                pen.line([start[1], start[0], end[1], end[0]], fill=255, width=round(width))
                for y, x in (start, end):
                    pen.ellipse([x - width / 2, y - width / 2, x + width / 2, y + width / 2], fill=255)
            for packet in stream.encode(av.VideoFrame.from_image(image)):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


def test_missing_video_is_explained(made_files):
    with pytest.raises(FileNotFoundError, match="source='rendered'"):
        load_task("double-pendulum", data_dir=made_files, source="video", **SMALL, cache=False)


def test_runs_of_another_size_look_the_same():
    """The camera stood elsewhere in later runs: their markers are smaller, their frames are not."""
    near, far = pendulum_markers(100, 1), pendulum_markers(100, 1, (589.0, 451.0))
    images = render(np.stack([near, far]), np.array([602.0 + 461.0, 589.0 + 451.0]))
    assert np.abs(images[0].astype(int) - images[1]).max() < 25
