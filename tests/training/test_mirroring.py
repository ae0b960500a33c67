"""Pictures in mirrors: each of them one of the eight views, all of a batch the same one, at every time."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from rpgssm.data import Modality, Sequences
from rpgssm.training.mirroring import before_mirrors, mirrored


def views(x):
    """All eight, by hand: (n, t, height, width, ...)."""
    for turned in (x, np.swapaxes(x, 2, 3)):
        yield from (turned, turned[:, :, ::-1], turned[:, :, :, ::-1], turned[:, :, ::-1, ::-1])


def test_all_views_occur_and_nothing_else():
    x = np.arange(2 * 3 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 3, 4, 4, 3)
    vectors = np.ones((2, 3, 5), np.float32)
    data = Sequences({"pictures": Modality(x, scale=1 / 255), "vectors": Modality(vectors)})
    seen, mirror = set(), jax.jit(mirrored)
    for seed in range(60):
        found = mirror(data, jr.key(seed))
        np.testing.assert_array_equal(found.modalities["vectors"].values, vectors)
        assert found.modalities["pictures"].scale == 1 / 255
        picture = np.asarray(found.modalities["pictures"].values)
        seen.add(next(i for i, view in enumerate(views(x)) if np.array_equal(view, picture)))
    assert seen == set(range(8))


def test_oblong_pictures_keep_their_shape():
    x = np.arange(2 * 3 * 4 * 6, dtype=np.float32).reshape(2, 3, 4, 6)
    data = Sequences({"x": Modality(x)})
    for seed in range(8):
        found = np.asarray(jax.jit(mirrored)(data, jr.key(seed)).modalities["x"].values)
        assert any(found.shape == view.shape and np.array_equal(found, view) for view in views(x))


def test_an_objective_sees_the_mirrored_batch():
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    see = jax.jit(before_mirrors(lambda model, batch, key: (model * batch.modalities["x"].values[0, 0, 0, 0], key)))
    corners = {float(see(jnp.float32(2.0), Sequences({"x": Modality(x)}), jr.key(seed))[0]) for seed in range(30)}
    assert corners == {0.0, 6.0, 24.0, 30.0}
