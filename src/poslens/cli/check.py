"""`poslens check`: is this positional-encoding code right, and what is it."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from poslens.certificate.finding import Certificate, Finding, Verdict
from poslens.certificate.text import LABELS, worst_first
from poslens.cli.options import parse, print_json

_STYLES: dict[Verdict, str] = {
    "right": "green",
    "unusual": "yellow",
    "undecidable": "magenta",
    "wrong": "bold red",
}


@dataclass(frozen=True)
class Check:
    """Judge positional-encoding code by what it does, and say what it is.

    TARGET is package.module:name, or package.module:maker,apply for a cos/sin maker and the
    function that applies it. It may be a rotary function (q, k, positions), (x, positions) or
    (q, k, v, positions), a bias (query_len, key_len), a table of positions, an attention module, or
    a ready-made module of transformers, x-transformers or rotary-embedding-torch.

    Exit code 0: right, or right but unusual; 1: wrong; 2: cannot be judged.
    """

    target: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET")]
    """package.module:name; the working directory is searched as well."""
    kind: Literal["rotary", "bias", "table", "attention"] | None = None
    """What it is; found out where not given."""
    head_dim: int | None = None
    """Width of a head; found out where not given."""
    heads: int | None = None
    """Number of heads."""
    config: Path | None = None
    """config.json that a class is built from; its family's default where not given."""
    expect: Path | None = None
    """config.json whose rotary parameters (or bias) what is found is compared with."""
    layer_type: str | None = None
    """Which of a config's layer types, where they differ (for example sliding_attention)."""
    length: int | None = None
    """Trained length, where no config says it."""
    causal: bool = False
    """Judge a bias at keys up to the query only."""
    all: bool = False
    """Show findings that are right as well."""
    device: str = "cpu"
    """cpu or cuda."""
    json: bool = False
    """Print the certificate as JSON."""
    html: Path | None = None
    """Write the certificate as a page, with kernel and error curves."""


def run(arguments: list[str]) -> None:
    command = parse(Check, arguments, "check")
    import torch

    from poslens.certificate.check import check

    torch.set_num_threads(1)
    certificate = check(
        command.target,
        kind=command.kind,
        head_dim=command.head_dim,
        heads=command.heads,
        config=command.config,
        expect=command.expect,
        length=command.length,
        causal=command.causal or None,
        layer_type=command.layer_type,
        device=command.device,
    )
    if command.html is not None:
        from poslens.certificate.page import write_html

        write_html(certificate, command.html)
    if command.json:
        print_json(as_json(certificate))
    else:
        print_table(certificate, command.all)
        if command.html is not None:
            print(command.html)
    if certificate.exit_code:
        sys.exit(certificate.exit_code)


def as_json(certificate: Certificate) -> dict[str, Any]:
    return {
        "target": certificate.target,
        "kind": certificate.kind,
        "verdict": certificate.verdict,
        "findings": [vars(finding) for finding in certificate.findings],
        "recovered": certificate.recovered,
        "curves": certificate.curves,
    }


def print_table(certificate: Certificate, everything: bool) -> None:
    """The worst findings first; those that are right in one line unless asked for."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    verdict = certificate.verdict
    console.print(
        f"[{_STYLES[verdict]}]{LABELS[verdict]}[/]  {escape(certificate.target)} "
        f"({certificate.kind})"
    )
    table = Table(show_edge=False, pad_edge=False)
    for title in ("verdict", "test", "found, what it means, how to mend it"):
        table.add_column(title, overflow="fold")
    for finding in worst_first(certificate):
        if finding.verdict == "right" and not everything and not _worth_showing(finding):
            continue
        advice = [f"[dim]{escape(part)}[/]" for part in (finding.meaning, finding.mend) if part]
        table.add_row(
            f"[{_STYLES[finding.verdict]}]{LABELS[finding.verdict]}[/]",
            escape(f"{finding.test}: {finding.name}"),
            "\n".join([escape(finding.what), *advice]),
        )
    console.print(table)
    right = sum(finding.verdict == "right" for finding in certificate.findings)
    console.print(f"{right} of {len(certificate.findings)} tests right; --all shows every one")


def _worth_showing(finding: Finding) -> bool:
    """What it is, and notes: right, but what people ask for."""
    named = ("layout", "frequencies", "attention factor", "scheme", "kind")
    return bool(finding.meaning) or finding.name in named
