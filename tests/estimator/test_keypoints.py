"""The encoder for things that move about, as users meet it."""

import numpy as np

from rpgssm import RPGSSM
from rpgssm.evaluation import LinearReadout


def test_a_dot_is_found_and_the_model_comes_back(tmp_path):
    rng = np.random.default_rng(0)
    steps = 0.3 * rng.standard_normal((24, 30, 2))
    place = 7.5 + 4 * np.tanh((rng.uniform(-4, 4, (24, 1, 2)) + steps.cumsum(1)) / 4)
    pixels = np.arange(16)
    distance = (pixels[:, None] - place[..., None, None, 0]) ** 2 + (pixels - place[..., None, None, 1]) ** 2
    films = np.rint(255 * np.exp(-distance / 4)).astype(np.uint8)

    model = RPGSSM(latent_dim=8, encoder="keypoints", max_steps=60, random_state=0, verbose=False)
    latents = model.fit(films[:16]).transform(films)
    readout = LinearReadout.fit(latents[:16], {"place": place[:16]})
    assert readout.score(latents[16:], {"place": place[16:]})["place"] > 0.8  # a CNN has 0.6

    model.save(tmp_path / "dot")
    np.testing.assert_array_equal(RPGSSM.load(tmp_path / "dot").transform(films), latents)
