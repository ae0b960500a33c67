"""The time of the networks of `convolution.py` in PyTorch, channels last (oneDNN on a CPU).

    python study/scripts/convolution_torch.py [--frames 3200] [--side 24] [--repeats 5]

Needs an environment with PyTorch, which is not installed with this library. Run it and `convolution.py` in turns on an
idle machine.
"""

import time

import torch  # pyright: ignore[reportMissingImports]
from convolution_cases import NETWORKS, options


def network(channels, kernels, strides):
    layers, before = [], 1
    for out, kernel, stride in zip(channels, kernels, strides, strict=True):
        padding = 0 if kernel == stride else kernel // 2
        layers += [torch.nn.Conv2d(before, out, kernel, stride, padding), torch.nn.ReLU()]
        before = out
    return torch.nn.Sequential(*layers, torch.nn.Flatten()).to(memory_format=torch.channels_last)


def main():
    given = options(__doc__)
    frames = torch.randn(given.frames, 1, given.side, given.side).to(memory_format=torch.channels_last)
    print(f"forward + backward, {given.frames} frames of {given.side}×{given.side}, torch {torch.__version__}")
    for name, settings in NETWORKS.items():
        net, best = network(*settings), float("inf")
        cotangent = torch.randn_like(net(frames))
        for repeat in range(given.repeats + 1):
            net.zero_grad()
            start = time.perf_counter()
            net(frames).backward(cotangent)
            if repeat:
                best = min(best, 1e3 * (time.perf_counter() - start))
        print(f"{name:18} {best:8.1f} ms")


if __name__ == "__main__":
    main()
