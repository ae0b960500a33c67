"""The linear tasks: the library's linear systems."""

from typing import Any

from rpgssm.datasets import linear
from rpgssm.datasets.linear_systems import SIZES as _SIZES

from .recipe import Made, Request
from .task import Split

VERSION = 1
SIZES = {f"linear-{size}": numbers for size, numbers in _SIZES.items()}


def build(request: Request) -> Made:
    size: Any = request.name.removeprefix("linear-")
    made = {split: linear(n, size=size, split=split, seed=request.seed) for split, n in request.sizes.items()}
    splits = {split: Split(x.observations, x.states, x.targets) for split, x in made.items()}
    parameters = dict(next(iter(made.values())).parameters)
    return Made(splits, dt=None, parameters=parameters, sources={"generator": "rpgssm.datasets.linear"})
