"""Display of progress: a bar on a terminal, else a line every few seconds."""

import math
import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_HIDDEN = ("step", "learning_rate", "seconds", "steps_per_second")


class ProgressDisplay:
    """A context that shows loss terms, validation, steps per second and the time left."""

    def __init__(
        self, total: int, start: int = 0, show: bool = True, console: Console | None = None, every: float = 10.0
    ) -> None:
        self._total, self._start, self._every = total, start, every
        self._console = console or Console(stderr=True)
        self._show = show
        self._seen: dict[str, float] = {}
        self._rate = 0.0
        self._last = time.monotonic()
        self._bar: Progress | None = None
        if show and self._console.is_terminal:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[text]}"),
                console=self._console,
            )

    def __enter__(self) -> "ProgressDisplay":
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("compiling", total=self._total, completed=self._start, text="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, step: int, rate: float, row: Mapping[str, float] | None, final: bool = False) -> None:
        """Show the step reached, steps per second, and the newest row of the history."""
        self._rate = rate
        if row is not None:
            self._seen.update({name: x for name, x in row.items() if name not in _HIDDEN and not math.isnan(x)})
        if self._bar is not None:
            self._bar.update(self._task, description="training", completed=step, text=self.text())
        elif self._show and (final or time.monotonic() - self._last >= self._every):
            self._last = time.monotonic()
            left = f", {(self._total - step) / rate:.0f} s left" if rate > 0 and not final else ""
            self._console.print(f"step {step}/{self._total}{left}  {self.text()}", highlight=False, soft_wrap=True)

    def text(self) -> str:
        order = sorted(self._seen, key=lambda name: ("loss" not in name, "." in name))
        terms = [f"{name.replace('validation_loss', 'validation')} {self._seen[name]:.4g}" for name in order]
        return "  ".join([*terms, f"{self._rate:.4g} steps/s"])
