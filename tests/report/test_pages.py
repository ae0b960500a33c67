"""The report of every kind of model, and of every kind of data."""

import base64
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest

from rpgssm import RPGSSM, FixedFeatures, Stack
from rpgssm.evaluation import Labelled
from rpgssm.methods import all_methods
from rpgssm.report import describe, look, write_report

from .made_data import turning

WITHOUT = ["latents", "uncertainty", "forecasts", "dynamics", "dimensions", "contents", "training"]
WITH = ["scores", "tracks", "target-forecasts"]
QUICK = {"max_steps": 3, "verbose": False}


@pytest.fixture(scope="module", autouse=True)
def quick_compilation(compile_quickly):
    with compile_quickly():
        yield


def small(**settings):
    return RPGSSM(2, "linear", **QUICK, **settings)


def make(name):
    if name == "Stack":
        return Stack([small(), RPGSSM(2, FixedFeatures(8, components=3), **QUICK)])
    settings = {"iterations": 2, "verbose": False} if name == "LinearGaussianSSM" else QUICK
    return all_methods()[name](2, **settings)


class Page(HTMLParser):
    """Sections with their pictures and notes, and everything that could point outside."""

    def __init__(self, path):
        super().__init__()
        self.text = path.read_text(encoding="utf-8")
        self.sections, self.pointing, self.tags, self.cells = {}, [], set(), []
        self._section, self._tag, self._kind = "top", "", ""
        self.feed(self.text)

    def handle_starttag(self, tag, attrs):
        told = dict(attrs)
        self._tag, self._kind = tag, told.get("class", "")
        self.tags.add(tag)
        if tag == "section":
            self._section = told["id"]
            self.sections[self._section] = []
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
        if self._tag == "p" and self._kind == "missing":
            self.sections[self._section].append(data)


QUICKER = ("CPC", "LinearGaussianSSM", "RKN", "RPGSSM", "Stack")


@pytest.mark.parametrize(
    "name", [name if name in QUICKER else pytest.param(name, marks=pytest.mark.slow) for name in all_methods()]
)
def test_every_method_has_a_report(name):
    x, z = turning()
    model = make(name).fit(x)
    f = look(model, Labelled(x, {"z": z}))
    parts = {part.name: part for part in describe(f)}
    assert list(parts) == [*WITH, *WITHOUT]
    for part in parts.values():
        assert part.note if part.empty else part.draw is None or part.draw() is not None
    can = {"forecasts": hasattr(model, "forecast"), "target-forecasts": hasattr(model, "forecast")}
    can |= {"uncertainty": f.found.test.cov is not None, "dynamics": hasattr(model, "transition_")}
    for section, able in can.items():
        assert parts[section].empty != able
        assert able or name in parts[section].note
    assert ("causal" in " ".join(parts["scores"].rows[0])) == hasattr(model, "filter")


def data_of(kind):
    """Data, targets, and what else `fit` and the report are told."""
    x, z = turning()
    rng = np.random.default_rng(1)
    lengths = 5 + np.arange(len(x))
    if kind == "ragged":
        return (
            [row[:n] for row, n in zip(x, lengths, strict=True)],
            [r[:n] for r, n in zip(z, lengths, strict=True)],
            {},
        )
    if kind == "long":
        x, z = turning(1, 240)
        x[0, 30:40] = np.nan
        z[0, 200:210] = np.nan
        return x[0], z[0], {}
    if kind == "masked":
        mask = rng.random(x.shape[:2]) > 0.3
        mask[:, 0] = True
        return x, z, {"mask": mask}
    if kind == "controls":
        return x, z, {"controls": rng.normal(size=(*x.shape[:2], 1)).astype(np.float32)}
    assert kind == "modalities"
    right = x[..., 2:].copy()
    right[3, 4:7] = np.nan
    return {"left": x[..., :2], "right": right}, z, {}


@pytest.mark.parametrize("kind", ["ragged", "long", "masked", "controls", "modalities"])
def test_data_of_every_kind(kind):
    x, z, told = data_of(kind)
    model = small().fit(x, **told)
    if kind == "controls":
        from rpgssm.data import Recording

        x = Recording(x, None, told["controls"])
    elif kind == "masked":
        from rpgssm.data import Recording

        x = Recording(x, told["mask"])
    f = look(model, Labelled(x, {"z": z}))
    assert all(part.draw is None or part.draw() is not None for part in describe(f))
    assert np.isfinite(list(f.found.linear.values())).all()


def test_a_long_recording_is_cut_in_time():
    x, z, _ = data_of("long")
    f = look(small().fit(x), Labelled(x, {"z": z, "still": np.ones(240)}))
    assert "The recording of 240 frames is cut into 12 blocks of 20 frames" in f.arranged.words
    assert "fitted on the first 8 (frames 0–159) and scored on the other 4 (frames 160–239)" in f.arranged.words
    np.testing.assert_array_equal(f.test.targets["z"], z[160:].reshape(4, 20, 2))
    assert "'still' is left out" in f.arranged.notes[0]
    assert f.name(0) == "frames 160–179"


def test_targets_need_something_held_out():
    x, z, _ = data_of("long")
    with pytest.raises(ValueError, match="the only sequence has 20 frames"):
        look(small().fit(x), Labelled(x[:20], {"z": z[:20]}))


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    return rng.integers(0, 255, size=(6, 10, 8, 8), dtype=np.uint8)


@pytest.fixture(scope="module")
def written(images, tmp_path_factory):
    """The page of a model of images with a decoder, in a folder."""
    model = RPGSSM(2, "linear", **QUICK).fit(images).fit_decoder(images, steps=2)
    folder = tmp_path_factory.mktemp("report")
    path = write_report(model, images, {"mean": images.mean((2, 3))}, output=folder, dt=0.5)
    return model, folder, Page(path)


def test_the_page_needs_nothing_else(written):
    _, folder, page = written
    assert not page.tags & {"script", "link", "iframe", "object", "embed", "base"}
    assert "url(" not in page.text
    pictures = [link for link in page.pointing if link.startswith("data:image/")]
    anchors = [link for link in page.pointing if link.startswith("#")]
    assert sorted(pictures + anchors) == sorted(page.pointing)
    assert [anchor[1:] for anchor in anchors] == list(page.sections) == ["data", *WITH, *WITHOUT]
    for name, shown in page.sections.items():
        if shown and shown[0].startswith("data:image/svg"):
            svg = base64.b64decode(shown[0].split(",")[1])
            assert svg == (folder / "figures" / f"{name}.svg").read_bytes()
            for element in ET.fromstring(svg).iter():
                links = [value for attribute, value in element.attrib.items() if attribute.endswith("href")]
                assert all(link.startswith(("#", "data:")) for link in links)
    assert page.sections["contents"][1].startswith("data:image/gif")
    assert "seconds" not in page.sections


def test_the_scores_are_those_of_a_regression(written, images):
    model, _, page = written
    z, y = model.transform(images).astype(float), images.mean((2, 3))
    design = [np.c_[part.reshape(-1, 2), np.ones(part[..., 0].size)] for part in (z[:4], z[4:])]
    truth = y[4:].ravel()
    guess = design[1] @ np.linalg.lstsq(design[0], y[:4].ravel(), rcond=None)[0]
    expected = 1 - ((truth - guess) ** 2).sum() / ((truth - truth.mean()) ** 2).sum()
    (row,) = [row for row in page.cells if row[0] == "mean" and len(row) == 6]
    assert float(row[1]) == pytest.approx(expected, abs=2e-3)


def test_nothing_is_overwritten_unasked(written, images, tmp_path):
    model, folder, page = written
    with pytest.raises(ValueError, match=r"report\.html exists: choose another name, or pass overwrite=True"):
        write_report(model, images, output=folder)
    assert (folder / "report.html").read_text(encoding="utf-8") == page.text
    with pytest.raises(ValueError, match=r"must end in \.html"):
        write_report(model, images, output=tmp_path / "report.pdf")


def test_without_targets_and_without_a_decoder(images, tmp_path):
    path = write_report(small().fit(images), images, output=tmp_path / "new" / "page.html")
    page = Page(path)
    assert list(page.sections) == ["data", *WITHOUT]
    assert list((tmp_path / "new").iterdir()) == [path]
    assert "fit_decoder" in page.sections["contents"][0]
    assert re.search(r"6 sequences of 10 frames", page.text)
