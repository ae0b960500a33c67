"""The two protocols of the comparison: which settings each method is tried with on each task.

`paper`: networks, numbers of steps and sweeps as published: Adam at 1e-3, batches of 32, 10 000 steps (5000 for
tracking), no choice of the best step; latent dimensions, form of the recognition covariance, its dependence on the
data (RP-GSSM), and ν of the generative models are swept. The size of the mask is not published: it is swept as well.
For a GPU.

`compact`: light networks and few steps (200 to 1000 on video; the RP-GSSM up to 3000, of shorter windows), all methods
on all tasks in a night on two cores. All have the encoder of the RP-GSSM's recipe. The RP-GSSM has that recipe, with 64
latents (on the single pendulums also with 16, trained once); contrastive methods have 64. Generative models, for which
64 latents take too long, have 16; as their decoders cost the most, they see fewer and shorter windows per step.
Contrastive ones need full batches and get fewer steps; before films they are also tried with the batches of the
RP-GSSM's recipe, and as many steps as there are short windows in a sequence for each that they have otherwise.

Settings are chosen by the validation sequences (`Result.selection`), for every method alike; in `compact` by those of
the first seed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import rpgssm

from .methods import METHODS
from .recipes import BEFORE_FILMS, FAMILIES, TRUE_DIMENSIONS, Settings, nonlinear, recipe, similar_windows
from .runs import stages
from .targets import AIMS

TASKS = tuple(AIMS)
NOISES = (1.0, 0.1, 0.001)
MASKS = (0, 20, 40)
DIMENSIONS = {"pendulum": (4, 8), "double-pendulum": (8, 16), "tracking": (8, 16, 32)}
PAPER_STEPS = {"linear": 10_000, "pendulum": 10_000, "double-pendulum": 10_000, "tracking": 5000}

COMPACT_DIMENSIONS = {"generative": 16, "contrastive": 64}  # where the true one is not known
COMPACT_RATES = {"linear": 1e-2, "pendulum": 3e-3, "double-pendulum": 3e-3, "tracking": 3e-3}
COMPACT_STEPS: dict[str, dict[str, int]] = {
    "generative": {"linear": 2000, "pendulum": 1000, "double-pendulum": 600, "tracking": 400},
    "contrastive": {"linear": 2000, "pendulum": 500, "double-pendulum": 300, "tracking": 300},
}
COMPACT_BATCHES: dict[str, dict[str, Settings]] = {
    "generative": {
        "linear": {},
        "pendulum": {"batch_size": 8, "window": 50},
        "double-pendulum": {"batch_size": 8, "window": 50},
        "tracking": {"batch_size": 8, "window": 50},
    },
    "contrastive": {"linear": {}, "pendulum": {}, "double-pendulum": {}, "tracking": {}},
}
SHORT_WINDOWS = 5  # of a sequence
COMPACT_NOISES = {"linear": (1.0, 0.1), "pendulum": (0.1,), "double-pendulum": (0.1,), "tracking": (0.1,)}
COMPACT_MASKS = {"linear": (0,), "pendulum": (20,), "double-pendulum": (20,), "tracking": (20,)}
EM_ITERATIONS = 200  # at most: it stops by itself


@dataclass(frozen=True)
class Protocol:
    """`settings(task, method)` are those to be tried, with each of `seeds(task)`.

    With `sweep_once` all of them are tried with the first seed only, and later seeds repeat those that it chose.
    """

    name: str
    summary: str
    settings: Callable[[str, str], list[Settings]]
    seeds: Callable[[str], tuple[int, ...]]
    sweep_once: bool = False


def paper(task: str, method: str) -> list[Settings]:
    """The published sweep."""
    family, m = FAMILIES[task], METHODS[method]
    if m.estimator == "LinearGaussianSSM":
        return [{"latent_dim": k, "iterations": EM_ITERATIONS} for k in _dimensions(task, method)]
    axes: dict[str, tuple] = {"latent_dim": _dimensions(task, method)}
    if m.covariance is not None:
        axes[m.covariance] = _covariances(method)
    if m.kind == "generative":
        axes["noise"] = NOISES
    if m.masked:
        axes["mask_size"] = MASKS
    fixed: Settings = {
        **_networks(task, method, "cnn-paper", "conv-paper"),
        "learning_rate": 1e-3,
        "optimizer": rpgssm.Adam(schedule="constant"),
        "batch_size": 32,
        "max_steps": PAPER_STEPS[family],
        "validation_fraction": None,
    }
    if method == "rpgssm":
        # the published likelihood; left to itself the estimator takes a Gaussian one where the encoder is linear
        fixed |= {"prior": rpgssm.Prior(scale=0.5), "marginal": rpgssm.EmpiricalMarginal()}
    return _grid(axes, fixed, task, method)


def compact(task: str, method: str) -> list[Settings]:
    """The sweep for two cores."""
    family, m = FAMILIES[task], METHODS[method]
    if method == "rpgssm":
        # trained once: the second stage of the recipe is for more latents than that
        smaller = nonlinear() | {"latent_dim": COMPACT_DIMENSIONS["generative"]}
        return [recipe(task)] + [smaller] * (family == "pendulum")
    dimension = TRUE_DIMENSIONS.get(task, COMPACT_DIMENSIONS[m.kind])
    if m.estimator == "LinearGaussianSSM":
        return [{"latent_dim": dimension, "iterations": EM_ITERATIONS}]
    axes: dict[str, tuple] = {"latent_dim": (_own_dimension(task, method, dimension),)}
    if m.covariance is not None:
        axes[m.covariance] = _covariances(method)[-1:]
    if m.kind == "generative":
        axes["noise"] = COMPACT_NOISES[family]
    if m.masked:
        axes["mask_size"] = COMPACT_MASKS[family]
    fixed: Settings = {
        **_networks(task, method, stages(recipe(task))[0]["encoder"], "conv"),
        "learning_rate": COMPACT_RATES[family],
        "max_steps": COMPACT_STEPS[m.kind][family],
        **COMPACT_BATCHES[m.kind][family],
    }
    if method == "rkn" and family == "linear":  # at this rate its states grow without bound otherwise
        fixed["max_gain"] = 1.0
    points = _grid(axes, fixed, task, method)
    if task in BEFORE_FILMS and m.kind == "contrastive":
        points += [point | similar_windows() | {"max_steps": SHORT_WINDOWS * point["max_steps"]} for point in points]
    return points


def three_for_some(task: str) -> tuple[int, ...]:
    """Three seeds for the linear and the single pendulum tasks, one for the others."""
    return (0, 1, 2) if FAMILIES[task] in ("linear", "pendulum") else (0,)


PROTOCOLS: dict[str, Protocol] = {
    "paper": Protocol("paper", "as published, for a GPU", paper, lambda task: (0, 1, 2)),
    "compact": Protocol("compact", "light networks and few settings, for two cores", compact, three_for_some, True),
}


def _dimensions(task: str, method: str) -> tuple[int, ...]:
    family = FAMILIES[task]
    swept = (TRUE_DIMENSIONS[task],) if family == "linear" else DIMENSIONS[family]
    return tuple(_own_dimension(task, method, k) for k in swept)


def _own_dimension(task: str, method: str, k: int) -> int:
    """The number of latents: of an RKN twice the true one, where that is known, as frames show half of its state."""
    return 2 * k if method == "rkn" and task in TRUE_DIMENSIONS else k


def _covariances(method: str) -> tuple[Any, ...]:
    """The forms of the recognition covariance, full ones last; for the RP-GSSM also as a function of the frame."""
    if METHODS[method].covariance == "covariance":
        return "diagonal", "cholesky"
    dependent = (False, True) if method == "rpgssm" else (False,)
    forms = rpgssm.Diagonal, rpgssm.Cholesky
    return tuple(form(data_dependent=value) for form, value in product(forms, dependent))


def _networks(task: str, method: str, encoder: str, decoder: str) -> Settings:
    """Linear networks for the linear tasks."""
    linear = FAMILIES[task] == "linear"
    networks = {"encoder": "linear" if linear else encoder}
    if METHODS[method].kind == "generative":
        networks["decoder"] = "linear" if linear else decoder
    return networks


def _grid(axes: dict[str, tuple], fixed: Settings, task: str, method: str) -> list[Settings]:
    points = [dict(zip(axes, values, strict=True)) | fixed for values in product(*axes.values())]
    if method == "kvae" and task in TRUE_DIMENSIONS:  # half as many numbers, its default, cannot hold the state
        points = [point | {"code_dim": point["latent_dim"]} for point in points]
    return points
