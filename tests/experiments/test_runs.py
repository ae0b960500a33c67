"""Runs: what tells them apart, and which of them there are."""

import dataclasses
import json

import pytest

from rpgssm.experiments.plans import plan
from rpgssm.experiments.recipes import FAMILIES, recipe
from rpgssm.experiments.runs import Run
from rpgssm.experiments.targets import AIMS
from rpgssm.tasks import TASKS

RUN = Run("accuracy", "recipe", "pendulum", "rpgssm", {"latent_dim": 16, "learning_rate": 1e-3}, seed=2)


def test_seeds_share_the_digest_and_settings_do_not():
    other_seed = dataclasses.replace(RUN, seed=1)
    assert other_seed.digest == RUN.digest
    assert other_seed.path != RUN.path
    assert RUN.with_settings(latent_dim=8).digest != RUN.digest
    assert dataclasses.replace(RUN, background="procedural").digest != RUN.digest


def test_the_order_of_settings_does_not_matter():
    turned = dataclasses.replace(RUN, settings=dict(reversed(RUN.settings.items())))
    assert turned.identity == RUN.identity


def test_a_run_comes_back_from_json():
    assert Run.from_json(json.loads(json.dumps(RUN.to_json()))) == RUN


def test_accuracy_is_all_aims_from_three_seeds():
    runs = plan("accuracy")
    assert {(run.task, run.seed) for run in runs} == {(task, seed) for task in AIMS for seed in (0, 1, 2)}
    assert all(run.settings == recipe(run.task) for run in runs)
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
    assert "latent_dim" in recipe("tracking")


def test_overrides_make_another_experiment():
    (run,) = plan("accuracy", tasks=["cifar10-pendulum"], seeds=[0], overrides={"max_steps": 20})
    assert run.experiment == "accuracy-trial"
    assert run.settings["max_steps"] == 20
    assert run.decoder_steps == 20


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
