import numpy as np
import pytest

from rpgssm.tasks import background_variants, load_task
from rpgssm.tasks.backgrounds import read_cifar10, share
from rpgssm.tasks.pendulum import PIXEL_NOISE, VECTOR_NOISE, advance, draw, simulate


def naive_frame(angle_from_top: float, velocity: float) -> tuple[float, float]:
    """The specification's equation, with 0 upright."""
    for _ in range(100):
        velocity += 1e-4 * (29.43 * np.sin(angle_from_top) - 0.1 * velocity)
        angle_from_top += 1e-4 * velocity
    return angle_from_top, velocity


def test_physics():
    angle, velocity = advance(np.array([0.3, -2.0]), np.array([1.0, -3.0]))
    for i, (a, v) in enumerate([(0.3, 1.0), (-2.0, -3.0)]):
        expected = naive_frame(a + np.pi, v)
        np.testing.assert_allclose([angle[i] + np.pi, velocity[i]], expected, rtol=1e-9)


def test_energy_is_lost_only_by_friction():
    angle, velocity = np.array([2.5]), np.array([0.0])

    def energy():
        return velocity**2 / 2 - 29.43 * np.cos(angle)

    start = energy()
    lost = 0.0
    for _ in range(100):
        lost += 0.1 * velocity**2 * 0.01
        angle, velocity = advance(angle, velocity)
    np.testing.assert_allclose(start - energy(), lost, rtol=0.02)


def test_motion_has_the_stated_statistics():
    angle, velocity = simulate(0, "train", 500)
    assert 4.4 < velocity.std() < 5.0
    assert np.abs(angle).max() <= np.pi
    assert (velocity[:, 0] == 0).all()
    predicted = advance(angle[:, :-1], velocity[:, :-1])
    kicks = velocity[:, 1:] - predicted[1]
    assert abs(kicks.std() / 0.1 - 1) < 0.02
    np.testing.assert_allclose(np.sin(angle[:, 1:] - predicted[0]), 0, atol=1e-9)


def test_hanging_down_is_drawn_downwards():
    down, right = draw(np.array([[0.0, np.pi / 2]]))[0]
    assert down[14:20, 11:13].mean() > 150
    assert down[:10].max() <= 2
    assert right[11:13, 14:20].mean() > 150
    assert right[:, :10].max() <= 2


def test_pixels_have_noise_and_vectors_too():
    task = load_task("pendulum", n_train=4, n_validation=1, n_test=1, cache=False)
    noise = task.train.observations[..., 0] - draw(task.train.states["angle"][..., 0].astype(float)) / 255
    assert task.frame_shape == (24, 24, 1)
    assert task.train.observations.dtype == np.float32
    assert abs(noise.std() / PIXEL_NOISE - 1) < 0.01
    assert abs(noise.mean()) < 1e-3
    task = load_task("pendulum-vector", n_train=40, cache=False)
    angle = task.train.states["angle"]
    noise = task.train.observations - np.concatenate([np.sin(angle), np.cos(angle)], -1)
    assert abs(noise.std() / VECTOR_NOISE - 1) < 0.03
    np.testing.assert_allclose(task.train.targets["sin_angle"], np.sin(angle), atol=1e-6)


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
