"""What a certificate is made of: one finding a test, and the verdict they add up to."""

from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["right", "unusual", "wrong", "undecidable"]

# From harmless to harmful: a certificate's verdict is the worst of its findings'.
SEVERITY: tuple[Verdict, ...] = ("right", "unusual", "undecidable", "wrong")
EXIT_CODES: dict[Verdict, int] = {"right": 0, "unusual": 0, "wrong": 1, "undecidable": 2}


@dataclass(frozen=True)
class Finding:
    """One test's answer, as a line a reader can act on.

    `test` is the family (relative, rotary, bias, table, precision, use, expected) and `name` the
    test within it; `what` was found, in words with numbers; `meaning` says what follows for a
    model; `mend` how to set it right (empty where nothing is to be done). `numbers` holds the
    measured values behind the words. A note is a finding that is right and worth knowing.
    """

    test: str
    name: str
    verdict: Verdict
    what: str
    meaning: str = ""
    mend: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Certificate:
    """All findings on one implementation, and what was recovered of it.

    `kind` is what it was judged as (rotary, bias, table, attention); `recovered` holds the
    parameters found: frequencies, base, rotated width, layout, scaling, slopes, and so on.
    `curves` are named series for pictures: kernel by offset, error by position.
    """

    target: str
    kind: str
    findings: tuple[Finding, ...]
    recovered: dict[str, Any] = field(default_factory=dict)
    curves: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The worst finding's verdict; a wrong one outweighs one that cannot be decided."""
        return max((finding.verdict for finding in self.findings), key=SEVERITY.index)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]
