"""The loop: what it computes, when it validates and stops, and how it fails."""

import json

import equinox as eqx
import jax
import jax.monitoring
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from rpgssm.data import Modality, Sequences
from rpgssm.training import History, TrainingConfig, TrainingDiverged, train
from rpgssm.training.batching import batch_at, in_order, shuffle, training_plan

from .toys import Line, assert_equal, line, regression, squared_error

QUICK = TrainingConfig(max_steps=30, batch_size=4, learning_rate=0.05, log_every=5, validate_every=10)


def without_noise(model, batch, key):
    loss, info = squared_error(model, batch, jr.key(0))
    return loss, info


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_equals_a_plain_loop(dtype, lenient_promotion):
    data, model = regression(10, dtype=dtype), line(0, dtype)
    config = TrainingConfig(max_steps=6, batch_size=4, learning_rate=0.05, clip_norm=None, log_every=3, seed=7)
    trained = train(model, without_noise, data, config, progress=False)

    plan, key = training_plan(data, 4, None), jr.split(jr.key(7), 3)[0]
    params, static = eqx.partition(model, eqx.is_inexact_array)
    adam = optax.adam(0.05)

    @jax.jit
    def plain_step(params, state, step):
        batch, _ = batch_at(data, plan, shuffle(plan, key, step // 2), step % 2)
        loss, gradient = jax.value_and_grad(lambda p: without_noise(eqx.combine(p, static), batch, None)[0])(params)
        updates, state = adam.update(gradient, state)
        return optax.apply_updates(params, updates), state, loss

    state, losses = adam.init(params), []
    for step in range(6):
        params, state, loss = plain_step(params, state, jnp.int32(step))
        losses.append(float(loss))
    tolerance = 1e-5 if dtype == jnp.float32 else 1e-9
    assert trained.model.weight.dtype == dtype
    np.testing.assert_allclose(trained.model.weight, params.weight, rtol=tolerance)
    np.testing.assert_allclose(trained.history["loss"], np.reshape(losses, (2, 3)).mean(axis=1), rtol=tolerance)
    np.testing.assert_array_equal(trained.history["step"], [3, 6])
    assert trained.model.name == "line"


@pytest.fixture(scope="module")
def reference():
    return train(line(), squared_error, regression(), QUICK, validation=regression(7, seed=1), progress=False)


def same(a, b):
    assert_equal((a.model, a.last_model), (b.model, b.last_model))
    assert (a.step, a.best_step) == (b.step, b.best_step)
    for name in a.history.names:
        if name not in ("seconds", "steps_per_second"):
            np.testing.assert_array_equal(a.history[name], b.history[name], err_msg=name)


@pytest.mark.parametrize("steps", [1, 7])
def test_steps_per_dispatch_change_nothing(reference, steps, well_compiled):
    config = _with(QUICK, steps_per_dispatch=steps)
    other = train(line(), squared_error, regression(), config, validation=regression(7, seed=1), progress=False)
    same(reference, other)


def _with(config, **changes):
    return TrainingConfig(**{**{n: getattr(config, n) for n in config.__dataclass_fields__}, **changes})


def test_the_seed_matters(reference):
    other = train(line(), squared_error, regression(), _with(QUICK, seed=1), progress=False)
    assert (other.model.weight != reference.last_model.weight).all()


def test_nothing_is_compiled_twice():
    traces, compilations, marks = [], [], []

    def objective(model, batch, key):
        traces.append(1)
        return squared_error(model, batch, key)

    def listen(event, duration, **_):
        if "backend_compile" in event:
            compilations.append(event)

    def mark(report):
        marks.append((len(traces), len(compilations)))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        config = _with(QUICK, max_steps=47, steps_per_dispatch=4, window=3, batch_size=6)
        data, validation = regression(20), regression(7, seed=1)
        train(line(), objective, data, config, validation=validation, callbacks=[mark], progress=False)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert len(marks) > 10
    assert marks[0][1] > 0, "compilations are counted at all"
    assert marks[3] == marks[-1], "the first validation (call 3) has been done, nothing is traced or compiled after it"


def test_validation_is_the_mean_over_fixed_batches():
    data, validation = regression(), regression(8, seed=1)
    config = _with(QUICK, max_steps=10)
    trained = train(line(), without_noise, data, config, validation=validation, progress=False)
    losses = []
    for first in (0, 4):
        batch = jax.tree.map(lambda x, first=first: jnp.asarray(x[first : first + 4]), validation)
        losses.append(float(without_noise(trained.last_model, batch, None)[0]))
    np.testing.assert_allclose(trained.history["validation_loss"][-1], np.mean(losses), rtol=1e-5)
    assert np.isnan(trained.history["validation_loss"][0])
    assert not np.isnan(trained.history["validation_fit"][-1])


def test_early_stopping_keeps_the_best():
    """Validation data that ask for the opposite: the best model is an early one."""
    data = regression()
    against = Sequences({"x": data.modalities["x"], "y": Modality(-data.modalities["y"].values)})
    config = _with(QUICK, max_steps=200, patience=3, learning_rate=0.1)
    model = Line(jnp.zeros(3, jnp.float32), jnp.zeros((), jnp.float32))
    trained = train(model, squared_error, data, config, validation=against, progress=False)
    losses = trained.history["validation_loss"]
    steps = trained.history["step"][~np.isnan(losses)]
    assert trained.stopped == "early"
    assert trained.best_step == steps[np.nanargmin(losses[~np.isnan(losses)])]
    assert trained.step == trained.best_step + 3 * 10 < 200
    assert (trained.model.weight != trained.last_model.weight).any()
    last = train(model, squared_error, data, _with(config, keep_best=False), validation=against, progress=False)
    assert_equal(last.model, trained.last_model)


def test_projection_after_every_step():
    def project(model):
        return eqx.tree_at(lambda m: m.weight, model, jnp.full_like(model.weight, 0.25))

    trained = train(line(), squared_error, regression(), _with(QUICK, max_steps=5), project=project, progress=False)
    np.testing.assert_array_equal(trained.model.weight, np.float32(0.25))
    assert trained.model.prior != line().prior


def poisoned(step, place):
    """An objective whose loss, or only its gradient, is not finite once `prior`, which rises, is above `step`."""

    def objective(model, batch, key):
        loss, info = squared_error(model, batch, key)
        reached = model.prior > step
        if place == "gradient":
            nothing = jnp.where(reached, jnp.sum(model.weight) * 0, 1.0)
            bad = jnp.sqrt(nothing) * jnp.where(reached, 1.0, 0.0).astype(
                loss.dtype
            )  # 0, with a gradient of 0/0 once it is reached
        else:
            bad = jnp.where(reached, jnp.inf, 0).astype(loss.dtype)
        return loss * 0 - model.prior + bad, info | {"bad": bad}

    return objective


def test_a_loss_that_is_not_finite(tmp_path):
    data = regression(12)
    data.modalities["x"].values[5] = np.inf
    config = _with(QUICK, max_steps=40, batch_size=4)
    with pytest.raises(TrainingDiverged) as caught:
        train(line(), squared_error, data, config, directory=tmp_path / "run", progress=False)
    error = caught.value
    order = [
        np.asarray(batch_at(data, plan, shuffle(plan, jr.split(jr.key(0), 3)[0], jnp.int32(e)), jnp.int32(i))[1])
        for plan in [training_plan(data, 4, None)]
        for e in range(2)
        for i in range(3)
    ]
    expected = next(step for step, batch in enumerate(order, 1) if 5 in batch)
    assert (error.step, error.sequences) == (expected, (5,))
    assert error.terms[:2] == ("loss", "fit")
    assert f"at step {expected}: not finite: loss, fit. In sequence(s) 5 of the data" in str(error)
    assert "lower learning rate (now 0.05)" in str(error)
    assert str(tmp_path) in str(error)
    assert int(error.state.step) == expected - 1
    before = line() if expected == 1 else None
    if before is None:
        stop = _with(config, max_steps=expected - 1)
        before = train(line(), squared_error, data, stop, progress=False).last_model
    assert_equal(error.model, before)
    assert (tmp_path / "run" / "checkpoints" / str(expected - 1)).is_dir()


@pytest.mark.parametrize("place", ["loss", "gradient"])
def test_the_last_good_state_is_kept(place):
    """`prior` rises by 0.5 per step from 1, so that step 5 is the first with a prior above 2.9."""
    config = _with(QUICK, optimiser="sgd", learning_rate=0.5, steps_per_dispatch=20)
    with pytest.raises(TrainingDiverged) as caught:
        train(line(), poisoned(2.9, place), regression(), config, progress=False)
    assert caught.value.step == 5
    np.testing.assert_allclose(caught.value.model.prior, 3.0, rtol=1e-6)
    assert len(caught.value.sequences) == 4, "all of the batch"
    if place == "gradient":
        assert "gradient of weight" in str(caught.value)
    else:
        assert caught.value.terms == ("loss", "bad")


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (lambda m, b, k: jnp.sum(m.weight), r"return \(loss, info\)"),
        (lambda m, b, k: (m.weight, {}), r"one floating point number, but the objective returned float32\[3\]"),
        (lambda m, b, k: (jnp.sum(m.weight), {"seconds": jnp.sum(m.weight)}), "rename seconds"),
    ],
)
def test_wrong_objectives(objective, message):
    with pytest.raises(ValueError, match=message):
        train(line(), objective, regression(), QUICK, progress=False)


def test_nothing_to_train():
    with pytest.raises(ValueError, match="nothing to train"):
        train({"a": 1}, squared_error, regression(), QUICK, progress=False)


def test_info_may_be_a_module():
    class Info(eqx.Module):
        fit: jax.Array
        per_sequence: jax.Array
        nested: dict

    def objective(model, batch, key):
        loss, info = squared_error(model, batch, key)
        return loss, Info(
            info["fit"], info["per_sequence"]["fit"], {"deep": jnp.zeros((), jnp.int32), "v": jnp.ones(2)}
        )

    trained = train(line(), objective, regression(), _with(QUICK, max_steps=5), progress=False)
    assert {"fit", "nested.deep"} <= set(trained.history.names)
    assert not {"per_sequence", "nested.v"} & set(trained.history.names)


def test_history_as_a_file(tmp_path, reference):
    reference.history.to_csv(tmp_path / "h.csv")
    back = History.from_csv(tmp_path / "h.csv")
    assert back.names == reference.history.names
    for name in back.names:
        np.testing.assert_array_equal(back[name], reference.history[name])
    assert back.names[:2] == ("step", "loss")
    with pytest.raises(KeyError, match="no column 'los'"):
        back["los"]


def test_settings_are_read_without_jax(run_python):
    code = (
        "import json, sys; from rpgssm.training import TrainingConfig; import rpgssm.training as t; dir(t);"
        "print(json.dumps(sorted({n.partition('.')[0] for n in sys.modules})))"
    )
    result = run_python("-c", code)
    assert result.returncode == 0, result.stderr
    assert {"jax", "optax", "orbax", "equinox"}.isdisjoint(json.loads(result.stdout))


def test_orbax_is_not_imported_without_a_directory(run_python):
    result = run_python("-c", "import sys, rpgssm.training as t; t.train; print('orbax' in sys.modules)")
    assert result.stdout.split() == ["False"], result.stderr


def test_validation_in_order():
    plan = training_plan(regression(), 4, None)
    np.testing.assert_array_equal(in_order(plan).items, np.arange(20))
