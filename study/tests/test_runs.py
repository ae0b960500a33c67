"""Runs: what tells them apart, and which of them there are."""

import dataclasses
import json

import pytest

from rpgssm import RPGSSM, Adam, Cholesky, PooledMarginal, Prior, WideLayer
from rpgssm.settings import declared, read
from rpgssm_study.plans import plan
from rpgssm_study.recipes import FAMILIES, recipe
from rpgssm_study.runs import Run, describe, plain
from rpgssm_study.targets import AIMS
from rpgssm_study.tasks import TASKS

RUN = Run("accuracy", "recipe", "pendulum", "rpgssm", {"latent_dim": 16, "optimizer": Adam(prior_rate=1e-3)}, seed=2)


def test_seeds_share_the_digest_and_settings_do_not():
    other_seed = dataclasses.replace(RUN, seed=1)
    assert other_seed.digest == RUN.digest
    assert other_seed.path != RUN.path
    assert RUN.with_settings(latent_dim=8).digest != RUN.digest
    assert dataclasses.replace(RUN, background="procedural").digest != RUN.digest


def test_the_order_of_settings_does_not_matter():
    turned = dataclasses.replace(RUN, settings=dict(reversed(RUN.settings.items())))
    assert turned.identity == RUN.identity


@pytest.mark.parametrize("settings", [RUN.settings, {"stages": (RUN.settings, {"encoder": WideLayer(64)})}])
def test_a_run_comes_back_from_json(settings):
    run = dataclasses.replace(RUN, settings=settings)
    assert Run.from_json(json.loads(json.dumps(run.to_json()))) == run


@pytest.mark.parametrize("task", FAMILIES)
def test_plain_settings_stand_for_the_objects_they_were_made_of(task):
    given = recipe(task)
    for stage in given.get("stages", (given,)):
        stored = json.loads(json.dumps(plain(stage)))
        assert {name: read(value, declared(RPGSSM)[name].kind) for name, value in stored.items()} == stage


def test_one_set_of_settings_has_one_digest():
    told = {"kind": "Adam", "prior_rate": 1e-3}
    for optimizer in (Adam(prior_rate=1e-3, schedule="cosine", clip_norm=10.0), told):
        assert dataclasses.replace(RUN, settings={"latent_dim": 16, "optimizer": optimizer}).digest == RUN.digest
    assert RUN.with_settings(optimizer=Adam(prior_rate=1e-3, clip_norm=5.0)).digest != RUN.digest


def test_changes_are_for_all_stages():
    run = dataclasses.replace(RUN, settings={"stages": [{"max_steps": 3}, {"max_steps": 4, "encoder": "linear"}]})
    changed = run.with_settings(max_steps=2)
    assert changed.settings == {"stages": [{"max_steps": 2}, {"max_steps": 2, "encoder": "linear"}]}


def test_settings_in_words():
    first = {"latent_dim": 16, "precision": Cholesky(), "prior": Prior(start="smooth", scale=0.9)}
    said = "latent_dim=16, precision=Cholesky(), prior=Prior(start=smooth, scale=0.9)"
    assert describe(plain(first)) == said
    second = {"encoder": WideLayer(256), "marginal": PooledMarginal(8), "window": None}
    assert describe(plain({"stages": (first, second)})) == (
        f"stage 1: {said}; stage 2: encoder=WideLayer(units=256), marginal=PooledMarginal(times=8), window=None"
    )
    assert describe({}) == "defaults"


def test_accuracy_is_all_aims_from_three_seeds():
    runs = plan("accuracy")
    assert {(run.task, run.seed) for run in runs} == {(task, seed) for task in AIMS for seed in (0, 1, 2)}
    assert all(run.settings == plain(recipe(run.task)) for run in runs)
    assert len({run.identity for run in runs}) == len(runs)


def test_linear_tasks_take_their_data_from_the_seed_and_others_do_not():
    runs = plan("accuracy", tasks=["linear-small", "pendulum"], seeds=[0, 5])
    assert [(run.task, run.seed, run.task_seed) for run in runs] == [
        ("linear-small", 0, 0),
        ("linear-small", 5, 5),
        ("pendulum", 0, 0),
        ("pendulum", 5, 0),
    ]


def test_every_task_has_a_recipe_with_the_true_dimension_where_there_is_one():
    assert set(FAMILIES) == set(TASKS)
    assert [recipe(f"linear-{size}")["latent_dim"] for size in ("small", "medium", "large")] == [3, 5, 10]
    assert "latent_dim" in recipe("tracking")["stages"][0]


def test_overrides_make_another_experiment():
    (run,) = plan("accuracy", tasks=["cifar10-pendulum"], seeds=[0], overrides={"max_steps": 20})
    assert run.experiment == "accuracy-trial"
    assert [stage["max_steps"] for stage in run.settings["stages"]] == [20, 20]
    assert run.decoder_steps == 20


def test_the_steps_of_em_are_iterations():
    (run,) = plan("comparison", tasks=["pendulum"], methods=["lgssm"], seeds=[0], overrides={"max_steps": 20})
    assert run.settings == {"latent_dim": 16, "iterations": 20}


def test_procedural_backgrounds_only_where_there_are_backgrounds():
    runs = plan("accuracy", tasks=["pendulum", "davis-tracking"], seeds=[0], background="procedural")
    assert [run.background for run in runs] == ["auto", "procedural"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"experiment": "acuracy"}, "there is no experiment 'acuracy'"),
        ({"experiment": "accuracy", "tasks": ["pendulun"]}, "there is no task 'pendulun'"),
        ({"experiment": "accuracy", "methods": ["svea"]}, "there is no method 'svea'"),
        ({"experiment": "accuracy", "methods": ["svae"]}, "about rpgssm alone"),
    ],
)
def test_unknown_names_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        plan(**arguments)
