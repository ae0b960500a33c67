"""Noisy sequences with gaps: infer what happened in the gaps and after the end, with intervals.

`python examples/missing_frames.py [FIGURE]` trains on noisy sine and cosine of a pendulum's angle,
hides frames of new sequences, and draws what the model makes of it.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from rpgssm import RPGSSM
from rpgssm.datasets import pendulum
from rpgssm.evaluation import LinearReadout, Misfit, collect

data, new = pendulum(200, view="direction"), pendulum(20, view="direction", split="test")
model = RPGSSM(latent_dim=32, max_steps=200, random_state=0).fit(data.observations)
print(model.summary())

# a line from latents to the angular velocity, which the model was never shown, and how far off it is
train = collect(model.smooth, data.observations)
velocity = {"velocity": data.targets["velocity"]}
readout = LinearReadout.fit(train.mean, velocity)
misfit = Misfit.fit(readout, train, velocity)

# the last 20 frames do not exist yet, and frames 30 to 50 are lost: NaN, or `mask=`
seen = new.observations[:, :80].copy()
seen[:, 30:50] = np.nan
past, ahead = model.smooth(seen), model.forecast(seen, steps=20)
mean = np.concatenate([past.mean, ahead.mean], 1)
cov = np.concatenate([np.broadcast_to(x.cov, (*x.mean.shape, 32)) for x in (past, ahead)], 1)
decoded, deviation = readout.predict(mean)["velocity"][0, :, 0], misfit.deviation(readout, cov)["velocity"][0, :, 0]

figure, axis = plt.subplots(figsize=(8, 3), layout="constrained")
time = np.arange(100) * new.dt
axis.axvspan(*time[[30, 50]], color="0.92", label="no frames")
axis.axvspan(*time[[80, 99]], color="0.92")
axis.fill_between(time, decoded - 1.64 * deviation, decoded + 1.64 * deviation, color="C0", alpha=0.3, lw=0)
axis.plot(time, decoded, color="C0", label="inferred, 90 %")
axis.plot(time, new.targets["velocity"][0, :, 0], color="black", lw=1, label="true")
axis.set_xlabel("seconds")
axis.set_ylabel("angular velocity")
axis.legend(ncols=3)
path = sys.argv[1] if len(sys.argv) > 1 else "missing_frames.png"
figure.savefig(path, dpi=150)
print(f"Look at {path}")
