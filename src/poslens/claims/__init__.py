"""The study's claims (Gu et al. 2026, arXiv 2505.13027) as code over result tables."""

from poslens.claims.accuracy import C1, C2, C3, C6_1, C6_2
from poslens.claims.base import Claim, Verdict
from poslens.claims.deposit import C4, C5, C7
from poslens.claims.displaced import C8
from poslens.claims.export import LEDGER, ledger_rows
from poslens.claims.seeds import P6_1, P6_2, T6_1
from poslens.results import Tables

CLAIMS = (C1, C2, C3, C4, C5, C6_1, C6_2, C7, C8, P6_1, P6_2, T6_1)

__all__ = ["CLAIMS", "LEDGER", "Claim", "Verdict", "ledger", "ledger_rows"]


def ledger(tables: Tables) -> list[Verdict]:
    """Every claim judged on `tables`, in the order of the study."""
    return [claim.verdict(tables) for claim in CLAIMS]
