"""What the goldens are made of: fits, saved models and the questions asked of them, and trainings of 50 steps.

The only file here that knows the estimators' interface. When that changes, say here how the same thing is now asked
for; the stored numbers stay.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

import rpgssm
from rpgssm import CPC, DCL, DKF, KVAE, RKN, RPGSSM, SVAE, LinearGaussianSSM
from rpgssm.estimator import _formats, _saving
from rpgssm.methods import all_methods

Given = tuple[Any, dict[str, Any]]
"""The data of a fit, and what else is passed to `fit`."""


# --- data, from seeds ---


def latents(n: int, t: int, seed: int) -> np.ndarray:
    """Two numbers that turn and are pushed about, (n, t, 2)."""
    rng = np.random.default_rng(seed)
    A = 0.95 * np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]])
    z = np.zeros((n, t, 2))
    z[:, 0] = rng.normal(size=(n, 2))
    for i in range(1, t):
        z[:, i] = z[:, i - 1] @ A.T + 0.3 * rng.normal(size=(n, 2))
    return z


def vectors(n: int = 12, t: int = 15, d: int = 4, seed: int = 0) -> np.ndarray:
    """`d` noisy numbers per frame that depend on the latents, (n, t, d)."""
    rng = np.random.default_rng(seed + 1000)
    return (latents(n, t, seed) @ rng.normal(size=(2, d)) + 0.3 * rng.normal(size=(n, t, d))).astype(np.float32)


def images(n: int = 12, t: int = 15, size: int = 10, channels: int = 0, seed: int = 0) -> np.ndarray:
    """Pictures of a spot where the latents say, 8-bit, (n, t, size, size) or with channels."""
    rng = np.random.default_rng(seed + 2000)
    y, x = np.mgrid[:size, :size]
    where = (size - 1) / 2 * (1 + 0.8 * np.tanh(latents(n, t, seed)))
    distance = (x - where[..., :1, None]) ** 2 + (y - where[..., 1:, None]) ** 2
    frames = 200 * np.exp(-distance / 3) + rng.integers(0, 50, distance.shape)
    if channels:
        frames = np.stack([frames, *(rng.integers(0, 200, frames.shape) for _ in range(channels - 1))], -1)
    return frames.astype(np.uint8)


def ragged(x: np.ndarray) -> list[np.ndarray]:
    """The same sequences, each of another length."""
    return [row[: x.shape[1] - n % 4] for n, row in enumerate(x)]


def mask(n: int = 12, t: int = 15, seed: int = 0) -> np.ndarray:
    """True for about three of four frames."""
    return np.random.default_rng(seed + 3000).random((n, t)) < 0.75


def with_gaps(x: np.ndarray) -> np.ndarray:
    """The same frames, some of them NaN."""
    seen = mask(*x.shape[:2], seed=1)
    return np.where(seen.reshape(*seen.shape, *[1] * (x.ndim - 2)), x, np.float32(np.nan))


def pushes(n: int = 12, t: int = 15, seed: int = 0) -> np.ndarray:
    """Controls that are vectors of two numbers."""
    return np.random.default_rng(seed + 4000).normal(size=(n, t, 2)).astype(np.float32)


def choices(n: int = 12, t: int = 15, seed: int = 0) -> np.ndarray:
    """Controls that are integers below 3."""
    return np.random.default_rng(seed + 5000).integers(0, 3, (n, t))


class Own(eqx.Module):
    """An encoder as a user might write it, for one frame."""

    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __init__(self, size: int, width: int = 6, seed: int = 5) -> None:
        one, two = jax.random.split(jax.random.key(seed))
        self.first = eqx.nn.Linear(size, width, key=one, dtype=np.float32)
        self.second = eqx.nn.Linear(width, 4, key=two, dtype=np.float32)

    def __call__(self, frame: Any) -> Any:
        return self.second(jax.nn.tanh(self.first(frame.reshape(-1))))


MATRIX = np.array([[0.8, -0.3, 0.0], [0.3, 0.8, 0.0], [0.0, 0.1, 0.5]])


def two() -> dict[str, np.ndarray]:
    """Two modalities."""
    return {"left": vectors(d=3), "right": vectors(d=2, seed=1)}


# --- fits whose programs and initial parameters are stored ---


@dataclass(frozen=True)
class Case:
    """A fit. `stages` is how many training runs it consists of. `then` is done with the fitted estimator.

    `quick` cases belong to the fast tests.
    """

    make: Callable[[], Any]
    given: Callable[[], Given]
    stages: int = 1
    quick: bool = False
    then: Callable[[Any, Any], Any] | None = None

    def run(self) -> Any:
        X, more = self.given()
        estimator = self.make().fit(X, **more)
        if self.then is not None:
            self.then(estimator, X)
        return estimator


def ours(**settings: Any) -> Callable[[], RPGSSM]:
    """Makes a small RP-GSSM, unlike the defaults as said."""
    return made(RPGSSM, **settings)


def made(kind: Callable[..., Any], **settings: Any) -> Callable[[], Any]:
    """Makes a small estimator."""
    usual = {"latent_dim": 3, "max_steps": 20, "batch_size": 6, "validation_fraction": None, "verbose": False}
    own = {name: made() if name == "encoder" and callable(made) else made for name, made in settings.items()}
    return lambda: from_0_1(kind.__name__, **{**usual, **own})


_TRAINING_0_1 = {
    "latent_dim": 8,
    "encoder": "auto",
    "max_steps": 3000,
    "batch_size": 32,
    "learning_rate": 1e-3,
    "prior_learning_rate": None,
    "schedule": "cosine",
    "clip_norm": 10.0,
    "batches": "random",
    "mirror": False,
    "window": "auto",
    "validation_fraction": 0.1,
    "validate_every": 100,
    "patience": None,
    "n_init": 1,
    "checkpoint_dir": None,
    "checkpoint_every": 500,
    "random_state": 0,
    "verbose": True,
}
DEFAULTS_0_1: dict[str, dict[str, Any]] = {
    "RPGSSM": {
        **_TRAINING_0_1,
        "learning_rate": None,
        "precision": "cholesky",
        "data_dependent": False,
        "initial_precision": 0.1,
        "prior": "auto",
        "marginal": "auto",
        "mixture_times": 8,
        "posterior_gradient": True,
        "initial_transition": "identity",
        "initial_scale": None,
        "widen": None,
        "widen_steps": 100,
        "widen_settings": None,
        "widen_components": 25,
    },
    "SVAE": {**_TRAINING_0_1, "precision": "diagonal", "data_dependent": False, "initial_precision": 1.0},
    "RKN": {**_TRAINING_0_1, "data_dependent": True, "initial_precision": 1.0, "initial_variance": 10.0},
    "LinearGaussianSSM": {"latent_dim": 8, "components": 50, "tolerance": 1e-5, "random_state": 0, "verbose": True},
}


def from_0_1(method: str, **settings: Any) -> Any:
    """An estimator with settings as they were spelled in rpgssm 0.1, by the reader of its saved folders."""
    old = {**DEFAULTS_0_1.get(method, _TRAINING_0_1), **settings}
    folder, encoder, custom = old.pop("checkpoint_dir", None), old.get("encoder"), []
    if isinstance(encoder, Mapping):
        custom = [name for name, one in encoder.items() if not isinstance(one, str)]
        old["encoder"] = {name: None if name in custom else one for name, one in encoder.items()}
    elif encoder is not None and not isinstance(encoder, str):
        custom, old["encoder"] = ["observations"], None
    if isinstance(old.get("initial_transition"), np.ndarray):
        old["initial_transition"] = old["initial_transition"].tolist()
    config = {"format": 1, "estimator": method, "parameters": old, "custom_encoders": custom}
    config |= {"structure": {"wide": True}, "data": {}, "decoders": [], "training": {}}
    new, _ = _formats.newest(config, {})
    own = {} if not custom else {"encoder": encoder}
    if new["method"] == "Stack":
        first, second = (stage(one, own if i == 0 else {}) for i, one in enumerate(new["settings"]["stages"]))
        return rpgssm.Stack([first.set_params(checkpoint_dir=folder), second])
    made = _saving.from_settings(all_methods()[new["method"]], new["settings"], own, Path())
    return made if folder is None else made.set_params(checkpoint_dir=folder)


def stage(settings: dict[str, Any], own: dict[str, Any]) -> RPGSSM:
    """One stage of a stack."""
    return _saving.from_settings(RPGSSM, {k: v for k, v in settings.items() if k != "kind"}, own, Path())


def given(X: Callable[[], Any], **more: Callable[[], Any]) -> Callable[[], Given]:
    """Makes the data of a fit."""
    return lambda: (X(), {name: make() for name, make in more.items()})


HELD_OUT = {"validation": lambda: vectors(7, 15, seed=9)}
SPREAD = {"marginal": "gaussian", "learning_rate": 1e-2, "prior_learning_rate": 1e-4}

CASES: dict[str, Case] = {
    # the RP-GSSM: encoders
    "linear": Case(ours(encoder="linear"), given(vectors), quick=True),
    "mlp": Case(
        ours(encoder="mlp", precision="diagonal", initial_transition="rotation", schedule="constant"),
        given(vectors, **HELD_OUT),
        quick=True,
    ),
    "cnn": Case(
        ours(encoder="cnn", validation_fraction=0.4, patience=2, initial_transition="smooth", initial_scale=0.9),
        given(images),
        quick=True,
    ),
    "cnn-paper": Case(ours(encoder="cnn-paper", schedule="exponential"), given(lambda: images(size=12))),
    "keypoints": Case(
        ours(encoder="keypoints", prior_learning_rate=3e-3),
        given(lambda: images(size=12, channels=3).astype(np.float32) / 255),
    ),
    "auto-images": Case(ours(learning_rate=1e-2), given(images)),
    "auto-vectors": Case(ours(clip_norm=None), given(lambda: vectors().astype(np.float64))),
    "own-module": Case(ours(encoder=lambda: Own(4), learning_rate=1e-2), given(vectors), quick=True),
    "own-function": Case(ours(encoder=lambda: lambda x: x[:3] * x[1:4]), given(vectors)),
    # heads and marginals
    "diagonal-data-dependent": Case(
        ours(encoder="mlp", precision="diagonal", data_dependent=True), given(vectors, mask=mask), quick=True
    ),
    "cholesky-data-dependent": Case(ours(encoder="mlp", data_dependent=True), given(lambda: with_gaps(vectors()))),
    "pooled": Case(
        ours(encoder="mlp", marginal="pooled", mixture_times=4, schedule="warmup-cosine"), given(vectors, **HELD_OUT)
    ),
    "linear-empirical": Case(ours(encoder="linear", marginal="empirical", initial_precision=1.0), given(vectors)),
    "linear-gaps": Case(ours(encoder="linear"), given(lambda: with_gaps(vectors()))),
    "em-like": Case(ours(encoder="mlp", posterior_gradient=False), given(vectors)),
    # priors
    "matrix": Case(ours(encoder="linear", initial_transition=MATRIX, learning_rate=2e-2), given(vectors)),
    "free": Case(ours(encoder="linear", prior="free", prior_learning_rate=1e-3), given(vectors, **HELD_OUT)),
    "free-empirical": Case(ours(encoder="mlp", prior="free"), given(lambda: ragged(vectors()))),
    "controlled": Case(
        ours(encoder="linear"),
        given(
            vectors,
            controls=pushes,
            validation=lambda: vectors(7, 15, seed=9),
            validation_controls=lambda: pushes(7, 15, seed=9),
        ),
        quick=True,
    ),
    "controlled-integers": Case(ours(encoder="mlp"), given(vectors, controls=choices)),
    "network": Case(ours(encoder="linear", prior="network"), given(vectors, controls=pushes)),
    "network-integers": Case(
        ours(encoder="mlp", prior="network", initial_transition="rotation"),
        given(lambda: ragged(vectors()), controls=lambda: ragged(choices())),
    ),
    # forms of data
    "ragged": Case(
        ours(encoder="linear", validation_fraction=0.4, random_state=3), given(lambda: ragged(vectors())), quick=True
    ),
    "two-modalities": Case(
        ours(encoder={"left": "linear", "right": "mlp"}),
        given(two, mask=lambda: {"right": mask(seed=2)}),
    ),
    "one-long": Case(ours(encoder="mlp", validation_fraction=0.4), given(lambda: vectors(1, 400)[0]), quick=True),
    "windows": Case(
        ours(encoder="mlp", window=8), given(lambda: ragged(vectors()), validation=lambda: vectors(5, 20, seed=9))
    ),
    # training
    "n-init": Case(ours(encoder="mlp", n_init=3, validation_fraction=0.4), given(vectors), quick=True),
    "mirror": Case(ours(encoder="cnn", mirror=True), given(images, validation=lambda: images(5, seed=9)), quick=True),
    "mirror-gaussian": Case(ours(encoder="linear", mirror=True), given(images)),
    "alike": Case(ours(encoder="mlp", batches="alike"), given(vectors, **HELD_OUT)),
    "alike-mirror-windows": Case(
        ours(encoder="cnn", batches="alike", mirror=True, window=7),
        given(images, validation=lambda: images(5, seed=9)),
    ),
    # two-stage training, and the decoder
    "widen-fixed": Case(
        ours(encoder="mlp", widen=16, widen_steps=20, widen_components=5, widen_settings=SPREAD, max_steps=2),
        given(vectors, **HELD_OUT),
        stages=2,
        quick=True,
    ),
    "widen-none": Case(
        ours(
            encoder="mlp",
            widen=0,
            widen_steps=20,
            widen_settings={"initial_transition": "smooth", "latent_dim": 4, "prior_learning_rate": 1e-3, "window": 8},
            max_steps=2,
        ),
        given(vectors),
        stages=2,
    ),
    "widen-trained": Case(
        ours(encoder="cnn", widen=16, widen_steps=20, mirror=True, max_steps=2), given(images), stages=2
    ),
    "widen-n-init": Case(
        ours(encoder="linear", widen=8, widen_steps=20, n_init=2, max_steps=2), given(vectors, mask=mask), stages=2
    ),
    "decoder": Case(
        ours(encoder="linear", max_steps=2),
        given(vectors),
        stages=2,
        then=lambda estimator, X: estimator.fit_decoder(X, steps=20),
    ),
    # the other methods
    "svae": Case(
        made(SVAE, encoder="mlp", mask_size=4, prior_learning_rate=1e-3), given(vectors, **HELD_OUT), quick=True
    ),
    "svae-random-mask": Case(
        made(SVAE, encoder="cnn", mask_size=4, mask_mode="random", precision="cholesky", data_dependent=True),
        given(images),
    ),
    "dkf-mean-field": Case(made(DKF, encoder="mlp", posterior="mean-field"), given(lambda: ragged(vectors()))),
    "dkf-linear": Case(
        made(DKF, encoder="mlp", posterior="linear", covariance="cholesky", share_transition=True),
        given(vectors),
        quick=True,
    ),
    "dkf-nonlinear": Case(made(DKF, encoder="mlp", posterior="nonlinear", hidden_dim=4), given(vectors)),
    "dkf-convolutional": Case(
        made(DKF, encoder="cnn", posterior="convolutional", mirror=True), given(images, mask=mask)
    ),
    "kvae": Case(made(KVAE, encoder="mlp", warmup_steps=5, mask_size=3), given(vectors, **HELD_OUT), quick=True),
    "cpc": Case(made(CPC, encoder="mlp", embedding_dim=5, horizons=4, mask_size=4), given(vectors, **HELD_OUT)),
    "cpc-random-mask": Case(
        made(CPC, encoder="cnn", embedding_dim=5, horizons=4, mask_size=4, mask_mode="random", batches="alike"),
        given(images),
        quick=True,
    ),
    "dcl": Case(made(DCL, encoder="mlp"), given(vectors, **HELD_OUT), quick=True),
    "dcl-switching": Case(
        made(DCL, encoder="mlp", modes=3, negatives=10, temperature=0.5), given(lambda: ragged(vectors()))
    ),
    "rkn": Case(made(RKN, latent_dim=4, encoder="mlp", mask_size=3), given(vectors, **HELD_OUT), quick=True),
    "rkn-max-gain": Case(
        made(RKN, latent_dim=4, encoder="cnn", max_gain=1.0, mixed=2, data_dependent=False), given(images)
    ),
}


# --- saved models, and what is asked of them ---


@dataclass(frozen=True)
class Folder:
    """A saved model. `asks` are the questions it can answer.

    The model is asked about the data it was fitted to (`given`). `ahead` are the controls for a forecast. `own` is the
    user's encoder that must be passed again. `then` is done between fitting and saving.
    """

    make: Callable[[], Any]
    given: Callable[[], Given]
    asks: tuple[str, ...]
    ahead: Callable[[], Any] | None = None
    own: Callable[[], Any] | None = None
    then: Callable[[Any, Any], Any] | None = field(default=None)

    def fit(self) -> Any:
        X, more = self.given()
        estimator = self.make().fit(X, **more)
        if self.then is not None:
            self.then(estimator, X)
        return estimator


N, T, AHEAD = 6, 10, 3


def few(kind: Callable[..., Any] = RPGSSM, **settings: Any) -> Callable[[], Any]:
    """Makes an estimator that trains for a few steps."""
    return made(kind, **{"latent_dim": 2, "max_steps": 4, "learning_rate": 1e-2, "batch_size": N, **settings})


def short() -> np.ndarray:
    return vectors(N, T)


def spots() -> np.ndarray:
    return images(N, T, 8)


def pair() -> dict[str, np.ndarray]:
    return {"left": vectors(N, T, 3), "right": vectors(N, T, 2, seed=1)}


CHAIN = ("smooth", "filter", "forecast", "score", "transition")
DRIVEN = ("smooth", "filter", "forecast", "score")  # A depends on the controls, or there are several
SEES_ALL = ("smooth", "forecast", "score", "reconstruct", "transition")  # no filter

FOLDERS: dict[str, Folder] = {
    "linear": Folder(few(encoder="linear", initial_transition=0.8 * np.eye(2)), given(short), CHAIN),
    "mlp": Folder(few(encoder="mlp", precision="diagonal", n_init=2), given(lambda: with_gaps(short())), CHAIN),
    "cnn": Folder(few(encoder="cnn", mirror=True), given(spots), CHAIN),
    "keypoints": Folder(
        few(encoder="keypoints", validation_fraction=0.2), given(lambda: spots().astype(np.float32) / 255), CHAIN
    ),
    "own-encoder": Folder(few(encoder=lambda: Own(4)), given(short), CHAIN, own=lambda: Own(4, seed=6)),
    "own-and-other": Folder(
        few(encoder={"left": "linear", "right": Own(2)}),
        given(pair),
        CHAIN,
        own=lambda: {"right": Own(2, seed=6)},
    ),
    "two-modalities": Folder(
        few(encoder={"left": "linear", "right": "mlp"}), given(pair, mask=lambda: {"right": mask(N, T)}), CHAIN
    ),
    "free": Folder(few(encoder="linear", prior="free"), given(lambda: ragged(short())), CHAIN),
    "controlled": Folder(
        few(encoder="linear"),
        given(short, controls=lambda: pushes(N, T + AHEAD)[:, :T]),
        CHAIN,
        ahead=lambda: pushes(N, T + AHEAD),
    ),
    "controlled-integers": Folder(
        few(encoder="linear"),
        given(short, controls=lambda: choices(N, T + AHEAD)[:, :T]),
        CHAIN,
        ahead=lambda: choices(N, T + AHEAD),
    ),
    "network": Folder(
        few(encoder="linear", prior="network"),
        given(short, controls=lambda: pushes(N, T + AHEAD)[:, :T]),
        DRIVEN,
        ahead=lambda: pushes(N, T + AHEAD),
    ),
    "network-integers": Folder(
        few(encoder="linear", prior="network"),
        given(short, controls=lambda: choices(N, T + AHEAD)[:, :T]),
        DRIVEN,
        ahead=lambda: choices(N, T + AHEAD),
    ),
    "data-dependent": Folder(
        few(encoder="mlp", data_dependent=True, marginal="pooled", mixture_times=3, batches="alike"),
        given(short, mask=lambda: mask(N, T)),
        CHAIN,
    ),
    "one-long": Folder(few(encoder="linear", marginal="empirical", window=10), given(lambda: vectors(1, 60)[0]), CHAIN),
    "decoder": Folder(
        few(encoder="linear"),
        given(pair),
        (*CHAIN, "reconstruct"),
        then=lambda estimator, X: estimator.fit_decoder(X, steps=5),
    ),
    "wide-none": Folder(few(encoder="mlp", widen=0, widen_steps=4), given(short), CHAIN),
    "wide-trained": Folder(few(encoder="linear", widen=8, widen_steps=4), given(lambda: ragged(short())), CHAIN),
    "wide-fixed": Folder(
        few(encoder="mlp", widen=8, widen_steps=4, widen_components=5, widen_settings={"marginal": "gaussian"}),
        given(short),
        CHAIN,
    ),
    "wide-other-size": Folder(
        few(
            encoder={"left": "linear", "right": "mlp"},
            widen=8,
            widen_steps=4,
            widen_settings={"latent_dim": 3, "precision": "diagonal", "marginal": "pooled", "mixture_times": 2},
        ),
        given(pair),
        CHAIN,
    ),
    "wide-controlled": Folder(
        few(encoder="linear", widen=0, widen_steps=4, widen_settings={"initial_transition": "smooth"}),
        given(short, controls=lambda: pushes(N, T + AHEAD)[:, :T]),
        CHAIN,
        ahead=lambda: pushes(N, T + AHEAD),
    ),
    "wide-own-encoder": Folder(
        few(encoder=lambda: Own(4), widen=8, widen_steps=4), given(short), CHAIN, own=lambda: Own(4, seed=6)
    ),
    "svae": Folder(
        few(SVAE, encoder="linear", decoder="linear", precision="cholesky"), given(short), (*CHAIN, "reconstruct")
    ),
    "dkf-mean-field": Folder(
        few(DKF, encoder="linear", decoder="linear", posterior="mean-field"), given(short), SEES_ALL
    ),
    "dkf-linear": Folder(
        few(DKF, encoder="linear", decoder="mlp", posterior="linear", covariance="cholesky"),
        given(lambda: ragged(short())),
        SEES_ALL,
    ),
    "dkf-nonlinear": Folder(
        few(DKF, encoder="linear", decoder="linear", posterior="nonlinear", hidden_dim=3), given(short), SEES_ALL
    ),
    "dkf-convolutional": Folder(
        few(DKF, encoder="linear", decoder="linear", posterior="convolutional", share_transition=True),
        given(short, mask=lambda: mask(N, T)),
        SEES_ALL,
    ),
    "kvae": Folder(few(KVAE, encoder="linear", decoder="linear"), given(short), (*DRIVEN, "reconstruct")),
    "kvae-images": Folder(few(KVAE, encoder="linear", decoder="linear"), given(spots), (*DRIVEN, "reconstruct")),
    "cpc": Folder(few(CPC, encoder="linear", embedding_dim=3, horizons=2), given(short), ("smooth", "filter", "score")),
    "cpc-decoder": Folder(
        few(CPC, encoder="linear", embedding_dim=3, horizons=2),
        given(pair),
        ("smooth", "filter", "score", "reconstruct"),
        then=lambda estimator, X: estimator.fit_decoder(X, steps=5),
    ),
    "dcl": Folder(few(DCL, encoder="linear"), given(short), (*CHAIN, "transitions", "modes")),
    "dcl-switching": Folder(
        few(DCL, encoder="linear", modes=3), given(lambda: ragged(short())), (*DRIVEN, "transitions", "modes")
    ),
    "rkn": Folder(
        few(RKN, encoder="linear", decoder="linear", mixed=2, bandwidth=1, max_gain=1.0),
        given(short, mask=lambda: mask(N, T)),
        (*DRIVEN, "reconstruct"),
    ),
    "linear-gaussian": Folder(
        lambda: LinearGaussianSSM(latent_dim=2, iterations=5, verbose=False),
        given(lambda: with_gaps(short())),
        (*CHAIN, "reconstruct"),
    ),
    "linear-gaussian-components": Folder(
        lambda: LinearGaussianSSM(latent_dim=2, components=5, iterations=5, verbose=False),
        given(spots),
        (*CHAIN, "reconstruct"),
    ),
}


def save(name: str, directory: Path) -> None:
    """Fit the model of a folder, and save it."""
    FOLDERS[name].fit().save(directory)


def load(name: str, directory: Path) -> Any:
    """The model in a folder."""
    own = FOLDERS[name].own
    return rpgssm.load(directory, **({} if own is None else {"encoder": own()}))


def answers(name: str, model: Any) -> dict[str, np.ndarray]:
    """What a model says to the questions of its folder, as float32."""
    folder = FOLDERS[name]
    X, more = folder.given()
    more = {k: more[k] for k in ("mask", "controls") if k in more}
    found: dict[str, Any] = {}
    if "smooth" in folder.asks:
        found["transform"] = model.transform(X, **more)
        smoothed = model.smooth(X, **more)
        found |= {"smooth_mean": smoothed.mean, "smooth_cov": smoothed.cov, "log_z": smoothed.log_z}
    if "filter" in folder.asks:
        filtered = model.filter(X, **more)
        found |= {"filter_mean": filtered.mean, "filter_cov": filtered.cov}
    if "forecast" in folder.asks:
        future = more | ({} if folder.ahead is None else {"controls": folder.ahead()})
        ahead = model.forecast(X, AHEAD, **future)
        found |= {"forecast_mean": ahead.mean, "forecast_cov": ahead.cov}
    if "score" in folder.asks:
        found["score"] = model.score(X, **more)
    if "reconstruct" in folder.asks:
        frames = model.reconstruct(X, **more)
        frames = frames if isinstance(frames, Mapping) else {"frames": frames}
        found |= {f"reconstruct_{modality}": x for modality, x in frames.items()}
    if "transition" in folder.asks:
        found["transition"] = model.transition_
    if "transitions" in folder.asks:
        found["transitions"] = model.transitions_
    if "modes" in folder.asks:
        found["modes"] = model.infer_modes(X)
    return {k: _flat(x) for k, x in found.items() if x is not None}


def _flat(x: Any) -> np.ndarray:
    """Lists over ragged sequences become one array."""
    if isinstance(x, list):
        x = np.stack(x) if np.ndim(x[0]) == 0 else np.concatenate(x)
    return np.asarray(x, np.float32)


# --- trainings of 50 steps ---

Table = dict[str, list[float | None]]
"""Columns of a history. None where a row has no such number."""


class _Killed(Exception):
    pass


def training(make: Callable[[], Any], data: Callable[[], Given]) -> Callable[[Path], Table]:
    """A fit from beginning to end."""

    def run(folder: Path) -> Table:
        del folder
        X, more = data()
        return _table(make().fit(X, **more))

    return run


def _table(estimator: Any) -> Table:
    columns = {
        name: estimator.history_[name]
        for name in ("step", "loss", "validation_loss", "gradient_norm")
        if name in estimator.history_
    }
    if hasattr(estimator, "init_losses_"):
        columns["init_losses"] = estimator.init_losses_
    return {name: [float(v) if np.isfinite(v) else None for v in column] for name, column in columns.items()}


def killed_and_resumed(folder: Path) -> Table:
    """Half of a fit, and in another one the other half."""
    X, more = _RESUMED_DATA()

    def kill(_: Any, report: Any) -> None:
        if report.step >= 25:
            raise _Killed

    kept = {"checkpoint_dir": folder, "checkpoint_every": 25}
    try:
        fifty(**_RESUMED, **kept)().fit(X, **more, callbacks=[kill])
    except _Killed:
        pass
    else:
        raise AssertionError("the first half was not stopped")
    return _table(fifty(**_RESUMED, **kept)().fit(X, **more, resume=True))


def prolonged(folder: Path) -> Table:
    """A finished fit of 25 steps, prolonged to 50."""
    X, more = _RESUMED_DATA()
    settings = {**_RESUMED, "schedule": "constant", "checkpoint_dir": folder}
    fifty(**settings, max_steps=25)().fit(X, **more)
    return _table(fifty(**settings)().fit(X, **more, resume=True))


def fifty(kind: Callable[..., Any] = RPGSSM, **settings: Any) -> Callable[[], Any]:
    """Makes an estimator that trains for 50 steps and is validated every 10."""
    return made(kind, **{"max_steps": 50, "validate_every": 10, **settings})


_TWICE = {"encoder": "mlp", "max_steps": 30, "widen_steps": 20}
_RESUMED = {"encoder": "mlp", "n_init": 1}
_RESUMED_DATA = given(vectors, **HELD_OUT)

LOSSES: dict[str, Callable[[Path], Table]] = {
    "widen-fixed": training(
        fifty(**_TWICE, widen=32, widen_components=6, widen_settings=SPREAD), given(vectors, **HELD_OUT)
    ),
    "widen-none": training(
        fifty(**_TWICE, widen=0, widen_settings={"initial_transition": "smooth", "latent_dim": 4}),
        given(vectors, **HELD_OUT),
    ),
    "widen-trained": training(fifty(**_TWICE, widen=32), given(vectors, **HELD_OUT)),
    "widen-images": training(
        fifty(**{**_TWICE, "encoder": "cnn"}, mirror=True, n_init=2, widen=32, widen_settings={"marginal": "gaussian"}),
        given(images, validation=lambda: images(7, seed=9)),
    ),
    "mirror": training(fifty(encoder="cnn", mirror=True), given(images)),
    "alike": training(fifty(encoder="mlp", batches="alike", window=8), given(lambda: vectors(12, 24), **HELD_OUT)),
    "ragged": training(fifty(encoder="mlp", validation_fraction=0.4), given(lambda: ragged(vectors()))),
    "masked": training(fifty(encoder="mlp", data_dependent=True), given(vectors, mask=mask, **HELD_OUT)),
    "controls": training(
        fifty(encoder="linear"),
        given(
            vectors,
            controls=pushes,
            validation=lambda: vectors(7, seed=9),
            validation_controls=lambda: pushes(7, seed=9),
        ),
    ),
    "controls-network": training(fifty(encoder="mlp", prior="network"), given(vectors, controls=choices)),
    "n-init": training(fifty(encoder="mlp", n_init=3), given(vectors, **HELD_OUT)),
    "one-long": training(fifty(encoder="mlp", validation_fraction=0.4), given(lambda: vectors(1, 400)[0])),
    "patience": training(
        fifty(encoder="mlp", patience=1, learning_rate=0.1, max_steps=200), given(vectors, **HELD_OUT)
    ),
    "uninterrupted": training(fifty(**_RESUMED), _RESUMED_DATA),
    "resumed": killed_and_resumed,
    "uninterrupted-constant": training(fifty(**_RESUMED, schedule="constant"), _RESUMED_DATA),
    "prolonged": prolonged,
    "em": training(
        lambda: LinearGaussianSSM(latent_dim=3, iterations=50, verbose=False), given(lambda: with_gaps(vectors()))
    ),
}

SAME = (("uninterrupted", "resumed"), ("uninterrupted-constant", "prolonged"))
"""Trainings that must agree bit for bit."""
