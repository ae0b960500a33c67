import numpy as np
import pytest

from rpgssm.datasets import pendulum
from rpgssm.datasets.pendulums import PIXEL_NOISE, VECTOR_NOISE, advance, draw, simulate


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


def test_images_have_noise_and_directions_too():
    data = pendulum(4)
    noise = data.observations[..., 0] - draw(data.states["angle"][..., 0].astype(float)) / 255
    assert data.observations.shape == (4, 100, 24, 24, 1)
    assert data.observations.dtype == np.float32
    assert abs(noise.std() / PIXEL_NOISE - 1) < 0.01
    assert abs(noise.mean()) < 1e-3
    data = pendulum(40, view="direction")
    angle = data.states["angle"]
    noise = data.observations - np.concatenate([np.sin(angle), np.cos(angle)], -1)
    assert abs(noise.std() / VECTOR_NOISE - 1) < 0.03
    np.testing.assert_allclose(data.targets["sin_angle"], np.sin(angle), atol=1e-6)


def test_textures_are_behind_the_arm():
    data = pendulum(2, background="textures")
    arm = draw(data.states["angle"][..., 0].astype(float))
    assert data.observations.dtype == np.uint8
    assert (data.observations[..., 0].astype(int) >= arm.astype(int) - 1).all()
    behind = data.observations[..., 0][arm == 0]
    assert 20 < behind.std() < 100
    other = pendulum(2, background="textures", variant=1)
    np.testing.assert_array_equal(other.targets["velocity"], data.targets["velocity"])
    assert not np.array_equal(other.observations, data.observations)


def test_fewer_films_are_the_first_of_more():
    for view in ("image", "direction"):
        few, many = pendulum(2, view=view), pendulum(5, view=view)
        np.testing.assert_array_equal(few.observations, many.observations[:2])
        np.testing.assert_array_equal(few.targets["velocity"], many.targets["velocity"][:2])
        assert not np.array_equal(few.observations, pendulum(2, view=view, split="test").observations)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="n must be at least 1"):
        pendulum(0)
    with pytest.raises(ValueError, match="background='textures' is for images"):
        pendulum(1, view="direction", background="textures")
