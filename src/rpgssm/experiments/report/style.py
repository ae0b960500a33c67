"""How all figures look, and how they are written."""

from pathlib import Path
from typing import Any

from rpgssm.experiments.methods import METHODS

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


def context() -> Any:
    """The settings of matplotlib in which figures are made and written; nothing is changed outside it."""
    import matplotlib

    return matplotlib.rc_context(_SETTINGS)  # pyright: ignore[reportArgumentType]


def figure(width: float | int, height: float | int) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def write(drawn: Any, folder: Path, name: str) -> tuple[Path, Path]:
    """As PNG and as SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    drawn.savefig(png, dpi=140)
    drawn.savefig(svg, metadata={"Date": None})
    return png, svg


def colour(method: str) -> str:
    return METHODS[method].colour


def line_style(method: str) -> Any:
    """The DKFs have colours that are close to each other."""
    return {"dkf-mf": "--", "dkf-l": "-.", "dkf-nl": ":", "dkf-cl": (0, (5, 1))}.get(method, "-")


def plain_log(axis: Any) -> None:
    """Ticks of a logarithmic axis at 1, 2, 5, 10, ... and written like that."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5), numticks=20))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_minor_locator(NullLocator())


def said_missing(axis: Any, text: str = "not run yet") -> None:
    """An empty panel that says so."""
    axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes, color=GREY, style="italic")
    axis.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)  # ticks may be shared with others
    axis.grid(visible=False)
    for side in ("left", "bottom"):
        axis.spines[side].set_visible(False)


def legend_of(drawn: Any, methods: list[str], *, marker: bool = False, line: bool = False) -> None:
    """One legend for all panels, below them: of lines, of markers, or of both."""
    from matplotlib.lines import Line2D

    def handle(method: str) -> Any:
        style: dict[str, Any] = {"linestyle": line_style(method) if line or not marker else ""}
        style |= {"marker": "o"} if marker else {}
        width = 2.4 if method == "rpgssm" else 1.4
        return Line2D([], [], color=colour(method), label=METHODS[method].label, linewidth=width, **style)

    room = int(drawn.get_size_inches()[0] / 1.4)
    columns = max(1, min(6, room, len(methods)))
    handles = [handle(m) for m in methods]
    drawn.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=3.5 if line else None)
