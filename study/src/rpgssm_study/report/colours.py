"""The colour and the line of each method, and their legend."""

from typing import Any

from rpgssm_study.methods import METHODS


def colour(method: str) -> str:
    return METHODS[method].colour


def line_style(method: str) -> Any:
    """The line of a method. Those of the DKFs differ, as their colours are close to each other."""
    return {"dkf-mf": "--", "dkf-l": "-.", "dkf-nl": ":", "dkf-cl": (0, (5, 1))}.get(method, "-")


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
