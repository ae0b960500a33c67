"""Training that goes on with other settings.

    python study/scripts/continued_training.py TASK name=value ... [then name=value ... [then ...]]

Each part changes settings of the first stage of the recipe and trains on from the end of the part before, with a new
optimizer, for its `max_steps`. Prints after each part the scores of `learning_curve.py`. No test sequence is used.
"""

import sys
import time

from learning_curve import parts_of, scores, settings_of

from rpgssm import RPGSSM
from rpgssm.settings import text
from rpgssm_study.recipes import recipe
from rpgssm_study.runs import stages
from rpgssm_study.tasks import load_task


def main(name: str, *rest: str) -> None:
    task = load_task(name)
    estimator = RPGSSM(**dict(stages(recipe(name))[0]) | {"validation_fraction": None, "verbose": False})
    print(name, text(estimator), flush=True)
    for words in parts_of(rest):
        began = time.perf_counter()
        estimator.set_params(**settings_of(words)).partial_fit(task.train.observations)
        loss, seconds = estimator.history_["loss"][-1], time.perf_counter() - began
        print(f"{' '.join(words)}  {seconds:.0f} s  loss {loss:.3f}  {scores(estimator, task)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
