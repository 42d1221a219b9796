"""The Markdown summary says what the tables hold."""

from pathlib import Path

from poslens.claims import ledger
from poslens.report.markdown import accuracy_table, ledger_table
from poslens.results import read


def test_every_scheme_has_a_line_with_its_own_accuracy(quick: Path) -> None:
    tables = read(quick)
    text = accuracy_table(tables)
    row = tables.summary.filter(scheme="mla", task="distance").row(0, named=True)
    (line,) = [line for line in text.splitlines() if line.startswith("| MLA |")]
    assert f"{100 * row['accuracy']:.1f} (88.34)" in line
    assert len([line for line in text.splitlines() if line.startswith("|")]) == 2 + 9
    assert "length only 20.8" in text


def test_the_ledger_names_every_claim_with_its_verdict(quick: Path) -> None:
    verdicts = ledger(read(quick))
    lines = ledger_table(verdicts).splitlines()[2:]
    assert len(lines) == len(verdicts)
    for verdict, line in zip(verdicts, lines, strict=True):
        assert line.startswith(f"| {verdict.claim} |")
        assert f"**{verdict.label}**" in line
