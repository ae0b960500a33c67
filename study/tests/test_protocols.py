"""The two protocols: complete, and as published."""

from collections import Counter

import pytest

import rpgssm
from rpgssm.settings import check
from rpgssm_study.methods import METHODS
from rpgssm_study.plans import plan
from rpgssm_study.protocols import PROTOCOLS, TASKS
from rpgssm_study.recipes import nonlinear, recipe
from rpgssm_study.runs import plain, stages


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_method_is_run_on_every_task(protocol):
    runs = plan("comparison", protocol=protocol)
    assert {(run.task, run.method) for run in runs} == {(task, method) for task in TASKS for method in METHODS}
    assert len({run.identity for run in runs}) == len(runs)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("method", METHODS)
def test_the_estimators_know_all_settings(protocol, method):
    estimator = getattr(rpgssm, METHODS[method].estimator)
    for task in TASKS:
        for settings in PROTOCOLS[protocol].settings(task, method):
            for stage in stages(settings):
                check(estimator(**stage, **METHODS[method].fixed))


def test_the_published_sweep():
    paper = PROTOCOLS["paper"].settings
    counts = {
        method: [len(paper(task, method)) for task in ("linear-small", "pendulum", "double-pendulum", "davis-tracking")]
        for method in ("rpgssm", "svae", "dkf-nl", "kvae", "cpc")
    }
    # dimensions (1, 2, 2, 3) × forms of covariance × dependence on the data (RP-GSSM), ν, sizes of the mask
    assert counts == {
        "rpgssm": [4, 8, 8, 12],
        "svae": [18, 36, 36, 54],
        "dkf-nl": [18, 36, 36, 54],
        "kvae": [9, 18, 18, 27],
        "cpc": [3, 6, 6, 9],
    }
    for task, dimensions, steps in [
        ("linear-large", {10}, 10_000),
        ("pendulum-64", {4, 8}, 10_000),
        ("cifar10-double-pendulum", {8, 16}, 10_000),
        ("tracking", {8, 16, 32}, 5000),
    ]:
        for method in ("rpgssm", "svae", "dkf-l", "kvae", "cpc"):
            sweep = paper(task, method)
            assert {s["latent_dim"] for s in sweep} == dimensions
            assert {(s["learning_rate"], s["optimizer"].schedule, s["batch_size"], s["max_steps"]) for s in sweep} == {
                (1e-3, "constant", 32, steps)
            }
    assert {s["noise"] for s in paper("tracking", "dkf-cl")} == {1, 0.1, 0.001}
    assert {s["precision"] for s in paper("pendulum", "rpgssm")} == {
        form(data_dependent=dependent) for form in (rpgssm.Diagonal, rpgssm.Cholesky) for dependent in (False, True)
    }
    assert {s["precision"] for s in paper("pendulum", "svae")} == {rpgssm.Diagonal(), rpgssm.Cholesky()}
    assert {s["covariance"] for s in paper("pendulum", "dkf-nl")} == {"diagonal", "cholesky"}
    assert {s["marginal"] for task in TASKS for s in paper(task, "rpgssm")} == {rpgssm.EmpiricalMarginal()}
    assert {s["encoder"] for s in paper("tracking", "cpc")} == {"cnn-paper"}
    assert {s["decoder"] for s in paper("linear-small", "svae")} == {"linear"}


def test_compact_gives_the_rpgssm_its_recipe_and_three_seeds_where_they_are_asked_for():
    runs = plan("comparison", protocol="compact", methods=["rpgssm"])
    own = [run for run in runs if run.settings == plain(recipe(run.task))]
    smaller = [run for run in runs if run.settings == plain(nonlinear() | {"latent_dim": 16})]  # trained once
    assert len(own) + len(smaller) == len(runs)
    assert {run.task for run in smaller} == {"pendulum", "pendulum-64", "cifar10-pendulum"}
    runs = own
    seeds = Counter(run.task for run in runs)
    three = {"linear-small", "linear-medium", "linear-large", "pendulum", "pendulum-64", "cifar10-pendulum"}
    assert seeds == {task: 3 if task in three else 1 for task in TASKS}
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)


def test_before_films_contrastive_methods_are_tried_with_the_batches_of_the_recipe_as_well():
    own = {name: recipe("davis-tracking")["stages"][0][name] for name in ("sampler", "augment", "window")}
    for method in ("cpc", "dcl"):
        usual, similar = PROTOCOLS["compact"].settings("davis-tracking", method)
        assert not set(own) & set(usual)
        assert similar == usual | own | {"max_steps": 5 * usual["max_steps"]}  # on windows of a fifth of a sequence
        assert len(PROTOCOLS["compact"].settings("tracking", method)) == 1
