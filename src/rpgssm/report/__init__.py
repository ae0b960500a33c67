"""Reports: one HTML page about any fitted model, with everything in it."""

from .page import Part as Part
from .page import numbers as numbers
from .writing import describe as describe
from .writing import look as look
from .writing import write_page as write_page
from .writing import write_report as write_report
