"""What is saved comes back, bit for bit, and what is damaged is said to be."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

import rpgssm
from rpgssm import CPC, RPGSSM, Free, Prior, SimilarWindows

from .conftest import quick

OF_VERSION_1 = Path(__file__).resolve().parent.parent / "goldens" / "folders" / "linear" / "model"


@pytest.fixture(scope="module")
def saved(stationary, tmp_path_factory):
    return stationary.save(tmp_path_factory.mktemp("saved") / "model")


def test_loading_gives_the_same_model(stationary, saved, world):
    loaded = RPGSSM.load(saved)
    for method in ("smooth", "filter"):
        a, b = getattr(stationary, method)(world.x), getattr(loaded, method)(world.x)
        for name in ("mean", "cov", "log_z"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert loaded.get_params() == stationary.get_params()
    assert loaded.summary() == stationary.summary()
    assert loaded.notes_ == stationary.notes_
    assert loaded.n_features_in_ == 6
    np.testing.assert_array_equal(loaded.history_["loss"], stationary.history_["loss"])
    assert type(rpgssm.load(saved)) is RPGSSM
    with pytest.raises(ValueError, match="holds a model of RPGSSM, not of CPC"):
        CPC.load(saved)


def test_nothing_is_pickled_and_the_weights_are_named_with_their_hash(saved):
    from safetensors.numpy import load_file

    config = json.loads((saved / "config.json").read_text())
    assert config["format"] == 2
    assert config["method"] == "RPGSSM"
    assert config["settings"]["precision"] == {"kind": "Cholesky", "data_dependent": False, "start": 1.0}
    file = config["weights"]["file"]
    assert sorted(p.name for p in saved.iterdir()) == ["README.md", "config.json", file]
    assert config["weights"]["sha256"] == hashlib.sha256((saved / file).read_bytes()).hexdigest()
    assert load_file(saved / file)["model.prior.A"].shape == (2, 2)


def test_the_card_runs(saved, world, stationary):
    card = (saved / "README.md").read_text()
    assert "| `observations` | 6 |" in card
    code = re.search(r"```python\n(.*?)```", card, re.DOTALL)
    assert code is not None
    names = {"x": world.x}
    exec(code[1].replace("path/to/this/folder", str(saved)), names)
    np.testing.assert_array_equal(names["latents"], stationary.transform(world.x))


def test_nothing_is_overwritten_unasked(stationary, saved, tmp_path):
    with pytest.raises(ValueError, match="not empty: choose another folder, or pass overwrite=True"):
        stationary.save(saved)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file: choose a folder"):
        stationary.save(tmp_path / "file")


def test_overwriting_replaces_the_model_and_leaves_other_files(stationary, free, world, tmp_path):
    folder = tmp_path / "model"
    stationary.save(folder)
    (folder / "training").mkdir()
    (folder / "training" / "history.csv").write_text("of a run")
    (folder / "weights.txt").write_text("how I weighed them")
    first = sorted(folder.glob("*.safetensors"))
    stationary.save(folder, overwrite=True)
    assert sorted(folder.glob("*.safetensors")) == first
    free.save(folder, overwrite=True)
    (weights,) = folder.glob("*.safetensors")
    assert [weights] != first
    assert sorted(p.name for p in folder.iterdir()) == [
        "README.md",
        "config.json",
        "training",
        weights.name,
        "weights.txt",
    ]
    assert (folder / "training" / "history.csv").read_text() == "of a run"
    assert (folder / "weights.txt").read_text() == "how I weighed them"
    np.testing.assert_array_equal(RPGSSM.load(folder).transform(world.x), free.transform(world.x))


def test_a_folder_of_version_1_is_replaced_too(stationary, world, tmp_path):
    folder = shutil.copytree(OF_VERSION_1, tmp_path / "model")
    assert (folder / "weights.safetensors").is_file()
    stationary.save(folder, overwrite=True)
    assert len(list(folder.glob("*.safetensors"))) == 1
    np.testing.assert_array_equal(RPGSSM.load(folder).transform(world.x), stationary.transform(world.x))


@pytest.mark.parametrize("at", ["weights", "README.md", "config.json"])
def test_an_interrupted_save_leaves_the_old_model(stationary, free, world, tmp_path, monkeypatch, at):
    folder, real = stationary.save(tmp_path / "model"), Path.replace

    def fail(self, target):
        if Path(target).name.startswith(at):
            raise OSError("disk full")
        return real(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="disk full"):
            free.save(folder, overwrite=True)
    assert not list(folder.glob(".*"))  # no half-written files
    np.testing.assert_array_equal(RPGSSM.load(folder).transform(world.x), stationary.transform(world.x))


def test_what_is_saved_is_what_was_fitted(world, tmp_path):
    """Whatever `set_params` has changed since."""
    model = quick(max_steps=2).fit(world.x)
    before, latents, summary = model.get_params(), model.transform(world.x), model.summary()
    model.set_params(latent_dim=5, encoder="mlp", prior=Free(), sampler=SimilarWindows(), max_steps=0)
    assert model.summary() == summary
    loaded = RPGSSM.load(model.save(tmp_path / "changed"))
    assert loaded.get_params() == before
    assert loaded.summary() == summary
    np.testing.assert_array_equal(loaded.transform(world.x), latents)
    assert model.latent_dim == 5  # for the next fit
    loaded.set_params(latent_dim=4)
    assert RPGSSM.load(loaded.save(tmp_path / "again")).get_params() == before
    with pytest.raises(ValueError, match="max_steps is 0"):
        model.fit(world.x)
    assert RPGSSM.load(model.save(tmp_path / "failed")).get_params() == before
    model.set_params(**before | {"max_steps": 3}).partial_fit(world.x)
    assert RPGSSM.load(model.save(tmp_path / "more")).n_steps_ == 5


def test_controls_and_settings_of_numpy(controlled, pushed, tmp_path):
    model = quick(prior=Prior(start=0.5 * np.eye(2)), max_steps=2).set_params(latent_dim=np.int64(2))
    model.fit(pushed.x)
    loaded = RPGSSM.load(model.save(tmp_path / "numpy"))
    assert loaded.latent_dim == 2
    assert loaded.prior == Prior(start=0.5 * np.eye(2))
    loaded = RPGSSM.load(controlled.save(tmp_path / "controlled"))
    np.testing.assert_array_equal(
        loaded.transform(pushed.x, controls=pushed.u), controlled.transform(pushed.x, controls=pushed.u)
    )
    assert "controls=u" in (tmp_path / "controlled" / "README.md").read_text()


def test_decoders_are_saved_and_reconstruct(two, world, tmp_path):
    x = {"left": world.x[..., :3], "right": world.x[..., 3:]}
    with pytest.raises(ValueError, match="call fit_decoder"):
        two.reconstruct(x)
    model = RPGSSM.load(two.save(tmp_path / "plain"))  # a copy to add decoders to
    model.fit_decoder(x, steps=60, learning_rate=1e-2)
    seen = model.reconstruct(x)
    assert {name: frames.shape for name, frames in seen.items()} == {"left": (10, 12, 3), "right": (10, 12, 3)}
    error = np.mean((seen["left"] - x["left"]) ** 2)
    assert error < 0.9 * np.var(x["left"])
    loaded = RPGSSM.load(model.save(tmp_path / "decoders"))
    np.testing.assert_array_equal(loaded.reconstruct(x)["right"], seen["right"])
    np.testing.assert_allclose(loaded.decode(two.transform(x))["left"], seen["left"], atol=1e-6)
    with pytest.raises(ValueError, match="the last axis must be 2 long"):
        loaded.decode(np.zeros((3, 4)))


def test_folders_of_this_machine_are_not_saved(world, tmp_path):
    model = quick(max_steps=2, checkpoint_dir=tmp_path / "run").fit(world.x)
    folder = model.save(tmp_path / "model")
    assert RPGSSM.load(folder).checkpoint_dir is None
    assert str(tmp_path) not in (folder / "config.json").read_text()


def module(width, seed=0):
    return eqx.nn.MLP(3, width, 4, 1, key=jax.random.key(seed), dtype="float32")


@pytest.mark.slow
def test_an_encoder_of_ones_own_is_passed_again(world, tmp_path):
    x = {"left": world.x[..., :3], "right": world.x[..., 3:]}
    model = quick(encoder={"left": module(5), "right": "linear"}, max_steps=2).fit(x)
    folder = model.save(tmp_path / "model")
    expected = model.transform(x)
    np.testing.assert_array_equal(RPGSSM.load(folder, encoder=module(5, seed=9)).transform(x), expected)
    by_name = RPGSSM.load(folder, encoder={"left": module(5, seed=9)})
    np.testing.assert_array_equal(by_name.transform(x), expected)
    assert by_name.encoder["right"] == "linear"
    assert 'rpgssm.load("path/to/this/folder", encoder=yours)' in (folder / "README.md").read_text()
    with pytest.raises(ValueError, match="encoder of your own for left: pass it again"):
        RPGSSM.load(folder)
    with pytest.raises(ValueError, match=r"do not fit the model: .*pass one of the same shapes as encoder="):
        RPGSSM.load(folder, encoder=module(6))
    with pytest.raises(ValueError, match="pass a mapping with left"):
        RPGSSM.load(folder, encoder={"right": module(5)})


def test_an_optimizer_of_ones_own_is_passed_again(world, tmp_path):
    import optax

    model = quick(optimizer=optax.sgd(1e-3), max_steps=2).fit(world.x)
    folder = model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="optimizer of your own: pass it again"):
        RPGSSM.load(folder)
    loaded = RPGSSM.load(folder, optimizer=optax.sgd(1e-3))
    np.testing.assert_array_equal(loaded.transform(world.x), model.transform(world.x))


def test_what_is_not_a_setting_or_not_ones_own_is_not_passed(saved):
    with pytest.raises(ValueError, match="leave encoder= out"):
        RPGSSM.load(saved, encoder=module(5))
    with pytest.raises(ValueError, match="RPGSSM has no setting 'colour': leave colour= out"):
        RPGSSM.load(saved, colour=1)


def test_damaged_models_are_said_to_be(saved, tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no saved model"):
        RPGSSM.load(tmp_path)

    def changed(text):
        (tmp_path / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path

    good = json.loads((saved / "config.json").read_text())
    weights = (saved / good["weights"]["file"]).read_bytes()
    (tmp_path / good["weights"]["file"]).write_bytes(weights)
    for text, message in [
        ("{", "config.json is damaged"),
        (b"\xff\xfe\x80", "config.json is damaged"),
        ("[" * 100_000, "config.json is damaged"),
        ("[]", "not the configuration of a model"),
        (json.dumps(good | {"format": "2"}), "not the configuration of a model"),
        (json.dumps(good | {"format": 99}), "install a newer rpgssm"),
        (json.dumps(good | {"method": "Other"}), "a model of Other, not of RPGSSM"),
        (json.dumps({k: v for k, v in good.items() if k != "training"}), "is damaged: has no entry 'training'"),
        (json.dumps(good | {"settings": 3}), "is damaged"),
        (json.dumps(good | {"weights": 3}), "names no file of weights in this folder"),
        (json.dumps(good | {"weights": {"file": "../weights"}}), "names no file of weights in this folder"),
    ]:
        with pytest.raises(ValueError, match=message):
            RPGSSM.load(changed(text))
    changed(json.dumps(good | {"method": "Other"}))
    with pytest.raises(ValueError, match="a model of 'Other', which this version does not know"):
        rpgssm.load(tmp_path)
    changed(json.dumps(good | {"weights": good["weights"] | {"file": "other.safetensors"}}))
    with pytest.raises(FileNotFoundError, match=r"holds no other\.safetensors: the model was not saved completely"):
        RPGSSM.load(tmp_path)
    changed(json.dumps(good))
    np.testing.assert_array_equal(RPGSSM.load(tmp_path).transition_, RPGSSM.load(saved).transition_)
    for content in (weights[:-20], weights[:-1] + bytes([weights[-1] ^ 1])):  # cut off, and with one bit flipped
        (tmp_path / good["weights"]["file"]).write_bytes(content)
        with pytest.raises(ValueError, match=r"\.safetensors is damaged: its content has changed"):
            RPGSSM.load(tmp_path)
    digest = hashlib.sha256(weights[:-20]).hexdigest()
    changed(json.dumps(good | {"weights": good["weights"] | {"sha256": digest}}))
    (tmp_path / good["weights"]["file"]).write_bytes(weights[:-20])
    with pytest.raises(ValueError, match=r"\.safetensors is damaged"):
        RPGSSM.load(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"colour": 1}, "is damaged: .*colour"),
        ({"latent_dim": 0}, "latent_dim is 0: it must be a whole number"),
        ({"verbose": "no"}, "verbose is 'no'"),
        ({"validation_fraction": 2.0}, "validation_fraction is 2.0"),
        (
            {"sampler": {"kind": "Sheep"}},
            "the kind 'Sheep' is not known: it must be one of RandomWindows, SimilarWindows",
        ),
        ({"sampler": {"kind": "RandomFlips"}}, "the kind 'RandomFlips' is not known"),
        ({"sampler": {"kind": "Sampler"}}, "the kind 'Sampler' is not known"),
        ({"sampler": {"kind": "SimilarWindows", "colour": 1}}, "SimilarWindows has no setting 'colour'"),
        ({"sampler": {"kind": "SimilarWindows", "spare": 0}}, "SimilarWindows.spare is 0"),
        ({"sampler": "os.system"}, "sampler is 'os.system'"),
        ({"latent_dim": 3}, "do not fit the model"),
    ],
)
def test_stored_settings_are_checked(saved, tmp_path, settings, message, unchecked_types):
    folder = shutil.copytree(saved, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["settings"] |= settings
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        RPGSSM.load(folder)


def test_files_of_the_user_are_left_alone(stationary, tmp_path):
    """A README stays; a configuration of something else is refused, and what it names is not removed."""
    (tmp_path / "README.md").write_text("mine")
    stationary.save(tmp_path, overwrite=True)
    assert (tmp_path / "README.md").read_text() == "mine"
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious.npy").write_bytes(b"1")
    (other / "config.json").write_text('{"weights": {"file": "precious.npy"}}')
    with pytest.raises(ValueError, match="not of a model saved by this library"):
        stationary.save(other, overwrite=True)
    assert sorted(path.name for path in other.iterdir()) == ["config.json", "precious.npy"]


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize(
    ("stage", "name", "value"), [(0, "latent_dim", 3.9), (1, "max_steps", "many"), (1, "posterior_gradient", "no")]
)
def test_settings_of_stages_are_checked_on_loading(tmp_path, stage, name, value):
    folder = shutil.copytree(OF_VERSION_1.parents[1] / "wide-none" / "model", tmp_path / "old")
    model = rpgssm.load(folder)
    folder = model.save(tmp_path / "new")
    config = json.loads((folder / "config.json").read_text())
    config["settings"]["stages"][stage][name] = value
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=rf"stages, number {stage + 1}: {name} is {value!r}"):
        rpgssm.load(folder)


@pytest.mark.usefixtures("unchecked_types")
def test_numbers_of_numpy_are_settings_like_others(world, tmp_path):
    settings = {"max_steps": 4, "checkpoint_dir": tmp_path, "prior": Prior(scale=np.float64(0.5))}
    quick(**settings).fit(world.x)
    resumed = quick(**settings, batch_size=np.int64(8)).fit(world.x, resume=True)
    assert resumed.n_steps_ == 4
    assert repr(resumed.prior) == "Prior(scale=0.5)"
