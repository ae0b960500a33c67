"""What is saved comes back, bit for bit, and what is damaged is said to be."""

import json
import re

import equinox as eqx
import jax
import numpy as np
import pytest

from rpgssm.estimator import RPGSSM

from .conftest import quick


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


def test_nothing_is_pickled(saved):
    from safetensors.numpy import load_file

    assert sorted(p.name for p in saved.iterdir()) == ["README.md", "config.json", "weights.safetensors"]
    config = json.loads((saved / "config.json").read_text())
    assert config["estimator"] == "RPGSSM"
    assert load_file(saved / "weights.safetensors")["model.prior.A"].shape == (2, 2)


def test_the_card_runs(saved, world, stationary, monkeypatch):
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
    stationary.save(saved, overwrite=True)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file: choose a folder"):
        stationary.save(tmp_path / "file")


def test_controls_and_settings_of_numpy(controlled, pushed, tmp_path):
    model = quick(initial_transition=0.5 * np.eye(2)).set_params(latent_dim=np.int64(2)).fit(pushed.x)
    loaded = RPGSSM.load(model.save(tmp_path / "numpy"))
    assert loaded.latent_dim == 2
    np.testing.assert_array_equal(loaded.initial_transition, 0.5 * np.eye(2))
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
    with pytest.raises(ValueError, match="encoder of your own for left: pass the module again"):
        RPGSSM.load(folder)
    with pytest.raises(ValueError, match=r"do not fit the model: .*pass one of the same shapes as encoder="):
        RPGSSM.load(folder, encoder=module(6))
    with pytest.raises(ValueError, match="pass a mapping with left"):
        RPGSSM.load(folder, encoder={"right": module(5)})


def test_damaged_models_are_said_to_be(saved, tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no saved model"):
        RPGSSM.load(tmp_path)
    with pytest.raises(ValueError, match="leave encoder= out"):
        RPGSSM.load(saved, encoder=module(5))

    def changed(text):
        (tmp_path / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path

    good = json.loads((saved / "config.json").read_text())
    for text, message in [
        ("{", "config.json is damaged"),
        (b"\xff\xfe\x80", "config.json is damaged"),
        ("[]", "not the settings of a model"),
        (json.dumps(good | {"format": 99}), "install a newer rpgssm"),
        (json.dumps(good | {"estimator": "Other"}), "a model of Other, not of RPGSSM"),
        (json.dumps({k: v for k, v in good.items() if k != "training"}), "is damaged: has no entry 'training'"),
        (json.dumps(good | {"parameters": good["parameters"] | {"colour": 1}}), "is damaged: .*colour"),
    ]:
        with pytest.raises(ValueError, match=message):
            RPGSSM.load(changed(text))
    changed(json.dumps(good))
    with pytest.raises(FileNotFoundError, match="not saved completely"):
        RPGSSM.load(tmp_path)
    weights = (saved / "weights.safetensors").read_bytes()
    (tmp_path / "weights.safetensors").write_bytes(weights[:-20])
    with pytest.raises(ValueError, match=r"weights\.safetensors is damaged"):
        RPGSSM.load(tmp_path)
    changed(json.dumps(good | {"parameters": good["parameters"] | {"latent_dim": 3}}))
    (tmp_path / "weights.safetensors").write_bytes(weights)
    with pytest.raises(ValueError, match="do not fit the model"):
        RPGSSM.load(tmp_path)
