"""The pendulum tasks: the library's data sets, and the same pendulum with real images (CIFAR-10) behind it."""

import numpy as np

from rpgssm.datasets import pendulum
from rpgssm.datasets.pendulums import DT, SIZE, draw, ground_truth, simulate
from rpgssm.datasets.streams import stream

from .backgrounds import still_backgrounds
from .recipe import Made, Request
from .task import Split

VERSION = 1


def build(request: Request) -> Made:
    splits, sources = {}, {"generator": "rpgssm.datasets.pendulum"}
    for split, n in request.sizes.items():
        if request.name == "cifar10-pendulum":
            angle, velocity = simulate(request.seed, split, n)
            rng = stream(request.seed, request.name, split, "noise", request.variant)
            behind, used = still_backgrounds(request, split, angle.shape, SIZE, rng)
            splits[split] = Split(np.maximum(draw(angle), behind)[..., None], *ground_truth(angle, velocity))
            sources |= used
            continue
        view = "direction" if request.name == "pendulum-vector" else "image"
        made = pendulum(n, view=view, split=split, seed=request.seed, variant=request.variant)
        splits[split] = Split(made.observations, made.states, made.targets)
    scale = 1 / 255 if request.name == "cifar10-pendulum" else 1.0
    return Made(splits, dt=DT, scale=scale, sources=sources)
