"""Fitting: repeatable, continued, interrupted, started several times."""

import time
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from rpgssm import RPGSSM, Adam, Free, Prior, Stopping
from rpgssm.data import as_sequences
from rpgssm.estimator import DataInfo, Prepared
from rpgssm.training import TrainingDiverged, loop

from .conftest import quick


def test_conventions_of_scikit_learn(stationary):
    prior = Prior(start=0.5 * np.eye(2))
    model = RPGSSM(latent_dim=2, prior=prior, max_steps=7)
    assert model.get_params()["prior"] is prior
    copy: Any = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.get_params()["max_steps"] == 7
    assert copy.set_params(max_steps=3, prior=Free()).max_steps == 3
    assert not [name for name in vars(model) if name.endswith("_")]
    assert not hasattr(clone(stationary), "model_")
    assert stationary.n_features_in_ == 6


def test_the_same_seed_gives_the_same_model(world):
    first, again, other = (quick(random_state=seed).fit(world.x).transform(world.x) for seed in (0, 0, 1))
    np.testing.assert_array_equal(again, first)
    assert not np.allclose(other, first)


@pytest.mark.parametrize(("encoder", "scale"), [("linear", 0.9), pytest.param("mlp", 0.98, marks=pytest.mark.slow)])
def test_where_the_chain_starts_follows_from_the_encoder(world, encoder, scale):
    model = quick(encoder=encoder, learning_rate=1e-9, max_steps=1).fit(world.x)
    np.testing.assert_allclose(model.transition_, scale * np.eye(model.latent_dim), atol=1e-5)


def test_fit_learns_and_keeps_a_table(stationary):
    history = stationary.history_
    assert history["step"].tolist() == [10, 20]
    assert history["loss"][-1] < history["loss"][0]
    assert (stationary.n_steps_, stationary.best_step_, stationary.stopped_) == (20, 20, "max_steps")


def test_partial_fit_goes_on(world):
    model = quick(optimizer=Adam(schedule="constant")).partial_fit(world.x)
    first = model.history_["loss"].copy()
    model.partial_fit(world.x)
    assert model.history_["step"].tolist() == [10, 20, 30, 40]
    np.testing.assert_array_equal(model.history_["loss"][:2], first)
    assert model.history_["loss"][2] < first[0]
    assert model.history_["loss"][3] < first[1]
    assert model.n_steps_ == model.best_step_ == 40
    assert np.all(np.diff(model.history_["seconds"]) >= 0)


@pytest.mark.slow
def test_the_best_of_several_starts_is_kept(world):
    model = quick(n_init=2, max_steps=10).fit(world.x)
    alone = [quick(random_state=seed, max_steps=10).fit(world.x) for seed in (0, 1)]
    losses = [m.history_["loss"][-1] for m in alone]
    np.testing.assert_allclose(model.init_losses_, losses, rtol=1e-4)
    best = alone[int(np.argmin(losses))]
    np.testing.assert_allclose(model.transform(world.x), best.transform(world.x), atol=1e-3)


def split(model, x) -> Prepared:
    """The data of a fit, some of them held out."""
    data, _ = as_sequences(x)
    return model._split(Prepared(data, None, DataInfo.of(data)))


@pytest.mark.slow
def test_validation_data_choose_the_model(world):
    model = quick(stopping=Stopping(validate_every=10)).fit(world.x[:8], validation=world.x[2:])
    assert np.isfinite(model.history_["validation_loss"]).all()
    assert model.best_step_ in (10, 20)
    prepared = split(quick(validation_fraction=0.4), world.x)
    assert [len(part) for part in (prepared.data, prepared.held_out)] == [6, 4]


def test_too_few_sequences_are_not_held_out(world):
    prepared = split(quick(validation_fraction=0.1), world.x)
    assert len(prepared.data) == 10
    assert prepared.held_out is None
    assert "too few sequences" in prepared.notes[0]


def test_resumed_runs_end_where_whole_ones_do(world, tmp_path):
    settings: dict[str, Any] = {"optimizer": Adam(schedule="constant"), "checkpoint_every": 5}
    whole = quick(**settings, max_steps=15).fit(world.x)
    part = quick(**settings, max_steps=10, checkpoint_dir=tmp_path).fit(world.x)
    with pytest.raises(FileExistsError, match="resume=True"):
        part.fit(world.x)
    resumed = quick(**settings, max_steps=15, checkpoint_dir=tmp_path).fit(world.x, resume=True)
    np.testing.assert_array_equal(resumed.transform(world.x), whole.transform(world.x))
    assert resumed.history_["step"][-1] == 15
    other = quick(**settings, max_steps=15, batch_size=4, checkpoint_dir=tmp_path)
    with pytest.raises(ValueError, match="batch_size is 4 and was 8"):
        other.fit(world.x, resume=True)


@pytest.mark.parametrize("n_init", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_interrupt_leaves_a_usable_model(world, tmp_path, n_init):
    def stop(estimator, report):
        raise KeyboardInterrupt

    model = quick(n_init=n_init, max_steps=10).fit(world.x, callbacks=[stop])
    assert model.stopped_ == "interrupted"
    assert 0 < model.n_steps_ < 10
    assert np.isfinite(model.transform(world.x)).all()
    assert "interrupted" in model.summary()
    loaded = RPGSSM.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.transform(world.x), model.transform(world.x))


def test_callbacks_see_the_model_as_it_is(world, monkeypatch):
    real, aside, seen = time.perf_counter, [0.0], []
    monkeypatch.setattr(loop.time, "perf_counter", lambda: real() + aside[0])

    def look(estimator, report):
        seen.append((report.step, estimator.transform(world.x), estimator.forecast(world.x, 2).mean))
        aside[0] += 1000.0

    model = quick().fit(world.x, callbacks=[look])
    assert seen[-1][0] == model.n_steps_ == 20
    np.testing.assert_array_equal(seen[-1][1], model.transform(world.x))
    assert np.abs(seen[0][1] - seen[-1][1]).max() > 1e-3
    assert model.history_["seconds"][-1] < 1000  # what callbacks take is not counted


def test_a_failing_callback_leaves_the_fitted_model_as_it_was(world):
    model = quick(max_steps=4).fit(world.x)
    before = model.transform(world.x)

    def fail(estimator, report):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        model.fit(world.x, callbacks=[fail])
    np.testing.assert_array_equal(model.transform(world.x), before)


@pytest.mark.slow
def test_divergence_is_an_error_that_names_the_step(world):
    with pytest.raises(TrainingDiverged, match="Try a lower learning rate"):
        quick(learning_rate=1e30, optimizer=Adam(clip_norm=None)).fit(world.x)


@pytest.mark.slow
def test_long_sequences_are_cut_into_windows(world):
    long = np.concatenate(world.x)  # one sequence of 120 frames
    model = quick(max_steps=5, batch_size=4, window=12).fit(long)
    assert "trained on windows of 12 frames" in model.notes_
    assert model.transform(long).shape == (120, 2)
    automatic = quick(batch_size=4)
    assert automatic._window(as_sequences(long)[0]) == 30
    assert automatic._window(as_sequences(world.x)[0]) is None
