import numpy as np
import pytest
from PIL import Image

from rpgssm_study.tasks import contact_sheet, load_task

SMALL = {"n_train": 2, "n_validation": 2, "n_test": 2}


@pytest.mark.parametrize("name", ["linear-small", "pendulum", "tracking"])
def test_a_sheet_shows_frames_and_targets(name, tmp_path):
    task = load_task(name, **SMALL, cache=False)
    path = contact_sheet(task, tmp_path / "new" / "sheet.png", split="test", sequences=5, frames=4)
    picture = np.asarray(Image.open(path).convert("RGB")).astype(int)
    assert picture.shape[1] == 1430
    dark = (picture.sum(-1) < 60).mean()
    coloured = (np.ptp(picture, axis=-1) > 60).mean()
    assert coloured > 1e-3
    if name != "linear-small":
        assert dark > 0.05  # frames with black backgrounds
