"""Stages on a trained network: what they are, that the network below stays, that all is saved and resumed."""

import copy
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone

import rpgssm
from rpgssm import (
    CPC,
    RPGSSM,
    Adam,
    Cholesky,
    Controlled,
    EmpiricalMarginal,
    FixedFeatures,
    GaussianMarginal,
    PooledMarginal,
    Prior,
    Stack,
    WideLayer,
)
from rpgssm.data import as_sequences
from rpgssm.methods.rpgssm import recognised_mean
from rpgssm.methods.stack import StackedEncoder, embedded
from rpgssm.nn.encoders import LinearEncoder
from rpgssm.nn.priors import initial_transition
from rpgssm.nn.random_features import RandomFeatures
from rpgssm.report import write_report

from .small_worlds import turning


def quick(latent_dim=2, encoder="mlp", **settings) -> RPGSSM:
    """A small model that trains in no time."""
    usual: dict[str, Any] = {"max_steps": 20, "batch_size": 8, "learning_rate": 3e-3, "validation_fraction": None}
    usual |= {"precision": Cholesky(start=1.0), "verbose": False}
    return RPGSSM(latent_dim, encoder, **(usual | settings))


def wide_stack(**first) -> Stack:
    return Stack([quick(**first), quick(encoder=WideLayer(16), max_steps=12, checkpoint_every=5)])


GAUSSIAN: dict[str, Any] = {"marginal": GaussianMarginal(), "latent_dim": 4}


def fixed_stack(max_steps=12, units=16, components=5, **first) -> Stack:
    layer = FixedFeatures(units, components=components)
    return Stack([quick(**first), quick(encoder=layer, max_steps=max_steps, checkpoint_every=5, **GAUSSIAN)])


A = initial_transition("smooth", 4, 0.9)


def head_stack(**second) -> Stack:
    """A second stage that is nothing but a new head and chain, all of whose settings are its own."""
    own = {"prior": Prior(start=A), "precision": Cholesky(start=3.0), "max_steps": 1}
    return Stack([quick(), quick(encoder="linear", **GAUSSIAN, **(own | second))])


@pytest.fixture(scope="module")
def x():
    return turning(n=10, t=12)[0]


@pytest.fixture(scope="module")
def halves(x):
    return {"left": x[..., :3], "right": x[..., 3:]}


@pytest.fixture(scope="module")
def seen():
    """What a callback saw while `wide` was fitted: the step, and latents of one sequence."""
    return []


@pytest.fixture(scope="module")
def wide(x, seen):
    def see(estimator, report):
        seen.append((report.step, estimator.n_steps_, estimator.n_stages_, estimator.transform(x[:1])))

    return wide_stack().fit(x, callbacks=[see])


@pytest.fixture(scope="module")
def narrow(x):
    return quick().fit(x)


def parts(model, name="observations"):
    """Trunk, layer and head of the last stage."""
    recognition = model.model_.recognition[name]
    assert isinstance(recognition.encoder, StackedEncoder)
    return recognition.encoder.trunk, recognition.encoder.layer, recognition.head


def assert_same(a, b):
    """The same numbers, of modules that may have different names."""
    for first, second in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(first, second)


def means_of(model, data) -> np.ndarray:
    (modality,) = embedded(model.model_, as_sequences(data)[0]).modalities.values()
    return np.asarray(modality.values)


def test_the_network_below_is_the_one_that_training_alone_gives(wide, narrow):
    assert not isinstance(narrow.model_.recognition["observations"].encoder, StackedEncoder)
    trunk, layer, _ = parts(wide)
    assert_same(trunk, narrow.model_.recognition["observations"])
    assert layer.out_dim == 16
    assert (wide.n_steps_, wide.best_step_, wide.n_stages_, wide.stopped_) == (32, 32, 2, "max_steps")
    np.testing.assert_array_equal(wide.history_["step"], [10, 20, 30, 32])
    np.testing.assert_array_equal(wide.history_["loss"][:2], narrow.history_["loss"])
    assert (np.diff(wide.history_["seconds"]) >= 0).all()
    assert wide.total_steps == 32


def test_potentials_are_those_of_the_layer_on_recognised_means(wide, x):
    """By hand: encoder, head, mean of the recognition factor, layer, head."""
    trunk, layer, head = parts(wide)
    h, precision = trunk.head(trunk.encoder(jnp.asarray(x[:2]).reshape(-1, 6)).reshape(2, 12, -1))
    mean = np.linalg.solve(np.eye(2) + np.asarray(precision.dense()), np.asarray(h)[..., None])[..., 0]
    standard = (mean - np.asarray(layer.standardise.shift)) / np.asarray(layer.standardise.scale)
    assert layer.standardise.scale.shape == ()
    dense = layer.layers.layers[0]
    features = jax.nn.silu(standard.reshape(-1, 2).astype(np.float32) @ dense.weight + dense.bias)
    expected = features @ head.to_h.weight + head.to_h.bias
    found = wide.model_.potentials(as_sequences(x[:2])[0])[0].h
    np.testing.assert_allclose(found.reshape(-1, 2), expected, atol=1e-5)


def test_it_is_saved(wide, x, tmp_path):
    folder = wide.save(tmp_path / "model")
    loaded = Stack.load(folder)
    np.testing.assert_array_equal(loaded.transform(x), wide.transform(x))
    np.testing.assert_array_equal(loaded.forecast(x, 3).mean, wide.forecast(x, 3).mean)
    assert loaded.score(x) == wide.score(x)
    assert loaded.summary() == wide.summary()
    assert "MLPEncoder and a layer of 16" in loaded.summary()
    assert [stage.get_params() for stage in loaded.stages] == [stage.get_params() for stage in wide.stages]
    assert type(rpgssm.load(folder)) is Stack
    with pytest.raises(ValueError, match="holds a model of Stack, not of RPGSSM"):
        RPGSSM.load(folder)


def test_what_is_saved_is_what_was_fitted(wide, x, tmp_path):
    """Whatever has become of the stages since."""
    model = Stack.load(wide.save(tmp_path / "model"))
    latents = model.transform(x)
    model.stages[1].set_params(latent_dim=7)
    loaded = Stack.load(model.save(tmp_path / "again"))
    np.testing.assert_array_equal(loaded.transform(x), latents)
    assert loaded.stages[1].latent_dim == 2
    model.set_params(stages=[quick(3), quick(3, "linear"), quick(3, "linear")])
    np.testing.assert_array_equal(Stack.load(model.save(tmp_path / "third")).transform(x), latents)


def test_training_on_leaves_the_network_below_alone(wide, x):
    """Also where the optimizer makes all weights smaller."""
    _, _, head = parts(wide)
    second = quick(encoder=WideLayer(16), max_steps=5, optimizer=Adam(weight_decay=10.0))
    more = copy.copy(wide).set_params(stages=[wide.stages[0], second]).partial_fit(x)
    assert_same(parts(more)[0], parts(wide)[0])
    assert not np.array_equal(head.to_h.weight, parts(more)[2].to_h.weight)
    assert more.n_steps_ == 37
    assert more.history_["step"].tolist() == [10, 20, 30, 32, 37]


class Stop(Exception):
    pass


def stopping_at(step):
    def stop(estimator, report):
        if report.step >= step:
            raise Stop

    return stop


def test_resumed_it_is_the_same(wide, x, tmp_path):
    """Stopped in the first stage, and in the second."""
    settings: dict[str, Any] = {"checkpoint_dir": tmp_path, "checkpoint_every": 5}
    for at in (15, 27):
        with pytest.raises(Stop):
            wide_stack(**settings).fit(x, resume=True, callbacks=[stopping_at(at)])
    assert (tmp_path / "stage-2").is_dir()
    resumed = wide_stack(**settings).fit(x, resume=True)
    np.testing.assert_array_equal(resumed.transform(x), wide.transform(x))
    np.testing.assert_array_equal(resumed.history_["loss"], wide.history_["loss"])
    other = wide_stack(**settings)
    other.stages[1].set_params(batch_size=4)
    with pytest.raises(ValueError, match="stage-2: batch_size is 4 and was 8"):
        other.fit(x, resume=True)
    with pytest.raises(ValueError, match=r"data\.modalities\.observations\.values is"):
        wide_stack(**settings).fit(x + 1, resume=True)
    with pytest.raises(FileExistsError, match="resume=True"):
        wide_stack(**settings).fit(x)


def test_callbacks_see_a_model_of_frames_throughout(wide, seen, x):
    steps = [step for step, *_ in seen]
    assert steps == sorted(steps)
    assert steps == [known for _, known, *_ in seen]
    assert steps[-1] == 32
    assert [stages for _, _, stages, _ in seen] == [1 if step <= 20 else 2 for step in steps]
    assert all(latents.shape == (1, 12, 2) for *_, latents in seen)
    np.testing.assert_array_equal(seen[-1][-1], wide.transform(x[:1]))


def test_an_interrupt_in_the_first_stage_leaves_a_model_of_it(x, tmp_path):
    def interrupt(estimator, report):
        raise KeyboardInterrupt

    model = wide_stack().fit(x, callbacks=[interrupt])
    assert (model.n_stages_, model.stopped_) == (1, "interrupted")
    assert np.isfinite(model.score(x))
    loaded = Stack.load(model.save(tmp_path / "model"))
    assert loaded.n_stages_ == 1
    np.testing.assert_array_equal(loaded.transform(x), model.transform(x))


def test_a_failed_fit_leaves_the_model_as_it_was(wide, x, tmp_path):
    model = copy.copy(wide)
    with pytest.raises(Stop):
        model.fit(x + 1, callbacks=[stopping_at(1)])
    assert model.n_stages_ == 2
    assert model.score(x) == wide.score(x)
    np.testing.assert_array_equal(Stack.load(model.save(tmp_path / "model")).transform(x), wide.transform(x))


def test_conventions_of_scikit_learn():
    stages = [quick(), quick(3, WideLayer(16))]
    model = Stack(stages)
    assert model.get_params() == {"stages": stages}
    assert model.stages is stages
    assert (model.latent_dim, model.random_state) == (3, 0)
    other: Any = clone(model)
    assert type(other) is Stack
    for stage, original in zip(other.stages, stages, strict=True):
        assert stage is not original
        assert stage.get_params() == original.get_params()
    assert other.set_params(stages=(quick(5), quick(6))).latent_dim == 6
    assert model.latent_dim == 3
    with pytest.raises(ValueError, match="Invalid parameter 'latent_dim'"):
        model.set_params(latent_dim=2)
    assert not hasattr(model, "n_stages_")


def test_fit_does_not_change_the_stages(wide):
    for stage, fresh in zip(wide.stages, wide_stack().stages, strict=True):
        assert vars(stage).keys() == vars(fresh).keys()
        assert stage.get_params() == fresh.get_params()
        assert not hasattr(stage, "model_")


def test_what_a_stage_leaves_open_it_has_from_the_first():
    linear = quick(encoder="linear", learning_rate=None)
    second = quick(encoder=WideLayer(16), learning_rate=None)
    found = Stack([linear, second])._with_layer(1, second.encoder).resolved()
    assert found["learning_rate"] == 3e-2
    assert found["optimizer"] == Adam(prior_rate=3e-2)
    assert found["prior"].scale == 0.9
    assert found["marginal"] == EmpiricalMarginal()  # the first one's is Gaussian, for its linear encoder
    own = quick(encoder=WideLayer(16), learning_rate=1e-2, prior=Prior(scale=0.5), marginal=PooledMarginal(4))
    found = Stack([quick(marginal=PooledMarginal(3)), own])._with_layer(1, own.encoder).resolved()
    assert found["learning_rate"] == 1e-2
    assert found["optimizer"] == Adam()
    assert found["prior"].scale == 0.5
    assert found["marginal"] == PooledMarginal(4)
    found = Stack([quick(marginal=PooledMarginal(3)), second])._with_layer(1, second.encoder).resolved()
    assert found["marginal"] == PooledMarginal(3)


@pytest.mark.slow
def test_missing_frames_and_modalities(x, halves):
    mask = np.ones((10, 12), bool)
    mask[3, 4:6] = False
    model = Stack([quick(encoder="linear", max_steps=5), quick(encoder=WideLayer(8), max_steps=5)])
    found = model.fit(halves, mask={"left": mask}).transform(halves, mask={"left": mask})
    assert np.isfinite(found).all()
    hidden = {**halves, "left": np.where(mask[..., None], halves["left"], 7.0)}
    np.testing.assert_array_equal(found, model.transform(hidden, mask={"left": mask}))


def test_what_is_recognised_where_nothing_is_seen(halves):
    """Zeros, whatever the frames hold, and in the modality that is missing only."""
    mask = np.ones((10, 12), bool)
    mask[3, 4:6] = False
    two = quick(encoder="linear", max_steps=2, precision=Cholesky(data_dependent=True, start=1.0)).fit(halves)
    hidden = {**halves, "left": np.where(mask[..., None], halves["left"], 7.0)}
    means = embedded(two.model_, as_sequences(hidden, mask={"left": mask})[0])
    assert not means.modalities["left"].values[3, 4:6].any()
    assert means.modalities["left"].values[3, :4].all()
    assert means.modalities["right"].values[3, 4:6].all()


def test_what_is_recognised_keeps_controls_and_lengths(wide, x):
    u = np.arange(10 * 12.0, dtype=np.float32).reshape(10, 12, 1)
    ragged = [x[0], x[1, :7]]
    data = as_sequences(ragged, controls=[u[0], u[1, :7]])[0]
    means = embedded(wide.model_, data)
    assert data.controls is not None
    np.testing.assert_array_equal(np.asarray(means.controls), data.controls)
    np.testing.assert_array_equal(np.asarray(means.lengths), [12, 7])
    assert means.frame_shapes == {"observations": (2,)}


def test_a_second_stage_of_a_new_head_starts_where_its_settings_say(narrow, x, tmp_path):
    """After a step it is still there; none of the settings is of the first stage."""
    model = head_stack(optimizer=Adam(prior_rate=1e-9)).fit(x)
    assert model.transform(x).shape == (10, 12, 4)
    trunk, layer, _ = parts(model)
    assert_same(trunk, narrow.model_.recognition["observations"])
    np.testing.assert_allclose(model.transition_, A, atol=1e-6)
    precision = np.asarray(model.model_.potentials(as_sequences(x)[0])[0].precision.dense())
    assert 2.5 < np.diag(precision).min() < 3.5

    assert isinstance(layer, LinearEncoder)
    means = means_of(narrow, x)
    standard = (means - means.mean((0, 1))) / np.sqrt(np.mean(means.var((0, 1))))
    np.testing.assert_allclose(layer(jnp.asarray(means.reshape(-1, 2))), standard.reshape(-1, 2), atol=1e-4)

    loaded = Stack.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.transform(x), model.transform(x))
    assert loaded.summary().startswith("Stack of RP-GSSMs with 4 latent dimensions")
    assert "MLPEncoder and a new head" in loaded.summary()


@pytest.fixture(scope="module")
def fixed(x):
    return fixed_stack().fit(x)


def test_fixed_features_stay_and_are_components(fixed, narrow, x, tmp_path):
    """By hand: ReLU units of recognised means, projected on the leading directions of their covariance."""
    _, layer, head = parts(fixed)
    assert isinstance(layer, RandomFeatures)
    means = means_of(narrow, x).reshape(-1, 2)
    standard = (means - means.mean(0)) / np.sqrt(np.mean(means.var(0)))
    units = np.maximum(standard @ np.asarray(layer.weight) + np.asarray(layer.bias), 0)
    left, singular, _ = np.linalg.svd(units - units.mean(0), full_matrices=False)
    found = np.asarray(layer(jnp.asarray(means)))
    assert found.shape == (120, 5)
    signs = np.sign((found * left[:, :5]).sum(0))
    np.testing.assert_allclose(found, (left * singular)[:, :5] * signs, atol=1e-3)

    again = fixed_stack(max_steps=2).fit(x)
    assert_same(layer, parts(again)[1])
    assert not np.array_equal(head.to_h.weight, parts(again)[2].to_h.weight)

    loaded = Stack.load(fixed.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.transform(x), fixed.transform(x))
    assert "MLPEncoder and 5 components of a random layer of 16" in loaded.summary()


@pytest.mark.parametrize("missing", ["hidden", pytest.param("padding", marks=pytest.mark.slow)])
def test_what_is_not_seen_has_no_part_in_the_components(x, missing):
    """The centre is the mean over the frames that were seen, and no others."""
    model = fixed_stack(units=8, components=25, max_steps=2)
    model.stages[0].set_params(max_steps=2)
    if missing == "hidden":
        mask = np.ones((10, 12), bool)
        mask[3, 4:9] = False
        model, there = model.fit(x, mask=mask), x[mask]
    else:
        ragged = [x[0, :5], *x[1:]]
        model, there = model.fit(ragged), np.concatenate(ragged)
    trunk, layer, _ = parts(model)
    units = np.asarray(layer._units(recognised_mean(trunk, jnp.asarray(there)[None])[0]))
    np.testing.assert_allclose(np.asarray(layer.centre), units.mean(0), rtol=1e-4, atol=1e-5)
    assert layer.out_dim == 8  # of 25: there are no more units


@pytest.mark.slow
def test_resumed_with_a_layer_that_is_not_trained_it_is_the_same(fixed, x, tmp_path):
    settings: dict[str, Any] = {"checkpoint_dir": tmp_path, "checkpoint_every": 5}
    with pytest.raises(Stop):
        fixed_stack(**settings).fit(x, callbacks=[stopping_at(27)])
    resumed = fixed_stack(**settings).fit(x, resume=True)
    np.testing.assert_array_equal(resumed.transform(x), fixed.transform(x))


@pytest.mark.slow
def test_all_else_works_with_a_layer_that_is_not_trained(fixed, x, tmp_path):
    model = copy.copy(fixed)
    model.fit_decoder(x, steps=2)
    loaded = Stack.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.reconstruct(x), model.reconstruct(x))
    assert np.isfinite(loaded.score(x))
    before = parts(loaded)
    after = parts(loaded.partial_fit(x))
    assert_same(before[:2], after[:2])
    assert not np.array_equal(before[2].to_h.weight, after[2].to_h.weight)


@pytest.mark.slow
def test_all_else_works_after_a_second_stage_of_a_new_head(x, tmp_path):
    model = head_stack().fit(x)
    model.fit_decoder(x, steps=2)
    loaded = Stack.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.reconstruct(x), model.reconstruct(x))
    assert np.isfinite(loaded.score(x))
    assert loaded.partial_fit(x).transform(x).shape == (10, 12, 4)


@pytest.mark.slow
def test_three_stages(wide, x, tmp_path):
    """The third is on what the second recognises, and the first two are as if they were alone."""
    model = Stack([*wide_stack().stages, quick(3, "linear", max_steps=4)]).fit(x)
    assert (model.n_stages_, model.n_steps_) == (3, 36)
    assert model.transform(x).shape == (10, 12, 3)
    trunk, layer, head = parts(model)
    assert_same(trunk, wide.model_.recognition["observations"])
    means = means_of(wide, x)
    features = layer(jnp.asarray(means.reshape(-1, 2)))
    expected = (features @ head.to_h.weight + head.to_h.bias).reshape(10, 12, 3)
    found = model.model_.potentials(as_sequences(x)[0])[0].h
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert "MLPEncoder and a layer of 16 and a new head" in model.summary()
    loaded = Stack.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.transform(x), model.transform(x))
    more = loaded.partial_fit(x)
    assert_same(parts(more)[0], trunk)
    assert more.n_steps_ == 40


@pytest.mark.slow
def test_the_best_of_several_starts_goes_on(x):
    model = Stack([quick(encoder="linear", n_init=2), quick(encoder=WideLayer(8), max_steps=2)]).fit(x)
    starts = [quick(encoder="linear", random_state=seed).fit(x) for seed in (0, 1)]
    losses = [start.history_["loss"][-1] for start in starts]
    np.testing.assert_allclose(model.init_losses_, losses, rtol=1e-4)
    best = starts[int(np.argmin(losses))]
    trunk, _, _ = parts(model)
    for a, b in zip(jax.tree.leaves(trunk), jax.tree.leaves(best.model_.recognition["observations"]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_validation_data_choose_the_model_of_each_stage(x):
    model = wide_stack().fit(x[:8], validation=x[2:])
    assert np.isfinite(model.history_["validation_loss"][[1, 3]]).all()
    held_out = Stack([quick(validation_fraction=0.4), quick(encoder=WideLayer(16), max_steps=12)]).fit(x)
    assert np.isfinite(held_out.history_["validation_loss"][[1, 3]]).all()


def module(dim, width, seed=0):
    return eqx.nn.MLP(dim, width, 4, 1, key=jax.random.key(seed), dtype="float32")


@pytest.mark.slow
def test_encoders_of_ones_own_are_passed_again(x, tmp_path):
    model = Stack([quick(encoder=module(6, 5), max_steps=2), quick(encoder=WideLayer(8), max_steps=2)]).fit(x)
    folder = model.save(tmp_path / "first")
    loaded = Stack.load(folder, encoder=module(6, 5, seed=9))
    np.testing.assert_array_equal(loaded.transform(x), model.transform(x))
    with pytest.raises(ValueError, match="encoder of your own: pass it again"):
        Stack.load(folder)
    with pytest.raises(ValueError, match="do not fit the model"):
        Stack.load(folder, encoder=module(6, 7))


@pytest.mark.slow
def test_encoders_of_ones_own_in_several_stages_are_passed_again(x, tmp_path):
    model = Stack([quick(encoder=module(6, 5), max_steps=2), quick(encoder=module(2, 3), max_steps=2)]).fit(x)
    folder = model.save(tmp_path / "both")
    loaded = rpgssm.load(folder, encoder=[module(6, 5, seed=9), module(2, 3, seed=9)])
    np.testing.assert_array_equal(loaded.transform(x), model.transform(x))
    with pytest.raises(ValueError, match=r"of your own in 2 stages: pass them again, load\(directory, encoder=\[first"):
        rpgssm.load(folder, encoder=module(6, 5))


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ((), r"stages is \(\): it must be two or more RPGSSM\(\), in a list or tuple"),
        ([quick()], r"it must be two or more RPGSSM\(\)"),
        ([quick(), CPC()], r"it must be two or more RPGSSM\(\)"),
        ([quick(), quick().set_params(latent_dim=0)], "stages, number 2: latent_dim is 0"),
        ([quick().set_params(max_steps=-1), quick()], "stages, number 1: max_steps is -1"),
        ([quick(marginal=GaussianMarginal()), quick()], "stage 1 of the stack: .*GaussianMarginal.* needs linear"),
        (
            [quick(), quick(encoder=WideLayer(4), marginal=GaussianMarginal())],
            "stage 2 of the stack: .*GaussianMarginal.* needs linear",
        ),
        (
            [
                quick(),
                quick(encoder=FixedFeatures(4), marginal=GaussianMarginal(), precision=Cholesky(data_dependent=True)),
            ],
            "stage 2 of the stack: .*GaussianMarginal.* needs a constant precision",
        ),
        (
            [quick(), quick(checkpoint_dir="here")],
            "stage 2 of the stack: checkpoint_dir is a setting of the first",
        ),
        ([quick(), quick(encoder="cnn")], "stage 2 of the stack: a convolutional network needs frames of"),
        ([quick(), quick(encoder={"left": "mlp"})], "stage 2 of the stack: .*the modalities are observations"),
        ([quick(), quick(encoder=WideLayer(4), prior=Prior(start=A))], "stage 2 of the stack: .*2 latent dimensions"),
        ([quick(), quick(encoder=WideLayer(4), prior=Controlled())], "stage 2 of the stack: .*needs controls"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_trained(x, stages, message):
    calls = []
    with pytest.raises(ValueError, match=message):
        Stack().set_params(stages=stages).fit(x, callbacks=[lambda *_: calls.append(1)])
    assert not calls


def test_wrong_layers_are_refused_when_they_are_made():
    for make, message in [
        (lambda: WideLayer(0), "WideLayer.units is 0"),
        (lambda: FixedFeatures(16, components=0), "FixedFeatures.components is 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()


class Interrupt:
    """A callback that interrupts once, in the first report from a step on."""

    def __init__(self, step=0):
        self.step = step

    def __call__(self, estimator, report):
        if self.step is not None and report.step >= self.step:
            self.step = None
            raise KeyboardInterrupt


def linear_stack(folder, seed, **first) -> Stack:
    below = quick(3, "linear", random_state=seed, max_steps=4, checkpoint_dir=folder, checkpoint_every=1, **first)
    return Stack([below, quick(encoder=WideLayer(6), max_steps=4)])


@pytest.mark.slow
def test_a_stage_does_not_go_on_with_the_run_of_another_stack(x, tmp_path):
    """What a stage is trained on is what the stage below gives, and not only the frames."""
    linear_stack(tmp_path, 0).fit(x)
    linear_stack(tmp_path, 7).fit(x, overwrite=True, callbacks=[Interrupt()])
    resumed, whole = linear_stack(tmp_path, 7).fit(x, resume=True), linear_stack(None, 7).fit(x)
    np.testing.assert_array_equal(resumed.transform(x), whole.transform(x))


@pytest.mark.slow
def test_another_first_stage_is_refused_by_the_second(x, tmp_path):
    constant = {"optimizer": Adam(schedule="constant")}
    linear_stack(tmp_path, 0, **constant).fit(x, callbacks=[Interrupt(5)])
    longer = linear_stack(tmp_path, 0, **constant)
    longer.stages[0].set_params(max_steps=6)
    with pytest.raises(ValueError, match=r"Cannot resume the run in .*stage-2: data"):
        longer.fit(x, resume=True)


def test_an_interrupt_between_the_stages_ends_the_fit(x):
    model = linear_stack(None, 0).fit(x, callbacks=[Interrupt(4)])
    assert (model.n_stages_, model.n_steps_, model.stopped_) == (1, 4, "interrupted")


def test_the_summary_is_of_the_losses_of_the_last_stage(x):
    model = linear_stack(None, 0).fit(x, validation=x[:6])
    losses = model.history_["loss"][model.history_["stage"] == 2]
    assert f"loss of the last stage {losses[0]:.3f} at first, {losses[-1]:.3f} at last" in model.summary()
    assert f"held-out loss {model.history_['validation_loss'][-1]:.3f} at best" in model.summary()


def test_training_on_a_model_of_0_1_has_a_summary(x, tmp_path):
    """Its history does not tell the stages apart."""
    old = rpgssm.load(Path(__file__).resolve().parent.parent / "goldens" / "folders" / "wide-none" / "model")
    old.partial_fit(np.ascontiguousarray(x[..., :4]))
    assert f"loss of the last stage {old.history_['loss'][-1]:.3f} at first" in old.summary()
    assert "Training" in write_report(old, x[..., :4], output=tmp_path / "r.html").read_text(encoding="utf-8")
