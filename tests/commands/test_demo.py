"""The demonstration, small: its report is one file that needs nothing else, and its numbers are those of its model."""

import base64
import contextlib
import inspect
import io
import re
import shlex
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from rpgssm import cli
from rpgssm.commands import config
from rpgssm.commands import demo as demonstration
from rpgssm.commands.demo_report import NAMES
from rpgssm.estimator import RPGSSM
from rpgssm.tasks import load_task, pendulum

SIZES: dict[str, Any] = {"n_train": 4, "n_validation": 2, "n_test": 4}
FIGURES = ["frames", "training", "trajectories", "forecast", "eigenvalues", "reconstructions"]
K, TIME, CONTEXT = 3, 20, 8


class Reader(HTMLParser):
    """Sections with their pictures, tables, captions and code; and everything that could point outside."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections, self.pointing, self.tags, self.cells, self.code = {}, [], set(), [], {}
        self._section, self._tag, self._kind = "top", "", ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        told = dict(attrs)
        self._tag, self._kind = tag, told.get("class", "")
        self.tags.add(tag)
        if tag == "section":
            self._section = told["id"]
        if tag == "img":
            self.sections.setdefault(self._section, []).append(told["src"])
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")
        self.pointing += [told[name] for name in ("src", "href", "srcset", "data", "action") if name in told]

    def handle_endtag(self, tag):
        self._tag = ""

    def handle_data(self, data):
        if self._tag in ("td", "th"):
            self.cells[-1][-1] += data
        if self._tag == "pre":
            self.code[self._kind] = data
        if self._tag == "p" and self._kind == "caption":
            self.sections.setdefault(self._section, []).append(data)


@pytest.fixture(scope="module", autouse=True)
def small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pendulum, "TIME", TIME)
        patch.setattr(demonstration, "SIZES", SIZES)
        patch.setattr(demonstration, "SETTINGS", demonstration.SETTINGS | {"latent_dim": K})
        patch.setattr(demonstration, "CONTEXT", CONTEXT)
        patch.setattr(demonstration, "DECODER", (4, 2, 1e-3))
        yield


@pytest.fixture(scope="module")
def ran(small, tmp_path_factory, compile_quickly):
    """The folder, what was printed, what was found, and the page as it was read."""
    folder, printed, found = tmp_path_factory.mktemp("demo") / "out", io.StringIO(), []
    examine = demonstration.examine

    def remembered(*arguments):
        found.append(examine(*arguments))
        return found[0]

    with pytest.MonkeyPatch.context() as patch, compile_quickly(), contextlib.redirect_stdout(printed):
        patch.setattr(demonstration, "examine", remembered)
        cli.main(["demo", "--steps", "3", "-o", str(folder)])
    return folder, printed.getvalue(), found[0], (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def task(small):
    return load_task("cifar10-pendulum", background="procedural", cache=False, **SIZES)


@pytest.fixture(scope="module")
def model(ran):
    return RPGSSM.load(ran[0] / "model")


def test_one_file_that_points_nowhere(ran):
    text = ran[3]
    page = Reader(text)
    assert not page.tags & {"script", "link", "iframe", "object", "embed", "base"}
    assert "@import" not in text
    assert "url(" not in text
    anchors = [link for link in page.pointing if link.startswith("#")]
    pictures = [link for link in page.pointing if link.startswith("data:image/")]
    assert sorted(anchors + pictures) == sorted(page.pointing)
    assert sorted(anchors) == sorted(f"#{name}" for name in ("main", *FIGURES, "next"))
    for name in anchors:
        assert f'id="{name[1:]}"' in text
    for picture in pictures:
        if picture.startswith("data:image/svg+xml;base64,"):
            for element in ET.fromstring(base64.b64decode(picture.split(",")[1])).iter():
                links = [value for name, value in element.attrib.items() if name.endswith("href")]
                assert all(link.startswith(("#", "data:")) for link in links)
                assert "http" not in element.attrib.get("style", "")


def test_every_section_has_its_figure_and_a_caption(ran):
    folder, _, _, text = ran
    sections = Reader(text).sections
    for name in FIGURES:
        caption, picture = sections[name]
        assert len(caption) > 100
        assert base64.b64decode(picture.split(",")[1]) == (folder / "figures" / f"{name}.svg").read_bytes()
        with Image.open(folder / "figures" / f"{name}.png") as image:
            assert len(np.unique(np.asarray(image.convert("L")))) > 10
    assert "Missing" not in text


def test_the_film_plays_what_is_seen_drawn_and_true(ran):
    (picture,) = Reader(ran[3]).sections["top"]
    with Image.open(io.BytesIO(base64.b64decode(picture.removeprefix("data:image/gif;base64,")))) as film:
        frames = np.stack([np.asarray(frame.convert("L")) for frame in ImageSequence.Iterator(film)]) / 255
    found = ran[2]
    assert frames.shape == (TIME, 24, 24 * 3 + 4)
    np.testing.assert_allclose(frames[..., :24], found.frames[0], atol=0.003)
    np.testing.assert_allclose(frames[..., 26:50], np.clip(found.decoded, 0, 1), atol=0.003)
    np.testing.assert_allclose(frames[..., 52:], found.bare, atol=0.003)


def test_the_bare_pendulum_is_the_one_in_the_film(ran):
    found = ran[2]
    # frames are the pixelwise maximum of pendulum and background
    assert (found.frames[0] >= found.bare - 0.5 / 255).all()
    bright = found.bare > 0.9
    assert bright.mean() > 0.01
    np.testing.assert_allclose(found.frames[0][bright].mean(), found.bare[bright].mean(), atol=0.02)


def test_numbers_of_page_and_terminal_are_those_of_the_saved_model(ran, task, model):
    _, printed, found, text = ran

    def flat(x):
        return np.asarray(x, np.float64).reshape(-1, x.shape[-1])

    pixels = [x.reshape(-1, 576) / 255 for x in (task.train.observations, task.test.observations)]
    middle = pixels[0].mean(0)
    _, _, directions = np.linalg.svd(pixels[0] - middle, full_matrices=False)
    components = [(x - middle) @ directions[:K].T for x in pixels]
    latents = [flat(model.transform(x)) for x in (task.train.observations, task.test.observations)]
    page = Reader(text)
    for row, name in zip(page.cells[1:], task.target_names, strict=True):
        y, truth = flat(task.train.targets[name]), flat(task.test.targets[name])
        scores = [r2_score(truth, LinearRegression().fit(a, y).predict(b)) for a, b in (latents, components)]
        assert row[0] == NAMES[name]
        np.testing.assert_allclose([float(cell) for cell in row[1:3]], scores, atol=0.0015)
        line = next(line for line in printed.splitlines() if NAMES[name] in line)
        assert re.split(r"\s{2,}", line.strip()) == row
        for score, kind in ((found.r_squared[name], "<b>{}</b>"), (found.pixels[name], "(PCA): {}")):
            assert kind.format(f"{score:.2f}") in text


def test_uncertainty_is_the_covariance_through_the_regression(ran, task, model):
    found, test = ran[2], model.smooth(task.test.observations)
    train = model.smooth(task.train.observations)
    for name in task.target_names:
        y = task.train.targets[name].reshape(-1)
        regression = LinearRegression().fit(train.mean.reshape(-1, K), y)
        w = regression.coef_
        inside = 0
        residual = np.mean((y - regression.predict(train.mean.reshape(-1, K))) ** 2)
        posterior = np.mean([w @ cov @ w for cov in train.cov.reshape(-1, K, K)])
        factor, extra = min(residual / posterior, 1), max(residual - posterior, 0)
        for n in range(SIZES["n_test"]):
            for t in range(TIME):
                deviation = np.sqrt(factor * (w @ test.cov[n, t] @ w) + extra)
                np.testing.assert_allclose(found.smoothed.deviation[name][n, t, 0], deviation, rtol=1e-3)
                error = task.test.targets[name][n, t, 0] - regression.predict(test.mean[n, t][None])[0]
                inside += abs(error) <= 1.645 * deviation
        np.testing.assert_allclose(found.covered[name], inside / (SIZES["n_test"] * TIME), atol=0.01)


def test_forecasts_know_nothing_of_the_future(ran, task, model):
    found = ran[2]
    past = task.test.observations[:, :CONTEXT]
    assert found.ahead.mean["velocity"].shape == (4, TIME - CONTEXT, 1)
    y = LinearRegression().fit(
        model.transform(task.train.observations).reshape(-1, K), task.train.targets["velocity"].reshape(-1)
    )
    expected = y.predict(model.forecast(past, TIME - CONTEXT).mean.reshape(-1, K)).reshape(4, -1)
    np.testing.assert_allclose(found.ahead.mean["velocity"][..., 0], expected, rtol=1e-3, atol=1e-3)
    expected = y.predict(model.transform(past).reshape(-1, K)).reshape(4, CONTEXT)
    np.testing.assert_allclose(found.seen.mean["velocity"][..., 0], expected, rtol=1e-3, atol=1e-3)


def test_what_it_says_to_do_next_can_be_done(ran, monkeypatch):
    code = Reader(ran[3]).code
    understood = []
    monkeypatch.setattr(cli, "_run", understood.append)
    for line in code["shell"].splitlines():
        program, *arguments = shlex.split(line)
        assert program == "rpgssm"
        cli.main(arguments)
    fit, transform, forecast = understood
    assert isinstance(fit, config.Fit)
    assert fit.out == transform.run == forecast.run
    python = code["python"].splitlines()
    assert len(python) == 3
    called = []

    class Recorder(RPGSSM):
        def fit(self, X, **rest):
            called.append("fit")
            return self

        def transform(self, X, **rest):
            called.append("transform")

        def forecast(self, *arguments, **named):
            inspect.signature(RPGSSM.forecast).bind(self, *arguments, **named)
            called.append("forecast")

    exec("\n".join(python[1:]), {"RPGSSM": Recorder, "videos": None})
    assert called == ["fit", "transform", "forecast"]


def test_a_folder_that_holds_something_is_left_alone(ran, capsys):
    folder = ran[0]
    with pytest.raises(SystemExit):
        cli.main(["demo", "-o", str(folder)])
    assert "is not empty: choose another folder" in capsys.readouterr().err
    assert (folder / "report.html").read_text(encoding="utf-8") == ran[3]
