"""The functions that are timed, and the process in which each of them runs.

`python -m rpgssm_study.speed.implementations SPECIFICATION` builds one problem, compiles one function for it, reports
the cost of that, and then runs the function once for each line of input. `rpgssm_study.speed.timing` starts such
processes. The two sides exchange lines of JSON over standard input and output:

    -> (start)            <- {"ready": {compile times, memory, fingerprint, ...}}   or   {"error": "..."}
    -> run                <- {"seconds": 0.0012}
    -> (end of input)     <- {"peak_rss": 123456789}
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

_THREADS_FOR_BATCHED_LAPACK = 8


@dataclass(frozen=True)
class Specification:
    """The name of a function and the sizes of its problem."""

    function: str
    batch: int
    time: int
    latent: int
    shared: bool
    missing: float = 0.0

    def to_json(self) -> str:
        """The specification as text, for the other process."""
        return json.dumps(asdict(self))

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for the process.

        In some releases of jaxlib (seen in 0.10.2) a batched LAPACK call on the CPU gives its batch to XLA's thread
        pool and blocks one thread of that pool until it is done. With as many such calls at once as threads, the
        program never ends. The peers that make many such calls therefore get a larger pool.
        """
        if self.function != "textbook" and not self.function.startswith("dynamax-parallel"):
            return {}
        return {"PJRT_NPROC": str(max(_THREADS_FOR_BATCHED_LAPACK, os.cpu_count() or 1))}


def build(specification: Specification) -> tuple[Callable[..., Any], tuple[Any, ...], Callable[[Any], dict[str, Any]]]:
    """Return the function to time, its arguments, and a function from its output to a few numbers to compare.

    - `objective`: loss of `free_energy` and its gradient with respect to `A`, `h` and `Λ`;
    - `smoother`: `log Z`, means and marginal covariances by `smooth`;
    - `textbook`: loss and gradient in the textbook form;
    - `dynamax-{sequential,parallel}-{full,trimmed}`: dynamax's smoothers, forward only.
    """
    import jax

    from rpgssm_study.speed import peers
    from rpgssm_study.speed.problem import make_problem

    s = specification
    problem = make_problem(batch=s.batch, time=s.time, latent=s.latent, shared=s.shared, missing=s.missing)
    arguments = (problem.A, problem.h, problem.Λ)
    match s.function.split("-"):
        case ["objective"]:
            return jax.value_and_grad(_our_loss(problem.mask), argnums=(0, 1, 2)), arguments, _condense_gradient
        case ["smoother"]:
            return _our_smoother, arguments, lambda out: _condense_moments(*out)
        case ["textbook"]:
            return jax.value_and_grad(peers.textbook_loss, argnums=(0, 1, 2)), arguments, _condense_gradient
        case ["dynamax", ("sequential" | "parallel") as form, ("full" | "trimmed") as output]:
            y, R = peers.observations(problem.h, problem.Λ)

            def condense(out: Any) -> dict[str, Any]:
                if output == "full":
                    out = (out.marginal_loglik, out.smoothed_means, out.smoothed_covariances)
                return _condense_moments(peers.log_z_of_loglik(out[0], problem.h, problem.Λ), *out[1:])

            return peers.dynamax_smoother(form, output), (problem.A, y, R), condense
        case _:
            raise ValueError(f"there is no implementation {s.function!r}")


def _our_loss(mask: Any) -> Callable[[Any, Any, Any], Any]:
    from rpgssm.core import Potentials, Precision, StationaryChain, free_energy

    def loss(A: Any, h: Any, Λ: Any) -> Any:
        precision = Precision(Λ, shared=Λ.ndim == 2, diagonal=False)
        return free_energy(StationaryChain(A), Potentials(h, precision, mask))[0]

    return loss


def _our_smoother(A: Any, h: Any, Λ: Any) -> Any:
    from rpgssm.core import Potentials, Precision, StationaryChain, smooth

    posterior = smooth(StationaryChain(A), Potentials(h, Precision(Λ, shared=Λ.ndim == 2, diagonal=False)))
    return posterior.log_z, posterior.mean, posterior.cov


# ---------------------------------------------------------------------------------------------------------------------
# Fingerprints: each output as (its projection on a fixed random direction, the norm in units of which errors are given)


def _condense_gradient(out: Any) -> dict[str, tuple[float, float]]:
    loss, (grad_A, grad_h, grad_Λ) = out
    return {
        "loss": (float(loss), max(1.0, abs(float(loss)))),
        "gradient of A": _project(grad_A),
        "gradient of h": _project(grad_h),
        "gradient of Λ": _project(grad_Λ, symmetric=True),
    }


def _condense_moments(log_z: Any, mean: Any, cov: Any) -> dict[str, tuple[float, float]]:
    return {"log Z": _project(log_z), "mean": _project(mean), "covariance": _project(cov.mean(axis=0), symmetric=True)}


def _project(array: Any, symmetric: bool = False) -> tuple[float, float]:
    """Return the inner product with a standard normal direction, and its standard deviation, the norm of the array."""
    import numpy as np

    array = np.asarray(array, dtype=np.float64)
    direction = np.random.default_rng(0).standard_normal(array.shape)
    if symmetric:
        array = 0.5 * (array + array.swapaxes(-1, -2))
        direction = (direction + direction.swapaxes(-1, -2)) / np.sqrt(2.0)
    return float(np.sum(array * direction)), float(np.linalg.norm(array))


# ---------------------------------------------------------------------------------------------------------------------
# The process


def resident_bytes(peak: bool) -> int:
    """Resident memory of this process, now or at its peak.

    `/proc` is preferred to `getrusage`, whose peak also counts the parent from which the process was forked.
    """
    status = Path("/proc/self/status")
    if status.exists():
        field = "VmHWM:" if peak else "VmRSS:"
        line = next(line for line in status.read_text().splitlines() if line.startswith(field))
        return int(line.split()[1]) * 1024
    import resource

    peak_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak_rss if sys.platform == "darwin" else peak_rss * 1024


def compile_and_measure(
    function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Compile a function for these arguments, and measure the time that takes and the memory that the program plans.

    A trivial compilation comes first, so that the start of JAX does not count.
    """
    import jax

    jax.jit(lambda x: x + 1).lower(arguments[0]).compile()
    start = time.perf_counter()
    lowered = jax.jit(function).lower(*arguments)
    traced = time.perf_counter()
    compiled = lowered.compile()
    finished = time.perf_counter()
    memory = compiled.memory_analysis()  # None on backends that cannot tell
    return compiled, {
        "trace_seconds": traced - start,
        "compile_seconds": finished - start,
        "temporary_bytes": getattr(memory, "temp_size_in_bytes", None),
        "output_bytes": getattr(memory, "output_size_in_bytes", None),
    }


def serve(specification: Specification, commands: IO[str], answers: IO[str]) -> None:
    """Prepare one implementation, then run it once per line of `commands` and answer with the seconds it took."""

    def answer(**message: Any) -> None:
        print(json.dumps(message), file=answers, flush=True)

    try:
        import jax

        jax.config.update("jax_enable_compilation_cache", False)  # or the time to compile would depend on the past
        function, arguments, condense = build(specification)
        jax.block_until_ready(arguments)
        baseline = resident_bytes(peak=False)
        compiled, facts = compile_and_measure(function, arguments)
        facts["baseline_rss"] = baseline
        facts["fingerprint"] = condense(jax.block_until_ready(compiled(*arguments)))
        facts["backend"] = jax.default_backend()
    except Exception as error:
        answer(error=f"{type(error).__name__}: {error}" if not isinstance(error, ImportError) else str(error))
        raise SystemExit(1) from error
    answer(ready=facts)

    for _ in commands:
        answer(seconds=turn(lambda: jax.block_until_ready(compiled(*arguments))))
    answer(peak_rss=resident_bytes(peak=True))


WARM_UP, BURST = 0.05, 0.1  # seconds


def turn(call: Callable[[], Any]) -> float:
    """Return the median time of calls in quick succession, as in training, after some that warm up the processor.

    A call that takes long is made once.
    """
    begin = time.perf_counter()
    call()
    seconds = [time.perf_counter() - begin]
    if seconds[0] > 2 * BURST:
        return seconds[0]
    while time.perf_counter() - begin < WARM_UP:
        call()
    seconds, begin = [], time.perf_counter()
    while not seconds or time.perf_counter() - begin < BURST:
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main() -> None:
    """Entry point of the process."""
    specification = Specification(**json.loads(sys.argv[1]))
    os.environ.update(specification.environment)  # read when JAX starts its backend, which is later
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes may share one accelerator
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    sys.stdout = sys.stderr  # whatever libraries print must not mix with the answers
    serve(specification, sys.stdin, answers)


if __name__ == "__main__":
    main()
