"""The command `rpgssm`.

Each subcommand is a dataclass with a method `run`. What `fit` can be told follows from the settings of the method that
is named (`rpgssm fit --model NAME --help`). A setting that is an object is given as text, such as
`--sampler "SimilarWindows(spare=2)"`; only literals and the library's own objects are understood. Nothing heavy is
imported before a subcommand runs, but for `fit`.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from rpgssm import __version__

Positional = tyro.conf.Positional
Output = Annotated[Path, tyro.conf.arg(aliases=["-o"])]
CHECKPOINTS = "training"
DATASET = "dataset:"
HIDDEN = ("checkpoint_dir", "verbose")  # settings that the command line says in another way


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

    data_seed: int = 0
    """Seed of dataset:NAME."""

    def read(self, path: Path, split: Any = "test") -> Any:
        """What DATA names; `split` is that of a data set unless DATA says it (`dataset:NAME:SPLIT`)."""
        from rpgssm.data import Recording, read

        if str(path).startswith(DATASET):
            return Recording(self.dataset(path, split).observations)
        grey: dict[str, Any] = {"grey": True if self.grey else None, "size": self.size, "every": self.every}
        keys = list(self.key) or None
        return read(path, key=keys, **grey, bin_seconds=self.bin_seconds, trials=self.trials)

    def dataset(self, path: Path, split: Any, ask: bool = True) -> Any:
        """The built-in data set of that name; `split` is used unless the path says another, or is not asked."""
        from rpgssm.datasets import load_dataset

        name, _, given = str(path).removeprefix(DATASET).partition(":")
        asked: Any = given if ask and given else split
        return load_dataset(name, asked, seed=self.data_seed)


@dataclass(frozen=True)
class Demo:
    """Learn a pendulum from images with distracting backgrounds in a few minutes, and draw what was learned."""

    output: Output = Path("rpgssm-demo")
    """Folder for the report, its figures and the model."""

    steps: int = 200
    """Training steps, without those of the second stage: half as many again."""

    overwrite: bool = False
    """Replace what is in the folder."""

    def run(self) -> None:
        from rpgssm.demo import demo

        demo(self.output, self.steps, self.overwrite)


@dataclass(frozen=True)
class Fit:
    """Fit a model to DATA and save it.

    DATA is .npy (N, T, ...) or one long (T, ...); .npz, HDF5 or Zarr with one array per modality (the names mask,
    controls and lengths are special); NWB; a folder of images or of videos; a video file; or dataset:NAME, the training
    data of a built-in data set, whose validation data then choose the model. Interrupted runs continue with --resume,
    given the same settings.
    """

    data: Positional[Path]
    """File, folder, or dataset:NAME."""

    out: Output
    """Folder for the model, its checkpoints and its history."""

    model: str = "rpgssm"
    """Which model. Each has settings of its own, shown by `rpgssm fit --model NAME --help`."""

    settings: Any = None

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

    def run(self) -> None:
        from rpgssm.methods import all_methods
        from rpgssm.settings import declared, parse
        from rpgssm.training import TrainingDiverged

        folder = self.out / CHECKPOINTS
        if self.resume and self.overwrite:
            raise ValueError("either --resume the run in the folder or --overwrite it, not both")
        if self.out.exists() and not self.out.is_dir():
            raise ValueError(f"{self.out} is a file: choose a folder for the model")
        if self.resume and not folder.exists():
            raise ValueError(f"there is nothing to resume in {self.out}: leave --resume out")
        if ((self.out / "config.json").exists() or folder.exists()) and not (self.overwrite or self.resume):
            raise ValueError(f"{self.out} holds a run already: choose another folder, or pass --resume or --overwrite")
        cls = {cls.command_name: cls for cls in all_methods().values()}[self.model]
        values = {}
        for name, about in declared(cls).items():
            if name not in HIDDEN:
                given = getattr(self.settings, name)
                values[name] = parse(given, about.kind) if _as_text(about) and isinstance(given, str) else given
        estimator: Any = cls(**values).run_in(folder, not self.quiet)
        recording = self.reading.read(self.data, "train")
        more = {name: True for name in ("resume", "overwrite") if getattr(self, name)}
        try:
            estimator.fit(recording, validation=self._validation(), **more)
        except TrainingDiverged as error:
            raise ValueError(str(error)) from error
        if self.decoder_steps:
            estimator.fit_decoder(recording, steps=self.decoder_steps)
        estimator.save(self.out, overwrite=True)
        if not self.quiet:
            print(estimator.summary())
        if estimator.stopped_ == "interrupted":
            print("Interrupted: the same command with --resume goes on.")
        print(f"Saved to {self.out}")

    def _validation(self) -> Any:
        """Files named on the command line, or the data set's own."""
        if self.validation is not None:
            return self.reading.read(self.validation, "validation")
        whole = str(self.data).startswith(DATASET) and str(self.data).count(":") == 1
        wanted = getattr(self.settings, "validation_fraction", 0.1) is not None
        return self.reading.read(self.data, "validation") if whole and wanted else None


@dataclass(frozen=True)
class Transform:
    """Infer the latents of DATA with a fitted model and write them as .npz: mean, cov and log_z (and lengths)."""

    folder: Positional[Path]
    """Folder of the model."""

    data: Positional[Path]
    """File or folder, as for fit; dataset:NAME is the test data of a data set, dataset:NAME:train its training data."""

    output: Output
    """File to write, .npz (or .npy for the means alone)."""

    causal: bool = False
    """Filter (frames up to the present one) instead of smoothing (all frames)."""

    reading: Annotated[Reading, tyro.conf.arg(name="")] = field(default_factory=Reading)

    overwrite: bool = False
    """Replace the file."""

    def run(self) -> None:
        from rpgssm.methods import load

        estimator = load(self.folder)
        if self.causal and not hasattr(estimator, "filter"):
            raise ValueError(
                f"{type(estimator).__name__} has no filter: its latents depend on all frames of a sequence. Leave "
                "--causal out"
            )
        _check_output(self.output, (".npz", ".npy"), self.overwrite)
        recording = self.reading.read(self.data)
        latents = (estimator.filter if self.causal else estimator.smooth)(recording)
        _write(self.output, {"mean": latents.mean, "cov": latents.cov, "log_z": latents.log_z})


@dataclass(frozen=True)
class Forecast:
    """Predict the latents after the last frame of each sequence in DATA; writes .npz: mean, cov and samples."""

    folder: Positional[Path]
    """Folder of the model."""

    data: Positional[Path]
    """File or folder, as for transform. Controls must reach into the future."""

    output: Output
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

    def run(self) -> None:
        import numpy as np

        from rpgssm.methods import load

        estimator = load(self.folder)
        if not hasattr(estimator, "forecast"):
            raise ValueError(f"{type(estimator).__name__} has no dynamics: forecasts are not defined")
        _check_output(self.output, (".npz",), self.overwrite)
        recording = self.reading.read(self.data)
        out = estimator.forecast(recording, self.steps, samples=self.samples, random_state=self.random_state)
        samples = np.stack(out.samples, 1) if isinstance(out.samples, list) else out.samples
        arrays = {"mean": out.mean, "cov": out.cov, "samples": samples}
        _write(self.output, {name: np.stack(x) if isinstance(x, list) else x for name, x in arrays.items()})


@dataclass(frozen=True)
class MakeReport:
    """Write a page of HTML about what a fitted model finds in DATA: latents, uncertainty, dynamics, forecasts.

    With --targets the page also says how well they can be read off the latents of held-out sequences. A data set
    (dataset:NAME) brings its own targets; readouts are then fitted on its training data.
    """

    folder: Positional[Path]
    """Folder of the model."""

    data: Positional[Path]
    """File or folder, as for transform."""

    output: Output = Path("report.html")
    """File to write, .html, or a folder that also gets the figures as PNG and SVG."""

    targets: Path | None = None
    """What else is known of the frames: .npz, HDF5 or Zarr with an array for each target, .npy, or .csv with a column
    for each target of one recording. NaN or an empty cell: not known."""

    target_key: tuple[str, ...] = ()
    """Names of the targets to use from a file that holds several. Default: all."""

    dt: float | None = None
    """Time between frames in seconds."""

    reading: Annotated[Reading, tyro.conf.arg(name="")] = field(default_factory=Reading)

    overwrite: bool = False
    """Replace the page."""

    def run(self) -> None:
        from rpgssm.methods import load
        from rpgssm.report.target_files import read_targets
        from rpgssm.report.writing import check_output, write_report

        check_output(self.output, self.overwrite)
        estimator = load(self.folder)
        given: Any = None if self.targets is None else read_targets(self.targets, self.target_key)
        recording, known, train, dt = self.reading.read(self.data), given, None, self.dt
        if str(self.data).startswith(DATASET) and given is None:
            test, train = self.reading.dataset(self.data, "test"), self.reading.dataset(self.data, "train", ask=False)
            known, dt = test.targets, test.dt if dt is None else dt
        page = write_report(
            estimator, recording, known, train=train, output=self.output, dt=dt, overwrite=self.overwrite
        )
        print(f"Wrote {page}")


@dataclass(frozen=True)
class Info:
    """Describe a fitted model."""

    folder: Positional[Path]
    """Folder of the model."""

    def run(self) -> None:
        from rpgssm.methods import load

        print(load(self.folder).summary())


def fit_command(arguments: Sequence[str]) -> type[Fit]:
    """`Fit` with the settings of the method that the arguments name."""
    from rpgssm.methods import all_methods

    methods = {cls.command_name: cls for cls in all_methods().values()}
    name = "rpgssm"
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        option, _, value = argument.partition("=")
        if option == "--model" and (value or following) in methods:
            name = value or following
    settings = settings_group(methods[name])
    choice = Annotated[Literal[tuple(sorted(methods))], tyro.conf.arg(help=_MODEL_HELP)]  # pyright: ignore[reportInvalidTypeForm]
    fields: list[Any] = [
        ("model", choice, field(default=name)),
        ("settings", Annotated[settings, tyro.conf.arg(name="")], field(default_factory=settings)),
    ]
    return make_dataclass("Fit", fields, bases=(Fit,), frozen=True, namespace={"__doc__": Fit.__doc__})


_MODEL_HELP = (
    "Which model. Each has settings of its own, shown by `rpgssm fit --model NAME --help`; below are those of the one "
    "that is named."
)


def settings_group(cls: type) -> type:
    """A dataclass of the settings of a method, for the command line."""
    from rpgssm.settings import declared, text

    fields: list[Any] = []
    for name, about in declared(cls).items():
        if name in HIDDEN:
            continue
        kind, default, help = about.kind, about.default, about.help
        if _as_text(about):
            kind = str | None if default is None else str
            default = default if default is None or isinstance(default, str) else text(default)
            help += _choices(about)
        fields.append((name, Annotated[kind, tyro.conf.arg(help=help)], field(default=default)))
    title = (cls.__doc__ or "").split("\n")[0]
    return make_dataclass("Settings", fields, frozen=True, namespace={"__doc__": f"The model: {title}"})


def _as_text(about: Any) -> bool:
    """Whether a setting is given as text that stands for an object."""
    from rpgssm.settings import has_classes

    return has_classes(about.kind) or isinstance(about.default, tuple) or about.fits is not None


def _choices(about: Any) -> str:
    """The objects that a setting may be, with their settings."""
    from rpgssm.settings import classes, declared

    shown = [f"{name}({', '.join(declared(cls))})" for name, cls in classes(about.kind).items() if name != "RPGSSM"]
    return f" One of {'; '.join(shown)}." if shown else ""


def _check_output(path: Path, suffixes: tuple[str, ...], overwrite: bool) -> None:
    if path.suffix not in suffixes:
        raise ValueError(f"{path} must end in {' or '.join(suffixes)}")
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists: choose another name, or pass --overwrite")


def _write(path: Path, arrays: dict[str, Any]) -> None:
    """Write arrays; ragged ones (lists) are padded with NaN, and their lengths added."""
    import numpy as np

    arrays = {name: x for name, x in arrays.items() if x is not None}
    if isinstance(rows := arrays["mean"], list):
        lengths = np.array([len(x) for x in rows])
        arrays = {name: _padded(x, int(lengths.max())) if isinstance(x, list) else x for name, x in arrays.items()}
        arrays["lengths"] = lengths
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, arrays["mean"])
    else:
        named: dict[str, Any] = {name: np.asarray(x) for name, x in arrays.items()}
        np.savez(path, **named)
    print(f"Wrote {path}: means {'×'.join(map(str, np.shape(arrays['mean'])))}")


def _padded(rows: list[Any], length: int) -> Any:
    import numpy as np

    out = np.full((len(rows), length, *rows[0].shape[1:]), np.nan, rows[0].dtype)
    for row, x in zip(out, rows, strict=True):
        row[: len(x)] = x
    return out


_DESCRIPTION = """Learn latent dynamics from time series and video without reconstructing the observations (RP-GSSM).
`rpgssm COMMAND --help` explains a command; `rpgssm --version` prints the version."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` defaults to the arguments of the process."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--version"]:
        print(f"rpgssm {__version__}")
        return
    fit: Any = fit_command(arguments) if arguments[:1] == ["fit"] else Fit
    commands: Any = {"demo": Demo, "fit": fit, "transform": Transform, "forecast": Forecast}
    commands |= {"report": MakeReport, "info": Info}
    named = [Annotated[kind, tyro.conf.subcommand(name)] for name, kind in commands.items()]
    union: Any = named[0]
    for kind in named[1:]:
        union = union | kind
    command = tyro.cli(
        union,
        prog="rpgssm",
        description=_DESCRIPTION,
        args=arguments or ["--help"],
        config=(tyro.conf.OmitArgPrefixes,),
    )
    try:
        command.run()
    except (ValueError, FileNotFoundError, ImportError) as error:
        # Raised as such, these are how the library says that its input was wrong, or that an optional package is
        # missing: the message is for the user, the traceback is not. Anything else, their subclasses included, is a
        # defect and keeps its traceback.
        if type(error) not in (ValueError, FileNotFoundError, ImportError):
            raise
        print(f"rpgssm: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
