"""The tables of the report, as rows of text."""

import statistics

from rpgssm_study import accuracy
from rpgssm_study.choosing import Group
from rpgssm_study.estimates import duration
from rpgssm_study.runs import describe
from rpgssm_study.store import Result

from .collection import DISTRACTED, LINEAR, SECONDARY, VIDEO, Collection, label, long_title, plain, target_name

Rows = list[list[str]]
CLOSE = 0.02  # how far behind the best the RP-GSSM may be where there are no distractors
CLEAR = 0.05  # how far ahead it must be to be ahead clearly
HORIZONS = (1, 10, 25, 50)  # frames ahead
TASKS = (*LINEAR, "pendulum", "pendulum-64", *VIDEO[1:])


def aims(c: Collection) -> Rows:
    """The accuracy runs of the RP-GSSM against what it is meant to reach."""
    return accuracy.rows(c.folder) if c.accuracy else []


def main(c: Collection) -> Rows:
    """Mean linear R² of all methods on all tasks."""
    methods = c.methods(TASKS)
    rows = [["task", *map(label, methods), "ceiling"]]
    for task in TASKS:
        if not c.of(task):
            continue
        found = {method: c.chosen(task, method) for method in methods}
        ceilings = [x for group in found.values() if group is not None for x in group.values("ceiling", "mean")]
        cells = [_cell(c, task, method, group) for method, group in found.items()]
        rows.append([long_title(task), *cells, f"{statistics.median(ceilings):.3f}" if ceilings else ""])
    return rows if len(rows) > 1 else []


def summary(c: Collection) -> str:
    """The main table for study/README.md: a row per method, a column per task that several methods were tried on."""
    header, *lines = main(c) or [["task"]]
    compared = [line for line in lines if sum(cell != "–" for cell in line[1:-1]) > 1]
    if not compared:
        return "No method has been compared with another yet."
    turned = [["method", *(line[0] for line in compared)]]
    for i, name in enumerate(header[1:], 1):
        cells = [line[i] for line in compared]
        if any(cell not in ("–", "") for cell in cells):
            turned.append([name, *cells])
    return accuracy.markdown(turned)


def _cell(c: Collection, task: str, method: str, group: Group | None) -> str:
    if group is None:
        return "diverged" if c.of(task, method) else "–"
    failed = sum(not result.finished for result in group.results)
    told = f" ({failed} of {len(group.results)} diverged)" if failed else ""
    return f"{plain(group.median('linear', 'mean'))}{told}"


def verdicts(c: Collection) -> Rows:
    """Where the RP-GSSM is first, close to it, or not."""
    rows = [["task", "RP-GSSM", "best other", "difference", "verdict", "seeds"]]
    for task in TASKS:
        own = c.chosen(task, "rpgssm")
        others = {m: c.chosen(task, m) for m in c.methods([task]) if m != "rpgssm"}
        scores = {m: g.median("linear", "mean") for m, g in others.items() if g is not None}
        if own is None or not scores:
            continue
        score, rival = own.median("linear", "mean"), max(scores, key=lambda m: scores[m])
        ahead = score - scores[rival]
        rows.append(
            [
                long_title(task),
                f"{score:.3f}",
                f"{scores[rival]:.3f} ({label(rival)})",
                f"{ahead:+.3f}",
                verdict(task, ahead),
                str(len(own.results)),
            ]
        )
    return rows if len(rows) > 1 else []


def verdict(task: str, ahead: float) -> str:
    """The verdict in words: with distractors the RP-GSSM should be first by a clear margin, elsewhere about first."""
    if task in DISTRACTED:
        if ahead >= CLEAR:
            return "first, clearly"
        return "first, but not clearly" if ahead > 0 else "not first, though it should be"
    if ahead > 0:
        return "first"
    return f"within {CLOSE:g} of the best" if ahead >= -CLOSE else f"behind by more than {CLOSE:g}"


def forecasts(c: Collection) -> Rows:
    """R² of forecasts so many frames ahead: the RP-GSSM, and the best other at that horizon."""
    rows = [["task", *(f"{frames} ahead: RP-GSSM | best other" for frames in HORIZONS)]]
    for task in VIDEO:
        found = {method: c.forecast(task, method) for method in c.methods([task])}
        own = found.pop("rpgssm", None)
        others = {method: curve for method, curve in found.items() if curve is not None}
        if own is None:
            continue
        rows.append([long_title(task), *(_ahead(own, others, frames) for frames in HORIZONS)])
    return rows if len(rows) > 1 else []


def _ahead(own: list[float], others: dict[str, list[float]], frames: int) -> str:
    there = {method: curve[frames - 1] for method, curve in others.items() if len(curve) >= frames}
    if len(own) < frames:
        return ""
    if not there:
        return plain(own[frames - 1], 2)
    rival = max(there, key=lambda method: there[method])
    return f"{plain(own[frames - 1], 2)} | {plain(there[rival], 2)} ({label(rival)})"


def scored_settings(c: Collection) -> Rows:
    """The number of settings of each method that were scored on the test sequences of each task."""
    methods = c.methods(TASKS)
    rows = [["task", *map(label, methods)]]
    for task in TASKS:
        if c.of(task):
            rows.append([long_title(task), *(str(c.scored(task, method) or "–") for method in methods)])
    return rows if len(rows) > 1 else []


def hyperparameters(c: Collection) -> Rows:
    """The best settings found, by validation."""
    rows = [["task", "method", "settings", "competed", "seeds", "R² on validation", "R² on test"]]
    for task in TASKS:
        for method in c.methods([task]):
            group = c.chosen(task, method)
            if group is None:
                continue
            seeds, tried = str(len(group.results)), str(c.competed(task, method))
            scores = [f"{group.selection:.3f}", f"{group.median('linear', 'mean'):.3f}"]
            rows.append([long_title(task), label(method), describe(group.settings), tried, seeds, *scores])
    return rows if len(rows) > 1 else []


def robustness(c: Collection) -> Rows:
    """How much of the variance of what is inferred is due to the background."""
    rows = [["task", "method", "latents", "decoded targets"]]
    for task in DISTRACTED:
        for method in c.methods([task]):
            group = c.chosen(task, method)
            found = [] if group is None else [r.scores.get("robustness") for r in group.results if r.finished]
            found = [f for f in found if f]
            if not found:
                continue
            names = [name for name in found[0]["targets"] if name not in SECONDARY]
            each = (f"{target_name(n)} {statistics.median(f['targets'][n] for f in found):.3f}" for n in names)
            latents = statistics.median(f["latents"] for f in found)
            rows.append([long_title(task), label(method), f"{latents:.3f}", "; ".join(each)])
    return rows if len(rows) > 1 else []


def provenance(c: Collection) -> Rows:
    """The origin of every number: a line per run."""
    header = ["run", "settings", "seed", "data", "R²", "steps", "training", "ms per step", "version", "machine"]
    return [header, *map(_traced, (*c.accuracy, *c.results))] if c.accuracy or c.results else []


def _traced(r: Result) -> list[str]:
    content, run = r.content, r.run
    data, machine = content["data"], content["machine"]
    sources = ", ".join(f"{k}: {v}" for k, v in data["sources"].items())
    told = f"seed {run.task_seed}; background {data['background']}; {sources}"
    if "taken_from" in content:
        told += f"; taken from {content['taken_from']}"
    numbers = ["diverged", "", "", ""]
    if r.finished:
        t = r.training
        load = "" if t.get("load") is None else f" (load {t['load']:.1f})"
        numbers = [
            f"{r.scores['linear']['mean']:.3f}",
            str(t["steps"]),
            duration(t["seconds"]) + load,
            f"{1000 / t['steps_per_second']:.3g}",
        ]
    kind = f"{machine['cores']} cores, {machine['system']} {machine['architecture']}"
    if "cores_used" in machine:  # results of earlier versions do not say
        kind += f", {machine['cores_used']} used" + ", compiled before" * machine["compilation_cache"]
    return [run.identity, describe(run.settings), str(run.seed), told, *numbers, content["version"], kind]
