"""The study's claims, judged under each correction: which switch makes which claim."""

from collections.abc import Collection
from dataclasses import fields
from pathlib import Path

import polars as pl

from poslens import results
from poslens.claims.base import Claim, Verdict
from poslens.errors import InputError
from poslens.results import Tables

STANDARD = "standard"
PUBLISHED = "published"
# What each switch of the study's code does, in a few words.
SWITCHES = {
    "memory": "keys and values of every layer come from the input embeddings",
    "table": "a table of positions is added to the input of RoPE and MLA",
    "slopes": "ALiBi's slopes are exp(-h/H)",
    "fillers": "fillers may be triggers, and are drawn without replacement: another task",
    "offsets": "T5's bias is a table over exact offsets, one for each layer",
    "query": "MLA has one rotary query for all heads",
    "step": "MLA's rotary step is no rotation",
    "padding": "padding is attended to and read out",
    "norm": "no norm before the readout",
    "dropout": "dropout of 0.1 in training",
    "activation": "GELU in MLA's feed-forward",
    "optimiser": "AdamW's betas in the order (0.98, 0.9), weight decay 1e-5",
    PUBLISHED: "all of these at once",
}
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
    """The tables under each correction below `folder`: the standard one first, all switches last.

    A scheme that a correction does not touch has its standard runs there; one that it touches only
    its own, so that claims are *not run* until these are finished. Raises InputError where there is
    no standard experiment.
    """
    if not (folder / STANDARD).is_dir():
        raise InputError(
            f"{folder} holds no corrections (no folder {STANDARD!r}); give the folder that "
            "'poslens corrections' wrote"
        )
    standard = results.read(folder / STANDARD)
    order = [*SWITCHES]
    names = [path.parent.name for path in folder.glob("*/experiment.json")]
    names.sort(key=lambda name: order.index(name) if name in order else -1)
    found = {STANDARD: standard}
    for name in names:
        if name != STANDARD:
            asked = results.read_object(folder / name / "experiment.json").get("schemes", [])
            found[name] = overlaid(standard, results.read(folder / name), asked)
    return found


def overlaid(standard: Tables, own: Tables, touched: Collection[str]) -> Tables:
    """`own`, and of `standard` the schemes that the correction does not touch."""
    schemes = {*touched, *own.summary["scheme"]}

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
