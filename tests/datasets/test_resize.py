import numpy as np
import pytest
from PIL import Image

from rpgssm.datasets.resize import quantise, resize, resize_weights

FILTERS = {
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
}


@pytest.mark.parametrize("kind", FILTERS)
@pytest.mark.parametrize(("old", "new"), [((128, 128), (24, 24)), ((32, 32), (50, 50)), ((90, 160), (64, 48))])
def test_it_is_pillows(kind, old, new):
    image = np.random.default_rng(0).random(old, np.float32)
    expected = np.asarray(Image.fromarray(image).resize(new[::-1], FILTERS[kind]))
    np.testing.assert_allclose(resize(image, *new, kind), expected, atol=2e-6)


def test_many_images_at_once():
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), dtype=np.uint8)
    together = resize(images, 24, 24)
    assert together.shape == (2, 3, 24, 24)
    np.testing.assert_allclose(together[1, 2], resize(images[1, 2], 24, 24), rtol=1e-5)


def test_weights_add_up_to_one():
    np.testing.assert_allclose(resize_weights(128, 24).sum(1), 1)


def test_quantise_clips_and_rounds():
    values = np.array([-0.2, 0.0, 0.5, 1.0, 1.3, 0.4 / 255, 0.6 / 255])
    np.testing.assert_array_equal(quantise(values), [0, 0, 128, 255, 255, 0, 1])
