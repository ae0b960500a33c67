"""The cases of `rpgssm-study speed core`: implementations to compare, their problems, and targets.

Sizes are those of a training step: 32 sequences of 100 frames in float32, unless a case says otherwise. Each case
returns its measurements and a list of checks: numbers, most of them with a target. Our value *and gradient* is compared
with the forward passes of the peers: others offer a smoother, and training needs a gradient.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from rpgssm_study.speed.implementations import Specification
from rpgssm_study.speed.timing import Measurement, compare, disagreement

COMPILE_OBJECTIVE = 6.0  # seconds
COMPILE_SMOOTHER = 3.0
DYNAMAX = tuple(f"dynamax-{form}-{output}" for form in ("sequential", "parallel") for output in ("trimmed", "full"))


@dataclass(frozen=True)
class Target:
    """A bound for a number."""

    relation: Literal[">=", "<=", "<"]
    bound: float

    def met(self, value: float) -> bool:
        """Whether the value is within the bound."""
        if self.relation == ">=":
            return value >= self.bound
        return value <= self.bound if self.relation == "<=" else value < self.bound


@dataclass(frozen=True)
class Check:
    """One number of one case. `value` is None when it could not be measured: then `note` says why."""

    quantity: str
    value: float | None
    unit: str
    target: Target | None = None
    note: str = ""
    detail: str = ""  # what the number was computed from

    @property
    def met(self) -> bool | None:
        """Whether the target was reached; None without a target or without a number."""
        return None if self.target is None or self.value is None else self.target.met(self.value)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        target = None if self.target is None else f"{self.target.relation} {self.target.bound:g}"
        verdict = {True: "met", False: "missed", None: "none" if self.target is None else "not measured"}[self.met]
        return {
            "quantity": self.quantity,
            "value": self.value,
            "unit": self.unit,
            "target": target,
            "verdict": verdict,
            "note": self.note,
            "detail": self.detail,
        }


@dataclass(frozen=True)
class CaseResult:
    """The result of a case."""

    measurements: dict[str, Measurement]
    checks: list[Check]


@dataclass(frozen=True)
class Effort:
    """How much to do: frames per sequence, rounds, and which of dynamax's smoothers to compare with."""

    time: int = 100
    repeats: int = 30
    dynamax: tuple[str, ...] = DYNAMAX
    textbook: bool = True
    batch: int = 32

    def specification(self, function: str, latent: int, *, shared: bool = True, missing: float = 0.0) -> Specification:
        """An implementation at these sizes."""
        return Specification(function, self.batch, self.time, latent, shared, missing)


# ---------------------------------------------------------------------------------------------------------------------
# Cases


def objective_shared(effort: Effort, latent: int) -> CaseResult:
    """Value and gradient of the loss, one precision for all frames, against dynamax's fastest smoother."""
    results = compare(
        {name: effort.specification(name, latent) for name in ("objective", *effort.dynamax)}, effort.repeats
    )
    ours, peer = results["objective"], fastest(results, effort.dynamax)
    return CaseResult(results, [speedup(ours, peer, Target(">=", 1.0)), compile_time(ours, COMPILE_OBJECTIVE)])


def smoother_shared(effort: Effort, latent: int) -> CaseResult:
    """Means and marginal covariances, one precision for all frames, against dynamax's fastest smoother."""
    results = compare(
        {name: effort.specification(name, latent) for name in ("smoother", *effort.dynamax)}, effort.repeats
    )
    ours, peer = results["smoother"], fastest(results, effort.dynamax)
    checks = [speedup(ours, peer, Target(">=", 2.0)), compile_time(ours, COMPILE_SMOOTHER), agreement(ours, peer)]
    return CaseResult(results, checks)


def objective_textbook(effort: Effort, latent: int) -> CaseResult:
    """Value and gradient of the loss, one precision for all frames, against the textbook form."""
    results = compare({name: effort.specification(name, latent) for name in ("objective", "textbook")}, effort.repeats)
    ours, peer = results["objective"], results["textbook"]
    checks = [speedup(ours, peer, Target(">=", 100.0)), compile_time(ours, COMPILE_OBJECTIVE), agreement(ours, peer)]
    return CaseResult(results, checks)


def objective_dependent(effort: Effort, latent: int) -> CaseResult:
    """Value and gradient with a precision for each frame, against the shared case and against the textbook form."""
    entries = {
        "objective": effort.specification("objective", latent, shared=False),
        "objective-shared": effort.specification("objective", latent),
    }
    if effort.textbook:
        entries["textbook"] = effort.specification("textbook", latent, shared=False)
    results = compare(entries, effort.repeats)
    ours, shared = results["objective"], results["objective-shared"]
    checks = [quotient("ours / ours with shared precision", ours, shared, Target("<=", 12.0))]
    if effort.textbook:
        checks += [speedup(ours, results["textbook"], Target(">=", 15.0)), agreement(ours, results["textbook"])]
    return CaseResult(results, [*checks, compile_time(ours, COMPILE_OBJECTIVE)])


def compile_objective(effort: Effort, latent: int, shared: bool, missing: float = 0.0) -> CaseResult:
    """Time to compile value and gradient; the run time is reported along with it."""
    entry = effort.specification("objective", latent, shared=shared, missing=missing)
    results = compare({"objective": entry}, min(effort.repeats, 5), budget=30.0)
    ours = results["objective"]
    return CaseResult(results, [compile_time(ours, COMPILE_OBJECTIVE), run_time(ours)])


def growth(effort: Effort, latent: int, batch: int, times: tuple[int, ...]) -> CaseResult:
    """Time per frame as sequences grow longer, for the loss with its gradient and for the smoother."""
    measurements: dict[str, Measurement] = {}
    checks = []
    for function in ("objective", "smoother"):
        entries = {f"{function}-T{time}": Specification(function, batch, time, latent, shared=True) for time in times}
        results = compare(entries, min(effort.repeats, 10))
        measurements |= results
        for name, time in zip(entries, times, strict=True):
            microseconds = ratio(results[name].median_seconds, 1e-6 * batch * time)
            quantity = f"{function}: time per frame, T = {time}, B = {batch}"
            checks.append(Check(quantity, microseconds, "µs", note=problems(results[name])))
        short, long = checks[-len(times)], checks[-1]
        quantity = f"{function}: per frame, T = {times[-1]} / T = {times[0]}"
        checks.append(Check(quantity, ratio(long.value, short.value), "x", Target("<=", 1.5), short.note or long.note))
    return CaseResult(measurements, checks)


def memory(effort: Effort, latent: int, batch: int, time: int) -> CaseResult:
    """Peak resident memory of value and gradient with a precision for each frame, in a process of its own."""
    entry = Specification("objective", batch, time, latent, shared=False)
    results = compare({"objective": entry}, min(effort.repeats, 2), timeout=900.0)
    ours = results["objective"]
    gigabytes = ratio(ours.rss_bytes, 1e9)
    peak = Check("peak memory above inputs", gigabytes, "GB", Target("<", 2.0), problems(ours))
    return CaseResult(results, [peak, compile_time(ours, COMPILE_OBJECTIVE), run_time(ours)])


CASES: dict[str, Callable[[Effort], CaseResult]] = {
    "objective-shared-K8": partial(objective_shared, latent=8),
    "objective-shared-K16": partial(objective_shared, latent=16),
    "objective-shared-textbook-K10": partial(objective_textbook, latent=10),
    "objective-dependent-K8": partial(objective_dependent, latent=8),
    "smoother-shared-K8": partial(smoother_shared, latent=8),
    "smoother-shared-K16": partial(smoother_shared, latent=16),
    "compile-shared-K32": partial(compile_objective, latent=32, shared=True),
    "compile-dependent-K32": partial(compile_objective, latent=32, shared=False),
    "compile-masked-K8": partial(compile_objective, latent=8, shared=True, missing=0.1),
    "growth-T": partial(growth, latent=8, batch=4, times=(1_000, 10_000, 100_000)),
    "memory-K32": partial(memory, latent=32, batch=64, time=200),
}
FULL = Effort()
# dynamax's sequential smoother is its fastest on a CPU, and its parallel one takes long to compile.
SMALL = Effort(time=50, repeats=5, dynamax=("dynamax-sequential-trimmed",), textbook=False)
SMALL_CASES = ("objective-shared-K8", "objective-dependent-K8", "smoother-shared-K8")


def select(prefixes: tuple[str, ...], small: bool, repeats: int) -> tuple[dict[str, Callable], Effort]:
    """The cases whose names start with one of the prefixes (all, if there are none), and how much to do in each."""
    available = {name: CASES[name] for name in (SMALL_CASES if small else CASES)}
    unknown = [prefix for prefix in prefixes if not any(name.startswith(prefix) for name in available)]
    if unknown:
        raise ValueError(f"no case starts with {', '.join(unknown)}; there are: {', '.join(available)}")
    chosen = {name: case for name, case in available.items() if not prefixes or name.startswith(prefixes)}
    effort = SMALL if small else FULL
    return chosen, replace(effort, repeats=min(repeats, effort.repeats) if small else repeats)


# ---------------------------------------------------------------------------------------------------------------------
# Checks


def fastest(results: dict[str, Measurement], names: tuple[str, ...]) -> Measurement:
    """Return the fastest of the named implementations by its median; if none finished, one that says why."""
    return min((results[name] for name in names), key=lambda m: m.median_seconds or float("inf"))


def speedup(ours: Measurement, peer: Measurement, target: Target) -> Check:
    """Check how many times longer the peer takes."""
    return quotient(f"{peer.name} / ours", peer, ours, target)


def quotient(quantity: str, numerator: Measurement, denominator: Measurement, target: Target) -> Check:
    """Check the ratio of two median run times."""
    value = ratio(numerator.median_seconds, denominator.median_seconds)
    times = [m.median_seconds * 1e3 for m in (numerator, denominator) if m.median_seconds is not None]
    detail = " / ".join(f"{time:.3g} ms" for time in times)
    return Check(quantity, value, "x", target, problems(numerator, denominator), detail)


def agreement(ours: Measurement, peer: Measurement) -> Check:
    """Check that two implementations computed the same, up to rounding in single precision."""
    value = disagreement(ours, peer)
    return Check(f"difference from {peer.name}", value, "relative", Target("<=", 5e-3), problems(ours, peer))


def compile_time(ours: Measurement, bound: float) -> Check:
    """Check the seconds to trace and compile."""
    return Check("time to compile", ours.compile_seconds, "s", Target("<", bound), problems(ours))


def run_time(ours: Measurement) -> Check:
    """Report the median run time, without a target."""
    milliseconds = None if ours.median_seconds is None else ours.median_seconds * 1e3
    return Check("time to run", milliseconds, "ms", note=problems(ours))


def ratio(numerator: float | int | None, denominator: float | None) -> float | None:
    """A quotient, or None if either part is missing."""
    return None if numerator is None or denominator is None else numerator / denominator


def problems(*measurements: Measurement) -> str:
    """The errors of these implementations."""
    return "; ".join(f"{m.name}: {m.error}" for m in measurements if m.error is not None)
