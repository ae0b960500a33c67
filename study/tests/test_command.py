"""`rpgssm-study` on the command line."""

import pytest

from rpgssm_study import cli, running, store
from rpgssm_study.commands import experiments as command
from rpgssm_study.methods import METHODS
from rpgssm_study.plans import plan

from .fakes import Fake, accuracy_runs, small_task, write_result

SCORES = {"z": 0.9, "mean": 0.9}


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "load_task", small_task)
    monkeypatch.setattr(running, "estimator_class", lambda name: Fake)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    monkeypatch.setattr(Fake, "fits", [])
    return ["--results", str(tmp_path / "results"), "--work", str(tmp_path / "work")]


def run(*arguments):
    cli.main([*arguments])


def test_what_is_missing_is_run_once(folders, tmp_path, capsys, lenient_promotion):
    write_result(tmp_path / "results", accuracy_runs("linear-small")[1], SCORES)
    asked = ["run", "accuracy", "--tasks", "linear-small", "--seeds", "0,1,2", *folders]
    run(*asked)
    out = capsys.readouterr().out
    assert "3 runs, 2 to do" in out
    assert "3 of 3 runs are done" in out
    assert len(Fake.fits) == 2
    run(*asked)
    assert len(Fake.fits) == 2
    assert "3 runs, 0 to do" in capsys.readouterr().out


def test_dry_run_trains_nothing(folders, capsys):
    run("run", "comparison", "--dry-run", *folders)
    assert not Fake.fits
    assert "davis-tracking" in capsys.readouterr().out


def test_trials_leave_the_results_alone(folders, tmp_path, lenient_promotion):
    run("run", "accuracy", "--tasks", "linear-small", "--seeds", "0", "--max-steps", "5", *folders)
    assert not (tmp_path / "results").exists()
    assert len(list((tmp_path / "work" / "trials").rglob("*.json"))) == 1


def test_the_same_training_is_not_done_twice(folders, tmp_path, lenient_promotion):
    results = tmp_path / "results"
    (before,) = accuracy_runs("linear-small", [1])
    write_result(results, before, SCORES, seconds=33.0)
    asked = ["--tasks", "linear-small", "--methods", "rpgssm", "--seeds", "1"]
    run("run", "comparison", *asked, *folders)
    assert not Fake.fits
    (after,) = plan("comparison", tasks=["linear-small"], methods=["rpgssm"], seeds=[1])
    found = store.read(results, after)
    assert found.run == after
    assert found.training["seconds"] == 33.0
    assert found.content["taken_from"] == before.identity


def test_failures_are_told_at_the_end(folders, monkeypatch, capsys):
    def missing(name, **options):
        raise FileNotFoundError("CIFAR-10 is not here")

    monkeypatch.setattr(running, "load_task", missing)
    with pytest.raises(SystemExit):
        run("run", "accuracy", "--tasks", "cifar10-pendulum", "--seeds", "0,1", *folders)
    assert "2 runs failed" in capsys.readouterr().err


def test_status_shows_what_is_done(folders, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    one = accuracy_runs("linear-small", [0])[0]
    write_result(tmp_path / "results", one, {"z": 0.7, "mean": 0.7})
    run("status", "accuracy", "--tasks", "linear-small,pendulum", "--seeds", "0,1", *folders)
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    assert lines.index(["linear-small", "0.700"]) + 1 == lines.index(["1/2"])
    assert ["pendulum", "0/2"] in lines
    assert "1 of 4 runs done, about " in out
    run("status", "comparison", "--seeds", "0", *folders)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["task", *METHODS] in lines


def test_table_is_put_into_a_file(folders, tmp_path, capsys):
    for one in accuracy_runs("linear-small"):
        write_result(tmp_path / "results", one, SCORES, ceiling=SCORES)
    page = tmp_path / "page.md"
    for method, score in (("rpgssm", 0.9), ("svae", 0.8)):
        (one, *_) = plan("comparison", tasks=["linear-small"], methods=[method], seeds=[0])
        write_result(tmp_path / "results", one, {"z": score, "mean": score}, ceiling={"z": 0.95, "mean": 0.95})
    marked = "<!-- accuracy -->\nold\n<!-- /accuracy -->"
    page.write_text(f"before\n{marked}\nafter\n{marked.replace('accuracy', 'comparison')}\nend\n")
    run("table", "--results", str(tmp_path / "results"), "--insert", str(page))
    text = page.read_text()
    assert text.startswith("before\n<!-- accuracy -->\n\n| task")
    assert "<!-- /accuracy -->\nafter\n<!-- comparison -->\n\n| method | " in text
    assert "| RP-GSSM | 0.900 |\n| SVAE | 0.800 |\n| ceiling | 0.950 |\n\n<!-- /comparison -->\nend\n" in text
    assert "old" not in text
    assert "| linear-small | z | 0.900 ✓" in text


@pytest.mark.parametrize("seeds", ["a", "0;1"])
def test_seeds_must_be_numbers(folders, seeds, capsys):
    with pytest.raises(SystemExit):
        run("run", "accuracy", "--seeds", seeds, *folders)
    assert "whole numbers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "accuracy", "--seeds", "-1"], "--seeds is -1"),
        (["run", "accuracy", "--seeds", ","], "--seeds names nothing"),
        (["run", "accuracy", "--tasks", ""], "--tasks names nothing"),
        (["run", "accuracy", "--max-steps", "0"], "--max-steps is 0"),
        (["run", "accuracy", "--workers", "0"], "--workers is 0"),
        (["run", "accuracy", "--checkpoint-every", "0"], "--checkpoint-every is 0"),
        (["run", "accuracy", "--workers", "2", "--scheduler", "tcp://a:1"], "with --scheduler, leave it out"),
        (["run", "accuracy", "--protocol", "paper"], "has no protocols"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_run(folders, arguments, told, capsys):
    with pytest.raises(SystemExit) as end:
        run(*arguments, "--dry-run", *folders)
    assert end.value.code == 2
    assert told in capsys.readouterr().err
    assert not Fake.fits


def test_what_is_named_twice_is_done_once(folders, capsys):
    run("run", "accuracy", "--tasks", "linear-small,linear-small", "--seeds", "0,0", "--dry-run", *folders)
    assert "1 runs, 1 to do" in capsys.readouterr().out


def test_estimates_are_for_as_many_workers(folders, capsys):
    run("run", "comparison", "--protocol", "paper", "--workers", "4", "--dry-run", *folders)
    told = capsys.readouterr().out.splitlines()[-1]
    assert "years for 4 workers, on CPUs: for GPUs there is no estimate" in told


@pytest.mark.parametrize("which", ["results", "work"])
def test_a_folder_that_cannot_be_written_to_is_noticed_before_training(which, tmp_path, folders, capsys):
    (tmp_path / which).write_text("a file")
    with pytest.raises(SystemExit):
        run("run", "accuracy", "--tasks", "linear-small", "--seeds", "0", *folders)
    assert f"name another folder with --{which}" in capsys.readouterr().err
    assert not Fake.fits


def test_no_results_are_not_results(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("as it was")
    for results in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(SystemExit):
            run("table", "--results", str(results), "--insert", str(page))
    assert page.read_text() == "as it was"
    with pytest.raises(SystemExit):
        run("report", "--results", str(tmp_path / "nowhere"), "-o", str(tmp_path / "report"))
    with pytest.raises(SystemExit):
        run("report", "--results", str(tmp_path), "-o", str(page))
    told = capsys.readouterr().err
    assert told.count("there is no folder") == 2
    assert "there are no results in" in told
    assert "name another folder with --output" in told


def test_an_interrupted_run_says_so_to_scripts(folders, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "execute", interrupted)
    with pytest.raises(SystemExit) as end:
        run("run", "accuracy", "--tasks", "linear-small", "--seeds", "0", *folders)
    assert end.value.code == 130
    assert "goes on from here" in capsys.readouterr().out


def test_a_full_disk_is_the_failure_of_one_run(folders, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "execute", full)
    with pytest.raises(SystemExit):
        run("run", "accuracy", "--tasks", "linear-small", "--seeds", "0,1", *folders)
    assert "2 runs failed" in capsys.readouterr().err
