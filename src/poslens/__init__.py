"""poslens: where Transformers know position from, measured.

`poslens.certify(fn)` is for test suites: it judges positional-encoding code by what it does.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poslens.certificate import certify

__all__ = ["certify"]


def __getattr__(name: str) -> Any:
    """Imports what needs torch when it is asked for, so that `import poslens` stays quick."""
    if name == "certify":
        from poslens.certificate import certify

        return certify
    raise AttributeError(f"module 'poslens' has no attribute {name!r}")
