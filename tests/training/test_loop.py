"""The loop: what it computes, when it validates and stops, and how it fails; with one model and with several."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.monitoring
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from rpgssm.data import Modality, Sequences
from rpgssm.training import SGD, Adam, RandomWindows, Stopping, Training, TrainingDiverged, train, train_many
from rpgssm.training.samplers import batch_at, in_order, shuffle

from .toys import Line, assert_equal, line, regression, squared_error

QUICK = Training(
    max_steps=30,
    batch_size=4,
    learning_rate=0.05,
    optimizer=Adam(schedule="constant"),
    window=None,
    stopping=Stopping(validate_every=10),
)


def quick(objective=squared_error, data=None, settings=QUICK, model=None, **options):
    return train(
        model or line(), objective, data or regression(), settings, **{"log_every": 5, "progress": False, **options}
    )


def without_noise(model, batch, key):
    loss, info = squared_error(model, batch, jr.key(0))
    return loss, info


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_equals_a_plain_loop(dtype, lenient_promotion):
    data, model = regression(10, dtype=dtype), line(0, dtype)
    settings = replace(QUICK, max_steps=6, optimizer=Adam(schedule="constant", clip_norm=None))
    trained = train(model, without_noise, data, settings, seed=7, log_every=3, progress=False)

    plan, key = RandomWindows().plan(data, 4, None), jr.split(jr.key(7), 3)[0]
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
    return quick(validation=regression(7, seed=1))


def same(a, b):
    assert_equal((a.model, a.last_model), (b.model, b.last_model))
    assert (a.step, a.best_step) == (b.step, b.best_step)
    for name in a.history.names:
        if name not in ("seconds", "steps_per_second"):
            np.testing.assert_array_equal(a.history[name], b.history[name], err_msg=name)


@pytest.mark.parametrize("steps", [1, 7])
def test_steps_per_dispatch_change_nothing(reference, steps, well_compiled):
    same(reference, quick(validation=regression(7, seed=1), steps_per_dispatch=steps))


def test_the_seed_matters(reference):
    other = quick(seed=1)
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
        settings = replace(QUICK, max_steps=47, window=3, batch_size=6)
        quick(objective, settings=settings, validation=regression(7, seed=1), callbacks=[mark], steps_per_dispatch=4)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert len(marks) > 10
    assert marks[0][1] > 0, "compilations are counted at all"
    assert marks[3] == marks[-1], "the first validation (call 3) has been done, nothing is traced or compiled after it"


def test_validation_is_the_mean_over_fixed_batches():
    validation = regression(8, seed=1)
    trained = quick(without_noise, settings=replace(QUICK, max_steps=10), validation=validation)
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
    stopping = Stopping(validate_every=10, patience=3)
    settings = replace(QUICK, max_steps=200, learning_rate=0.1, stopping=stopping)
    model = Line(jnp.zeros(3, jnp.float32), jnp.zeros((), jnp.float32))
    trained = quick(data=data, settings=settings, model=model, validation=against)
    losses = trained.history["validation_loss"]
    steps = trained.history["step"][~np.isnan(losses)]
    assert trained.stopped == "early"
    assert trained.best_step == steps[np.nanargmin(losses[~np.isnan(losses)])]
    assert trained.step == trained.best_step + 3 * 10 < 200
    assert (trained.model.weight != trained.last_model.weight).any()
    settings = replace(settings, stopping=replace(stopping, keep_best=False))
    last = quick(data=data, settings=settings, model=model, validation=against)
    assert_equal(last.model, trained.last_model)


def test_projection_after_every_step():
    def project(model):
        return eqx.tree_at(lambda m: m.weight, model, jnp.full_like(model.weight, 0.25))

    trained = quick(settings=replace(QUICK, max_steps=5), project=project)
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
    settings = replace(QUICK, max_steps=40)
    with pytest.raises(TrainingDiverged) as caught:
        quick(data=data, settings=settings, directory=tmp_path / "run")
    error = caught.value
    order = [
        np.asarray(batch_at(data, plan, shuffle(plan, jr.split(jr.key(0), 3)[0], jnp.int32(e)), jnp.int32(i))[1])
        for plan in [RandomWindows().plan(data, 4, None)]
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
        before = quick(data=data, settings=replace(settings, max_steps=expected - 1)).last_model
    assert_equal(error.model, before)
    assert (tmp_path / "run" / "checkpoints" / str(expected - 1)).is_dir()


@pytest.mark.parametrize("place", ["loss", "gradient"])
def test_the_last_good_state_is_kept(place):
    """`prior` rises by 0.5 per step from 1, so that step 5 is the first with a prior above 2.9."""
    settings = replace(QUICK, optimizer=SGD(schedule="constant"), learning_rate=0.5)
    with pytest.raises(TrainingDiverged) as caught:
        quick(poisoned(2.9, place), settings=settings, steps_per_dispatch=20)
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
        quick(objective)


def test_nothing_to_train():
    with pytest.raises(ValueError, match="nothing to train"):
        quick(model={"a": 1})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_steps": 0}, "max_steps is 0: it must be a whole number of at least 1"),
        ({"learning_rate": float("nan")}, "learning_rate is nan: it must be a number of at least 0"),
        ({"window": 0}, "window is 0: it must be a whole number of at least 2, or 'auto', or None"),
        ({"sampler": "similar"}, r"sampler is 'similar': it must be one of RandomWindows\(...\), SimilarWindows\("),
        ({"augment": True}, r"augment is True: it must be one of RandomFlips\(...\), .*or None"),
    ],
)
@pytest.mark.usefixtures("unchecked_types")
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        quick(settings=replace(QUICK, **settings))


@pytest.mark.parametrize("name", ["steps_per_dispatch", "log_every"])
def test_wrong_options_are_named(name):
    with pytest.raises(ValueError, match=f"{name} is 0: it must be a whole number of at least 1"):
        quick(**{name: 0})


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

    trained = quick(objective, settings=replace(QUICK, max_steps=5))
    assert {"fit", "nested.deep"} <= set(trained.history.names)
    assert not {"per_sequence", "nested.v"} & set(trained.history.names)


def test_orbax_is_not_imported_without_a_directory(run_python):
    result = run_python("-c", "import sys, rpgssm.training as t; t.train; print('orbax' in sys.modules)")
    assert result.stdout.split() == ["False"], result.stderr


def test_validation_in_order():
    plan = RandomWindows().plan(regression(), 4, None)
    np.testing.assert_array_equal(in_order(plan).items, np.arange(20))


# --- several models ---------------------------------------------------------------------------------------------------

MANY = replace(QUICK, max_steps=40, batch_size=6, window=3, stopping=Stopping(validate_every=4, patience=2))


def test_each_of_several_models_equals_its_single_run():
    """The second starts at the optimum, so that it stops early and the others go on without it."""
    data, validation = regression(), regression(7, seed=1)
    optimum = Line(jnp.array([1.0, -2.0, 0.5], jnp.float32), jnp.array(0.3, jnp.float32))
    models = [line(0), optimum, line(2)]
    reports = []
    many = train_many(
        models, squared_error, data, MANY, seeds=[3, 4, 5], validation=validation, log_every=8, progress=False,
        callbacks=[lambda report: reports.append(report.model_index)],
    )  # fmt: skip
    assert many[1].stopped == "early"
    assert many[1].step < many[0].step == 40
    assert set(reports) == {0, 1, 2}
    for i, (model, found) in enumerate(zip(models, many, strict=True)):
        single = quick(settings=MANY, model=model, seed=3 + i, validation=validation, log_every=8)
        assert (found.step, found.best_step, found.stopped) == (single.step, single.best_step, single.stopped)
        np.testing.assert_allclose(found.model.weight, single.model.weight, rtol=1e-4)
        np.testing.assert_allclose(found.last_model.weight, single.last_model.weight, rtol=1e-4)
        for name in ("step", "loss", "validation_loss", "gradient_norm", "learning_rate"):
            np.testing.assert_allclose(found.history[name], single.history[name], rtol=1e-3, err_msg=name)


def test_seeds_of_several_models_are_their_numbers():
    settings = replace(MANY, max_steps=8)
    first, second = (
        [one.last_model for one in train_many([line(), line()], squared_error, regression(), settings, **seeds)]
        for seeds in ({"progress": False}, {"progress": False, "seeds": [0, 1]})
    )
    assert_equal(first, second)
    assert (first[0].weight != first[1].weight).any()


def test_one_that_diverges_does_not_stop_the_others():
    models = [line(0), Line(jnp.full(3, 1e30, jnp.float32), jnp.zeros((), jnp.float32))]
    good, bad = train_many(models, squared_error, regression(), MANY, progress=False)
    assert (good.stopped, good.step, good.error) == ("max_steps", 40, None)
    assert (bad.stopped, bad.step) == ("diverged", 0)
    assert bad.error is not None
    assert bad.error.step == 1
    np.testing.assert_array_equal(bad.model.weight, models[1].weight)


def test_models_must_be_alike():
    other = Line(jnp.zeros(4, jnp.float32), jnp.zeros((), jnp.float32))
    with pytest.raises(ValueError, match="model 1 differs in weight"):
        train_many([line(), other], squared_error, regression(), MANY, progress=False)
    with pytest.raises(ValueError, match="2 models and 1 seeds"):
        train_many([line(), line()], squared_error, regression(), MANY, seeds=[1], progress=False)
