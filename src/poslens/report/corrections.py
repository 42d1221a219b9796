"""Claims under corrections: the experiments of a folder, and each claim's verdict under each."""

from dataclasses import dataclass
from pathlib import Path

from poslens.claims import CLAIMS, Claim
from poslens.claims.corrections import STANDARD, matrix, read_corrections
from poslens.claims.words import listed
from poslens.report.provenance import Provenance, missing_runs, read_provenance
from poslens.report.style import INK
from poslens.results import Tables, read

# Fill, ink and sign by verdict and, where it is inconclusive, by where it leans.
LOOKS = {
    ("reproduced", ""): ("#065935", "#ffffff", "✓"),
    ("inconclusive", "reproduced"): ("#cfe4d8", INK, "(✓)"),
    ("contradicted", ""): ("#a3262f", "#ffffff", "✗"),
    ("inconclusive", "contradicted"): ("#f3d2d2", INK, "(✗)"),
    ("mixed", ""): ("#e6b04a", INK, "~"),
    ("inconclusive", ""): ("#e3e6ea", INK, "?"),
    ("not run", ""): ("#ffffff", INK, "–"),
}


@dataclass(frozen=True)
class Correction:
    """One experiment of the folder.

    `own` are its runs alone and `tables` these with the standard ones of the schemes that it does
    not touch; `schemes` those it does; `missing` how many of its runs are not finished.
    """

    name: str
    own: Tables
    tables: Tables
    schemes: frozenset[str]
    missing: int
    found: Provenance


@dataclass(frozen=True)
class Judged:
    """A cell of the matrix.

    `change` is "turned" where the claim fares otherwise than in the standard model, "surer" where
    only how sure that is differs, else empty. `same`: no scheme of the claim has the switch, so
    that its runs are the standard ones.
    """

    correction: str
    claim: str
    label: str
    count: str
    reason: str
    look: tuple[str, str, str]
    change: str
    same: bool


def read_all(folder: Path) -> list[Correction]:
    """The experiments of a folder: standard first, published last.

    A scheme that a correction touches, and none of whose runs is finished, has no runs in it.
    """
    found = []
    for name, tables in read_corrections(folder).items():
        own, told = read(folder / name), read_provenance(folder / name)
        schemes = frozenset(own.summary["scheme"]) | set(told.asked.get("schemes", ()))
        missing = len(missing_runs(own, told))
        found.append(Correction(name, own, tables, schemes, missing, told))
    return found


def claims_of(corrections: list[Correction]) -> tuple[Claim, ...]:
    """The claims that some experiment can speak of: all but those on tables that none has."""

    def told(name: str) -> bool:
        return any(not getattr(it.tables, name).is_empty() for it in corrections)

    return tuple(claim for claim in CLAIMS if all(map(told, claim.measured)))


def judged(corrections: list[Correction], claims: tuple[Claim, ...] = CLAIMS) -> list[list[Judged]]:
    """A row for each correction, a cell for each claim."""
    rows = matrix({it.name: it.tables for it in corrections}, claims).to_dicts()
    cells = {(row["correction"], row["claim"]): row for row in rows}
    return [
        [_cell(cells[it.name, claim.id], cells[STANDARD, claim.id], it, claim) for claim in claims]
        for it in corrections
    ]


def _cell(row: dict[str, str], standard: dict[str, str], it: Correction, claim: Claim) -> Judged:
    verdict, before = (_verdict(cell) for cell in (row, standard))
    same = it.name != STANDARD and not it.schemes & {cell.scheme for cell in claim.cells}
    change = ""
    if verdict != before and "not run" not in (verdict[0], before[0]):
        change = "surer" if _side(verdict) == _side(before) else "turned"
    prefix = "No scheme of this claim has this switch: these are the standard runs. "
    return Judged(
        correction=it.name,
        claim=claim.id,
        label=label(verdict),
        count="" if verdict[0] == "not run" else f"{row['passes']}\u202f:\u202f{row['fails']}",
        reason=(prefix if same else "") + row["reason"],
        look=LOOKS[verdict],
        change=change,
        same=same,
    )


def _verdict(row: dict[str, str]) -> tuple[str, str]:
    """The verdict, and where it leans if it is inconclusive."""
    return row["verdict"], row["direction"] if row["verdict"] == "inconclusive" else ""


def _side(verdict: tuple[str, str]) -> str:
    """For a claim, against it, or neither, however sure."""
    sides = [side for side in ("reproduced", "contradicted") if side in verdict]
    return sides[0] if sides else ""


def label(verdict: tuple[str, str]) -> str:
    """The verdict in words, as the ledger has it."""
    if verdict[0] != "inconclusive":
        return verdict[0]
    return f"inconclusive, {f'leaning {verdict[1]}' if verdict[1] else 'undecided'}"


def _short(label: str) -> str:
    """A verdict in a sentence: "inconclusive (leaning reproduced)"."""
    name, _, rest = label.partition(", ")
    return f"{name} ({rest})" if rest else name


def changes(rows: list[list[Judged]], claims: tuple[Claim, ...] = CLAIMS) -> list[str]:
    """A sentence for each claim that some correction changes, then one on the others."""
    if len(rows) == 1:
        return ["There is no correction to compare with the standard model yet."]
    sentences, stay, absent = [], [], []
    for claim, column in zip(claims, zip(*rows, strict=True), strict=True):
        standard, *others = column
        by_label: dict[str, list[str]] = {}
        for cell in others:
            if cell.change:
                by_label.setdefault(cell.label, []).append(cell.correction)
        if standard.label == "not run":
            absent.append(claim.id)
        elif by_label:
            what = f"{claim.id} ({claim.statement.rstrip('.')})"
            told = [f"{_short(it)} under {listed(names)}" for it, names in by_label.items()]
            told = [f"{_short(standard.label)} as standard", *told]
            sentences.append(f"{what} is {listed(told)}.")
        else:
            stay.append(claim.id)
    if stay:
        verb = "stays as it is" if len(stay) == 1 else "stay as they are"
        sentences.append(f"{listed(stay)} {verb} under every switch tried.")
    if absent:
        sentences.append(f"Not run as standard, so nothing to compare: {listed(absent)}.")
    return sentences
