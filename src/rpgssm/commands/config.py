"""The settings of the subcommands. Nothing heavy is imported here: help must come at once."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

Positional = tyro.conf.Positional
Encoder = Literal["auto", "linear", "mlp", "cnn", "cnn-paper", "keypoints"]
ModelName = Annotated[
    Literal["rpgssm", "svae", "dkf", "kvae", "linear-gaussian", "cpc", "dcl", "rkn"],
    tyro.conf.arg(
        help="Which model. Each has settings of its own, shown by `rpgssm fit --model NAME --help`; below are those of "
        "the one that is named."
    ),
]


@dataclass(frozen=True)
class Reading:
    """How DATA is read."""

    key: tuple[str, ...] = ()
    """Names of the arrays to use from a file that holds several (.npz, HDF5, NWB, Zarr). Default: all."""

    grey: bool = False
    """Convert images and videos to grey."""

    size: tuple[int, int] | None = None
    """Resize images and videos to this (height, width)."""

    every: int = 1
    """Use every n-th frame of images and videos."""

    bin_seconds: float | None = None
    """Bring the series of an NWB file to common bins of this length: means of samples, counts of spikes."""

    trials: bool = False
    """Make a sequence of each trial of an NWB file."""

    task_seed: int = 0
    """Seed of the data of task:NAME."""

    data_dir: Path | None = None
    """Folder with the real files of task:NAME (CIFAR-10, DAVIS, double pendulum). Default: RPGSSM_DATA."""

    background: Literal["auto", "real", "procedural"] = "auto"
    """Backgrounds of task:NAME, if it has a distractor."""


@dataclass(frozen=True)
class Demo:
    """Learn a pendulum from images with distracting backgrounds in a few minutes, and draw what was learned."""

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("rpgssm-demo")
    """Folder for the report, its figures and the model."""

    steps: int = 200
    """Training steps, without those of the second training: half as many again."""

    overwrite: bool = False
    """Replace what is in the folder."""


@dataclass(frozen=True)
class Model:
    """The model: RP-GSSM."""

    latent_dim: int = 8
    """Latent dimensions."""

    encoder: Encoder = "auto"
    """Recognition network. auto: a CNN for images, an MLP for vectors."""

    precision: Literal["diagonal", "cholesky"] = "cholesky"
    """Form of the recognition precision: diagonal, or full (cholesky)."""

    data_dependent: bool = False
    """Let the precision depend on the frame. Slower; can say of a frame that it shows nothing."""

    prior: Literal["auto", "stationary", "free", "controlled", "network"] = "auto"
    """Prior over trajectories. auto: controlled if there are controls, else stationary."""

    marginal: Literal["auto", "empirical", "pooled", "gaussian"] = "auto"
    """Distribution of observations: frames of the batch at the same time (empirical), at several times (pooled), or a
    Gaussian with their moments (for linear encoders). auto: gaussian for linear encoders, else empirical."""

    mixture_times: int = 8
    """How many times a pooled marginal takes frames from."""

    initial_transition: Literal["identity", "rotation", "smooth"] = "identity"
    """Where the transition matrix starts: the identity, rotations, or pairs of a smooth process and its velocity."""

    initial_scale: float | None = None
    """Size of the initial transition matrix, below 1. Default: 0.9 for linear encoders, else 0.98."""

    initial_precision: float = 0.1
    """Where the recognition precisions start."""

    widen: int | None = None
    """Put a random layer of so many units (0: none) on the trained network, and train head and chain anew on it:
    spreads out what the latents know, for a linear readout."""

    widen_steps: int = 100
    """Steps of that second training."""

    widen_settings: dict[str, bool | int | float | str] | None = None
    """What is set differently in it, by name and value: latent_dim 8 initial_transition smooth."""

    widen_components: int = 25
    """Principal components that are kept of a random layer that is not trained (widen-settings: marginal gaussian)."""


@dataclass(frozen=True)
class Training:
    """Its training."""

    max_steps: int = 3000
    """Optimiser steps."""

    batch_size: int = 32
    """Sequences (or windows) per step."""

    learning_rate: float | None = None
    """Learning rate of Adam, before the schedule. Default: 0.03 for linear encoders, else 0.003."""

    prior_learning_rate: float | None = None
    """Learning rate of the prior. Default: that of the networks if it is given, else 0.03 or 0.001."""

    schedule: Literal["constant", "cosine", "exponential", "warmup-cosine"] = "cosine"
    """How the learning rate falls."""

    clip_norm: float | None = 10.0
    """Largest norm of the gradient."""

    batches: Literal["random", "alike"] = "random"
    """Batches of random sequences (or windows), or of those that look alike: for backgrounds that are films."""

    mirror: bool = False
    """Train on pictures mirrored at random, for scenes without a preferred direction."""

    window: int | Literal["auto"] | None = "auto"
    """Frames per training window of long sequences. auto: where there are few sequences; None: never."""

    validation_fraction: float | None = 0.1
    """Part of the sequences held out to choose the best model."""

    validate_every: int = 100
    """Steps between validations."""

    patience: int | None = None
    """Stop after so many validations without improvement."""

    n_init: int = 1
    """Models trained together from different seeds, of which the best is kept."""

    checkpoint_every: int = 500
    """Steps between checkpoints."""

    random_state: int = 0
    """Seed."""


@dataclass(frozen=True)
class Fit:
    """Fit a model to DATA and save it.

    DATA is .npy (N, T, ...) or one long (T, ...); .npz, HDF5 or Zarr with one array per modality (the names mask,
    controls and lengths are special); NWB; a folder of images or of videos; a video file; or task:NAME, the training
    set of a built-in task, whose validation set then chooses the model. Interrupted runs continue with --resume, given
    the same settings.
    """

    data: Positional[Path]
    """File, folder, or task:NAME."""

    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Folder for the model, its checkpoints and its history."""

    model: ModelName = "rpgssm"

    settings: Annotated[Model, tyro.conf.arg(name="")] = field(default_factory=Model)
    training: Annotated[Training, tyro.conf.arg(name="")] = field(default_factory=Training)
    reading: Annotated[Reading, tyro.conf.arg(name="")] = field(default_factory=Reading)

    validation: Path | None = None
    """Data like DATA to choose the best model by, instead of a part of DATA."""

    decoder_steps: int = 0
    """Also train the auxiliary decoder for so many steps, for `reconstruct`."""

    resume: bool = False
    """Go on from the last checkpoint in the folder."""

    overwrite: bool = False
    """Replace a run that is in the folder."""

    quiet: bool = False
    """Show no progress."""


@dataclass(frozen=True)
class Transform:
    """Infer the latents of DATA with a fitted model and write them as .npz: mean, cov and log_z (and lengths)."""

    run: Positional[Path]
    """Folder of the model."""

    data: Positional[Path]
    """File or folder, as for fit; task:NAME is the test set of a task, task:NAME:train its training set."""

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """File to write, .npz (or .npy for the means alone)."""

    causal: bool = False
    """Filter (frames up to the present one) instead of smoothing (all frames)."""

    reading: Annotated[Reading, tyro.conf.arg(name="")] = field(default_factory=Reading)

    overwrite: bool = False
    """Replace the file."""


@dataclass(frozen=True)
class ForecastCommand:
    """Predict the latents after the last frame of each sequence in DATA; writes .npz: mean, cov and samples."""

    run: Positional[Path]
    """Folder of the model."""

    data: Positional[Path]
    """File or folder, as for transform. Controls must reach into the future."""

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """File to write, .npz."""

    steps: int = 50
    """Frames to predict."""

    samples: int = 0
    """Sampled trajectories to write as well."""

    random_state: int = 0
    """Seed of the samples."""

    reading: Annotated[Reading, tyro.conf.arg(name="")] = field(default_factory=Reading)

    overwrite: bool = False
    """Replace the file."""


@dataclass(frozen=True)
class Info:
    """Describe a fitted model."""

    run: Positional[Path]
    """Folder of the model."""


@dataclass(frozen=True)
class Tasks:
    """List the built-in tasks, or draw one of them (`rpgssm tasks show NAME -o sheet.png`)."""

    what: Positional[Literal["list", "show"]] = "list"
    """list, or show."""

    name: Positional[str] = ""
    """Task to show."""

    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Picture to write. Default: NAME.png."""

    seed: int = 0
    """Seed of the data."""

    data_dir: Path | None = None
    """Folder with the real files (CIFAR-10, DAVIS, double pendulum). Default: RPGSSM_DATA."""

    background: Literal["auto", "real", "procedural"] = "auto"
    """Backgrounds of the distractor tasks."""


@dataclass(frozen=True)
class Evaluate:
    """Score a fitted model on one of the built-in tasks: tables, JSON and figures."""

    run: Positional[Path]
    """Folder of the model."""

    task: str
    """Name of the task; `rpgssm tasks` lists them."""

    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder for evaluation.json and the figures. Default: RUN/evaluation-TASK."""

    seed: int = 0
    """Seed of the data."""

    data_dir: Path | None = None
    """Folder with the real files. Default: RPGSSM_DATA."""

    background: Literal["auto", "real", "procedural"] = "auto"
    """Backgrounds of the distractor tasks."""
