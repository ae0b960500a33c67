"""How all figures look, and how they are written."""

import io
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

GREY, BLACK = "0.55", "0.1"
_SETTINGS = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "svg.hashsalt": "rpgssm",
    "svg.fonttype": "path",
}


def context() -> AbstractContextManager[None]:
    """The settings of matplotlib in which figures are made and written; nothing is changed outside it."""
    import matplotlib

    return matplotlib.rc_context(_SETTINGS)  # pyright: ignore[reportArgumentType]


def figure(width: float | int, height: float | int) -> "Figure":
    """An empty figure of this size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def write(drawn: "Figure", folder: Path, name: str) -> tuple[Path, Path]:
    """As PNG and as SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    drawn.savefig(png, dpi=140)
    drawn.savefig(svg, metadata={"Date": None})
    return png, svg


def plain_log(axis: "Axis") -> None:
    """Ticks of a logarithmic axis at 1, 2, 5, 10, ... and written like that."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5), numticks=20))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_minor_locator(NullLocator())


def said_missing(axis: "Axes", text: str = "not run yet") -> None:
    """An empty panel that says so."""
    axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes, color=GREY, style="italic")
    axis.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)  # ticks may be shared with others
    axis.grid(visible=False)
    for side in ("left", "bottom"):
        axis.spines[side].set_visible(False)


def svg(drawn: "Figure") -> bytes:
    """A figure as SVG."""
    kept = io.BytesIO()
    drawn.savefig(kept, format="svg", metadata={"Date": None})
    return kept.getvalue()
