"""Frames as they come in: the filter, one step at a time. `python examples/online.py`."""

import time

import numpy as np

from rpgssm import RPGSSM
from rpgssm.datasets import pendulum

data, new = pendulum(200, view="direction"), pendulum(20, view="direction", split="test")
model = RPGSSM(latent_dim=8, max_steps=100, random_state=0).fit(data.observations)

film = new.observations[0]
online = model.online()
for frame in (film[0], None):
    online.step(frame)  # compiles
online.reset()
began = time.perf_counter()
means = []
for i, frame in enumerate(film):
    lost = 40 <= i < 45  # a camera that fails: pass None
    mean, cov = online.step(None if lost else frame)
    means.append(mean)
seconds = time.perf_counter() - began

whole = film.copy()
whole[40:45] = np.nan
difference = np.abs(np.stack(means) - model.filter(whole[None]).mean[0]).max()
print(
    f"{len(film)} frames, {1e3 * seconds / len(film):.2f} ms each; at most {difference:.1e} from filtering all at once"
)
