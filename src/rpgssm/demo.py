"""`rpgssm demo`: a pendulum in front of a new random background in every frame, learned and reported.

Nobody tells the model what a pendulum is. It sees images only; angles and velocities are used afterwards, to see by a
linear regression whether the latents hold them, and whether the principal components of the pixels hold them as well.
"""

import time
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path

import numpy as np

from rpgssm.datasets import Dataset, pendulum, pendulums
from rpgssm.evaluation import Labelled, LinearReadout
from rpgssm.methods import RPGSSM, GaussianMarginal, Stack
from rpgssm.nn import FixedFeatures
from rpgssm.report import Part, describe, figures, look, numbers, targets, write_page
from rpgssm.training import Adam

SIZES = {"train": 300, "test": 50}
NAMES = {"sin_angle": "sin θ (where it is)", "velocity": "ω (how fast it turns)"}
TITLE, NEXT = "A pendulum, learned from distracting video", "What to do next"
LATENTS, STEPS, CONTEXT = 64, (200, 300), 50
DECODER = (100, 200, 4e-3)  # films, steps and learning rate: half a minute
PYTHON = """from rpgssm import RPGSSM, FixedFeatures, GaussianMarginal, Stack
from rpgssm.report import write_report

wide = RPGSSM({k}, encoder=FixedFeatures(256), marginal=GaussianMarginal(), learning_rate=1e-2)
model = Stack([RPGSSM({k}), wide])
model.fit(videos)  # your array: films, frames, height, width, channels
latents, ahead = model.transform(videos), model.forecast(videos, steps={ahead})
write_report(model, videos, output="my-report.html")"""
SHELL = """rpgssm fit videos.npy -o run --latent-dim {k}
rpgssm transform run videos.npy -o latents.npz
rpgssm forecast run videos.npy -o ahead.npz --steps {ahead}
rpgssm report run videos.npy -o my-report.html"""


def demo(folder: Path, steps: int = STEPS[0], overwrite: bool = False) -> None:
    """Make the data, fit a model, and write the report."""
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise ValueError(f"{folder} is not empty: choose another folder with -o, or pass --overwrite")
    print(f"Drawing {SIZES['train']} films of a pendulum, with a new random background in each frame ...", flush=True)
    train, test = (pendulum(SIZES[split], background="textures", split=split) for split in ("train", "test"))
    model = made(steps)
    print(f"Learning from the images alone, {model.total_steps} steps ...", flush=True)
    began = time.perf_counter()
    model.fit(train.observations)
    minutes = (time.perf_counter() - began) / 60
    print("Training a decoder on the latents found, to see what they hold ...", flush=True)
    model.fit_decoder(train.observations[: DECODER[0]], steps=DECODER[1], learning_rate=DECODER[2])
    model.save(folder / "model", overwrite=True)
    rows, page = report(model, train, test, minutes, folder)
    print(f"\nTrained in {minutes:.1f} minutes. Held-out scores of what was never shown:\n")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print("\n".join("  " + "   ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows))
    print(f"\nReport:  {page} (one file; open it in a browser)\nModel:   {folder / 'model'}")
    print(f'Use it:  rpgssm.load("{folder / "model"}").transform(videos)')


def made(steps: int) -> Stack:
    """A network and a chain, then another chain on random functions of what the network sees."""
    later = max(1, steps * STEPS[1] // STEPS[0])
    wide = RPGSSM(LATENTS, encoder=FixedFeatures(256), max_steps=later, marginal=GaussianMarginal())
    wide.set_params(learning_rate=1e-2, optimizer=Adam(prior_rate=1e-4))
    return Stack([RPGSSM(LATENTS, max_steps=steps), wide])


def report(model: Stack, train: Dataset, test: Dataset, minutes: float, folder: Path) -> tuple[list[list[str]], Path]:
    """Write the report of any model, with the true pendulum beside it. Returns the table of scores, and the page."""
    named = [Labelled(x.observations, {NAMES[name]: y for name, y in x.targets.items()}) for x in (test, train)]
    marks = {"a small swing of the true pendulum": float(2 * np.pi / np.sqrt(pendulums.GRAVITY) / pendulums.DT)}
    f = look(model, *named, dt=pendulums.DT, context=CONTEXT, marks=marks)
    parts, pixels = {part.name: part for part in describe(f)}, pixel_scores(train, test, LATENTS)
    seen = test.observations[..., 0] / np.float32(255)
    drawn = np.asarray(model.decode(f.found.test.mean[0]))[..., 0]
    bar = pendulums.draw(test.states["angle"][:1, :, 0].astype(np.float64))[0] / np.float32(255)

    added = ["pixels, linear R²", *(f"{score:.3f}" for score in pixels)]
    rows = [[*row[:2], cell, *row[2:]] for row, cell in zip(targets.score_rows(f), added, strict=True)]
    text = f"{parts['scores'].caption}\nPixels: the same regression from {LATENTS} principal components of the frame."
    scores = replace(parts.pop("scores"), caption=text, rows=rows)
    films = partial(figures.strips, {f"film {n}": seen[n] for n in f.shown}, f.clock)
    frames = "The bar is in every frame, and so is a picture that has nothing to do with it and never comes back."
    held = f"{parts['contents'].caption} A background that the model ignores becomes an even grey; the bar stays."
    strips = partial(figures.strips, {"seen": seen[0], "drawn from\nthe latents": drawn, "true bar": bar}, f.clock)
    parts["contents"] = replace(parts["contents"], caption=held, draw=strips, html="")
    first, last = Part("frames", "What the model sees", frames, films), Part("next", NEXT, html=code(folder))
    top = figures.film({"what it sees": seen[0], "what its latents hold": drawn, "the pendulum alone": bar})
    assert f.found.linear is not None
    both = zip(f.found.linear.items(), pixels, strict=True)
    top += numbers({f"R² of {name}\nfrom the pixels (PCA): {theirs:.2f}": ours for (name, ours), theirs in both})
    about = (
        f"A bar swings, and behind it every frame has a new random picture. The model watched {len(train)} such films "
        f"of {f.clock.span(f.test.time)} for {minutes:.1f} minutes. It was told nothing of pendulums and angles, and "
        "it never tried to redraw a frame. What it found is shown here on films that it has not seen."
    )
    return rows, write_page(TITLE, about, [scores, first, *parts.values(), last], folder, top=top, overwrite=True)


def pixel_scores(train: Dataset, test: Dataset, components: int) -> list[float]:
    """Held-out R² of a linear readout of the pixels' principal components, by target."""
    from sklearn.decomposition import PCA

    seen, new = (x.observations.reshape(*x.observations.shape[:2], -1) / np.float32(255) for x in (train, test))
    pca = PCA(components, random_state=0).fit(seen.reshape(-1, seen.shape[-1]))
    a, b = (pca.transform(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:2], -1) for x in (seen, new))
    return list(LinearReadout.fit(a, train.targets).score(b, test.targets).values())


def code(folder: Path) -> str:
    """What to type next."""
    blocks = {"The same with your own recordings, in Python:": PYTHON, "or from the command line:": SHELL}
    filled = {text: escape(lines.format(k=LATENTS, ahead=CONTEXT)) for text, lines in blocks.items()}
    parts = [f"<p>{text}</p>\n<pre>{lines}</pre>\n" for text, lines in filled.items()]
    return f'{"".join(parts)}<p>The model of this page: <code>rpgssm.load("{escape(folder.name)}/model")</code>.</p>'
