"""The demonstration, small: its report is one file that needs nothing else, and its numbers are those of its model."""

import base64
import contextlib
import html
import io
import re
import shlex

import numpy as np
import pytest
from PIL import Image, ImageSequence
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

import rpgssm
from rpgssm import cli
from rpgssm import demo as demonstration
from rpgssm.datasets import pendulum, pendulums
from rpgssm.demo import NAMES

SIZES = {"train": 4, "test": 4}
FIGURES = ["frames", "tracks", "target-forecasts", "latents", "forecasts", "dynamics", "contents", "training"]
K, TIME, CONTEXT = 3, 20, 8


@pytest.fixture(scope="module", autouse=True)
def small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pendulums, "TIME", TIME)
        patch.setattr(demonstration, "SIZES", SIZES)
        patch.setattr(demonstration, "LATENTS", K)
        patch.setattr(demonstration, "CONTEXT", CONTEXT)
        patch.setattr(demonstration, "DECODER", (4, 2, 1e-3))
        yield


@pytest.fixture(scope="module")
def ran(small, tmp_path_factory, compile_quickly):
    """The folder, what was printed, and the page."""
    folder, printed = tmp_path_factory.mktemp("demo") / "out", io.StringIO()
    with compile_quickly(), contextlib.redirect_stdout(printed):
        cli.main(["demo", "--steps", "3", "-o", str(folder)])
    return folder, printed.getvalue(), (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def data(small):
    return {split: pendulum(n, background="textures", split=split) for split, n in SIZES.items()}


def test_the_page_is_one_file_with_all_sections(ran):
    folder, _, text = ran
    assert not re.search(r"<(script|link|iframe|object|embed|base)\b", text)
    for name in ("scores", "next", *FIGURES):
        assert f'href="#{name}"' in text
        assert f'<section id="{name}">' in text
    for name in FIGURES:
        svg = base64.b64encode((folder / "figures" / f"{name}.svg").read_bytes()).decode("ascii")
        assert svg in text
        with Image.open(folder / "figures" / f"{name}.png") as image:
            assert len(np.unique(np.asarray(image.convert("L")))) > 10
    assert 'class="missing"' not in text


def test_the_film_plays_what_is_seen_drawn_and_true(ran, data):
    (picture,) = re.findall(r'src="data:image/gif;base64,([^"]+)"', ran[2])
    with Image.open(io.BytesIO(base64.b64decode(picture))) as film:
        frames = np.stack([np.asarray(frame.convert("L")) for frame in ImageSequence.Iterator(film)]) / 255
    assert frames.shape == (TIME, 24, 24 * 3 + 4)
    seen, bar = data["test"].observations[0, ..., 0] / 255, frames[..., 52:]
    np.testing.assert_allclose(frames[..., :24], seen, atol=0.003)
    decoded = rpgssm.load(ran[0] / "model").reconstruct(data["test"].observations[:1])[0, ..., 0]
    np.testing.assert_allclose(frames[..., 26:50], np.clip(decoded, 0, 1), atol=0.003)
    # frames are the pixelwise maximum of pendulum and background
    assert (seen >= bar - 2 / 255).all()
    bright = bar > 0.9
    assert bright.mean() > 0.01
    np.testing.assert_allclose(seen[bright].mean(), bar[bright].mean(), atol=0.02)


def test_numbers_of_page_and_terminal_are_those_of_the_saved_model(ran, data):
    folder, printed, text = ran

    def flat(x):
        return np.asarray(x, np.float64).reshape(-1, x.shape[-1])

    pixels = [x.observations.reshape(-1, 576) / 255 for x in data.values()]
    middle = pixels[0].mean(0)
    _, _, directions = np.linalg.svd(pixels[0] - middle, full_matrices=False)
    components = [(x - middle) @ directions[:K].T for x in pixels]
    model = rpgssm.load(folder / "model")
    latents = [flat(model.transform(x.observations)) for x in data.values()]
    for name in NAMES:
        y, truth = (flat(x.targets[name]) for x in data.values())
        scores = [r2_score(truth, LinearRegression().fit(a, y).predict(b)) for a, b in (latents, components)]
        line = next(line for line in printed.splitlines() if NAMES[name] in line)
        np.testing.assert_allclose(
            [float(cell) for cell in re.split(r"\s{2,}", line.strip())[1:3]], scores, atol=0.0015
        )
        assert re.search(rf"<b>{re.escape(f'{scores[0]:.3f}'[:-2])}\d</b><span>R² of {re.escape(NAMES[name])}", text)
        for cell in re.split(r"\s{2,}", line.strip())[1:]:
            assert f">{cell}</td>" in text


def test_what_it_says_to_do_next_can_be_done(ran, data, monkeypatch, tmp_path, compile_quickly):
    python, shell = (html.unescape(code) for code in re.findall(r"<pre>([^<]*rpgssm[^<]*)</pre>", ran[2])[-2:])
    understood = []
    for name in ("Fit", "Transform", "Forecast", "MakeReport"):
        monkeypatch.setattr(getattr(cli, name), "run", lambda command: understood.append(command))
    for line in shell.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "rpgssm"
        cli.main(arguments)
    fit, transform, forecast, report = understood
    assert fit.out == transform.folder == forecast.folder == report.folder
    monkeypatch.chdir(tmp_path)
    python = python.replace(f"RPGSSM({K}", f"RPGSSM({K}, verbose=False, max_steps=2")
    with compile_quickly():
        exec(python, {"videos": data["train"].observations})
    assert (tmp_path / "my-report.html").is_file()


def test_a_folder_that_holds_something_is_left_alone(ran, capsys):
    folder = ran[0]
    with pytest.raises(SystemExit):
        cli.main(["demo", "-o", str(folder)])
    assert "is not empty: choose another folder" in capsys.readouterr().err
    assert (folder / "report.html").read_text(encoding="utf-8") == ran[2]
