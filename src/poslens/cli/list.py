"""`poslens list`: what there is to train and to judge."""

from dataclasses import dataclass

from poslens.claims import CLAIMS
from poslens.cli.options import parse, print_json
from poslens.encodings import ENCODINGS, Encoding
from poslens.experiments.profiles import PROFILES
from poslens.model import STUDY, parse_scheme
from poslens.tasks import TASKS, Task


@dataclass(frozen=True)
class List:
    """Show the schemes, encodings, tasks, profiles and claims there are, with their settings."""

    json: bool = False
    """Print as JSON."""


def run(arguments: list[str]) -> None:
    command = parse(List, arguments, "list")
    sections = {
        "schemes": {name: what_attends(name) for name in STUDY},
        "encodings": {name: described(kind) for name, kind in ENCODINGS.items()},
        "tasks": {name: described(kind) for name, kind in TASKS.items()},
        "profiles": {
            name: f"{len(profile.schemes)} schemes, {plural(len(profile.seeds), 'seed')}, "
            f"{profile.model.layers} layers x {profile.model.heads} heads, "
            f"{next(iter(profile.training.values())).sequences:,} sequences"
            for name, profile in PROFILES.items()
        },
        "claims": {claim.id: claim.statement for claim in CLAIMS},
    }
    if command.json:
        print_json(sections)
        return
    for section, rows in sections.items():
        print(section)
        for name, text in rows.items():
            print(f"  {name:<17}{text}")
    print("NAME@k puts an encoding on the first k heads; A+B opens the doors of both.")


def what_attends(name: str) -> str:
    scheme = parse_scheme(name)
    parts = " and ".join(
        f"{part} on {'all heads' if heads is None else plural(heads, 'head')}"
        for part, heads in scheme.parts
    )
    return f"{parts}, {scheme.attention.__name__}"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def described(kind: type[Encoding] | type[Task]) -> str:
    """First line of the docstring, then the settings with their defaults."""
    if kind is Encoding:
        return "No encoding: position reaches attention through no door."
    sentence = (kind.__doc__ or "").strip().splitlines()[0]
    defaults = vars(kind.Settings())
    settings = ", ".join(f"{name}={value!r}" for name, value in defaults.items())
    return f"{sentence} [{settings}]" if settings else sentence
