"""The certificate: is this positional-encoding code right, and what is it?

`check` in `poslens.certificate.check` is the one entry; `certify` is the same for test suites.
"""

from typing import TYPE_CHECKING, Any

from poslens.certificate.finding import Certificate, Finding, Verdict

if TYPE_CHECKING:
    from poslens.certificate.check import certify

__all__ = ["Certificate", "Finding", "Verdict", "certify"]


def __getattr__(name: str) -> Any:
    """Imports the checks, which need torch, when they are asked for."""
    if name == "certify":
        from poslens.certificate.check import certify

        return certify
    raise AttributeError(f"module 'poslens.certificate' has no attribute {name!r}")
