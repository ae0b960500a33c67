"""How long the encoders' convolutions take forward and backward: XLA's own against patches and matrix products.

    python benchmarks/convolution.py [--frames 3200] [--side 24] [--repeats 5]

Each line is one network; the methods take turns, and the smallest of several times is printed.
"""

import argparse
import time

import equinox as eqx
import jax

from rpgssm.models.encoders import CNNEncoder

STRIDED = ((16, 32, 32), (5, 3, 3), (2, 2, 2), None)
PAPER = ((32, 64, 32), (3, 3, 3), (1, 2, 2), None)
STEM = ((32, 64), (4, 3), (4, 2), None)
NETWORKS = {"strided 16/32/32": STRIDED, "paper 32/64/32": PAPER, "stem 32/64": STEM}


@eqx.filter_jit
def forward_backward(encoder, frames, cotangent):
    """Features and the gradient of the parameters for a given gradient of the features."""
    features, pull_back = eqx.filter_vjp(lambda e: e(frames), encoder)
    return features, pull_back(cotangent)[0]


def measure(settings, frames, repeats):
    """The shortest time of each method in milliseconds."""
    key = jax.random.key(0)
    encoders = {m: CNNEncoder(frames.shape[1:], *settings, key=key, method=m) for m in ("native", "patches")}
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=3200)
    parser.add_argument("--side", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    frames = jax.random.normal(jax.random.key(1), (options.frames, options.side, options.side))
    print(f"forward + backward, {options.frames} frames of {options.side}×{options.side}, {jax.default_backend()}")
    for name, settings in NETWORKS.items():
        best = measure(settings, frames, options.repeats)
        ratio = best["native"] / best["patches"]
        print(f"{name:18} native {best['native']:8.1f} ms   patches {best['patches']:8.1f} ms   ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
