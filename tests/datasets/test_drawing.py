import numpy as np
from PIL import Image, ImageDraw

from rpgssm.datasets.drawing import capsule, disc, resized_bar
from rpgssm.datasets.resize import quantise

ANGLES = np.concatenate([np.linspace(-np.pi, np.pi, 9), np.random.default_rng(0).uniform(-np.pi, np.pi, 40)])


def naive_bar(angle: float) -> np.ndarray:
    """Pixel by pixel: inside the rectangle or not."""
    canvas = np.zeros((128, 128), np.float32)
    s, c = np.sin(angle), np.cos(angle)
    for y in range(128):
        for x in range(128):
            along = (x - 64) * s + (y - 64) * c
            across = (x - 64) * c - (y - 64) * s
            canvas[y, x] = 0 <= along <= 55 and -4 + 1e-3 <= across <= 4
    return np.asarray(Image.fromarray(canvas).resize((24, 24), Image.Resampling.LANCZOS))


def test_bar_is_drawn_and_resized_as_pillow_resizes():
    """Away from the axes, where which pixels lie exactly on the edge depends on the last digit."""
    angles = ANGLES[9:20]
    for angle, image in zip(angles, resized_bar(angles), strict=True):
        difference = quantise(image).astype(int) - quantise(naive_bar(angle)).astype(int)
        assert np.abs(difference).max() <= 1


def test_bar_looks_like_pillows_line():
    """Pillow rounds the ends of a line to whole pixels, so its picture differs a little, but not in what it shows."""
    for angle, image in zip(ANGLES, resized_bar(ANGLES), strict=True):
        canvas = Image.new("F", (128, 128))
        end = 64 + 55 * np.sin(angle), 64 + 55 * np.cos(angle)
        ImageDraw.Draw(canvas).line([(64, 64), end], fill=1, width=8)
        expected = np.clip(np.asarray(canvas.resize((24, 24), Image.Resampling.LANCZOS)), 0, 1)
        assert np.corrcoef(image.ravel(), expected.ravel())[0, 1] > 0.93
        assert abs(image.sum() / expected.sum() - 1) < 0.15


def test_an_upright_bar_is_as_wide_as_it_says():
    down = resized_bar(np.array([0.0]), size=128)[0]
    assert (down[100] > 0.5).sum() == 8
    assert not down[:60].any()


def test_capsule_and_disc_cover_their_areas():
    grid = np.arange(64) + 0.5
    x, y = grid[None, :], grid[:, None]
    start, end = (np.array(20.3), np.array(15.7)), (np.array(44.1), np.array(40.2))
    length = np.hypot(23.8, 24.5)
    assert abs(capsule(x, y, start, end, 5.0).sum() / (5 * length + np.pi * 2.5**2) - 1) < 0.02
    assert abs(disc(x, y, start, 6.0).sum() / (np.pi * 36) - 1) < 0.02
