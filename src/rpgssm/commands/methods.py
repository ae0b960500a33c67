"""The models that `rpgssm fit --model NAME` knows, with the settings of each. Nothing heavy is imported here.

The command is put together for the model that is named, so that `rpgssm fit --model svae --help` shows the settings of
that model and no others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any, Literal

import tyro

from .config import Encoder, Fit, Model, ModelName, Training

Structure = Literal["diagonal", "cholesky"]


@dataclass(frozen=True)
class _Encoding:
    latent_dim: int = 8
    """Latent dimensions."""

    encoder: Encoder = "auto"
    """Network from frames to features. auto: a CNN for images, an MLP for vectors."""


@dataclass(frozen=True)
class _Generative(_Encoding):
    decoder: Literal["auto", "linear", "mlp", "conv", "conv-paper"] = "auto"
    """Network from latents to frames. auto: conv for images, mlp for vectors."""

    output: Literal["auto", "sigmoid", "linear"] = "auto"
    """Range of frames: sigmoid for 0 to 1, linear for any. auto: sigmoid for integer images."""

    noise: float = 0.1
    """Standard deviation of frames around their means, in their units; not learned. Try 1, 0.1 and 0.001."""

    mask_size: int = 20
    """Frames hidden from each sequence at each step, to be reconstructed all the same. 0: none."""

    mask_mode: Literal["window", "random"] = "window"
    """Which frames are hidden: some that follow each other, or any."""


@dataclass(frozen=True)
class SVAE(_Generative):
    """The model: a structured variational autoencoder with linear dynamics."""

    precision: Structure = "diagonal"
    """Form of the recognition precision: diagonal, or full (cholesky)."""

    data_dependent: bool = False
    """Let the precision depend on the frame."""

    initial_precision: float = 1.0
    """Where the recognition precisions start."""


@dataclass(frozen=True)
class DKF(_Generative):
    """The model: a deep Kalman filter."""

    posterior: Literal["mean-field", "linear", "nonlinear", "convolutional"] = "linear"
    """Form of the approximate posterior."""

    hidden_dim: int | None = None
    """Units of the recurrent networks. Default: twice the latent dimensions."""

    covariance: Structure = "diagonal"
    """Form of the posterior's covariances: diagonal, or full (cholesky)."""

    share_transition: bool = False
    """Let the posterior use the transition matrix of the prior."""

    initial_variance: float = 0.1
    """Where the posterior's variances start."""


@dataclass(frozen=True)
class KVAE(_Generative):
    """The model: a Kalman variational autoencoder."""

    code_dim: int | None = None
    """Numbers in the code of a frame. Default: half the latent dimensions, at least 2."""

    mixtures: int = 3
    """Matrices that the transition and the emission of codes are mixed of."""

    reconstruction_weight: float = 0.3
    """Weight of the frames' likelihood in training."""

    warmup_steps: int = 500
    """Steps before the weights of the mixture begin to learn."""


@dataclass(frozen=True)
class LinearGaussianSSM:
    """The model: a linear Gaussian state space model, by expectation maximisation (EM)."""

    latent_dim: int = 8
    """Latent dimensions."""

    components: int = 50
    """Frames of more numbers than this are reduced to as many principal components."""


@dataclass(frozen=True)
class CPC(_Encoding):
    """The model: contrastive predictive coding."""

    embedding_dim: int = 64
    """Size of the embedding of a frame."""

    horizons: int = 12
    """Frames ahead that are to be recognised."""

    mask_size: int = 20
    """Frames of each sequence that are zeros for the recurrent network at each step. 0: none."""

    mask_mode: Literal["window", "random"] = "window"
    """Which frames are hidden: some that follow each other, or any."""


@dataclass(frozen=True)
class DCL(_Encoding):
    """The model: contrastive learning with linear or switching dynamics."""

    modes: int = 1
    """Transition matrices; more than 1 for switching dynamics."""

    temperature: float = 1.0
    """Of the choice between them."""

    negatives: int | None = None
    """Frames of the batch that each is compared with. Default: all."""


@dataclass(frozen=True)
class RKN(_Generative):
    """The model: a recurrent Kalman network. Its latent dimensions must be even."""

    mixed: int = 15
    """Transition matrices that are mixed."""

    bandwidth: int = 3
    """Diagonals on either side of the main one, in each quarter of these matrices."""

    data_dependent: bool = True
    """Let the precision of what is seen depend on the frame."""

    initial_precision: float = 1.0
    """Precision of what is seen, where it starts."""

    initial_variance: float = 10.0
    """Variance of the state before the first frame."""

    max_gain: float | None = None
    """Scale the transition matrices after each step so that none stretches a vector by more. None: no limit."""


@dataclass(frozen=True)
class SlowTraining(Training):
    """Its training."""

    learning_rate: float = 1e-3
    """Learning rate of Adam, before the schedule."""


@dataclass(frozen=True)
class EM:
    """Its training."""

    max_steps: int = 200
    """Iterations."""

    tolerance: float = 1e-5
    """Stop when the log-likelihood per frame grows by less than this."""

    random_state: int = 0
    """Seed."""


@dataclass(frozen=True)
class Method:
    """A model: the name of its estimator, and the settings of model and training."""

    estimator: str
    settings: Any
    training: Any = SlowTraining


METHODS: dict[str, Method] = {
    "rpgssm": Method("RPGSSM", Model, Training),
    "svae": Method("SVAE", SVAE),
    "dkf": Method("DKF", DKF),
    "kvae": Method("KVAE", KVAE),
    "linear-gaussian": Method("LinearGaussianSSM", LinearGaussianSSM, EM),
    "cpc": Method("CPC", CPC),
    "dcl": Method("DCL", DCL),
    "rkn": Method("RKN", RKN),
}


def named_method(arguments: Sequence[str]) -> str:
    """The model that the arguments of `rpgssm` name, or that which is meant if they name none that exists."""
    if not arguments or arguments[0] != "fit":
        return "rpgssm"
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        option, _, value = argument.partition("=")
        if option == "--model":
            name = value or following
            return name if name in METHODS else "rpgssm"
    return "rpgssm"


def fit_command(name: str) -> type[Fit]:
    """`Fit` with the settings of this model."""
    if name == "rpgssm":
        return Fit
    method = METHODS[name]

    def group(kind: Any) -> Any:
        return Annotated[kind, tyro.conf.arg(name="")]

    fields: list[Any] = [
        ("model", ModelName, field(default=name)),
        ("settings", group(method.settings), field(default_factory=method.settings)),
        ("training", group(method.training), field(default_factory=method.training)),
    ]
    made = make_dataclass("Fit", fields, bases=(Fit,), frozen=True, namespace={"__doc__": Fit.__doc__})
    return made
