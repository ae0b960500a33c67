"""A run: one model, trained once on one task. Everything that decides its result is in it, and nothing else."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Run:
    """One training of one method on one task.

    `settings` are those of the estimator that differ from its defaults. `background` and `source` are as for
    `load_task`. `decoder_steps` are spent on an auxiliary decoder afterwards, to draw what the latents hold.
    """

    experiment: str
    protocol: str
    task: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    task_seed: int = 0
    background: str = "auto"
    source: str = "auto"
    decoder_steps: int = 0

    @property
    def digest(self) -> str:
        """Eight digits that stand for the settings; runs that differ in seeds only share them."""
        told = {name: getattr(self, name) for name in ("background", "source", "decoder_steps")}
        text = json.dumps({"settings": dict(self.settings), **told}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def name(self) -> str:
        """Tells the runs of one task apart."""
        data = f"-data{self.task_seed}" if self.task_seed else ""
        return f"{self.method}-{self.protocol}-{self.digest}-seed{self.seed}{data}"

    @property
    def path(self) -> Path:
        """Where its result is stored, below the folder of results."""
        return Path(self.experiment) / self.task / f"{self.name}.json"

    @property
    def identity(self) -> str:
        """Tells all runs apart."""
        return self.path.with_suffix("").as_posix()

    def with_settings(self, **settings: Any) -> "Run":
        return replace(self, settings={**self.settings, **settings})

    def to_json(self) -> dict[str, Any]:
        return asdict(replace(self, settings=dict(self.settings)))

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Run":
        return cls(**stored)

    def __hash__(self) -> int:
        return hash(self.identity)


def describe(settings: Mapping[str, Any]) -> str:
    """Settings in a line."""
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "defaults"
