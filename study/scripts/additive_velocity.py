"""The pendulum's velocity as a sum of functions of the angle at nearby times.

The means of a smoother with constant precisions are such a sum: they are linear in features of single frames. The R² is
therefore a ceiling for the linear readout of ω from a model whose latents hold so many features of the angle.
"""

import numpy as np

from rpgssm_study.tasks import load_task

ORDERS_AND_REACH = ((1, 5), (3, 5), (3, 10), (6, 10), (10, 10), (6, 20), (10, 20))


def features(angle: np.ndarray, orders: int, reach: int) -> np.ndarray:
    """Return sines and cosines of the angle's multiples, of all frames within reach: (frames, numbers)."""
    multiples = angle[..., None] * np.arange(1, orders + 1)
    own = np.concatenate([np.sin(multiples), np.cos(multiples)], -1)
    inner = angle.shape[1] - 2 * reach
    near = np.concatenate([own[:, shift : shift + inner] for shift in range(2 * reach + 1)], -1)
    near = near.reshape(-1, near.shape[-1])
    return np.concatenate([near, np.ones((len(near), 1))], 1)


def main() -> None:
    task = load_task("pendulum")
    for orders, reach in ORDERS_AND_REACH:
        x, y = [], []
        for split in (task.train, task.validation):
            angle, velocity = (np.asarray(split.states[name]).squeeze() for name in ("angle", "velocity"))
            x.append(features(angle, orders, reach))
            y.append(velocity[:, reach : velocity.shape[1] - reach].ravel())
        penalty = 1e-6 * len(x[0]) * np.eye(x[0].shape[1])
        weights = np.linalg.solve(x[0].T @ x[0] + penalty, x[0].T @ y[0])
        r_squared = 1 - np.mean((x[1] @ weights - y[1]) ** 2) / np.var(y[1])
        print(f"{2 * orders:3d} features of the angle, {reach:2d} frames to each side: R² {r_squared:.3f}", flush=True)


if __name__ == "__main__":
    main()
