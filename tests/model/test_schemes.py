"""Names of schemes, what they build, and the settings of their parts."""

import json
from typing import Any

import pytest

from poslens.encodings import ENCODINGS, Both, FirstHeads, RoPE, Scaling
from poslens.errors import InputError
from poslens.model import STUDY, parse_scheme
from poslens.model.attention import MultiHeadAttention
from poslens.model.latent_attention import LatentAttention


def test_names_say_what_is_built(small: Any) -> None:
    for name in (*STUDY, *ENCODINGS):
        model = small(name)
        attention = LatentAttention if name == "mla" else MultiHeadAttention
        assert {type(block.attention) for block in model.blocks} == {attention}
        if name in ENCODINGS:
            assert type(model.encoding) is ENCODINGS[name]
    some = small("rope@3").encoding
    assert isinstance(some, FirstHeads)
    assert (type(some.encoding), some.count) == (RoPE, 3)
    both = small("alibi+rope@2").encoding
    assert isinstance(both, Both)
    assert (type(both.first), type(both.second)) == (ENCODINGS["alibi"], FirstHeads)
    assert small("mla").encoding.shape.head_width == 4  # the rotary channel's


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("ropes", "rope"),
        ("RoPE", "rope"),
        ("alibbi", "alibi"),
        ("sinusoidal+rop", "sinusoidal+rope"),
        ("mla@1", "mla"),
        ("kerpel", "kerple"),
        ("rope@", "rope"),
        ("", "nope, sinusoidal, learned"),
    ],
)
def test_unknown_schemes_name_the_close_ones(name: str, close: str) -> None:
    with pytest.raises(InputError) as error:
        parse_scheme(name)
    assert str(error.value).startswith(f"unknown scheme {name!r}; did you mean: {close}")


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("rope+rope@1", {}, "names an encoding twice"),
        ("rope@5", {}, "RoPE can be on 1 to 4 of the heads, not on 5"),
        ("rope@0", {}, "RoPE can be on 1 to 4 of the heads, not on 0"),
        ("learned@1", {}, "which have no heads; use it on all heads"),
        ("rope", {"width": 36}, "rotary width must be even, .* head width 9, got 9"),
        ("sinusoidal", {"width": 33, "heads": 3}, "even model width, got 33"),
    ],
)
def test_schemes_that_do_not_fit_are_named(
    name: str, sizes: dict[str, int], message: str, small: Any
) -> None:
    with pytest.raises(InputError, match=message):
        small(name, **sizes)


def test_parts_are_set_by_name(small: Any) -> None:
    parts = {"rope": {"base": 500_000, "width": 4}, "t5": {"buckets": 8}}
    model = small("t5+rope@2", parts=parts)
    assert model.encoding.first.settings.buckets == 8
    rope = model.encoding.second.encoding.settings
    assert (rope.base, rope.width, rope.layout) == (500_000.0, 4, "interleaved")
    latent = small("mla", parts={"mla": {"rotary_width": 6}, "rope": {"base": 50.0}})
    assert (latent.encoding.width, latent.encoding.settings.base) == (6, 50.0)


@pytest.mark.parametrize(
    ("name", "parts", "message"),
    [
        ("rope", {"alibi": {}}, "scheme 'rope' has no part 'alibi'; it has: rope"),
        ("rope", {"mla": {}}, "scheme 'rope' has no part 'mla'"),
        ("mla", {"t5": {}}, "it has: rope, mla"),
        ("rope", {"rope": {"bass": 2.0}}, "rope has no setting 'bass'; it has: base"),
        ("alibi", {"alibi": {"base": 2.0}}, "alibi has no setting 'base'; it has: slopes"),
        ("kerple", {"kerple": {"r1": 2.0}}, "kerple has no setting 'r1'; it has: nothing"),
        ("rope", {"rope": 5}, "rope is 5; it takes a value of type RoPESettings"),
        ("rope", {"rope": {"width": "all"}}, "rope.width is 'all'; it takes a value of type int"),
        (
            "rope",
            {"rope": {"layout": "odd"}},
            "rope.layout is 'odd'; use one of: interleaved, half",
        ),
        ("rope", {"rope": {"width": 3}}, "rotary width must be even"),
    ],
)
def test_parts_that_do_not_fit_are_named(
    name: str, parts: dict[str, Any], message: str, small: Any
) -> None:
    with pytest.raises(InputError, match=message):
        small(name, parts=parts)


SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 2},
    "ntk": {"factor": 2.0},
    "dynamic": {"factor": 2.0, "original_length": 8},
    "yarn": {"factor": 4.0, "original_length": 128},
    "longrope": {
        "short_factors": [1, 1.5, 2, 3],
        "long_factors": (4, 4, 4, 4),
        "original_length": 8,
    },
    "llama3": {"low_turns": 1.0, "high_turns": 2.0},
}


def test_scalings_are_given_as_plain_values(small: Any) -> None:
    assert list(SCALINGS) == list(Scaling.KINDS)
    for kind, values in SCALINGS.items():
        parts = {"rope": {"scaling": {"kind": kind, **values}}}
        expected = Scaling.KINDS[kind](
            **{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        )
        for given in (parts, json.loads(json.dumps(parts))):
            assert small("rope", parts=given).encoding.settings.scaling == expected
            assert small("mla", parts=given | {"mla": {"rotary_width": 8}}).encoding.width == 8
        assert parts["rope"]["scaling"]["kind"] == kind  # what was given is left as it was


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"kind": "yarm"}, r"rope.scaling is {'kind': 'yarm'}; give it a 'kind' \(linear, ntk, "),
        ({"factor": 2.0}, "give it a 'kind'"),
        ({"kind": ["yarn"]}, "give it a 'kind'"),
        ("yarn", "rope.scaling is 'yarn'; give it a 'kind'"),
        (Scaling(), r"rope.scaling is Scaling\(\); give it a 'kind'"),
        ({"kind": "yarn", "factr": 2.0}, "rope.scaling has no setting 'factr'; it has: factor"),
        ({"kind": "yarn", "factor": 2.0}, "rope.scaling needs 'original_length'; add it"),
        ({"kind": "linear", "factor": -1.0}, "LinearScaling.factor must be above 0, got -1.0"),
        ({"kind": "linear", "factor": "2"}, "rope.scaling.factor is '2'; .* type float"),
        ({**SCALINGS["longrope"], "kind": "longrope", "long_factors": 4.0}, "of type tuple"),
    ],
)
def test_scalings_that_do_not_fit_are_named(scaling: Any, message: str, small: Any) -> None:
    with pytest.raises(InputError, match=message):
        small("rope", parts={"rope": {"scaling": scaling}})
