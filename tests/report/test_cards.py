from dataclasses import replace

from poslens.claims.base import SeedResult, Verdict
from poslens.report.cards import cards, tally

ONE = Verdict(
    claim="C1",
    statement="RoPE is best.",
    statistic="accuracy",
    rule="RoPE above all.",
    paper="92.64 %",
    verdict="inconclusive",
    direction="reproduced",
    reason="All orders hold. 1 seed is fewer than the 3 a verdict needs.",
    seeds=(SeedResult(0, "passes", {"RoPE": 0.962, "MLA": 0.9}, "All orders hold."),),
    sequences=64_000,
)
THREE = replace(
    ONE,
    verdict="contradicted",
    direction="",
    reason="Seed 0: No. Seed 1: Never. Seed 2: No. None of 3 seeds passes.",
    seeds=(
        SeedResult(0, "fails", {"RoPE": 0.5}, "No."),
        SeedResult(1, "fails", {"RoPE": 0.4}, "Never."),
        SeedResult(2, "fails", {"RoPE": 0.3, "MLA": 0.2}, "No."),
    ),
)
NOT_RUN = replace(ONE, verdict="not run", direction="", reason="No runs.", seeds=(), sequences=0)


def test_one_seed_keeps_its_reason_whole() -> None:
    (card,) = cards([ONE])
    assert card.badge == "inconclusive, leaning reproduced"
    assert card.tone == "inconclusive"
    assert card.reason == ONE.reason
    assert card.by_seed == []
    assert [(it.name, it.text) for it in card.numbers] == [("RoPE", "0.962"), ("MLA", "0.900")]
    assert card.budget == "1 seed, up to 64,000 training sequences a run"


def test_several_seeds_stand_apart_from_the_conclusion() -> None:
    (card,) = cards([THREE])
    assert card.reason == "None of 3 seeds passes."
    assert card.by_seed == ["Seed 0: No.", "Seed 1: Never.", "Seed 2: No."]
    rope, mla = card.numbers
    assert (rope.text, mla.text) == ("0.500 / 0.400 / 0.300", "– / – / 0.200")
    assert card.ends == ("0.2", "0.5")


def test_not_run_is_a_verdict_without_numbers() -> None:
    (card,) = cards([NOT_RUN])
    assert (card.tone, card.badge, card.numbers, card.budget) == ("not-run", "not run", [], "")


def test_verdicts_are_counted() -> None:
    undecided = replace(ONE, direction="")
    assert tally([ONE, ONE, THREE, undecided, NOT_RUN]) == (
        "Of the 5 claims judged below: 3 inconclusive (2 leaning reproduced, 1 undecided), "
        "1 contradicted and 1 not run."
    )
