"""A wide layer on a trained network: what it is, that the network below stays, that it is saved and resumed."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.data import as_sequences
from rpgssm.estimator import RPGSSM
from rpgssm.estimator.inference import recognised
from rpgssm.models.priors import initial_transition
from rpgssm.models.random_features import RandomFeatures
from rpgssm.models.widening import WideEncoder, is_wide
from rpgssm.models.widening import recognised as of_frames

from .conftest import quick


@pytest.fixture(scope="module")
def seen():
    """What a callback saw while `wide` was fitted: the step, and latents of one sequence."""
    return []


@pytest.fixture(scope="module")
def wide(world, seen):
    def see(estimator, report):
        seen.append((report.step, estimator.transform(world.x[:1])))

    return quick(encoder="mlp", widen=16, widen_steps=12).fit(world.x, callbacks=[see])


@pytest.fixture(scope="module")
def narrow(world):
    return quick(encoder="mlp").fit(world.x)


def test_the_network_below_is_the_one_that_training_alone_gives(wide, narrow):
    assert not is_wide(narrow.model_)
    encoder = wide.model_.recognition["observations"].encoder
    assert isinstance(encoder, WideEncoder)
    jax.tree.map(np.testing.assert_array_equal, encoder.trunk, narrow.model_.recognition["observations"])
    assert encoder.out_dim == 16
    assert wide.n_steps_ == 32
    np.testing.assert_array_equal(wide.history_["step"], [10, 20, 30, 32])
    assert (np.diff(wide.history_["seconds"]) >= 0).all()


def test_potentials_are_those_of_the_layer_on_recognised_means(wide, world):
    """By hand: encoder, head, mean of the recognition factor, layer, head."""
    recognition = wide.model_.recognition["observations"]
    trunk, layer, head = recognition.encoder.trunk, recognition.encoder.layer, recognition.head
    x = jnp.asarray(world.x[:2])
    h, precision = trunk.head(trunk.encoder(x.reshape(-1, 6)).reshape(2, 12, -1))
    mean = np.linalg.solve(np.eye(2) + np.asarray(precision.dense()), np.asarray(h)[..., None])[..., 0]
    standard = (mean - np.asarray(layer.standardise.shift)) / np.asarray(layer.standardise.scale)
    assert layer.standardise.scale.shape == ()
    dense = layer.layers.layers[0]
    features = jax.nn.silu(standard.reshape(-1, 2).astype(np.float32) @ dense.weight + dense.bias)
    expected = features @ head.to_h.weight + head.to_h.bias
    found = wide.model_.potentials(as_sequences(world.x[:2])[0])[0].h
    np.testing.assert_allclose(found.reshape(-1, 2), expected, atol=1e-5)


def test_it_is_saved(wide, world, tmp_path):
    wide.save(tmp_path / "model")
    loaded = RPGSSM.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.transform(world.x), wide.transform(world.x))
    assert "a layer of 16" in loaded.summary()


def test_training_on_leaves_the_network_below_alone(wide, world):
    before = wide.model_.recognition["observations"]
    more = copy.copy(wide).set_params(max_steps=5).partial_fit(world.x)
    after = more.model_.recognition["observations"]
    jax.tree.map(np.testing.assert_array_equal, before.encoder.trunk, after.encoder.trunk)
    assert not np.array_equal(before.head.to_h.weight, after.head.to_h.weight)
    assert more.n_steps_ == 37


def test_resumed_it_is_the_same(wide, world, tmp_path):
    """Stopped in the second training, and before it."""
    settings = {"encoder": "mlp", "widen": 16, "widen_steps": 12, "checkpoint_dir": tmp_path, "checkpoint_every": 5}

    class Stop(Exception):
        pass

    for at in (15, 27):

        def stop(estimator, report, at=at):
            if report.step >= at:
                raise Stop

        with pytest.raises(Stop):
            quick(**settings).fit(world.x, resume=True, callbacks=[stop])
    resumed = quick(**settings).fit(world.x, resume=True)
    np.testing.assert_array_equal(resumed.transform(world.x), wide.transform(world.x))
    np.testing.assert_array_equal(resumed.history_["loss"], wide.history_["loss"])


def test_callbacks_see_a_model_of_frames_throughout(wide, seen, world):
    steps = [step for step, _ in seen]
    assert steps == sorted(steps)
    assert steps[-1] == 32
    assert all(latents.shape == (1, 12, 2) for _, latents in seen)
    np.testing.assert_array_equal(seen[-1][1], wide.transform(world.x[:1]))


@pytest.mark.slow
def test_missing_frames_and_modalities(world):
    mask = np.ones((10, 12), bool)
    mask[3, 4:6] = False
    halves = {"left": world.x[..., :3], "right": world.x[..., 3:]}
    model = quick(widen=8, widen_steps=5, max_steps=5).fit(halves, mask={"left": mask})
    found = model.transform(halves, mask={"left": mask})
    assert np.isfinite(found).all()
    hidden = {**halves, "left": np.where(mask[..., None], halves["left"], 7.0)}
    np.testing.assert_array_equal(found, model.transform(hidden, mask={"left": mask}))


def test_what_is_recognised_where_nothing_is_seen(two, world):
    """Zeros, whatever the frames hold, and in the modality that is missing only."""
    mask = np.ones((10, 12), bool)
    mask[3, 4:6] = False
    halves = {"left": np.where(mask[..., None], world.x[..., :3], 7.0), "right": world.x[..., 3:]}
    means = recognised(two.model_, as_sequences(halves, mask={"left": mask})[0])
    assert not means.modalities["left"].values[3, 4:6].any()
    assert means.modalities["left"].values[3, :4].all()
    assert means.modalities["right"].values[3, 4:6].all()


def test_what_is_recognised_keeps_controls_and_lengths(wide, world):
    u = np.arange(10 * 12.0, dtype=np.float32).reshape(10, 12, 1)
    ragged = [world.x[0], world.x[1, :7]]
    data = as_sequences(ragged, controls=[u[0], u[1, :7]])[0]
    means = recognised(wide.model_, data)
    np.testing.assert_array_equal(means.controls, data.controls)
    np.testing.assert_array_equal(means.lengths, [12, 7])
    assert means.frame_shapes == {"observations": (2,)}


def test_a_gaussian_marginal_is_for_linear_networks(world):
    with pytest.raises(ValueError, match="gaussian"):
        quick(encoder="mlp", marginal="gaussian", widen=8).fit(world.x)
    with pytest.raises(ValueError, match="widen is -1"):
        quick(widen=-1).fit(world.x)


A = initial_transition("smooth", 4, 0.9)
SECOND = {"latent_dim": 4, "initial_transition": A, "initial_precision": 3.0, "marginal": "gaussian"}


def test_the_second_training_has_settings_of_its_own(narrow, world, tmp_path):
    """After a step it is still where its settings say it starts; none of them is of the first training."""
    settings = {"encoder": "mlp", "widen": 0, "widen_steps": 1}
    model = quick(**settings, widen_settings=SECOND | {"prior_learning_rate": 1e-9}).fit(world.x)
    assert model.transform(world.x).shape == (10, 12, 4)
    recognition = model.model_.recognition["observations"]
    jax.tree.map(np.testing.assert_array_equal, recognition.encoder.trunk, narrow.model_.recognition["observations"])
    np.testing.assert_allclose(model.transition_, A, atol=1e-6)
    assert 2.5 < np.diag(np.asarray(model.model_.potentials(as_sequences(world.x)[0])[0].precision.dense())).min() < 3.5

    means = next(iter(recognised(narrow.model_, as_sequences(world.x)[0]).modalities.values())).values
    layer = recognition.encoder.layer
    standard = (means - means.mean((0, 1))) / np.sqrt(np.mean(means.var((0, 1))))
    np.testing.assert_allclose(layer(jnp.asarray(means.reshape(-1, 2))), standard.reshape(-1, 2), atol=1e-4)

    model.save(tmp_path / "model")
    loaded = RPGSSM.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.transform(world.x), model.transform(world.x))
    assert loaded.summary().startswith("RP-GSSM with 4 latent dimensions")
    assert "MLPEncoder and a new head" in loaded.summary()


@pytest.fixture(scope="module")
def fixed(world):
    return quick(encoder="mlp", widen=16, widen_steps=12, widen_components=5, widen_settings=GAUSSIAN).fit(world.x)


GAUSSIAN = {"marginal": "gaussian", "latent_dim": 4}


def test_with_a_gaussian_marginal_the_layer_stays_and_gives_components(fixed, narrow, world, tmp_path):
    """By hand: ReLU units of recognised means, projected on the leading directions of their covariance."""
    layer = fixed.model_.recognition["observations"].encoder.layer
    assert isinstance(layer, RandomFeatures)
    means = next(iter(recognised(narrow.model_, as_sequences(world.x)[0]).modalities.values())).values.reshape(-1, 2)
    standard = (means - means.mean(0)) / np.sqrt(np.mean(means.var(0)))
    units = np.maximum(standard @ np.asarray(layer.weight) + np.asarray(layer.bias), 0)
    left, singular, _ = np.linalg.svd(units - units.mean(0), full_matrices=False)
    found = np.asarray(layer(jnp.asarray(means)))
    assert found.shape == (120, 5)
    signs = np.sign((found * left[:, :5]).sum(0))
    np.testing.assert_allclose(found, (left * singular)[:, :5] * signs, atol=1e-3)

    again = quick(encoder="mlp", widen=16, widen_steps=2, widen_components=5, widen_settings=GAUSSIAN).fit(world.x)
    jax.tree.map(np.testing.assert_array_equal, layer, again.model_.recognition["observations"].encoder.layer)
    heads = [m.model_.recognition["observations"].head.to_h.weight for m in (fixed, again)]
    assert not np.array_equal(*heads)

    fixed.save(tmp_path / "model")
    loaded = RPGSSM.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.transform(world.x), fixed.transform(world.x))
    assert "MLPEncoder and 5 components of a random layer of 16" in loaded.summary()


@pytest.mark.parametrize("missing", ["hidden", "padding"])
def test_what_is_not_seen_has_no_part_in_the_components(world, missing):
    """The centre is the mean over the frames that were seen, and no others."""
    settings = {"encoder": "mlp", "max_steps": 2, "widen": 8, "widen_steps": 2, "widen_settings": GAUSSIAN}
    if missing == "hidden":
        mask = np.ones((10, 12), bool)
        mask[3, 4:9] = False
        model, seen = quick(**settings).fit(world.x, mask=mask), world.x[mask]
    else:
        ragged = [world.x[0, :5], *world.x[1:]]
        model, seen = quick(**settings).fit(ragged), np.concatenate(ragged)
    recognition = model.model_.recognition["observations"]
    trunk, layer = recognition.encoder.trunk, recognition.encoder.layer
    units = np.asarray(layer._units(of_frames(trunk, jnp.asarray(seen)[None])[0]))
    np.testing.assert_allclose(np.asarray(layer.centre), units.mean(0), rtol=1e-4, atol=1e-5)
    assert layer.out_dim == 8  # of 25: there are no more units


@pytest.mark.slow
def test_resumed_with_a_layer_that_is_not_trained_it_is_the_same(fixed, world, tmp_path):
    settings = {"encoder": "mlp", "widen": 16, "widen_steps": 12, "widen_components": 5, "widen_settings": GAUSSIAN}
    settings |= {"checkpoint_dir": tmp_path, "checkpoint_every": 5}

    class Stop(Exception):
        pass

    def stop(estimator, report):
        if report.step >= 27:
            raise Stop

    with pytest.raises(Stop):
        quick(**settings).fit(world.x, callbacks=[stop])
    resumed = quick(**settings).fit(world.x, resume=True)
    np.testing.assert_array_equal(resumed.transform(world.x), fixed.transform(world.x))


@pytest.mark.slow
def test_all_else_works_with_a_layer_that_is_not_trained(fixed, world, tmp_path):
    model = copy.copy(fixed).set_params(max_steps=2)
    model.fit_decoder(world.x, steps=2)
    model.save(tmp_path / "model")
    loaded = RPGSSM.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.reconstruct(world.x), model.reconstruct(world.x))
    assert np.isfinite(loaded.score(world.x))
    before = loaded.model_.recognition["observations"].encoder
    after = loaded.partial_fit(world.x).model_.recognition["observations"].encoder
    jax.tree.map(np.testing.assert_array_equal, before, after)


@pytest.mark.slow
def test_all_else_works_after_a_second_training_with_settings_of_its_own(world, tmp_path):
    model = quick(encoder="mlp", widen=0, widen_steps=1, widen_settings=SECOND).fit(world.x)
    model.fit_decoder(world.x, steps=2)
    model.save(tmp_path / "model")
    loaded = RPGSSM.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.reconstruct(world.x), model.reconstruct(world.x))
    assert np.isfinite(loaded.score(world.x))
    assert loaded.partial_fit(world.x).transform(world.x).shape == (10, 12, 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"widen_settings": {"latent_dim": 2}}, "pass widen=0"),
        ({"widen": 0, "widen_settings": {"n_init": 5}}, "mapping with any of latent_dim"),
        ({"widen": 0, "widen_settings": {"latent_dim": 0}}, r"second training .*latent_dim is 0"),
        (
            {"widen": 4, "widen_settings": {"marginal": "gaussian", "data_dependent": True}},
            r"second training .*gaussian",
        ),
        ({"widen": 4, "widen_components": 0}, r"widen_components is 0"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_trained(world, settings, message):
    calls = []
    with pytest.raises(ValueError, match=message):
        quick(**settings).fit(world.x, callbacks=[lambda *_: calls.append(1)])
    assert not calls
