"""Training in stages: `python benchmarks/stages.py TASK name=value ... [then name=value ... [then ...]]`.

Each stage changes settings of the recipe and trains on from where the last one ended, with a new optimiser, for its
`max_steps`. Prints after each what `learning_curve.py` prints. No test sequence is used.
"""

import sys
import time
from itertools import groupby
from typing import Any

from learning_curve import scores, settings_from

from rpgssm import RPGSSM
from rpgssm.experiments.recipes import recipe
from rpgssm.tasks import load_task


def main(name: str, *rest: str) -> None:
    task = load_task(name)
    settings: dict[str, Any] = recipe(name) | {"validation_fraction": None, "verbose": False}
    estimator = RPGSSM(**settings)
    print(name, settings, flush=True)
    for between, words in groupby(rest, lambda word: word == "then"):
        if between:
            continue
        changes = settings_from(tuple(words), 0)[1]
        began = time.perf_counter()
        estimator.set_params(**changes).partial_fit(task.train.observations)
        loss, seconds = estimator.history_["loss"][-1], time.perf_counter() - began
        print(f"{changes}  {seconds:.0f} s  loss {loss:.3f}  {scores(estimator, task)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
