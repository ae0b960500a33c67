"""What knowing the physics gives: the unscented (or extended) smoother with the pendulum's true motion.

State: angle and angular velocity. It moves by the task's own physics with its kicks, and is seen as (sin θ, cos θ) with
independent normal noise. The angle is kept unwrapped, which is harmless: only its sine and cosine are ever seen.
"""

from functools import cache, partial
from typing import Literal

import numpy as np
from jaxtyping import Float

from rpgssm.datasets.pendulums import DT, FRICTION, GRAVITY, KICK, STEP
from rpgssm.evaluation.latents import Latents

Kind = Literal["extended", "unscented"]


def smooth_pendulum(seen: Float[np.ndarray, "n t 2"], noise: float, *, kind: Kind = "unscented") -> Latents:
    """Means and covariances of (θ, ω). The pendulum starts at rest, at an angle of which nothing is known before.

    So the first frame gives the angle to start from, and is not used again.
    """
    import jax.numpy as jnp

    from rpgssm.core import KnownModel

    angle = np.arctan2(seen[:, 0, 0], seen[:, 0, 1])
    start = np.stack([angle, np.zeros_like(angle)], -1)
    used = np.broadcast_to(np.arange(seen.shape[1]) > 0, seen.shape[:2])
    with _double_precision():
        spread, process = np.diag([min(noise, 1.0) ** 2, 1e-8]), np.diag([0.0, KICK**2])
        m1, Q1, Q, R = (jnp.asarray(x, jnp.float64) for x in (start, spread, process, noise**2 * np.eye(2)))
        model = KnownModel(m1, Q1, _move, Q, _see, R)
        found = _compiled_smoother(kind)(model, jnp.asarray(seen, jnp.float64), jnp.asarray(used))
        return Latents(np.asarray(found.mean), np.asarray(found.cov))


@cache
def _compiled_smoother(kind: Kind):
    import jax

    from rpgssm.core import smooth_known

    return jax.jit(partial(smooth_known, kind=kind))


def _move(state):
    """One frame of the task's motion, `rpgssm.datasets.pendulums.advance`, for one state."""
    from jax import lax
    from jax import numpy as jnp

    def step(_, now):
        angle, velocity = now
        velocity = velocity + STEP * (-GRAVITY * jnp.sin(angle) - FRICTION * velocity)
        return angle + STEP * velocity, velocity

    return jnp.stack(lax.fori_loop(0, round(DT / STEP), step, (state[0], state[1])))


def _see(state):
    from jax import numpy as jnp

    return jnp.stack([jnp.sin(state[0]), jnp.cos(state[0])])


def _double_precision():
    """Float64 for a while: the velocity's spread at the start is too small for float32."""
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # pyright: ignore[reportAttributeAccessIssue] (before JAX 0.8)

    return enable_x64(True)
