"""Errors say what was wrong and what to do."""

import copy

import equinox as eqx
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from rpgssm import RPGSSM, Adam, Cholesky, Controlled, Free, GaussianMarginal, Prior, Stopping

from .conftest import quick


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x: m.transform(x),
        lambda m, x: m.forecast(x, 2),
        lambda m, x: m.sample(),
        lambda m, x: m.online(),
        lambda m, x: m.score(x),
        lambda m, x: m.decode(x),
        lambda m, x: m.summary(),
        lambda m, x: m.save("nowhere"),
        lambda m, x: m.transition_,
    ],
)
def test_not_fitted(world, call):
    with pytest.raises(NotFittedError, match=r"call fit\(X\) first"):
        call(RPGSSM(), world.x)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"latent_dim": 0}, "latent_dim is 0: it must be a whole number of at least 1"),
        ({"latent_dim": 2.0}, "latent_dim is 2.0"),
        ({"batch_size": True}, "batch_size is True"),
        ({"random_state": None}, "random_state is None: it must be a whole number"),
        ({"verbose": "no"}, "verbose is 'no': it must be True or False"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0: it must be a number of at least 0, or None"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"window": "always"}, "window is 'always': it must be a whole number of at least 2, or 'auto', or None"),
        ({"validation_fraction": 1.5}, "validation_fraction is 1.5: it must be a number above 0 and below 1, or None"),
        ({"stopping": 5}, r"stopping is 5: it must be one of Stopping\(...\)"),
        ({"prior": "free"}, r"prior is 'free': it must be one of Prior\(...\), Stationary\(...\), Free\(...\)"),
        ({"precision": "full"}, r"precision is 'full': it must be one of Diagonal\(...\), Cholesky\(...\)"),
        ({"optimizer": "adam"}, r"optimizer is 'adam': it must be one of Adam\(...\), .*GradientTransformation"),
        ({"encoder": "transformer"}, "encoder is 'transformer': it must be one of 'auto', 'linear'"),
        ({"encoder": {}}, "encoder is {}"),
        ({"encoder": {"left": "mlp"}}, "entry for 'left', but the modalities are observations"),
        ({"prior": Controlled()}, r"prior=Controlled\(\) needs controls: pass fit\(X, controls=...\)"),
        ({"prior": Prior(start=np.eye(3))}, "2 latent dimensions need a square of that size"),
        ({"marginal": GaussianMarginal(), "encoder": "mlp"}, "needs linear encoders: pass encoder='linear'"),
        (
            {"marginal": GaussianMarginal(), "precision": Cholesky(data_dependent=True)},
            "needs a constant precision: leave data_dependent=True out",
        ),
    ],
)
def test_bad_settings_are_found_in_fit(world, settings, message):
    model = quick().set_params(**settings)  # which says nothing yet
    with pytest.raises(ValueError, match=message):
        model.fit(world.x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Adam(clip_norm=0), "Adam.clip_norm is 0: it must be a positive number, or None"),
        (
            lambda: Adam(schedule="linear"),
            "Adam.schedule is 'linear': it must be one of 'constant', 'cosine'",
        ),
        (lambda: Stopping(patience=0), "Stopping.patience is 0: it must be a whole number of at least 1, or None"),
        (lambda: Prior(scale=2.0), "Prior.scale is 2.0: it must be a number above 0 and below 1, or None"),
        (lambda: Free(start="smoth"), "Free.start is 'smoth': it must be 'identity', 'rotation', 'smooth' or a square"),
        (lambda: Prior(start=np.ones((2, 3))), "Prior.start is .*: it must be .*a square matrix"),
        (lambda: Prior(start=np.ones(3)), "Prior.start is .*: it must be .*a square matrix"),
        (lambda: Prior(start=[["a"]]), "Prior.start is .*: it must be .*a square matrix"),
        (lambda: Prior(start=[[np.nan]]), "Prior.start is .*: it must be .*a square matrix"),
    ],
)
def test_bad_settings_of_objects_are_found_when_they_are_made(make, message, unchecked_types):
    with pytest.raises(ValueError, match=message):
        make()


def test_frames_must_be_as_they_were(stationary, two, world):
    with pytest.raises(ValueError, match=r"frames have shape \(6,\): pass \(N, T, 6\)"):
        stationary.transform(world.x[..., :4])
    with pytest.raises(ValueError, match="modalities must be left, right"):
        two.transform({"left": world.x[..., :3]})


def test_controls_must_be_as_they_were(stationary, controlled, discrete, world, pushed):
    with pytest.raises(ValueError, match="fitted without controls: leave controls out"):
        stationary.transform(world.x, controls=pushed.u)
    with pytest.raises(ValueError, match="fitted with controls: pass controls= here too"):
        controlled.transform(pushed.x)
    with pytest.raises(ValueError, match="vectors of length 1, but the model was fitted with vectors of length 2"):
        controlled.transform(pushed.x, controls=pushed.u[..., :1])
    with pytest.raises(ValueError, match="are integers, but the model was fitted with vectors"):
        controlled.transform(pushed.x, controls=np.zeros((10, 12), int))
    model, u = discrete
    u = u.copy()
    u[4, 7] = 5
    with pytest.raises(
        ValueError, match="hold 5 in sequence 4, frame 7, but the model was fitted with integers from 0"
    ):
        model.transform(pushed.x, controls=u)
    with pytest.raises(
        ValueError, match=r"prior=Free\(\) has no use for controls: choose Controlled\(\) or Network\(\)"
    ):
        quick(prior=Free()).fit(pushed.x, controls=pushed.u)
    with pytest.raises(ValueError, match="pass validation_controls= here too"):
        quick().fit(pushed.x, controls=pushed.u, validation=pushed.x)


def test_a_network_prior_has_no_single_transition(discrete):
    with pytest.raises(AttributeError, match="depends on the controls"):
        _ = discrete[0].transition_
    assert "network prior" in discrete[0].summary()


def test_latents_that_are_not_finite_are_not_handed_out(world, stationary):
    """Whatever made them so: here a transition matrix that no training leaves behind."""
    from rpgssm.training import LatentsNotFinite

    broken = copy.copy(stationary)
    A = broken.model_.prior.A
    broken.model_ = eqx.tree_at(lambda m: m.prior.A, broken.model_, np.inf * A)
    with pytest.raises(LatentsNotFinite, match=r"latents of RPGSSM are not finite in sequence 0 from frame 0 on"):
        broken.transform(world.x)
    assert np.isfinite(stationary.transform(world.x)).all()
