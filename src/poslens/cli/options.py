"""How commands read their options: a dataclass on tyro, defaults from profile and TOML file."""

import argparse
import contextlib
import dataclasses
import io
import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import tyro

from poslens.errors import InputError
from poslens.settings import make_settings

Command = TypeVar("Command")
File = TypeVar("File")


def parse(
    kind: type[Command],
    arguments: list[str],
    name: str,
    default: Any = None,
    both_ways: bool = False,
) -> Command:
    """A command's dataclass from its arguments. Raises InputError with tyro's reason.

    Flags turn their default around; `both_ways` has --NAME and --no-NAME whatever the default.
    """
    errors = io.StringIO()
    pairs = () if both_ways else (tyro.conf.FlagCreatePairsOff,)
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(
                kind,
                args=arguments,
                prog=f"poslens {name}",
                default=default,
                config=(tyro.conf.OmitArgPrefixes, *pairs),
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise InputError(f"{one_line(errors.getvalue())}; see 'poslens {name} --help'") from None


def one_line(box: str) -> str:
    """tyro's message without its frame, title and pointers to the help; close options by name."""
    sections: list[list[str]] = [[]]
    for line in (raw.strip("│ ") for raw in box.splitlines()[1:]):
        if line and not line.strip("╭╮╰╯├┤─-"):
            sections.append([])
        elif line:
            sections[-1].append(line)
    message, *others = [lines for lines in sections if lines] or [["the options do not fit"]]
    text = re.sub(r"^Error parsing (\w+: )?", "", " ".join(message)).rstrip(".")
    for lines in others:
        if lines[0] == "Perhaps you meant:":
            text += f"; perhaps {' or '.join(x.split()[0] for x in lines if x.startswith('--'))}"
    return text


def before_the_rest(arguments: list[str], *names: str) -> dict[str, str]:
    """The values of a few options that decide the defaults of all others."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in names:
        parser.add_argument(f"--{name}", f"--{name.replace('-', '_')}", dest=name, nargs="?")
    found, _ = parser.parse_known_args(arguments)
    return {name: value for name, value in vars(found).items() if value is not None}


def read_file(kind: type[File], path: str | None) -> File:
    """A dataclass from a TOML file; its defaults where `path` is None.

    Raises InputError where the file is missing, is no TOML, or holds what the dataclass does not.
    """
    values = {} if path is None else read_toml(path)
    made: File = make_settings(kind, values, path or "the file")
    return made


def read_toml(path: str | Path) -> dict[str, Any]:
    """A TOML file. Raises InputError where it is missing or cannot be read as TOML."""
    try:
        return tomllib.loads(Path(path).read_text())
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing; give a TOML file that is there") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, IsADirectoryError) as error:
        raise InputError(f"{path} is no TOML file ({error})") from error


def override(settings: Any, values: dict[str, Any], where: str) -> Any:
    """Settings with some values replaced. Raises InputError as `make_settings` does."""
    return make_settings(type(settings), dataclasses.asdict(settings) | values, where)


def assignments(items: tuple[str, ...]) -> dict[str, Any]:
    """`("between=10", "rope.base=5e5")` as `{"between": 10, "rope": {"base": 5e5}}`.

    Values are read as TOML, and as plain words where they are not TOML. Raises InputError for an
    item without '=', and for a name that is given both a value and settings.
    """
    made: dict[str, Any] = {}
    for item in items:
        key, sign, text = item.partition("=")
        if not sign or not key:
            raise InputError(f"--set takes NAME=VALUE, got {item!r}")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        *parents, last = key.split(".")
        place = made
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise InputError(f"--set gives {parent!r} a value and settings; choose one")
        place[last] = value
    return made


def print_json(value: Any) -> None:
    """Print as JSON; numbers that are not defined (NaN) become null, infinite ones "inf"."""
    print(json.dumps(defined(value), indent=2, allow_nan=False, default=str))


def defined(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: defined(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [defined(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return None if isinstance(value, float) and math.isnan(value) else value
