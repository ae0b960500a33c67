"""Augmentations: what flips do to images, and that only training batches are changed."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from rpgssm.data import Modality, Sequences
from rpgssm.training import Adam, Augmentation, RandomFlips, Stopping, Training, train, train_many

from .toys import line, regression, squared_error


def views(x):
    """All eight, by hand: (n, t, height, width, ...)."""
    for turned in (x, np.swapaxes(x, 2, 3)):
        yield from (turned, turned[:, :, ::-1], turned[:, :, :, ::-1], turned[:, :, ::-1, ::-1])


def test_all_views_occur_and_nothing_else():
    x = np.arange(2 * 3 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 3, 4, 4, 3)
    vectors = np.ones((2, 3, 5), np.float32)
    data = Sequences({"images": Modality(x, scale=1 / 255), "vectors": Modality(vectors)})
    seen, flips = set(), jax.jit(RandomFlips())
    for seed in range(60):
        found = flips(data, jr.key(seed))
        np.testing.assert_array_equal(found.modalities["vectors"].values, vectors)
        assert found.modalities["images"].scale == 1 / 255
        image = np.asarray(found.modalities["images"].values)
        seen.add(next(i for i, view in enumerate(views(x)) if np.array_equal(view, image)))
    assert seen == set(range(8))


def test_oblong_images_keep_their_shape():
    x = np.arange(2 * 3 * 4 * 6, dtype=np.float32).reshape(2, 3, 4, 6)
    data = Sequences({"x": Modality(x)})
    flips = jax.jit(RandomFlips())
    for seed in range(8):
        found = np.asarray(flips(data, jr.key(seed)).modalities["x"].values)
        assert any(found.shape == view.shape and np.array_equal(found, view) for view in views(x))


def corner(model, batch, key):
    """The first number of the first image, and nothing to learn."""
    value = batch.modalities["x"].frames()[0, 0, 0, 0]
    return value + 0 * model.prior, {}


def test_training_sees_flipped_batches_and_validation_does_not():
    """The corner of the one image is 0; those of its flipped views are 3, 12 and 15."""
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    data = Sequences({"x": Modality(x)})
    settings = Training(max_steps=30, augment=RandomFlips(), stopping=Stopping(validate_every=1))
    trained = train(line(), corner, data, settings, validation=data, log_every=1, progress=False)
    assert set(trained.history["loss"]) == {0.0, 3.0, 12.0, 15.0}
    assert set(trained.history["validation_loss"]) == {0.0}


class Shifted(Augmentation):
    """Targets are moved far away; tracing is counted."""

    def __call__(self, batch, key):
        TRACES.append(1)
        y = batch.modalities["y"]
        return replace(batch, modalities={**batch.modalities, "y": replace(y, values=y.values + jnp.float32(100.0))})


TRACES: list[int] = []


@pytest.mark.parametrize("many", [False, True])
def test_validation_batches_are_never_augmented(many):
    """With a rate of 0 the model stays as it is, so that validation must give the same with and without."""

    def losses(augment):
        settings = Training(
            max_steps=20, batch_size=4, learning_rate=0.0, optimizer=Adam(schedule="constant"), augment=augment,
            stopping=Stopping(validate_every=5),
        )  # fmt: skip
        data, validation = regression(), regression(7, seed=1)
        if many:
            models = [line(0), line(1)]
            found = train_many(models, squared_error, data, settings, validation=validation, progress=False)[1]
        else:
            found = train(line(), squared_error, data, settings, validation=validation, progress=False)
        held_out = found.history["validation_loss"]
        return found.history["loss"], held_out[~np.isnan(held_out)]

    TRACES.clear()
    plain, held_out = losses(None)
    assert not TRACES
    shifted, held_out_too = losses(Shifted())
    assert len(TRACES) == 1, "traced once, in the training step"
    assert (shifted > 1000 + plain).all(), "training sees what the augmentation does"
    assert len(held_out) == 4
    np.testing.assert_allclose(held_out_too, held_out, rtol=1e-6)
