"""The study's claims, judged under each correction: which switch makes which claim."""

from dataclasses import fields
from pathlib import Path

import polars as pl

from poslens import results
from poslens.claims.base import Claim, Verdict
from poslens.errors import InputError
from poslens.results import Tables

STANDARD = "standard"
MATRIX = {
    "correction": pl.String,
    "claim": pl.String,
    "verdict": pl.String,
    "direction": pl.String,
    "seeds": pl.Int64,
    "passes": pl.Int64,
    "fails": pl.Int64,
    "reason": pl.String,
}


def read_corrections(folder: Path) -> dict[str, Tables]:
    """The tables under each correction below `folder`, the standard one first.

    Where a correction does not touch a scheme, its runs are the standard ones. Raises InputError
    where there is no standard experiment.
    """
    if not (folder / STANDARD).is_dir():
        raise InputError(
            f"{folder} holds no corrections (no folder {STANDARD!r}); give the folder that "
            "'poslens corrections' wrote"
        )
    standard = results.read(folder / STANDARD)
    others = sorted(path for path in folder.iterdir() if (path / "experiment.json").exists())
    own = {path.name: results.read(path) for path in others if path.name != STANDARD}
    return {STANDARD: standard} | {name: overlaid(standard, it) for name, it in own.items()}


def overlaid(standard: Tables, own: Tables) -> Tables:
    """`own`, and of `standard` the schemes that it does not have."""
    schemes = own.summary["scheme"].unique().to_list()

    def joined(name: str) -> pl.DataFrame:
        kept = getattr(standard, name).filter(~pl.col("scheme").is_in(schemes))
        return pl.concat([kept, getattr(own, name)])

    return Tables(**{entry.name: joined(entry.name) for entry in fields(Tables)})


def matrix(by_correction: dict[str, Tables], claims: tuple[Claim, ...]) -> pl.DataFrame:
    """A row for each correction and claim, with the columns of `MATRIX`."""
    rows = [
        _row(correction, claim.verdict(tables))
        for correction, tables in by_correction.items()
        for claim in claims
    ]
    return pl.DataFrame(rows, schema=MATRIX)


def _row(correction: str, verdict: Verdict) -> dict[str, object]:
    outcomes = [result.outcome for result in verdict.seeds]
    return {
        **{"correction": correction, "claim": verdict.claim, "verdict": verdict.verdict},
        **{"direction": verdict.direction, "seeds": len(outcomes)},
        **{name: outcomes.count(name) for name in ("passes", "fails")},
        "reason": verdict.reason,
    }
