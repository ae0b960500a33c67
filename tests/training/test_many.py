"""Several models at once are as each alone."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.training import TrainingConfig, train, train_many

from .toys import Line, line, regression, squared_error

CONFIG = TrainingConfig(
    max_steps=40, batch_size=6, learning_rate=0.05, window=3, log_every=8, validate_every=4, patience=2, seed=3
)


def test_each_equals_its_single_run():
    """The second starts at the optimum, so that it stops early and the others go on without it."""
    data, validation = regression(), regression(7, seed=1)
    optimum = Line(jnp.array([1.0, -2.0, 0.5], jnp.float32), jnp.array(0.3, jnp.float32))
    models = [line(0), optimum, line(2)]
    reports = []
    many = train_many(
        models, squared_error, data, CONFIG, validation=validation, progress=False,
        callbacks=[lambda report: reports.append(report.model_index)],
    )  # fmt: skip
    assert many[1].stopped == "early"
    assert many[1].step < many[0].step == 40
    assert set(reports) == {0, 1, 2}
    for i, (model, found) in enumerate(zip(models, many, strict=True)):
        config = dataclasses.replace(CONFIG, seed=3 + i)
        single = train(model, squared_error, data, config, validation=validation, progress=False)
        assert found.config == config
        assert (found.step, found.best_step, found.stopped) == (single.step, single.best_step, single.stopped)
        np.testing.assert_allclose(found.model.weight, single.model.weight, rtol=1e-4)
        np.testing.assert_allclose(found.last_model.weight, single.last_model.weight, rtol=1e-4)
        for name in ("step", "loss", "validation_loss", "gradient_norm", "learning_rate"):
            np.testing.assert_allclose(found.history[name], single.history[name], rtol=1e-3, err_msg=name)


def test_one_that_diverges_does_not_stop_the_others():
    models = [line(0), Line(jnp.full(3, 1e30, jnp.float32), jnp.zeros((), jnp.float32))]
    good, bad = train_many(models, squared_error, regression(), CONFIG, progress=False)
    assert (good.stopped, good.step, good.error) == ("max_steps", 40, None)
    assert (bad.stopped, bad.step) == ("diverged", 0)
    assert bad.error is not None
    assert bad.error.step == 1
    np.testing.assert_array_equal(bad.model.weight, models[1].weight)


def test_models_must_be_alike():
    other = Line(jnp.zeros(4, jnp.float32), jnp.zeros((), jnp.float32))
    with pytest.raises(ValueError, match="model 1 differs in weight"):
        train_many([line(), other], squared_error, regression(), CONFIG, progress=False)
    with pytest.raises(ValueError, match="2 models and 1 seeds"):
        train_many([line(), line()], squared_error, regression(), CONFIG, seeds=[1], progress=False)
