"""A network of your own, two kinds of observations, and controls: `python examples/own_encoder.py`.

A cart that is pushed, seen by a noisy position sensor and by a row of eight light cells.
"""

import equinox as eqx
import jax
import numpy as np

from rpgssm import RPGSSM, Controlled

rng = np.random.default_rng(0)
pushes = rng.normal(size=(120, 60, 1)).astype("float32")  # what is applied between a frame and the next
position, speed, positions = np.zeros((120, 1)), np.zeros((120, 1)), []
for t in range(60):
    positions.append(position)
    speed = 0.9 * speed + 0.1 * pushes[:, t]
    position = 0.95 * position + speed
position = np.stack(positions, 1)
sensor = (position + 0.3 * rng.normal(size=position.shape)).astype("float32")
cells = np.exp(-((position - np.linspace(-1.5, 1.5, 8)) ** 2)) + 0.05 * rng.normal(size=(120, 60, 8))
data = {"sensor": sensor, "cells": cells.astype("float32")}

network = eqx.nn.MLP(in_size=8, out_size=16, width_size=32, depth=1, key=jax.random.key(0))  # frames to features
encoder = {"sensor": "linear", "cells": network}
model = RPGSSM(latent_dim=4, encoder=encoder, prior=Controlled(), max_steps=300, random_state=0)
model.fit(data, controls=pushes)

latents = model.transform(data, controls=pushes)
design = np.concatenate([latents.reshape(-1, 4), np.ones((120 * 60, 1))], 1)
train, test = slice(0, 6000), slice(6000, None)
weights = np.linalg.lstsq(design[train], position.reshape(-1, 1)[train])[0]
error = position.reshape(-1, 1)[test] - design[test] @ weights
print(f"R² of the position: {1 - error.var() / position.reshape(-1, 1)[test].var():.3f}")

# what if it is pushed to the right from now on? The controls of past and future go in together
future = np.concatenate([pushes[:1, :40], np.ones((1, 20, 1), "float32")], 1)
ahead = model.forecast({name: x[:1, :40] for name, x in data.items()}, steps=20, controls=future)
moved = np.concatenate([ahead.mean[0], np.ones((20, 1))], 1) @ weights
print(f"position after 1 and after 20 frames: {moved[0, 0]:.2f}, {moved[-1, 0]:.2f}")
