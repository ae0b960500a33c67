"""Data of every form go in, and latents of the same form come out."""

import numpy as np
import pytest

from rpgssm.data import Recording, as_sequences

from .conftest import quick


def assert_same(a, b):
    np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.parametrize("method", ["smooth", "filter"])
def test_ragged_sequences_are_what_each_gives_alone(stationary, world, method):
    lengths = [12, 5, 9, 2]
    ragged = [x[:n] for x, n in zip(world.x, lengths, strict=False)]
    out = getattr(stationary, method)(ragged)
    assert [m.shape for m in out.mean] == [(n, 2) for n in lengths]
    assert [c.shape for c in out.cov] == [(n, 2, 2) for n in lengths]
    assert out.log_z.shape == (4,)
    alone = getattr(stationary, method)(ragged[1])
    assert_same(out.mean[1], alone.mean)
    assert_same(out.cov[1], alone.cov)
    assert_same(out.log_z[1], alone.log_z)


def test_one_long_sequence_has_no_sequence_axis(stationary, world):
    one, many = stationary.smooth(world.x[3]), stationary.smooth(world.x)
    assert one.mean.shape == (12, 2)
    assert one.cov.shape == (12, 2, 2)
    assert np.ndim(one.log_z) == 0
    assert_same(one.mean, many.mean[3])


def test_an_array_of_one_sequence_and_a_list_keep_their_form(stationary, world):
    assert stationary.transform(world.x[:1]).shape == (1, 12, 2)
    listed = stationary.transform(list(world.x))
    assert isinstance(listed, list)
    assert_same(np.stack(listed), stationary.transform(world.x))


def test_recordings_and_sequences_are_understood(stationary, world):
    expected = stationary.transform(world.x)
    assert_same(stationary.transform(as_sequences(world.x)[0]), expected)
    assert_same(stationary.transform(Recording(world.x[2])), expected[2])
    rows = stationary.transform(Recording(world.x[:2], lengths=np.array([12, 7])))
    assert [len(row) for row in rows] == [12, 7]


def test_results_can_be_written_to(stationary, world):
    latents = stationary.smooth(world.x)
    latents.mean[:] -= 1
    latents.log_z[:] = 0


def test_missing_frames_by_mask_and_by_nan_are_the_same(stationary, world):
    mask = np.random.default_rng(0).random((10, 12)) < 0.6
    broken = np.where(mask[..., None], world.x, np.nan)
    a, b = stationary.smooth(world.x, mask=mask), stationary.smooth(broken)
    assert_same(a.mean, b.mean)
    assert_same(a.log_z, b.log_z)
    full = stationary.smooth(world.x)
    assert np.trace(a.cov[~mask], axis1=1, axis2=2).mean() > np.trace(full.cov[~mask], axis1=1, axis2=2).mean()


def test_a_sequence_of_which_nothing_is_seen_gives_the_prior(stationary, world):
    out = stationary.smooth(np.full_like(world.x[:2], np.nan))
    assert_same(out.mean, np.zeros((2, 12, 2)))
    assert_same(out.cov, np.broadcast_to(np.eye(2), (2, 12, 2, 2)))
    assert_same(out.log_z, np.zeros(2))


def test_two_modalities(two, world):
    x = {"left": world.x[..., :3], "right": world.x[..., 3:]}
    out = two.smooth(x)
    assert out.mean.shape == (10, 12, 2)
    one = two.smooth({name: value[4] for name, value in x.items()})
    assert_same(one.mean, out.mean[4])
    hidden = x | {"right": np.full_like(x["right"], np.nan)}
    blind = two.smooth(hidden)
    assert np.all(np.linalg.det(blind.cov) > np.linalg.det(out.cov))
    by_mask = two.smooth(x, mask={"right": np.zeros((10, 12), bool)})
    assert_same(by_mask.mean, blind.mean)


def test_controls_go_with_each_form(controlled, pushed):
    out = controlled.smooth(pushed.x, controls=pushed.u)
    one = controlled.smooth(pushed.x[1], controls=pushed.u[1])
    assert one.mean.shape == (12, 2)
    assert_same(one.mean, out.mean[1])
    lengths = [12, 6]
    ragged = controlled.filter(
        [pushed.x[n, :t] for n, t in enumerate(lengths)], controls=[pushed.u[n, :t] for n, t in enumerate(lengths)]
    )
    assert_same(ragged.mean[1], controlled.filter(pushed.x[1, :6], controls=pushed.u[1, :6]).mean)
    other = controlled.smooth(pushed.x, controls=-pushed.u)
    assert np.abs(other.mean - out.mean).max() > 1e-3


def test_discrete_controls(discrete, pushed):
    model, u = discrete
    out = model.smooth(pushed.x, controls=u)
    assert out.mean.shape == (10, 12, 2)
    assert np.abs(model.transform(pushed.x, controls=np.zeros_like(u)) - out.mean).max() > 1e-4


@pytest.mark.slow
def test_integer_images_are_scaled_and_said_to_be():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 5, 3, 3), np.uint8)
    model = quick(max_steps=3).fit(images)
    assert any("1/255" in note for note in model.notes_)
    assert_same(model.transform(images), model.transform(images.astype(np.float32) / 255))


def test_data_in_several_batches_give_the_same(stationary, world, monkeypatch):
    expected = stationary.smooth(world.x)
    monkeypatch.setattr("rpgssm.estimator._inference.FRAMES", 36)
    out = stationary.smooth(world.x)
    assert_same(out.mean, expected.mean)
    assert_same(out.cov, expected.cov)
    assert_same(out.log_z, expected.log_z)
