"""A certificate in words, for assertions and terminals."""

from poslens.certificate.finding import SEVERITY, Certificate, Finding, Verdict

LABELS: dict[Verdict, str] = {
    "right": "right",
    "unusual": "right but unusual",
    "undecidable": "not decidable from this input",
    "wrong": "wrong",
}


def as_text(certificate: Certificate, everything: bool = False) -> str:
    """The verdict and its findings, the worst first; those that are right only if asked for."""
    shown = [
        finding for finding in worst_first(certificate) if everything or finding.verdict != "right"
    ]
    head = f"{certificate.target}: {LABELS[certificate.verdict]} ({certificate.kind})"
    return "\n".join([head, *(line for finding in shown for line in _lines(finding))])


def worst_first(certificate: Certificate) -> list[Finding]:
    """Findings in order of severity, within one in the order they were made."""
    return sorted(
        certificate.findings, key=lambda finding: SEVERITY.index(finding.verdict), reverse=True
    )


def _lines(finding: Finding) -> list[str]:
    lines = [f"  {LABELS[finding.verdict]}: {finding.test}, {finding.name}: {finding.what}"]
    if finding.meaning:
        lines.append(f"    what it means: {finding.meaning}")
    if finding.mend:
        lines.append(f"    how to mend it: {finding.mend}")
    return lines
