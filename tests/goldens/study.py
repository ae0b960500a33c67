"""The tables that the study prints from its stored results. The only file here that knows how they are made."""

import contextlib
import io
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[2] / "study" / "results"


def markdown() -> str:
    """What `rpgssm-study table` prints: accuracies against the aims, and all methods."""
    from rpgssm_study import cli

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        cli.main(["table", "--results", str(RESULTS)])
    return printed.getvalue()


def in_report() -> dict[str, str]:
    """The tables of the report as they stand in its page, by the name of their section."""
    from rpgssm.report.page import _table
    from rpgssm_study.report import sections
    from rpgssm_study.report.collection import Collection

    collection = Collection.read(RESULTS, "compact")
    found = {}
    for section in sections.SECTIONS:
        if section.rows is not None:
            found[section.name] = _table(section.rows(collection), bold=section.name == "main") + "\n"
    return found


def report(folder: Path) -> str:
    """The page that `rpgssm-study report` writes."""
    from rpgssm_study import cli

    with contextlib.redirect_stdout(io.StringIO()):
        cli.main(["report", "--results", str(RESULTS), "--output", str(folder)])
    return (folder / "report.html").read_text(encoding="utf-8")


def tables() -> dict[str, bytes]:
    """All tables by the name of their file."""
    files = {"table.md": markdown()} | {f"report-{name}.html": text for name, text in in_report().items()}
    return {name: text.encode() for name, text in files.items()}
