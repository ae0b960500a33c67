"""The generative models as estimators: what can be asked of them, forms of data, saving, and the command line."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from sklearn.base import clone

import rpgssm
from rpgssm.cli import main
from rpgssm.methods import DKF, KVAE, SVAE, LinearGaussianSSM

SMALL: dict[str, Any] = {"latent_dim": 2, "encoder": "linear", "decoder": "linear", "mask_size": 2, "verbose": False}
SMALL |= {"max_steps": 3, "batch_size": 4, "validation_fraction": None}
N, T, D = 6, 8, 3


@pytest.fixture(scope="module", autouse=True)
def quick_compilation(compile_quickly):
    with compile_quickly():
        yield


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    z = np.cumsum(rng.normal(size=(N, T, 2)), 1)
    return (z @ rng.normal(size=(2, D)) + 0.1 * rng.normal(size=(N, T, D))).astype(np.float32)


def fresh(name):
    return {
        "svae": lambda: SVAE(**SMALL),
        "dkf": lambda: DKF(**SMALL, posterior="linear"),
        "kvae": lambda: KVAE(**SMALL),
        "em": lambda: LinearGaussianSSM(2, iterations=3, verbose=False),
    }[name]()


slow = pytest.mark.slow


@pytest.fixture(scope="module", params=[*(pytest.param(name, marks=slow) for name in ("svae", "dkf", "kvae")), "em"])
def fitted(request, x):
    return fresh(request.param).fit(x)


def test_latents_forecasts_score_and_frames(fitted, x):
    latents = fitted.smooth(x)
    assert latents.mean.shape == (N, T, 2)
    assert latents.cov.shape == (N, T, 2, 2)
    assert latents.mean.dtype == np.float32
    assert (np.linalg.eigvalsh(latents.cov) > 0).all()
    assert (latents.log_z is None) == isinstance(fitted, DKF)
    np.testing.assert_array_equal(fitted.transform(x), latents.mean)
    ahead = fitted.forecast(x, 4, samples=3)
    assert ahead.mean.shape == (N, 4, 2)
    assert ahead.samples.shape == (3, N, 4, 2)
    assert np.isfinite(ahead.samples).all()
    assert fitted.reconstruct(x).shape == x.shape
    assert np.isfinite(fitted.score(x))
    assert fitted.score(x) == fitted.score(x)


def test_the_first_step_of_a_forecast_follows_the_transition(fitted, x):
    if isinstance(fitted, KVAE):
        assert not hasattr(fitted, "transition_")
        return
    last, ahead = fitted.smooth(x).mean[:, -1], fitted.forecast(x, 1).mean[:, 0]
    prior = (fitted.model_.prior if isinstance(fitted, DKF) else fitted.model_).chain(2)
    np.testing.assert_allclose(ahead, last @ fitted.transition_.T + np.asarray(prior.b[0]), rtol=1e-4, atol=1e-5)


def test_filters_are_causal_or_not_there(fitted, x):
    if isinstance(fitted, DKF):
        assert not hasattr(fitted, "filter")
        assert not hasattr(fitted, "online")
        return
    other = x.copy()
    other[:, 5:] += 1
    first, second = fitted.filter(x).mean, fitted.filter(other).mean
    np.testing.assert_allclose(first[:, :5], second[:, :5], rtol=1e-5, atol=1e-5)
    assert abs(first[:, 5:] - second[:, 5:]).max() > 1e-3
    np.testing.assert_allclose(first[:, -1], fitted.smooth(x).mean[:, -1], rtol=1e-3, atol=1e-4)


def test_saved_and_loaded(fitted, x, tmp_path):
    folder = fitted.save(tmp_path / "model")
    again = rpgssm.load(folder)
    assert type(again) is type(fitted)
    np.testing.assert_array_equal(again.transform(x), fitted.transform(x))
    assert again.summary() == fitted.summary()
    assert again.score(x) == fitted.score(x)
    assert type(fitted).__name__ in (folder / "README.md").read_text()
    wrong = SVAE if not isinstance(fitted, SVAE) else DKF
    with pytest.raises(ValueError, match="holds a model of"):
        wrong.load(folder)


def test_the_summary_names_the_model(fitted):
    out = fitted.summary()
    assert "2 latent dimensions" in out
    assert "6 sequences of 8 frames" in out
    assert ("eigenvalues of A" in out) != isinstance(fitted, KVAE)


@pytest.mark.parametrize("name", ["svae", "dkf", "kvae", "em"])
def test_settings_are_kept_and_checked(name, x):
    model = fresh(name)
    copy: Any = clone(model)
    assert copy.get_params() == model.get_params()
    with pytest.raises(ValueError, match="no use for controls"):
        model.fit(x, controls=np.zeros((N, T, 1), np.float32))
    with pytest.raises(ValueError, match="latent_dim is 0"):
        copy.set_params(latent_dim=0).fit(x)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dkf", "kvae"])
def test_resumed_runs_end_where_whole_ones_do(name, x, tmp_path):
    """Also where the phase of training changes after the checkpoint, by a count of steps in the model."""
    settings = {"max_steps": 6, "checkpoint_every": 3, "learning_rate": 0.01, "mask_size": 0}
    settings |= {"warmup_steps": 4} if name == "kvae" else {}

    def stop(estimator, report):
        raise KeyboardInterrupt

    def trained(folder=None, **options):
        return fresh(name).set_params(**settings, checkpoint_dir=folder).fit(x, **options)

    whole, part = trained(), trained(tmp_path, callbacks=[stop])
    resumed = trained(tmp_path, resume=True)
    assert [model.n_steps_ for model in (whole, part, resumed)] == [6, 3, 6]
    leaves = [jax.tree.leaves(eqx.filter(model.model_, eqx.is_array)) for model in (whole, part, resumed)]
    for expected, found in zip(leaves[0], leaves[2], strict=True):
        np.testing.assert_array_equal(found, expected)
    assert any((np.asarray(a) != np.asarray(b)).any() for a, b in zip(leaves[0], leaves[1], strict=True))
    if name == "kvae":
        assert float(resumed.model_.steps.value) == 6
        first, second = (np.asarray(model.model_.mixture[1].weight) for model in (part, whole))
        assert (first != second).any()


@pytest.mark.parametrize(
    ("setting", "value"),
    [("noise", 0.0), ("mask_size", -1), ("mask_mode", "gap"), ("decoder", "deep"), ("output", "x")],
)
def test_wrong_settings_are_named(x, setting, value):
    with pytest.raises(ValueError, match=f"{setting} is {value!r}"):
        SVAE(**SMALL).set_params(**{setting: value}).fit(x)


@pytest.mark.slow
def test_ragged_and_missing_frames(x):
    """Of EM, which is quick to fit; the others share the code for forms of data."""
    rows = [row[: T - n % 3] for n, row in enumerate(x)]
    rows[0] = np.where(np.arange(T)[:, None] == 2, np.nan, rows[0]).astype(np.float32)
    model = fresh("em").fit(rows)
    latents = model.smooth(rows)
    assert [len(z) for z in latents.mean] == [len(row) for row in rows]
    assert all(np.isfinite(z).all() for z in latents.mean)
    assert model.forecast(rows, 2).mean[0].shape == (2, 2)


def test_on_the_command_line(x, tmp_path, capsys):
    np.save(tmp_path / "x.npy", x)
    run, data = tmp_path / "run", str(tmp_path / "x.npy")
    main(["fit", data, "-o", str(run), "--model", "linear-gaussian", "--latent-dim", "2", "--iterations", "3"])
    assert "Linear Gaussian state space model" in capsys.readouterr().out
    main(["info", str(run)])
    assert "by EM" in capsys.readouterr().out
    main(["transform", str(run), data, "-o", str(tmp_path / "z.npy"), "--causal"])
    assert np.load(tmp_path / "z.npy").shape == (N, T, 2)
    main(["forecast", str(run), data, "-o", str(tmp_path / "f.npz"), "--steps", "2"])
    assert np.load(tmp_path / "f.npz")["mean"].shape == (N, 2, 2)


def test_settings_of_other_models_are_refused(capsys):
    with pytest.raises(SystemExit) as end:
        main(["fit", "x.npy", "-o", "run", "--model", "svae", "--posterior", "linear"])
    assert end.value.code == 2
    with pytest.raises(SystemExit):
        main(["fit", "--model", "dkf", "--help"])
    out = capsys.readouterr().out
    assert "--posterior" in out
    assert "--prior" not in out
