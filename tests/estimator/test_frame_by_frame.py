"""One frame at a time gives what filtering all of them gives."""

import numpy as np
import pytest

from .conftest import quick


def check(model, x, u=None):
    """Frames of one sequence, the fourth and the last but one missing, one by one and together."""
    x = x.copy()
    x[[3, -2]] = np.nan
    together = model.filter(x[None], controls=None if u is None else u[None])
    stream = model.online()
    for t, frame in enumerate(x):
        control = None if u is None or t == 0 else u[t - 1]
        mean, cov = stream.step(None if t == 3 else frame, control)
        np.testing.assert_allclose(mean, together.mean[0, t], atol=1e-5)
        np.testing.assert_allclose(cov, together.cov[0, t], atol=1e-5)
    assert stream.n_frames_ == len(x)
    np.testing.assert_allclose(stream.log_z_, together.log_z[0], rtol=1e-4, atol=1e-4)
    return stream


def test_stationary(stationary, world):
    stream = check(stationary, world.x[0])
    last = stream.step(world.x[0, 0])
    stream.reset()
    assert (stream.n_frames_, stream.log_z_) == (0, 0.0)
    first = stream.step(world.x[0, 0])
    assert not np.allclose(first[0], last[0])
    np.testing.assert_allclose(first[0], stationary.filter(world.x).mean[0, 0], atol=1e-5)


@pytest.mark.slow
def test_free(free, world):
    check(free, world.x[1])


def test_controlled(controlled, pushed):
    check(controlled, pushed.x[2], pushed.u[2])


def test_discrete_network(discrete, pushed):
    model, u = discrete
    check(model, pushed.x[2], u[2])


@pytest.mark.slow
def test_two_modalities_one_missing(two, world):
    x = {"left": world.x[:1, :2, :3].copy(), "right": world.x[:1, :2, 3:]}
    x["left"][0, 1] = np.nan
    together = two.filter(x)
    stream = two.online()
    stream.step({"left": x["left"][0, 0], "right": x["right"][0, 0]})
    mean, _ = stream.step({"right": x["right"][0, 1]})
    np.testing.assert_allclose(mean, together.mean[0, 1], atol=1e-5)


@pytest.mark.slow
def test_integer_images_are_scaled():
    images = np.random.default_rng(0).integers(0, 256, (6, 5, 3, 3), np.uint8)
    model = quick(max_steps=3).fit(images)
    stream = model.online()
    from_integers, _ = stream.step(images[0, 0])
    stream.reset()
    from_floats, _ = stream.step(images[0, 0] / 255)
    np.testing.assert_allclose(from_integers, from_floats, atol=1e-6)


def test_errors_say_what_to_do(stationary, controlled, discrete, two, world):
    with pytest.raises(ValueError, match=r"shape \(5,\), but frames have shape \(6,\): pass one frame"):
        stationary.online().step(np.zeros(5))
    with pytest.raises(ValueError, match="infinite value: pass None"):
        stationary.online().step(np.full(6, np.inf))
    with pytest.raises(ValueError, match="without controls: leave control= out"):
        stationary.online().step(np.zeros(6), control=1)
    with pytest.raises(ValueError, match="mapping with the modalities left, right"):
        two.online().step(world.x[0, 0])
    with pytest.raises(ValueError, match="'middle'; the model knows left, right"):
        two.online().step({"middle": None})
    stream = controlled.online()
    stream.step(np.zeros(6))
    with pytest.raises(ValueError, match="pass the control that acted"):
        stream.step(np.zeros(6))
    with pytest.raises(ValueError, match="must be 2 finite numbers"):
        stream.step(np.zeros(6), control=[1.0])
    with pytest.raises(ValueError, match="integer from 0 to 2"):
        discrete[0].online().step(np.zeros(6), control=3)
