"""Settings are frozen dataclasses; here is how they are made from plain values, with checks."""

import dataclasses
import difflib
from typing import Any, get_args, get_origin, get_type_hints

from poslens.errors import InputError


def make_settings(kind: type[Any], values: dict[str, Any], owner: str) -> Any:
    """A settings dataclass from plain values (as read from JSON, TOML or the command line).

    Nested settings may be given as dictionaries; where a dataclass lists `KINDS`, the key `kind`
    says which. Raises InputError for a key the dataclass does not have (naming the close ones), a
    key it needs, an unknown kind, and a value of the wrong type.
    """
    hints = get_type_hints(kind)
    known = {entry.name: entry for entry in dataclasses.fields(kind)}
    made: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            close = difflib.get_close_matches(key, known, n=2) or list(known) or ["nothing"]
            raise InputError(f"{owner} has no setting {key!r}; it has: {', '.join(close)}")
        made[key] = convert(hints[key], value, f"{owner}.{key}")
    for name, entry in known.items():
        needed = (
            entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING
        )
        if needed and name not in made:
            raise InputError(f"{owner} needs {name!r}; add it")
    return kind(**made)


def make_kind(kinds: dict[str, type[Any]], value: Any, where: str) -> Any:
    """Settings of the kind that `value["kind"]` names. Raises InputError where it names none."""
    values = dict(value) if isinstance(value, dict) else {}
    kind = values.pop("kind", None)
    if kind not in list(kinds):
        raise InputError(
            f"{where} is {value!r}; give it a 'kind' ({', '.join(kinds)}) and that kind's settings"
        )
    return make_settings(kinds[kind], values, where)


def convert(hint: Any, value: Any, where: str) -> Any:
    """`value` as `hint` wants it. Raises InputError where it cannot be."""
    options = get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if hasattr(hint, "KINDS"):
            return make_kind(hint.KINDS, value, where)
        if isinstance(value, dict):
            return make_settings(hint, value, where)
    elif options and type(None) in options:
        if value is None:
            return None
        kinds = [option for option in options if option is not type(None)]
        if len(kinds) == 1:
            return convert(kinds[0], value, where)
        return value
    elif hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    elif hint in (int, str, bool):
        if type(value) is hint:
            return value
    elif get_origin(hint) is tuple:
        if isinstance(value, list | tuple):
            return tuple(convert(options[0], item, where) for item in value)
    elif get_origin(hint) is dict:
        if isinstance(value, dict):
            return {key: convert(options[1], item, f"{where}.{key}") for key, item in value.items()}
    elif options and all(isinstance(option, str) for option in options):  # Literal
        if value in options:
            return value
        raise InputError(f"{where} is {value!r}; use one of: {', '.join(options)}")
    else:
        return value
    wanted = getattr(hint, "__name__", str(hint))
    raise InputError(f"{where} is {value!r}; it takes a value of type {wanted}")
