"""The ledger as plain rows, for JSON and for tables."""

import math

import polars as pl

from poslens.claims.base import Verdict

_WORDS = {
    "claim": pl.String,
    "statement": pl.String,
    "statistic": pl.String,
    "rule": pl.String,
    "paper": pl.String,
    "verdict": pl.String,  # reproduced, contradicted, mixed, inconclusive, not run
    "direction": pl.String,  # where an inconclusive verdict leans: reproduced, contradicted or ""
    "reason": pl.String,
    "sequences": pl.Int64,  # largest training budget of the runs involved
}
LEDGER = {
    **_WORDS,
    "seeds": pl.List(pl.Int64),
    "outcomes": pl.List(pl.String),  # passes, fails or undecided, one a seed
    "numbers": pl.List(pl.Struct({"seed": pl.Int64, "name": pl.String, "value": pl.Float64})),
}


def ledger_rows(verdicts: list[Verdict]) -> list[dict[str, object]]:
    """One row per claim with the columns of `LEDGER`, ready for `json.dumps` and polars.

    Numbers that are not defined (NaN) become None.
    """
    return [
        {
            **{name: getattr(verdict, name) for name in _WORDS},
            "seeds": [result.seed for result in verdict.seeds],
            "outcomes": [result.outcome for result in verdict.seeds],
            "numbers": [
                {
                    "seed": result.seed,
                    "name": name,
                    "value": value if math.isfinite(value) else None,
                }
                for result in verdict.seeds
                for name, value in result.numbers.items()
            ],
        }
        for verdict in verdicts
    ]
