"""`rpgssm report`, from files to a page."""

import numpy as np
import pytest

from rpgssm import cli


@pytest.fixture(scope="module")
def files(tmp_path_factory, compile_quickly):
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.normal(size=(6, 10, 3)), 1).astype(np.float32)
    np.savez(folder / "x.npz", x=x, controls=rng.normal(size=(6, 10, 1)).astype(np.float32))
    np.savez(folder / "targets.npz", speed=x[..., 0] + 1, other=x[..., :2])
    settings = ["--latent-dim", "2", "--encoder", "linear", "--max-steps", "2", "--quiet"]
    with compile_quickly():
        cli.main(["fit", str(folder / "x.npz"), "-o", str(folder / "run"), *settings])
    return folder


def report(files, *arguments):
    cli.main(["report", str(files / "run"), str(files / "x.npz"), *map(str, arguments)])


def test_a_page_with_targets(files, compile_quickly, capsys):
    page = files / "page.html"
    with compile_quickly():
        report(files, "--targets", files / "targets.npz", "--target-key", "speed", "--dt", "0.1", "-o", page)
    assert f"Wrote {page}" in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert "<td>speed</td>" in text
    assert "<td>other</td>" not in text
    assert "controls" in text
    with pytest.raises(SystemExit):
        report(files, "-o", page)
    assert "exists: choose another name" in capsys.readouterr().err
    assert page.read_text(encoding="utf-8") == text


def test_a_data_set_brings_its_targets(tmp_path, compile_quickly, capsys):
    run, page = tmp_path / "run", tmp_path / "page.html"
    settings = ["--latent-dim", "3", "--encoder", "linear", "--max-steps", "2", "--quiet"]
    with compile_quickly():
        cli.main(["fit", "dataset:linear-small", "-o", str(run), *settings])
        cli.main(["report", str(run), "dataset:linear-small", "-o", str(page)])
    text = page.read_text(encoding="utf-8")
    assert "fitted on 200 sequences and scored on 50 others" in text
    assert "<td>z</td>" in text


def test_wrong_files_are_named(files, capsys):
    for arguments, message in (
        (["-o", "page.pdf"], "must end in .html"),
        (["--targets", files / "none.csv", "-o", files / "new.html"], "there is no file"),
        (["--targets", files / "x.npz", "--target-key", "y", "-o", files / "new.html"], "has no array 'y'"),
    ):
        with pytest.raises(SystemExit):
            report(files, *arguments)
        assert message in capsys.readouterr().err
