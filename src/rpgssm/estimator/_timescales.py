"""What a transition matrix says of time: how long each of its modes lasts, and how fast it turns."""

import numpy as np
from jaxtyping import Float


def timescales(A: Float[np.ndarray, "k k"], most: int = 6) -> list[str]:
    """Eigenvalues of A as decay times and periods, the slowest first, one of each conjugate pair."""
    eigenvalues = sorted(np.linalg.eigvals(A), key=abs, reverse=True)
    lines = []
    for value in eigenvalues:
        if value.imag < -1e-9:
            continue
        modulus, angle = abs(value), abs(np.angle(value))
        decay = f"{-1 / np.log(modulus):.1f} frames" if 0 < modulus < 1 else "none"
        period = f"period {2 * np.pi / angle:.1f} frames" if angle > 1e-6 else "no oscillation"
        lines.append(f"  |λ| = {modulus:.4f}: memory {decay}, {period}")
    return lines[:most] + (["  ..."] if len(lines) > most else [])
