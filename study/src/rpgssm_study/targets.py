"""Aims for the RP-GSSM: held-out linear R², median of three seeds, and minutes on two CPU cores."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """The aim for one number of a task: at least `least`, or at most `gap` below the ceiling."""

    name: str
    least: float | None = None
    gap: float | None = None


@dataclass(frozen=True)
class Aim:
    """The aims for one task. `kernel` is that for the kernel ridge R² of every target, where there is one."""

    targets: tuple[Target, ...]
    minutes: float
    kernel: float | None = None


def _both(sine: float, velocity: float) -> tuple[Target, ...]:
    return Target("sin_angle", sine), Target("velocity", velocity)


def _rat(position: float, velocity: float, head: float) -> tuple[Target, ...]:
    return Target("position", position), Target("velocity", velocity), Target("head_direction", head)


AIMS: dict[str, Aim] = {
    "linear-small": Aim((Target("z", gap=0.005),), 1.0),
    "linear-medium": Aim((Target("z", gap=0.01),), 1.0),
    "linear-large": Aim((Target("z", gap=0.01),), 1.0),
    "pendulum": Aim(_both(0.98, 0.93), 15.0, kernel=0.95),
    "pendulum-64": Aim(_both(0.95, 0.80), 10.0),
    "cifar10-pendulum": Aim(_both(0.95, 0.91), 20.0, kernel=0.95),
    "double-pendulum": Aim((Target("mean", 0.90),), 25.0),
    "cifar10-double-pendulum": Aim((Target("mean", 0.80),), 30.0),
    "tracking": Aim(_rat(0.97, 0.80, 0.80), 30.0),
    "davis-tracking": Aim(_rat(0.93, 0.60, 0.60), 40.0),
}
