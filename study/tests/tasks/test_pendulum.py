import numpy as np
import pytest

from rpgssm.datasets import linear, pendulum
from rpgssm.datasets.pendulums import draw
from rpgssm_study.tasks import background_variants, load_task
from rpgssm_study.tasks.backgrounds import read_cifar10, share


def test_pendulum_64_is_the_beginning_of_pendulum():
    small = load_task("pendulum-64", n_validation=2, n_test=2, cache=False)
    large = load_task("pendulum", n_train=70, n_validation=2, n_test=2, cache=False)
    assert len(small.train) == 64
    for split in ("train", "validation", "test"):
        n = len(small.splits[split])
        np.testing.assert_array_equal(small.splits[split].observations, large.splits[split].observations[:n])
        np.testing.assert_array_equal(small.targets[split]["velocity"], large.targets[split]["velocity"][:n])


def test_cifar10_behind_the_arm(data):
    task = load_task("cifar10-pendulum", data_dir=data, n_train=3, n_validation=2, n_test=2, cache=False)
    x = task.train.observations
    assert x.dtype == np.uint8
    assert x.shape == (3, 100, 24, 24, 1)
    arm = draw(task.train.states["angle"][..., 0].astype(float))
    assert (x[..., 0] >= np.where(arm > 1, arm - 1, 0)).all()
    behind = x[..., 0][arm == 0]
    assert 60 < behind.mean() < 180
    assert behind.std() > 5
    assert task.description["background"] == "cifar10"
    assert (np.diff(x[:, :, :4, :4].astype(int), axis=1) != 0).any(axis=(2, 3, 4)).mean() > 0.9  # a new one per frame
    frames = task.frames(x)
    assert frames.dtype == np.float32
    assert frames.max() <= 1


def test_splits_share_no_image(made_files):
    parts = [set(share(split, 40)) for split in ("train", "validation", "test")]
    assert [len(p) for p in parts] == [32, 4, 4]
    assert set.union(*parts) == set(range(40))
    with pytest.raises(ValueError, match="at least three"):
        share("train", 2)
    images = np.concatenate([read_cifar10(p) for p in sorted((made_files / "cifar-10-batches-bin").iterdir())])
    assert images.shape == (40, 3, 32, 32)


def test_damaged_cifar10_is_named(tmp_path):
    bad = tmp_path / "data_batch_1.bin"
    bad.write_bytes(bytes(3000))
    with pytest.raises(ValueError, match=r"data_batch_1\.bin has 3000 bytes"):
        read_cifar10(bad)
    bad.write_bytes(bytes([77] + [0] * 3072))
    with pytest.raises(ValueError, match="record 0 has label 77"):
        read_cifar10(bad)


def test_variants_change_the_background_and_not_the_arm():
    x = background_variants("cifar10-pendulum", variants=3, n=2, background="procedural")
    task = load_task("cifar10-pendulum", n_train=1, n_validation=1, n_test=2, background="procedural", cache=False)
    assert x.shape == (3, 2, 100, 24, 24, 1)
    np.testing.assert_array_equal(x[0], task.test.observations)
    arm = draw(task.test.states["angle"][..., 0].astype(float))
    solid = np.broadcast_to((arm == 255)[..., None], x.shape)
    assert (x[solid] == 255).all()
    assert (x[0] != x[1]).mean() > 0.5
    with pytest.raises(ValueError, match="neither backgrounds"):
        background_variants("linear-small")


def test_sizes_of_the_linear_tasks():
    task = load_task("linear-medium", cache=False)
    assert [len(s) for s in task.splits.values()] == [200, 50, 50]
    assert task.frame_shape == (10,)


def test_tasks_are_the_data_sets_of_the_library():
    sizes = {"n_train": 3, "n_validation": 1, "n_test": 2}
    for name, background, made in (
        ("pendulum", "auto", pendulum(2, split="test", seed=4)),
        ("pendulum-vector", "auto", pendulum(2, view="direction", split="test", seed=4)),
        ("cifar10-pendulum", "procedural", pendulum(2, background="textures", split="test", seed=4)),
        ("linear-large", "auto", linear(2, size="large", split="test", seed=4)),
    ):
        task = load_task(name, background=background, seed=4, cache=False, **sizes)
        np.testing.assert_array_equal(task.test.observations, made.observations)
        for target, value in made.targets.items():
            np.testing.assert_array_equal(task.test.targets[target], value)
