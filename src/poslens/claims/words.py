"""Words for schemes, tasks and numbers in reasons."""

from collections.abc import Iterable

NAMES = {
    "nope": "NoPE",
    "sinusoidal": "Sinusoidal",
    "learned": "Learned",
    "t5": "T5 bias",
    "alibi": "ALiBi",
    "rope": "RoPE",
    "mla": "MLA",
    "kerple": "KERPLE",
    "xpos": "xPos",
    "fire": "FIRE",
    "prope": "p-RoPE",
}


def title(scheme: str) -> str:
    """The scheme's name as text has it: `rope@1` is "RoPE on 1 head"."""
    parts = []
    for part in scheme.split("+"):
        name, at, heads = part.partition("@")
        suffix = f" on {heads} head{'' if heads == '1' else 's'}" if at else ""
        parts.append(NAMES.get(name, name) + suffix)
    return " + ".join(parts)


def listed(items: Iterable[str]) -> str:
    """Items as a sentence lists them: "a, b and c"."""
    *most, last = list(items)
    return f"{', '.join(most)} and {last}" if most else last


def percent(value: float, decimals: int = 1) -> str:
    """A share as a percentage."""
    return f"{100 * value:.{decimals}f} %"


def points(value: float, decimals: int = 1) -> str:
    """A difference of shares in percentage points."""
    return f"{100 * value:.{decimals}f} points"
