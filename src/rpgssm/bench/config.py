"""What can be set for each benchmark.

Kept apart from the benchmarks so that the command line can show its help without importing JAX.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class BenchCoreConfig:
    """Time the core (filter, smoother, free energy and its gradient) against other implementations."""

    small: bool = False
    """Small problems and few repeats: seconds instead of minutes."""

    output: Path | None = None
    """Also write the results to this JSON file."""

    cases: tuple[str, ...] = ()
    """Run only these cases; all of them if none is named."""

    repeats: int = 30
    """Timed repetitions per case."""
