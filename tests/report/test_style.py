import pytest

from poslens.report.style import (
    COLOURS,
    around_zero,
    at,
    colours,
    duration,
    evenly,
    luminance,
    number,
    on_fill,
    percent,
    points,
    rank,
    short_title,
    text_colour,
)


def contrast(colour: str, other: str) -> float:
    first, second = (
        luminance(*(int(it[i : i + 2], 16) / 255 for i in (1, 3, 5))) for it in (colour, other)
    )
    return (max(first, second) + 0.05) / (min(first, second) + 0.05)


@pytest.mark.parametrize(
    ("scheme", "name"),
    [("rope@1", "RoPE, 1 head"), ("rope@2", "RoPE, 2 heads"), ("sinusoidal+rope", "Sin. + RoPE")],
)
def test_short_titles(scheme: str, name: str) -> None:
    assert short_title(scheme) == name


def test_schemes_come_in_the_order_of_the_study_and_strangers_last() -> None:
    shuffled = ["zebra", "mla", "rope@2", "rope", "rope@1", "nope"]
    assert sorted(shuffled, key=rank) == ["nope", "rope", "rope@1", "rope@2", "mla", "zebra"]


def test_every_scheme_has_its_own_colour() -> None:
    palette = colours([*COLOURS, "kerple", "rope@2"])
    assert len(set(palette.values())) == len(COLOURS) + 2
    assert palette["rope"] == COLOURS["rope"]


def test_names_in_a_schemes_colour_can_be_read() -> None:
    for colour in colours([*COLOURS, "a", "b", "c", "d", "e", "f"]).values():
        assert contrast(text_colour(colour), "#ffffff") >= 4.45


def test_numbers_in_cells_can_be_read() -> None:
    scale = around_zero(-20, 90)
    for step in range(101):
        fill = at(scale, step / 100)
        assert contrast(on_fill(fill), fill) >= 4.0


@pytest.mark.parametrize(("low", "high"), [(0, 90), (-3, 90), (-90, 90), (-200, 1)])
def test_scales_start_from_neutral_at_zero_and_rise(low: float, high: float) -> None:
    scale = around_zero(low, high)
    stops = [where for where, _ in scale]
    assert stops[0] == 0
    assert stops[-1] == 1
    assert stops == sorted(stops)
    assert at(scale, -low / (high - low)) == around_zero(0, 1)[0][1]


def test_a_scale_mixes_between_its_stops() -> None:
    assert at(evenly(("#000000", "#ffffff")), 0.5) == "#808080"


def test_numbers_as_text() -> None:
    assert number(-0.004, 2) == "0.00"
    assert number(-1.5, 1) == "\u22121.5"
    assert number(64_000, 0) == "64,000"
    assert number(float("nan")) == number(None) == "–"
    assert percent(0.9264, 2) == "92.64\u202f%"
    assert points(0.01) == "1.0 point"
    assert points(0.026) == "2.6 points"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.24, "1.2 s"), (48.4, "48 s"), (845, "14 min 5 s"), (12_000, "3 h 20 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
