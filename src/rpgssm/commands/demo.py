"""`rpgssm demo`: a pendulum in front of a new random background in every frame, learned and drawn.

Nobody tells the model what a pendulum is. It sees images only; angles and velocities are used afterwards, to see by a
linear regression whether the latents hold them.
"""

import time
from typing import Any

import numpy as np

from rpgssm.estimator import RPGSSM
from rpgssm.evaluation import LinearReadout
from rpgssm.tasks import load_task

from . import config as c

TASK, CONTEXT = "cifar10-pendulum", 50


def demo(command: c.Demo) -> None:
    folder = command.output
    if folder.is_dir() and any(folder.iterdir()) and not command.overwrite:
        raise ValueError(f"{folder} is not empty: choose another folder with -o, or pass --overwrite")
    print("Drawing 300 films of a pendulum, with a new random background in each frame ...", flush=True)
    task = load_task(TASK, background="procedural", n_train=300, n_validation=8, n_test=50, cache=False)
    model = RPGSSM(
        latent_dim=16,
        encoder="cnn",
        precision="cholesky",
        initial_precision=0.1,
        prior_learning_rate=1e-2,
        max_steps=command.steps,
    )
    print(f"Learning from the images alone, {command.steps} steps ...", flush=True)
    began = time.perf_counter()
    model.fit(task.train.observations)
    seconds = time.perf_counter() - began
    train, test = model.smooth(task.train.observations), model.smooth(task.test.observations)
    readout = LinearReadout.fit(train.mean, task.train.targets)
    scores = readout.score(test.mean, task.test.targets)
    ahead = model.forecast(task.test.observations[:, :CONTEXT], task.test.time - CONTEXT)
    print("Training a decoder on the latents found, to see what they hold ...", flush=True)
    model.fit_decoder(task.train.observations[:100], steps=400)
    seen = model.reconstruct(task.test.observations[:1])
    model.save(folder / "model", overwrite=True)
    path = folder / "demo.png"
    _draw(path, task, model, readout, test, ahead, np.asarray(seen), scores)
    print(f"\nTrained in {seconds / 60:.1f} minutes. Held-out linear R² of what was never shown:")
    for name, score in scores.items():
        print(f"  {name:<12} {score:.3f}")
    print(f"\nPicture: {path}\nModel:   {folder / 'model'}")
    print(f'Use it:  RPGSSM.load("{folder / "model"}").transform(videos)')


def _draw(path, task, model, readout, test, ahead, seen, scores) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(11, 9), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1, 1.7))
    top, bottom = parts
    moments = np.linspace(0, task.test.time - 1, 10).astype(int)
    grid = top.subplots(2, len(moments))
    top.suptitle("What the model sees (above), and what a decoder trained on its latents draws (below)")
    shown = task.frames(task.test.observations[0])
    for column, t in enumerate(moments):
        for axis, images in zip(grid[:, column], (shown, seen[0]), strict=True):
            axis.imshow(np.squeeze(images[t]), cmap="gray", vmin=0, vmax=1)
            axis.set_axis_off()
        grid[0, column].set_title(f"frame {t}", fontsize=8)
    names = list(task.test.targets)
    axes = bottom.subplots(len(names) + 1, 1)
    smoothed, future = readout.predict(test.mean), readout.predict(ahead.mean)
    frames = np.arange(task.test.time)
    for axis, name in zip(axes, names, strict=False):
        axis.plot(frames, task.test.targets[name][0, :, 0], color="black", lw=2, label="true")
        axis.plot(frames, smoothed[name][0, :, 0], color="tab:blue", label="smoothed, all frames")
        axis.plot(
            frames[CONTEXT:],
            future[name][0, :, 0],
            color="tab:orange",
            ls="--",
            label=f"forecast from {CONTEXT} frames",
        )
        axis.axvline(CONTEXT, color="grey", lw=0.5)
        axis.set_ylabel(f"{name}\nR² {scores[name]:.2f}")
    axes[0].legend(loc="lower right", fontsize=8, ncols=3)
    axes[0].set_title("A film not seen in training: latents, read out by linear regression", fontsize=10)
    axes[len(names) - 1].set_xlabel("frame")
    curve = axes[-1]
    curve.plot(model.history_["step"], model.history_["loss"], label="training")
    if "validation_loss" in model.history_:
        held_out = model.history_["validation_loss"]
        ok = np.isfinite(held_out)
        curve.plot(model.history_["step"][ok], held_out[ok], label="held out")
    curve.set_xlabel("step")
    curve.set_ylabel("loss")
    curve.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
