"""Runs: one method, trained once on one task. A run holds everything that decides its result, and nothing else."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rpgssm.settings import declared, has_settings, written


@dataclass(frozen=True)
class Run:
    """One training of one method on one task.

    `settings` are those of the estimator that differ from its defaults, or {"stages": [...]}, in their plain form
    (`plain`): objects may be given. `background` and `source` are as for `load_task`. `decoder_steps` are spent on an
    auxiliary decoder afterwards, to draw what the latents hold.
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", plain(self.settings))

    @property
    def digest(self) -> str:
        """Eight digits that stand for the settings; runs that differ in seeds only share them."""
        told = {name: getattr(self, name) for name in ("background", "source", "decoder_steps")}
        text = json.dumps({"settings": self.settings, **told}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def name(self) -> str:
        """A name that no other run of the task has."""
        data = f"-data{self.task_seed}" if self.task_seed else ""
        return f"{self.method}-{self.protocol}-{self.digest}-seed{self.seed}{data}"

    @property
    def path(self) -> Path:
        """Where its result is stored, below the folder of results."""
        return Path(self.experiment) / self.task / f"{self.name}.json"

    @property
    def identity(self) -> str:
        """A name that no other run has."""
        return self.path.with_suffix("").as_posix()

    def with_settings(self, **changes: Any) -> "Run":
        """The run with other settings, of every stage if there are several."""
        changed = [{**settings, **changes} for settings in stages(self.settings)]
        return replace(self, settings={"stages": changed} if "stages" in self.settings else changed[0])

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Run":
        return cls(**stored)

    def __hash__(self) -> int:
        return hash(self.identity)


def plain(value: Any) -> Any:
    """A setting as JSON can hold it: an object becomes {"kind": its class, **its settings}.

    Settings at their default are left out, but for those that are given by position, such as the size of a layer. What
    is plain stays as it is. `rpgssm.settings.read` makes objects of it again.
    """
    if has_settings(value):
        told = {"kind": type(value).__name__}
        for name, about in declared(type(value)).items():
            one = getattr(value, name)
            if not about.keyword or one != about.default:
                told[name] = plain(one)
        return told
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return written(value)


def stages(settings: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The settings of each training of a run, one after the other: mostly there is one."""
    return tuple(settings["stages"]) if "stages" in settings else (settings,)


def describe(settings: Mapping[str, Any]) -> str:
    """Plain settings in a line."""
    lines = [", ".join(f"{name}={_text(one)}" for name, one in stage.items()) for stage in stages(settings)]
    if len(lines) > 1:
        return "; ".join(f"stage {number}: {line}" for number, line in enumerate(lines, 1))
    return lines[0] or "defaults"


def _text(value: Any) -> str:
    if isinstance(value, Mapping) and "kind" in value:
        return f"{value['kind']}({', '.join(f'{name}={_text(one)}' for name, one in value.items() if name != 'kind')})"
    return str(value)
