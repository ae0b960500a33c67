"""The time of the encoders' convolutions forward and backward: XLA's own against patches and matrix products.

    python study/scripts/convolution.py [--frames 3200] [--side 24] [--repeats 5]

Each line is one network; the methods take turns, and the smallest of several times is printed.
"""

import time

import equinox as eqx
import jax
from convolution_cases import NETWORKS, options

from rpgssm.nn import CNNEncoder


@eqx.filter_jit
def forward_backward(encoder, frames, cotangent):
    """Return features, and the gradient of the parameters for a given gradient of the features."""
    features, pull_back = eqx.filter_vjp(lambda e: e(frames), encoder)
    return features, pull_back(cotangent)[0]


def measure(settings, frames, repeats):
    """Return the shortest time of each method in milliseconds."""
    key = jax.random.key(0)
    encoders = {m: CNNEncoder(frames.shape[1:], *settings, None, key=key, method=m) for m in ("native", "patches")}
    cotangent = jax.random.normal(key, (frames.shape[0], encoders["native"].out_dim))
    best = dict.fromkeys(encoders, float("inf"))
    for repeat in range(repeats + 1):
        for method, encoder in encoders.items():
            start = time.perf_counter()
            jax.block_until_ready(forward_backward(encoder, frames, cotangent))
            if repeat:  # the first run compiles
                best[method] = min(best[method], 1e3 * (time.perf_counter() - start))
    return best


def main():
    given = options(__doc__)
    frames = jax.random.normal(jax.random.key(1), (given.frames, given.side, given.side))
    print(f"forward + backward, {given.frames} frames of {given.side}×{given.side}, {jax.default_backend()}")
    for name, settings in NETWORKS.items():
        best = measure(settings, frames, given.repeats)
        ratio = best["native"] / best["patches"]
        print(f"{name:18} native {best['native']:8.1f} ms   patches {best['patches']:8.1f} ms   ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
