"""The study's tables are, byte for byte, those of the goldens."""

from pathlib import Path

import pytest

from . import study

TABLES = Path(__file__).parent / "tables"


def test_tables():
    made = study.tables()
    assert sorted(made) == sorted(path.name for path in TABLES.iterdir())
    for name, content in made.items():
        assert content == (TABLES / name).read_bytes(), name


@pytest.mark.slow
def test_the_report_holds_them(tmp_path):
    page, end = study.report(tmp_path), 0
    for name in study.in_report():
        text = (TABLES / f"report-{name}.html").read_text(encoding="utf-8").strip()
        start = page.find(text, end)
        assert start >= 0, name
        end = start + len(text)
