"""What the user sees of the progress."""

import io
import math

from rich.console import Console

from rpgssm.training import Training, train
from rpgssm.training.progress import ProgressDisplay

from .toys import line, regression, squared_error

ROW = {"step": 10.0, "loss": 1.5, "fit": 1.25, "validation_loss": 2.5, "validation_fit": math.nan, "seconds": 3.0}


def show(terminal: bool, every: float = 0.0) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=160)
    with ProgressDisplay(100, console=console, every=every) as display:
        display.update(10, 20.0, ROW)
        display.update(15, 20.0, ROW | {"validation_loss": math.nan})
        display.update(20, 20.0, None, final=True)
    return console.file.getvalue()


def test_lines_where_there_is_no_terminal():
    first, second, last = show(False).splitlines()
    assert first == "step 10/100, 4 s left  loss 1.5  validation 2.5  fit 1.25  20 steps/s"
    assert "validation 2.5" in second, "the last validation stays in sight"
    assert last.startswith("step 20/100  loss 1.5")


def test_lines_are_rare():
    assert len(show(False, every=1000.0).splitlines()) == 1


def test_bar_on_a_terminal():
    text = show(True)
    assert "training" in text
    assert "20/100" in text
    assert "validation 2.5" in text


def test_silence(capfd):
    train(line(), squared_error, regression(), Training(max_steps=3), progress=False)
    assert capfd.readouterr() == ("", "")


def test_one_line_at_least(capfd):
    train(line(), squared_error, regression(), Training(max_steps=3))
    out, err = capfd.readouterr()
    assert out == ""
    assert "step 3/3" in err
