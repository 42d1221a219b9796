"""`poslens COMMAND --help` shows every option with what it means."""

import dataclasses
import importlib
import re
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest
import tyro

from poslens.cli.main import COMMANDS


def sections(text: str) -> dict[str, str]:
    """Every option's own text, by option, frames and line breaks removed."""
    found: dict[str, str] = {}
    option = ""
    for line in text.splitlines():
        line = line.strip("│ ")
        start = re.match(r"(--[a-z-]+)(?: (?:\S*[A-Z{\[]\S*|\.\.\.\]\]?))*(?:\s+(.*))?$", line)
        if start:
            option = start[1]
            found[option] = start[2] or ""
        elif option:
            found[option] += " " + line
    return found


def options_of(command: type[Any]) -> list[str]:
    """Names of all options, those of settings inside it too; what stands without a name is none."""
    found = []
    for name, hint in get_type_hints(command, include_extras=True).items():
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            found += options_of(hint)
        elif tyro.conf.Positional not in get_args(hint):
            found.append(name)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_every_option(poslens: Callable, name: str) -> None:
    done = poslens(name, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"usage: poslens {name}")
    module = importlib.import_module(f"poslens.cli.{name}")
    command = getattr(module, name.capitalize())
    first_sentence = " ".join(command.__doc__.split("\n\n")[0].split())
    assert first_sentence in " ".join(done.out.split())
    told = sections(done.out)
    for option in options_of(command):
        name = option.replace("_", "-")
        text = told[f"--{name}"] if f"--{name}" in told else told[f"--no-{name}"]
        words = text.partition("(default:")[0].split()
        assert len(words) >= 2, option


@pytest.mark.parametrize(
    ("name", "example"),
    [
        ("train", "poslens train rope@2 --task distance --seed 1 --sequences 32000"),
        ("reproduce", "poslens reproduce --schemes rope alibi --tasks distance --seeds 0 1 2"),
        ("data", "poslens data distance --size 1000 --out distance.parquet"),
    ],
)
def test_help_shows_examples_line_by_line(poslens: Callable, name: str, example: str) -> None:
    assert any(
        line.strip().startswith(example) for line in poslens(name, "--help").out.splitlines()
    )


def test_help_of_train_shows_the_sizes_of_the_profile_asked_for(poslens: Callable) -> None:
    smoke = sections(poslens("train", "--profile", "smoke", "--help").out)
    quick = sections(poslens("train", "--help").out)
    assert "(default: 256)" in smoke["--sequences"]
    assert "(default: 256)" not in quick["--sequences"]
