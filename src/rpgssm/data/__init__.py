"""Conversion of arrays and files to `Sequences`, the masked-sequence pytree of the whole library."""

from .convert import Recording as Recording
from .convert import as_sequences as as_sequences
from .readers import read as read
from .sequences import Modality as Modality
from .sequences import Sequences as Sequences
