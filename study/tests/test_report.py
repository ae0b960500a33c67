"""The report, from made-up results: complete, honest about what is missing, and in need of nothing else."""

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from rpgssm_study import cli
from rpgssm_study.choosing import best
from rpgssm_study.plans import plan
from rpgssm_study.report import build, films, scores, tables, times
from rpgssm_study.report.collection import Collection, plain, title
from rpgssm_study.report.sections import SECTIONS
from rpgssm_study.store import Result, read_all

from .fakes import accuracy_runs, write_result
from .made_up import compare

METHODS = ["rpgssm", "svae", "kvae", "cpc", "lgssm"]
FIGURES = [section.name for section in SECTIONS if section.draw is not None]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    compare(folder, methods=METHODS)
    for run in accuracy_runs("pendulum"):
        write_result(folder, run, {"sin_angle": 0.9, "velocity": 0.8, "mean": 0.85})
    return folder


@pytest.fixture(scope="module")
def report(results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    return folder, *build(results, folder)


def test_every_part_is_there(report):
    folder, written, missing = report
    assert missing == []
    assert {path.name for path in written} == {f"{n}.{s}" for n in FIGURES for s in ("png", "svg")} | {"report.html"}
    for name in FIGURES:
        with Image.open(folder / f"{name}.png") as image:
            assert image.width > 300
            assert len(np.unique(np.asarray(image.convert("L")))) > 10
        ET.parse(folder / f"{name}.svg")


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.sources, self.ids, self.links, self.open = [], [], [], []

    def handle_starttag(self, tag, attrs):
        told = dict(attrs)
        self.sources += [told[name] for name in ("src", "data") if name in told]
        self.ids += [told["id"]] if "id" in told else []
        self.links += [told["href"]] if "href" in told else []
        if tag not in ("img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else(report):
    text = (report[0] / "report.html").read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text.removeprefix("<!doctype html>"))
    assert reader.open == []
    assert len(reader.sources) == len(FIGURES)
    assert all(source.startswith("data:image/svg+xml;base64,") for source in reader.sources)
    assert reader.ids == [section.name for section in SECTIONS]
    assert reader.links == [f"#{section.name}" for section in SECTIONS]
    assert "Missing:" not in text


def test_every_run_is_in_the_provenance(results, report):
    text = (report[0] / "report.html").read_text(encoding="utf-8")
    for result in read_all(results):
        assert result.run.identity in text


def test_nothing_stored_is_said_to_be_missing(tmp_path):
    written, missing = build(tmp_path / "none", tmp_path / "report")
    assert missing == [section.name for section in SECTIONS]
    text = written[-1].read_text(encoding="utf-8")
    assert text.count("Missing: there are no stored results") == len(SECTIONS)


def test_a_few_results_make_a_report_and_old_figures_go(tmp_path):
    compare(tmp_path / "few", tasks=["pendulum"], methods=["rpgssm", "cpc"], seeds=[0])
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "paths.png").write_bytes(b"of an older report")
    _, missing = build(tmp_path / "few", tmp_path / "report")
    assert {"linear", "paths", "reconstructions", "pendulum-64", "time-per-step"} <= set(missing)
    assert not {"main", "verdicts", "video-linear", "targets-kernel", "horizon", "provenance"} & set(missing)
    assert not (tmp_path / "report" / "paths.png").exists()


def test_divergence_is_shown(tmp_path):
    for run in plan("comparison", tasks=["linear-small"], methods=["svae"], seeds=[0]):
        write_result(tmp_path, run, {}, status="diverged")
    compare(tmp_path, tasks=["linear-small"], methods=["rpgssm"])
    rows = tables.main(Collection.read(tmp_path, "compact"))
    assert dict(zip(*rows, strict=True))["SVAE"] == "diverged"
    whole = dict(zip(*rows, strict=True))["RP-GSSM"]
    write_result(tmp_path, plan("comparison", tasks=["linear-small"], methods=["rpgssm"])[2], {}, status="diverged")
    rows = tables.main(Collection.read(tmp_path, "compact"))
    assert dict(zip(*rows, strict=True))["RP-GSSM"].endswith(" (1 of 3 diverged)")
    assert not whole.endswith(")")


@pytest.mark.parametrize(
    ("task", "ahead", "words"),
    [
        ("cifar10-pendulum", 0.2, "first, clearly"),
        ("cifar10-pendulum", 0.01, "first, but not clearly"),
        ("davis-tracking", -0.01, "not first, though it should be"),
        ("pendulum", 0.01, "first"),
        ("pendulum", -0.015, "within 0.02 of the best"),
        ("linear-small", -0.05, "behind by more than 0.02"),
    ],
)
def test_verdicts(task, ahead, words):
    assert tables.verdict(task, ahead) == words


def test_verdicts_name_the_strongest_rival(results):
    rows = tables.verdicts(Collection.read(results, "compact"))
    lines = {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[1:]}
    line = lines["CIFAR10-Pendulum"]
    assert re.fullmatch(r"0\.\d{3} \(CPC\)", line["best other"])
    assert float(line["difference"]) == pytest.approx(float(line["RP-GSSM"]) - float(line["best other"][:5]), abs=2e-3)


def test_verdicts_say_on_how_many_seeds_they_rest(results):
    rows = tables.verdicts(Collection.read(results, "compact"))
    seeds = {row[0]: row[rows[0].index("seeds")] for row in rows[1:]}
    assert seeds["Pendulum"] == "3"
    assert seeds["Tracking"] == "1"


def test_forecasts_are_set_against_the_best_other_at_each_horizon(tmp_path):
    own, rival, third = (
        [start - slope * h for h in range(50)] for start, slope in ((0.9, 0.02), (0.5, 0.0), (0.6, 0.1))
    )
    for method, curve in (("rpgssm", own), ("svae", rival), ("kvae", third)):
        (run, *_) = plan("comparison", tasks=["pendulum"], methods=[method], seeds=[0])
        scores = {"forecast": {"context": 50, "r_squared": {"mean": curve}, "coverage": {}}}
        write_result(tmp_path, run, {"mean": 0.9}, scores=scores)
    header, line = tables.forecasts(Collection.read(tmp_path, "compact"))
    assert line == ["Pendulum", "0.90 | 0.60 (KVAE)", "0.72 | 0.50 (SVAE)", "0.42 | 0.50 (SVAE)", "-0.08 | 0.50 (SVAE)"]
    assert header[2].startswith("10 ahead")


def test_trainings_that_serve_both_experiments_are_counted_once(tmp_path):
    (run,) = accuracy_runs("linear-small", [0])
    scored = {"seconds": 3600.0, "ceiling": {"z": 0.91, "mean": 0.91}}
    write_result(tmp_path, run, {"z": 0.9, "mean": 0.9}, **scored)
    (twin,) = plan("comparison", tasks=["linear-small"], methods=["rpgssm"], seeds=[0])
    path = write_result(tmp_path, twin, {"z": 0.9, "mean": 0.9}, **scored)
    stored = json.loads(path.read_text())
    path.write_text(json.dumps(stored | {"taken_from": run.identity}))
    build(tmp_path, tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    assert "1 belong to both and were trained once: 1.0 hours of training" in page
    assert "rpgssm-study run comparison --protocol compact" in page


def test_settings_that_could_not_be_chosen_did_not_compete(tmp_path):
    runs = plan("comparison", tasks=["pendulum"], methods=["svae"])
    for run in runs:
        write_result(tmp_path, run, {"mean": 0.5})
    write_result(tmp_path, runs[0].with_settings(noise=7.0), {"mean": 0.9})  # with one seed
    header, line = tables.hyperparameters(Collection.read(tmp_path, "compact"))
    assert line[header.index("competed")] == "1"


def test_nothing_has_no_sign():
    assert plain(-0.0004) == "0.000"
    assert plain(-0.0004, 2) == "0.00"
    assert plain(-0.0016) == "-0.002"


def test_only_the_best_number_is_bold(tmp_path):
    for method, score in (("rpgssm", 0.9512), ("svae", 0.9498), ("kvae", 0.2)):
        (run, *_) = plan("comparison", tasks=["pendulum"], methods=[method], seeds=[0])
        write_result(tmp_path, run, {"mean": score})
    (axis, _) = scores.all_video(Collection.read(tmp_path, "compact"), "linear").axes
    bold = [text for text in axis.texts if text.get_fontweight() == "bold"]
    assert [(text.get_text(), text.get_position()[1]) for text in bold] == [("0.95", 0)]


def test_linear_scores_far_below_are_written(tmp_path):
    for method, score in (("rpgssm", 0.95), ("svae", 0.31)):
        (run, *_) = plan("comparison", tasks=["linear-small"], methods=[method], seeds=[0])
        write_result(tmp_path, run, {"mean": score}, ceiling={"mean": 0.96})
    axis = scores.linear_sizes(Collection.read(tmp_path, "compact")).axes[0]
    assert any("0.31" in text.get_text() for text in axis.texts)
    assert axis.get_ylim()[0] > 0.5


def test_settings_scored_by_both_experiments_are_counted_once(tmp_path):
    def counted():
        rows = tables.scored_settings(Collection.read(tmp_path, "compact"))
        return {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[1:]}

    scores = {"sin_angle": 0.9, "velocity": 0.8, "mean": 0.85}
    compare(tmp_path, tasks=["pendulum", "linear-small"], methods=["rpgssm", "svae"])
    recipes = list(accuracy_runs("pendulum"))
    for run in recipes:
        write_result(tmp_path, run, scores)
    before = counted()
    assert before["Pendulum"]["RP-GSSM"] == "2"  # the recipe, by both experiments, and fewer latents
    assert before["Pendulum"]["SVAE"] == "1"
    assert before["Linear: 3 latents, 5 observations"]["SVAE"] == "2"
    write_result(tmp_path, recipes[0].with_settings(max_steps=77), scores)
    assert counted()["Pendulum"]["RP-GSSM"] == "3"


def result(method, noise, seed, validation, test):
    (run,) = plan("comparison", tasks=["pendulum"], methods=[method], seeds=[seed])
    content = {"status": "finished", "validation": {"mean": validation}, "scores": {"linear": {"mean": test}}}
    return Result(run.with_settings(noise=noise), content)


def test_settings_are_chosen_by_validation_and_not_by_the_test():
    chosen = best([result("svae", 1.0, 0, 0.8, 0.1), result("svae", 0.1, 0, 0.7, 0.9)])
    assert chosen.settings["noise"] == 1.0


def test_settings_with_fewer_seeds_do_not_compete():
    lucky = [result("svae", 1.0, 0, 0.99, 0.9)]
    steady = [result("svae", 0.1, seed, 0.7, 0.7) for seed in (0, 1, 2)]
    chosen = best(lucky + steady)
    assert chosen.settings["noise"] == 0.1
    assert chosen.median("linear", "mean") == 0.7


def test_films_are_of_the_first_seed_and_of_the_generative_method_that_validation_prefers(results):
    c = Collection.read(results, "compact")
    shown = films._shown(c, "cifar10-pendulum", "reconstructions")
    generative = [m for m in shown if m not in ("rpgssm", "cpc")]
    scores = {m: c.chosen("cifar10-pendulum", m).selection for m in ("svae", "kvae")}
    assert generative == [max(scores, key=scores.get)]
    assert shown["rpgssm"].first.run.seed == 0


def test_accuracy_against_time_is_drawn_from_the_curves(results):
    """A line for each run, over the minutes it was trained."""
    c = Collection.read(results, "compact")
    axis = next(a for a in times.against_accuracy(c).axes if a.get_title() == title("pendulum"))
    group = c.chosen("pendulum", "rpgssm")
    expected = [np.array(r.training["validation_r2"]["seconds"]) / 60 for r in group.results]
    lines = [line.get_xdata() for line in axis.lines if line.get_linewidth() == 1.8]
    np.testing.assert_allclose(sorted(map(tuple, lines)), sorted(map(tuple, expected)))


def test_on_the_command_line(tmp_path, capsys):
    compare(tmp_path / "few", tasks=["pendulum-64"], methods=["rpgssm", "svae"], seeds=[0])
    cli.main(["report", "--results", str(tmp_path / "few"), "-o", str(tmp_path / "out")])
    out = capsys.readouterr().out
    assert "No results yet for: " in out
    assert (tmp_path / "out" / "pendulum-64.svg").exists()
