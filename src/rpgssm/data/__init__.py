"""Data at the door: arrays and files of any shape become one masked-sequence pytree."""

from .sequences import Modality as Modality
from .sequences import Sequences as Sequences
