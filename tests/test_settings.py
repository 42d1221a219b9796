"""Settings from plain values: what fits is converted, what does not is named in one line."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pytest

from poslens.errors import InputError
from poslens.settings import convert, make_settings


@dataclass(frozen=True)
class Inner:
    width: int = 4
    rate: float = 0.5


@dataclass(frozen=True)
class Linear:
    KINDS: ClassVar[dict[str, type[Any]]] = {}
    factor: float = 1.0


@dataclass(frozen=True)
class Yarn(Linear):
    beta: float = 32.0


Linear.KINDS.update(linear=Linear, yarn=Yarn)


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner = field(default_factory=Inner)
    cut: int | None = None
    flag: bool = False
    layout: Literal["half", "interleaved"] = "half"
    seeds: tuple[int, ...] = ()
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    sized: dict[str, Inner] = field(default_factory=dict)
    scaling: Linear = field(default_factory=Linear)


def test_plain_values_become_settings_at_every_depth() -> None:
    made = make_settings(
        Outer,
        {
            **{"name": "x", "inner": {"width": 8, "rate": 2}, "cut": 3, "flag": True},
            **{"layout": "interleaved", "seeds": [0, 1], "tasks": {"a": {"b": [1]}}},
            **{"sized": {"a": {"width": 2}}, "scaling": {"kind": "yarn", "beta": 2}},
        },
        "outer",
    )
    assert made == Outer(
        "x",
        Inner(8, 2.0),
        cut=3,
        flag=True,
        layout="interleaved",
        seeds=(0, 1),
        tasks={"a": {"b": [1]}},
        sized={"a": Inner(2)},
        scaling=Yarn(beta=2.0),
    )
    assert isinstance(made.inner.rate, float)


def test_what_is_not_given_keeps_its_default() -> None:
    assert make_settings(Outer, {"name": "x"}, "outer") == Outer("x")
    assert make_settings(Outer, {"name": "x", "cut": None}, "outer").cut is None


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "x", "widht": 3}, "outer has no setting 'widht'; it has: "),
        ({"name": "x", "inner": {"widht": 3}}, "outer.inner has no setting 'widht'; it has: width"),
        ({"name": "x", "sized": {"a": {"rat": 3}}}, "outer.sized.a has no setting 'rat'"),
        ({}, "outer needs 'name'"),
        ({"name": 3}, "outer.name is 3; it takes a value of type str"),
        ({"name": "x", "cut": "3"}, "outer.cut is '3'; it takes a value of type int"),
        ({"name": "x", "cut": 3.5}, "outer.cut is 3.5; it takes a value of type int"),
        ({"name": "x", "cut": True}, "outer.cut is True; it takes a value of type int"),
        ({"name": "x", "flag": 1}, "outer.flag is 1; it takes a value of type bool"),
        ({"name": "x", "inner": 3}, "outer.inner is 3; it takes a value of type Inner"),
        ({"name": "x", "inner": {"rate": "1"}}, "outer.inner.rate is '1'"),
        ({"name": "x", "inner": {"rate": True}}, "outer.inner.rate is True"),
        ({"name": "x", "layout": "hafl"}, "use one of: half, interleaved"),
        ({"name": "x", "seeds": 3}, "outer.seeds is 3; it takes a value of type tuple"),
        ({"name": "x", "seeds": "12"}, "outer.seeds is '12'; it takes a value of type tuple"),
        ({"name": "x", "seeds": [1, "a"]}, "outer.seeds is 'a'; it takes a value of type int"),
        ({"name": "x", "tasks": ["a"]}, "outer.tasks is ['a']; it takes a value of type dict"),
        ({"name": "x", "tasks": {"a": 3}}, "outer.tasks.a is 3; it takes a value of type dict"),
        ({"name": "x", "scaling": {"kind": "yarm"}}, "'kind' (linear, yarn)"),
        ({"name": "x", "scaling": {"kind": "linear", "beta": 2}}, "outer.scaling has no setting"),
    ],
)
def test_what_does_not_fit_is_named(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        make_settings(Outer, values, "outer")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_close_name_is_offered_before_all_names() -> None:
    with pytest.raises(InputError, match=r"it has: rate$"):
        make_settings(Inner, {"rat": 1.0}, "inner")
    with pytest.raises(InputError, match=r"it has: width, rate$"):
        make_settings(Inner, {"qqq": 1.0}, "inner")


def test_any_takes_everything() -> None:
    value = {"anything": [1, "a"]}
    assert convert(Any, value, "x") is value
