"""From a file to a model, to latents, to forecasts, on the command line."""

import json
import sys

import numpy as np
import pytest

from rpgssm.cli import main
from rpgssm.estimator import RPGSSM

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
    settings = [*SMALL, "--schedule", "constant"]
    main(["fit", data, "-o", str(folder), *settings])
    for name in ("config.json", "weights.safetensors", "README.md"):
        (folder / name).unlink()  # as if it had been killed
    assert "pass --resume or --overwrite" in fails(capsys, "fit", data, "-o", folder, *settings)
    main(["fit", data, "-o", str(folder), *settings, "--resume", "--max-steps", "9"])
    whole = tmp_path / "whole"
    main(["fit", data, "-o", str(whole), *settings, "--max-steps", "9"])
    np.testing.assert_array_equal(RPGSSM.load(folder).transform(x), RPGSSM.load(whole).transform(x))
    message = fails(capsys, "fit", data, "-o", folder, *settings, "--resume", "--learning-rate", "1")
    assert "learning_rate is 1.0 and was 0.03" in message
    main(["fit", data, "-o", str(folder), *settings, "--overwrite"])
    assert RPGSSM.load(folder).n_steps_ == 6


def test_errors_are_one_line(run, files, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    assert "there is no file or folder" in fails(capsys, "fit", tmp_path / "no.npy", "-o", out)
    assert "there is no task 'nothing'" in fails(capsys, "fit", "task:nothing", "-o", out)
    assert "holds no saved model" in fails(capsys, "info", tmp_path)
    assert "must end in .npz or .npy" in fails(capsys, "transform", run, files / "x.npy", "-o", tmp_path / "z.csv")
    assert "latent_dim is 0" in fails(capsys, "fit", files / "x.npy", "-o", out, "--latent-dim", 0, "--quiet")
    message = fails(capsys, "fit", files / "x.npy", "-o", out, *SMALL, "--learning-rate", "1e30", "--clip-norm", "None")
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
    for option in ("--latent-dim", "--data-dependent", "--max-steps", "--background", "--resume", "task:NAME"):
        assert option in out
    assert "(default: 3000)" in out


@pytest.mark.slow
def test_a_task_is_fitted_and_evaluated(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RPGSSM_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "run"
    settings = ["--latent-dim", "3", "--encoder", "linear", "--max-steps", "20", "--validate-every", "10", "--quiet"]
    main(["fit", "task:linear-small", "-o", str(folder), *settings])
    model = RPGSSM.load(folder)
    assert "200 sequences" in model.summary()
    assert np.isfinite(model.history_["validation_loss"]).any()
    main(["evaluate", str(folder), "--task", "linear-small"])
    assert "linear" in capsys.readouterr().out
    scores = json.loads((folder / "evaluation-linear-small" / "evaluation.json").read_text())
    assert scores["linear"]["mean"] > 0.3
    assert list((folder / "evaluation-linear-small").glob("*.png"))
    main(["transform", str(folder), "task:linear-small", "-o", str(tmp_path / "z.npy")])
    assert len(np.load(tmp_path / "z.npy")) == 50
    message = fails(capsys, "transform", folder, "task:linear-small:all", "-o", tmp_path / "y.npy")
    assert "asks for the split 'all': a task has train, validation, test" in message


@pytest.mark.slow
@pytest.mark.parametrize("model", ["rpgssm", "svae", "dkf", "kvae", "linear-gaussian", "cpc", "dcl", "rkn"])
def test_every_model_from_task_to_scores(model, tmp_path, capsys):
    folder = tmp_path / "run"
    latents = "6" if model == "rkn" else "3"
    settings = ["--model", model, "--latent-dim", latents, "--max-steps", "4", "--quiet"]
    main(["fit", "task:linear-small", "-o", str(folder), *settings])
    main(["info", str(folder)])
    main(["transform", str(folder), "task:linear-small", "-o", str(tmp_path / "z.npz")])
    with np.load(tmp_path / "z.npz") as written:
        assert np.isfinite(written["mean"]).all()
    main(["evaluate", str(folder), "--task", "linear-small"])
    scores = json.loads((folder / "evaluation-linear-small" / "evaluation.json").read_text())
    assert -1 < scores["linear"]["z"] < 1
    assert "linear" in capsys.readouterr().out
