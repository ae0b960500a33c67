"""Data at the door: arrays and files of any shape become one masked-sequence pytree."""

from .controls import as_controls as as_controls
from .door import Recording as Recording
from .door import as_sequences as as_sequences
from .readers import read as read
from .sequences import Modality as Modality
from .sequences import Sequences as Sequences
