"""The networks of `convolution.py` and `convolution_torch.py`, and their options. Imports neither JAX nor PyTorch."""

import argparse

# channels, kernels, strides
NETWORKS = {
    "strided 16/32/32": ((16, 32, 32), (5, 3, 3), (2, 2, 2)),
    "paper 32/64/32": ((32, 64, 32), (3, 3, 3), (1, 2, 2)),
    "stem 32/64": ((32, 64), (4, 3), (4, 2)),
}


def options(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=3200)
    parser.add_argument("--side", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=5)
    return parser.parse_args()
