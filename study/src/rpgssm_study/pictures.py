"""Pictures as results store them: 8-bit numbers in base64."""

import base64
from typing import Any

import numpy as np


def picture(frames: np.ndarray) -> dict[str, Any]:
    """Store frames with values between 0 and 1."""
    bytes_ = np.rint(255 * np.clip(frames, 0, 1)).astype(np.uint8)
    return {"shape": list(bytes_.shape), "data": base64.b64encode(bytes_.tobytes()).decode("ascii")}


def from_picture(stored: dict[str, Any]) -> np.ndarray:
    """Read frames that `picture` stored."""
    return np.frombuffer(base64.b64decode(stored["data"]), np.uint8).reshape(stored["shape"]) / 255
