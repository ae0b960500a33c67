"""The command `rpgssm`, as a user meets it: from a file to a model, to latents, to forecasts."""

import sys
import types

import numpy as np
import pytest

import rpgssm
from rpgssm import RPGSSM, cli
from rpgssm.cli import fit_command, main
from rpgssm.methods import all_methods
from rpgssm.settings import declared, parse

SMALL = [
    "--latent-dim",
    "2",
    "--encoder",
    "linear",
    "--max-steps",
    "6",
    "--batch-size",
    "8",
    "--quiet",
    "--checkpoint-every",
    "3",
]


@pytest.fixture(scope="module", autouse=True)
def quick_compilation(compile_quickly):
    with compile_quickly():
        yield


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    z = np.cumsum(rng.normal(size=(8, 10, 2)), 1)
    return (z @ rng.normal(size=(2, 3)) + 0.1 * rng.normal(size=(8, 10, 3))).astype(np.float32)


@pytest.fixture(scope="module")
def files(x, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    np.save(folder / "x.npy", x)
    np.save(folder / "one.npy", x[0])
    np.savez(folder / "ragged.npz", x=x, lengths=np.array([10, 4, 10, 10, 10, 10, 10, 10]))
    u = np.random.default_rng(1).normal(size=(8, 14, 1)).astype(np.float32)
    mask = np.ones((8, 10), bool)
    mask[2, 3:6] = False
    parts = {"left": x[..., :1], "right": x[..., 1:], "mask": mask}
    np.savez(folder / "two.npz", **parts, controls=u[:, :10])
    np.savez(folder / "future.npz", **parts, controls=u)
    return folder


@pytest.fixture(scope="module")
def run(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    main(["fit", str(files / "x.npy"), "-o", str(folder), *SMALL])
    return folder


def fails(capsys, *arguments) -> str:
    """The message of a command that fails as the user's fault."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([str(a) for a in arguments])
    assert end.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("rpgssm: error: ")
    assert message.count("\n") == 1
    return message


def test_fit_saves_what_the_estimator_would(run, x):
    loaded = RPGSSM.load(run)
    again = RPGSSM(2, "linear", max_steps=6, batch_size=8, verbose=False).fit(x)
    np.testing.assert_array_equal(loaded.transform(x), again.transform(x))
    assert (run / "README.md").is_file()
    assert (run / "training" / "history.csv").is_file()


def test_info(run, capsys):
    main(["info", str(run)])
    out = capsys.readouterr().out
    assert "RP-GSSM with 2 latent dimensions, stationary prior" in out
    assert "8 sequences of 10 frames" in out


def test_transform_writes_latents(run, files, x, tmp_path, capsys):
    main(["transform", str(run), str(files / "x.npy"), "-o", str(tmp_path / "z.npz")])
    assert "means 8×10×2" in capsys.readouterr().out
    expected = RPGSSM.load(run).smooth(x)
    with np.load(tmp_path / "z.npz") as written:
        np.testing.assert_array_equal(written["mean"], expected.mean)
        np.testing.assert_array_equal(written["cov"], expected.cov)
        np.testing.assert_array_equal(written["log_z"], expected.log_z)
    assert "exists: choose another name" in fails(capsys, "transform", run, files / "x.npy", "-o", tmp_path / "z.npz")
    main(["transform", str(run), str(files / "x.npy"), "-o", str(tmp_path / "z.npz"), "--overwrite", "--causal"])
    with np.load(tmp_path / "z.npz") as written:
        np.testing.assert_array_equal(written["mean"], RPGSSM.load(run).filter(x).mean)


def test_the_form_of_the_data_is_kept(run, files, x, tmp_path):
    main(["transform", str(run), str(files / "one.npy"), "-o", str(tmp_path / "one.npy")])
    assert np.load(tmp_path / "one.npy").shape == (10, 2)


def test_ragged_latents_are_padded_with_nan(files, tmp_path):
    folder = tmp_path / "run"
    main(["fit", str(files / "ragged.npz"), "-o", str(folder), *SMALL])
    main(["transform", str(folder), str(files / "ragged.npz"), "-o", str(tmp_path / "z.npz")])
    with np.load(tmp_path / "z.npz") as written:
        assert written["lengths"].tolist() == [10, 4, 10, 10, 10, 10, 10, 10]
        assert np.isfinite(written["mean"][1, :4]).all()
        assert np.isnan(written["mean"][1, 4:]).all()
        assert np.isfinite(written["log_z"]).all()
    main(["forecast", str(folder), str(files / "ragged.npz"), "-o", str(tmp_path / "f.npz"), "--steps", "3"])
    with np.load(tmp_path / "f.npz") as written:
        assert written["mean"].shape == (8, 3, 2)


def test_forecast(run, files, x, tmp_path):
    arguments = ["--steps", "4", "--samples", "5", "-o", str(tmp_path / "f.npz")]
    main(["forecast", str(run), str(files / "x.npy"), *arguments])
    expected = RPGSSM.load(run).forecast(x, 4, samples=5)
    with np.load(tmp_path / "f.npz") as written:
        for name in ("mean", "cov", "samples"):
            np.testing.assert_array_equal(written[name], getattr(expected, name))
        assert written["samples"].shape == (5, 8, 4, 2)


def test_modalities_mask_and_controls(files, tmp_path, capsys):
    folder = tmp_path / "run"
    main(["fit", str(files / "two.npz"), "-o", str(folder), *SMALL])
    model = RPGSSM.load(folder)
    assert model.model_.prior.B.shape == (2, 1)
    assert "3 of 80 frames missing" in model.summary()
    main(["transform", str(folder), str(files / "two.npz"), "-o", str(tmp_path / "z.npz")])
    main(["forecast", str(folder), str(files / "future.npz"), "--steps", "4", "-o", str(tmp_path / "f.npz")])
    with np.load(files / "future.npz") as file, np.load(tmp_path / "f.npz") as written:
        parts = {name: file[name] for name in ("left", "right")}
        expected = model.forecast(parts, 4, mask=file["mask"], controls=file["controls"])
        np.testing.assert_array_equal(written["mean"], expected.mean)
    message = fails(capsys, "forecast", folder, files / "two.npz", "--steps", 4, "-o", tmp_path / "g.npz")
    assert "of the 4 steps to come" in message


def test_runs_are_resumed_and_not_overwritten_unasked(run, files, x, tmp_path, capsys):
    data, folder = str(files / "x.npy"), tmp_path / "run"
    assert "holds a run already" in fails(capsys, "fit", data, "-o", run, *SMALL)
    assert "nothing to resume" in fails(capsys, "fit", data, "-o", folder, *SMALL, "--resume")
    settings = [*SMALL, "--optimizer", "Adam(schedule='constant')"]
    main(["fit", data, "-o", str(folder), *settings])
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()  # as if it had been killed
    assert "pass --resume or --overwrite" in fails(capsys, "fit", data, "-o", folder, *settings)
    main(["fit", data, "-o", str(folder), *settings, "--resume", "--max-steps", "9"])
    whole = tmp_path / "whole"
    main(["fit", data, "-o", str(whole), *settings, "--max-steps", "9"])
    np.testing.assert_array_equal(RPGSSM.load(folder).transform(x), RPGSSM.load(whole).transform(x))
    message = fails(capsys, "fit", data, "-o", folder, *settings, "--resume", "--learning-rate", "1")
    assert "learning_rate is 1.0 and was None" in message
    assert "learning_rate (resolved) is 1.0 and was 0.03" in message
    main(["fit", data, "-o", str(folder), *settings, "--overwrite"])
    assert RPGSSM.load(folder).n_steps_ == 6


def test_errors_are_one_line(run, files, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    assert "there is no file or folder" in fails(capsys, "fit", tmp_path / "no.npy", "-o", out)
    assert "there is no data set 'nothing'" in fails(capsys, "fit", "dataset:nothing", "-o", out)
    assert "holds no saved model" in fails(capsys, "info", tmp_path)
    assert "must end in .npz or .npy" in fails(capsys, "transform", run, files / "x.npy", "-o", tmp_path / "z.csv")
    assert "latent_dim is 0" in fails(capsys, "fit", files / "x.npy", "-o", out, "--latent-dim", 0, "--quiet")
    message = fails(
        capsys,
        "fit",
        files / "x.npy",
        "-o",
        out,
        *SMALL,
        "--learning-rate",
        "1e30",
        "--optimizer",
        "Adam(clip_norm=None)",
    )
    assert "Try a lower learning rate" in message
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "x.h5").touch()
    assert 'needs the package h5py: pip install "rpgssm[neuro]"' in fails(
        capsys, "fit", tmp_path / "x.h5", "-o", tmp_path / "other"
    )


def test_validation_data_of_ones_own(files, tmp_path):
    folder = tmp_path / "run"
    main(["fit", str(files / "x.npy"), "-o", str(folder), *SMALL, "--validation", str(files / "x.npy")])
    history = RPGSSM.load(folder).history_
    assert np.isfinite(history["validation_loss"]).any()


def test_help_shows_settings_with_defaults(capsys):
    with pytest.raises(SystemExit) as end:
        main(["fit", "--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    for option in ("--latent-dim", "--precision", "--max-steps", "--data-seed", "--resume", "dataset:NAME"):
        assert option in out
    assert "(default: 3000)" in out


@pytest.mark.slow
def test_a_built_in_data_set_is_fitted(tmp_path, capsys, unchecked_types):
    folder = tmp_path / "run"
    settings = [
        "--latent-dim",
        "3",
        "--encoder",
        "linear",
        "--max-steps",
        "20",
        "--stopping",
        "Stopping(validate_every=10)",
        "--quiet",
    ]
    main(["fit", "dataset:linear-small", "-o", str(folder), *settings])
    model = RPGSSM.load(folder)
    assert "200 sequences" in model.summary()
    assert np.isfinite(model.history_["validation_loss"]).any()
    main(["transform", str(folder), "dataset:linear-small", "-o", str(tmp_path / "z.npy")])
    assert len(np.load(tmp_path / "z.npy")) == 50
    message = fails(capsys, "transform", folder, "dataset:linear-small:all", "-o", tmp_path / "y.npy")
    assert "there is no split 'all': data sets have train, validation, test" in message


@pytest.mark.slow
@pytest.mark.parametrize("model", ["rpgssm", "svae", "dkf", "kvae", "linear-gaussian", "cpc", "dcl", "rkn"])
def test_every_model_from_data_to_latents(model, tmp_path):
    folder = tmp_path / "run"
    latents = "6" if model == "rkn" else "3"
    steps = "--iterations" if model == "linear-gaussian" else "--max-steps"
    settings = ["--model", model, "--latent-dim", latents, steps, "4", "--quiet"]
    main(["fit", "dataset:linear-small", "-o", str(folder), *settings])
    main(["info", str(folder)])
    main(["transform", str(folder), "dataset:linear-small", "-o", str(tmp_path / "z.npz")])
    with np.load(tmp_path / "z.npz") as written:
        assert np.isfinite(written["mean"]).all()


@pytest.mark.parametrize("cls", all_methods().values(), ids=lambda cls: cls.__name__)
def test_every_setting_can_be_given_and_has_the_default_of_the_estimator(cls):
    group = cli.settings_group(cls)()
    for name, about in declared(cls).items():
        if name in cli.HIDDEN:
            assert not hasattr(group, name)
            continue
        given = getattr(group, name)
        found = parse(given, about.kind) if isinstance(given, str) and not isinstance(about.default, str) else given
        assert found == about.default, name


def test_objects_are_given_as_text(files, tmp_path, capsys):
    folder = tmp_path / "run"
    objects = [
        "--sampler",
        "SimilarWindows(spare=2)",
        "--prior",
        "Free(start='smooth')",
        "--marginal",
        "PooledMarginal(3)",
    ]
    main(["fit", str(files / "x.npy"), "-o", str(folder), *SMALL, *objects])
    model = RPGSSM.load(folder)
    assert model.sampler == rpgssm.SimilarWindows(spare=2)
    assert model.prior == rpgssm.Free(start="smooth")
    assert model.marginal == rpgssm.PooledMarginal(3)
    for wrong in ("SimilarWindow()", "SimilarWindows(spares=2)", "__import__('os')", "SimilarWindows(spare=1+1)"):
        assert wrong.split("(")[0].strip("_") in fails(
            capsys, "fit", files / "x.npy", "-o", tmp_path / "other", *SMALL, "--sampler", wrong
        )


def test_a_stack_is_given_as_text(files, tmp_path):
    folder = tmp_path / "run"
    stages = "[RPGSSM(2, encoder='mlp', max_steps=3), RPGSSM(3, encoder=WideLayer(8), max_steps=3)]"
    main(["fit", str(files / "x.npy"), "-o", str(folder), "--model", "stack", "--stages", stages, "--quiet"])
    model = rpgssm.load(folder)
    assert model.n_steps_ == 6
    assert model.transition_.shape == (3, 3)
    assert (folder / "training" / "stage-2").is_dir()


def test_notes_of_the_conversion_are_kept(files, x, tmp_path):
    gaps = x.copy()
    gaps[1, 2] = np.nan
    np.save(tmp_path / "gaps.npy", gaps)
    main(["fit", str(tmp_path / "gaps.npy"), "-o", str(tmp_path / "run"), *SMALL])
    assert any("hold NaN" in note for note in rpgssm.load(tmp_path / "run").notes_)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["fit", "x.npy", "--model", "svae"], "svae"),
        (["fit", "--model=dkf", "x.npy"], "dkf"),
        (["fit", "x.npy", "-o", "out"], "rpgssm"),
        (["fit", "x.npy", "--model", "nothing"], "rpgssm"),
        (["fit", "x.npy", "--model"], "rpgssm"),
        (["fit"], "rpgssm"),
    ],
)
def test_the_model_is_found_before_the_settings_are_read(arguments, name):
    assert fit_command(arguments).__dataclass_fields__["model"].default == name


@pytest.fixture
def fake_fit(monkeypatch):
    """Stands in for what `fit` does: keeps the command, and raises `error` if there is one."""
    fake = types.SimpleNamespace(command=None, error=None)

    def run(command):
        fake.command = command
        if fake.error is not None:
            raise fake.error

    monkeypatch.setattr(cli.Fit, "run", run)
    return fake


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_the_commands(run_python, arguments):
    result = run_python("-m", "rpgssm.cli", *arguments)
    assert result.returncode == 0, result.stderr
    assert "usage: rpgssm" in result.stdout
    for command in ("demo", "fit", "transform", "forecast", "info"):
        assert command in result.stdout
    for other in ("bench", "experiment", "tasks"):
        assert other not in result.stdout


def test_help_of_fit_lists_its_options(run_python):
    result = run_python("-m", "rpgssm.cli", "fit", "--help")
    assert result.returncode == 0, result.stderr
    for option in ("--latent-dim", "--out", "--max-steps", "--key"):
        assert option in result.stdout


def test_help_does_not_import_jax(run_python):
    code = """
import sys
from rpgssm.cli import main
try:
    main(["--help"])
except SystemExit as end:
    assert end.code == 0
assert "jax" not in sys.modules
"""
    result = run_python("-c", code)
    assert result.returncode == 0, result.stderr


def test_version(run_python):
    result = run_python("-m", "rpgssm.cli", "--version")
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"rpgssm {rpgssm.__version__}\n"


@pytest.mark.parametrize("arguments", [["fti"], ["fit"], ["fit", "x.npy", "-o", "run", "--latent-dm", "3"]])
def test_unknown_or_missing_command(run_python, arguments):
    result = run_python("-m", "rpgssm.cli", *arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "--help" in result.stdout + result.stderr


def test_settings_reach_the_command(fake_fit, tmp_path):
    main(["fit", "x.npy", "-o", str(tmp_path), "--latent-dim", "3", "--key", "a", "b", "--quiet"])
    assert isinstance(fake_fit.command, cli.Fit)
    assert fake_fit.command.out == tmp_path
    assert fake_fit.command.settings.latent_dim == 3
    assert fake_fit.command.reading.key == ("a", "b")
    assert fake_fit.command.quiet


@pytest.mark.parametrize("error", [ValueError("no case 'x':\n  choose one of a, b"), FileNotFoundError("no file 'x'")])
def test_errors_the_user_can_act_on_are_one_line(fake_fit, capsys, error):
    fake_fit.error = error
    with pytest.raises(SystemExit) as end:
        main(["fit", "x.npy", "-o", "run"])
    assert end.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("rpgssm: error: no ")
    assert message.count("\n") == 1


@pytest.mark.parametrize("error", [RuntimeError("defect"), UnicodeError("a ValueError, but nobody's input")])
def test_defects_keep_their_traceback(fake_fit, error):
    fake_fit.error = error
    with pytest.raises(type(error)):
        main(["fit", "x.npy", "-o", "run"])
