"""From a task to a fitted model and its scores, on the command line."""

import json

import pytest

from rpgssm import cli
from rpgssm_study.cli import main

MODELS = {
    "rpgssm": ["--latent-dim", "3", "--encoder", "linear", "--max-steps", "20", "--validate-every", "10"],
    **{name: ["--latent-dim", "3", "--max-steps", "4"] for name in ("svae", "dkf", "kvae", "linear-gaussian", "cpc")},
    **{name: ["--latent-dim", "6", "--max-steps", "4"] for name in ("dcl", "rkn")},
}


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_every_model_from_task_to_scores(model, tmp_path, capsys, monkeypatch, compile_quickly):
    monkeypatch.setenv("RPGSSM_CACHE", str(tmp_path / "cache"))
    made, folder = tmp_path / "made", tmp_path / "run"
    main(["tasks", "save", "linear-small", "-o", str(made)])
    files = [str(made / "train.npy"), "--validation", str(made / "validation.npy")]
    with compile_quickly():
        cli.main(["fit", *files, "-o", str(folder), "--model", model, *MODELS[model], "--quiet"])
        main(["evaluate", str(folder), "--task", "linear-small"])
    assert "linear" in capsys.readouterr().out
    scores = json.loads((folder / "evaluation-linear-small" / "evaluation.json").read_text())
    assert (0.3 if model == "rpgssm" else -1) < scores["linear"]["mean"] < 1
    assert list((folder / "evaluation-linear-small").glob("*.png"))
