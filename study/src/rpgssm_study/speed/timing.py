"""Timing: each implementation in a process of its own, all of them taking turns.

A round gives each process a turn of a fraction of a second, in an order that rotates, so that other load of the machine
slows all of them alike. The result of a turn is the median time of a call (`implementations.turn`). While one process
runs, the others sleep. Separate processes keep memory and compilation apart. A process that hangs (see
`implementations.Specification.environment`) is stopped, and the others go on.

A `Measurement` holds the time to trace and compile, the median and the minimum of the run times, the temporary and
output memory that XLA plans for the compiled program, and the peak resident memory of the process above that with JAX
imported and inputs built.
"""

import contextlib
import json
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rpgssm_study.speed.implementations import Specification


class WorkerFailed(RuntimeError):
    """An implementation could not be compiled, broke, or gave no answer in time."""


@dataclass(frozen=True)
class Measurement:
    """The cost of one implementation. Times in seconds, memory in bytes; `error` says why there are no numbers."""

    name: str
    specification: Specification
    error: str | None = None
    trace_seconds: float | None = None
    compile_seconds: float | None = None  # tracing included
    median_seconds: float | None = None
    min_seconds: float | None = None
    repeats: int = 0
    temporary_bytes: int | None = None
    output_bytes: int | None = None
    rss_bytes: int | None = None  # at the peak, above the baseline
    backend: str | None = None
    fingerprint: dict[str, tuple[float, float]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON: without the fingerprint, which only serves comparisons within a run."""
        return {key: value for key, value in asdict(self).items() if key != "fingerprint"}


class Worker:
    """The process of one implementation, started here. After the first error it gets no more turns."""

    def __init__(self, specification: Specification, timeout: float) -> None:
        self.specification = specification
        self.timeout = timeout
        self.seconds: list[float] = []
        self.facts: dict[str, Any] = {}
        self.error: str | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by `kill`)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rpgssm_study.speed.implementations", self.specification.to_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_until_ready(self) -> None:
        """Wait until its function is compiled."""
        self._try(lambda: self.facts.update(self._answer("ready")))

    def run(self) -> None:
        """One turn."""

        def once() -> None:
            assert self._process.stdin is not None
            self._process.stdin.write("run\n")
            self._process.stdin.flush()
            self.seconds.append(self._answer("seconds"))

        self._try(once)

    def stop(self) -> None:
        """Let the process end, and keep its peak memory."""

        def close() -> None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self.facts.update(peak_rss=self._answer("peak_rss"))

        if self.error is None:
            self._try(close)

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):  # what was left to be written to a dead process
                    stream.close()

    def measurement(self, name: str) -> Measurement:
        """All that was measured."""
        if self.error is not None or not self.seconds:
            return Measurement(name, self.specification, error=self.error or "not run")
        facts = dict(self.facts)
        rss = facts.pop("peak_rss") - facts.pop("baseline_rss")
        fingerprint = {key: (value, norm) for key, (value, norm) in facts.pop("fingerprint").items()}
        return Measurement(
            name,
            self.specification,
            median_seconds=statistics.median(self.seconds),
            min_seconds=min(self.seconds),
            repeats=len(self.seconds),
            rss_bytes=rss,
            fingerprint=fingerprint,
            **facts,
        )

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _answer(self, key: str) -> Any:
        try:
            line = self._answers.get(timeout=self.timeout)
        except queue.Empty:
            raise WorkerFailed(f"no answer within {self.timeout:g} s: stopped") from None
        if line is None:
            self._errors.seek(0)
            lines = self._errors.read().strip().splitlines() or ["it said nothing"]
            raise WorkerFailed(f"the process ended: {lines[-1]}")
        message = json.loads(line)
        if "error" in message:
            raise WorkerFailed(message["error"])
        return message[key]

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except (WorkerFailed, OSError) as error:
            self.error = str(error)


def compare(
    specifications: Mapping[str, Specification],
    repeats: int,
    *,
    timeout: float = 300.0,
    budget: float = 90.0,
) -> dict[str, Measurement]:
    """Compile implementations one after the other, then run them in rounds.

    Args:
        specifications: implementations by name.
        repeats: number of rounds.
        timeout: seconds without an answer after which a process is stopped (compiling counts as one answer).
        budget: no further round starts after this many seconds; at least three are run.
    """
    workers: dict[str, Worker] = {}
    try:
        for name, specification in specifications.items():
            workers[name] = Worker(specification, timeout)
            workers[name].wait_until_ready()
        order = list(workers.values())
        begin = time.perf_counter()
        for done in range(repeats):
            if done >= 3 and time.perf_counter() - begin > budget:
                break
            for worker in order:
                if worker.error is None:
                    worker.run()
            order = order[1:] + order[:1]
        for worker in workers.values():
            worker.stop()
    finally:
        for worker in workers.values():
            worker.kill()
    return {name: worker.measurement(name) for name, worker in workers.items()}


def disagreement(ours: Measurement, peer: Measurement) -> float | None:
    """Largest relative difference between outputs that both implementations have."""
    if ours.fingerprint is None or peer.fingerprint is None:
        return None
    differences = [
        abs(ours.fingerprint[name][0] - value) / norm
        for name, (value, norm) in peer.fingerprint.items()
        if name in ours.fingerprint
    ]
    return max(differences, default=None)
