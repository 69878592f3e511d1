"""Pictures: what they show, that they hold up at the ends of every range, and that nothing foreign gets through."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.sample_reports import HOSTILE, HOUR, START, WEEK, agreement_of, chain, empty, group, report
from ullage.metrics.telemetry import Factor, TelemetryTree, tree
from ullage.render.svg.bars import groups
from ullage.render.svg.calendar import ticks
from ullage.render.svg.chain import of_fleet as whole_waterfall
from ullage.render.svg.chain import waterfall
from ullage.render.svg.line import course
from ullage.render.svg.scatter import scatter
from ullage.render.svg.stacked import ledger, trust
from ullage.reports.fleet.agreement import Comparison
from ullage.reports.fleet.course import CoursePoint
from ullage.reports.fleet.fleet import FleetReport
from ullage.views.draw import NARROW, SIZE, WIDE, extent, fit
from ullage.views.palette import PALETTE

SVG = "{http://www.w3.org/2000/svg}"
NAN, INFINITY = float("nan"), float("inf")

PICTURES: dict[str, Callable[[FleetReport, int], str]] = {
    "course": lambda r, width: course(r.course, r.window, width=width),
    "groups": lambda r, width: groups(r.groups, r.by, width=width),
    "waterfall": lambda r, width: waterfall(r.tree, r.gpu_hours, width=width),
    "ledger": lambda r, width: ledger(r.ledger, width=width),
    "trust": lambda r, width: trust(r.verdicts, width=width),
    "scatter": lambda r, width: scatter(r.agreement or agreement_of([]), width=width),
}


def words(svg: str) -> list[str]:
    """The texts that stand in a picture, in the order of drawing."""
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter(f"{SVG}text")]


def rectangles(svg: str, fill: str) -> list[dict[str, float]]:
    """Place and size of the rectangles of one colour."""
    found = (node for node in ET.fromstring(svg).iter(f"{SVG}rect") if node.get("class") == f"f-{fill}")
    return [{name: float(node.get(name, 0)) for name in ("x", "y", "width", "height")} for node in found]


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("made", [report, empty], ids=["rich", "empty"])
def test_every_picture_is_well_formed_labelled_and_the_same_each_time(name: str, width: int, made: Callable[[], FleetReport]) -> None:
    drawn = PICTURES[name](made(), width)
    root = ET.fromstring(drawn)
    ids = [node.get("id") for node in root.iter() if node.get("id")]
    assert drawn == PICTURES[name](made(), width)
    # a file of its own has 24 px of paper to either side
    assert (root.tag, root.get("role"), root.get("viewBox", "").split()[2]) == (f"{SVG}svg", "img", str(width + 48))
    assert len(ids) == len(set(ids))
    assert set(root.get("aria-labelledby", "").split()) <= set(ids)
    assert root.findtext(f"{SVG}title") and root.findtext(f"{SVG}desc")


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("made", [report, empty], ids=["rich", "empty"])
def test_no_text_leaves_its_picture(name: str, width: int, made: Callable[[], FleetReport]) -> None:
    root = ET.fromstring(PICTURES[name](made(), width))
    top, height = (float(edge) for edge in root.get("viewBox", "").split()[1::2])
    for node in root.iter(f"{SVG}text"):
        # `extent` errs on the wide side by about a seventh
        long = extent("".join(node.itertext()), float(node.get("font-size", 0))) * 0.87
        x, y = float(node.get("x", 0)), float(node.get("y", 0))
        start = x - {"start": 0.0, "middle": long / 2, "end": long}[node.get("text-anchor", "start")]
        assert start > -1 and start + long < width + 1 and top + 8 < y < top + height - 24, "".join(node.itertext())


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_fetches_nothing(name: str) -> None:
    drawn = PICTURES[name](report(), WIDE)
    assert set(re.findall(r"https?://[^\"<]*", drawn)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(script|image|use|foreignObject|a)\b|href|@import", drawn)


def test_a_picture_for_a_page_leaves_the_colours_to_the_page() -> None:
    assert "<style>" in ledger({"job": 1.0}) and "<style>" not in ledger({"job": 1.0}, standalone=False)


def test_the_picture_of_a_report_is_its_waterfall_over_trusted_hours() -> None:
    made = report()
    assert whole_waterfall(made) == waterfall(made.tree, 86_016.0 * 0.992)


# -- over time --------------------------------------------------------------------------------------------------------


def lines(svg: str, colour: str) -> int:
    """How many unbroken stretches a line of one colour has."""
    return sum(node.get("class") == f"s-{colour}" for node in ET.fromstring(svg).iter(f"{SVG}path"))


def test_a_gap_in_the_data_is_a_gap_in_the_line() -> None:
    # hours 0 1 2 . 4 5: two stretches of OFU; in hour 1 nobody measured GPU utilization: 0 | 2 | 4 5 are three
    points = [CoursePoint(START + hour * HOUR, 0.3, None if hour == 1 else 0.6, 8.0) for hour in (0, 1, 2, 4, 5)]
    drawn = course(points, (START, START + 6 * HOUR))
    assert (lines(drawn, "ofu"), lines(drawn, "pale")) == (2, 3)


def test_a_single_point_is_drawn_as_long_as_the_time_it_stands_for() -> None:
    drawn = course([CoursePoint(START, 0.5, None, 8.0)], (START, START + 6 * HOUR))
    path = next(node for node in ET.fromstring(drawn).iter(f"{SVG}path") if node.get("class") == "s-ofu")
    # six hours in 400 pieces at most: one minute each (360); the axis is 820 px long, a minute 2.28 px; 50 % of 250 px is at 34 + 125
    assert path.get("d") == "M44 159 L46.28 159"


def test_a_week_has_a_tick_a_day() -> None:
    assert [t for t in words(course(report().course, WEEK)) if "Aug" in t] == [f"{day} Aug" for day in range(10, 18)]


@given(st.integers(-(10**12), 10**13), st.integers(1, 10**12), st.integers(2, 12))
def test_ticks_lie_in_the_window_in_order_and_are_few(start: int, length: int, most: int) -> None:
    found = [tick.time for tick in ticks(start, start + length, most)]
    assert found == sorted(set(found)) and 1 <= len(found) <= most + 1
    assert all(start <= time <= start + length for time in found)


# -- by group ---------------------------------------------------------------------------------------------------------


def test_a_groups_bar_is_full_to_its_ofu() -> None:
    drawn = groups([group("a", ofu=0.25)], "job")
    (track,) = [r for r in rectangles(drawn, "full") if r["height"] == 17]
    (filled,) = [r for r in rectangles(drawn, "ofu") if r["height"] == 17]
    assert filled["width"] == pytest.approx(track["width"] / 4, abs=0.01)


def test_what_falls_short_stands_beside_the_hours() -> None:
    # 200 GPU-hours at OFU 0.25 fall 150 short
    assert "150 short" in words(groups([group("a", gpu_hours=200.0, ofu=0.25)], "job"))


def test_a_group_above_its_peak_is_over_not_short() -> None:
    # 200 GPU-hours at 1.04: 8 over
    assert "8.00 over" in words(groups([group("a", gpu_hours=200.0, ofu=1.04)], "job"))


def test_twenty_groups_are_drawn_and_the_rest_is_counted() -> None:
    drawn = words(groups([group(f"job-{n}") for n in range(1520)], "job"))
    assert "job-19" in drawn and "job-20" not in drawn and "… 1,500 more" in drawn


def test_an_unknown_ofu_is_unknown_and_not_zero() -> None:
    drawn = words(groups([group("a", ofu=None), group("b", ofu=0.0)], "job"))
    assert drawn.count("unknown") == 1 and drawn.count("0 %") == 1


def test_a_long_name_keeps_both_ends() -> None:
    cut = fit("llama-70b-pretraining-with-a-very-long-name-run-0001", 150)
    assert cut.startswith("llama") and cut.endswith("0001") and "…" in cut and extent(cut, SIZE) <= 150


# -- the waterfall ----------------------------------------------------------------------------------------------------


def test_each_factor_takes_its_share_of_what_is_left() -> None:
    # 1,000 GPU-hours: × 0.8 leaves 800 (−200), × 0.5 leaves 400 (−400); OFU 0.4 of 170 px is 68 px
    chain_of_two = TelemetryTree(0.4, (Factor("activity", "activity", 0.8, ("activity",)), Factor("clock", "clock", 0.5, ("clock",))))
    drawn = waterfall(chain_of_two, 1000.0)
    assert [w for w in words(drawn) if w[0] in "×−"] == ["× 0.80", "−200", "× 0.50", "−400"]
    assert [r["height"] for r in rectangles(drawn, "loss")] == [34.0, 68.0]
    assert [r["height"] for r in rectangles(drawn, "ofu")] == [68.0]


def test_a_clock_above_the_stated_one_rises() -> None:
    # 100 GPU-hours × 0.5 leaves 50; × 1.08 gives 4 back
    fast = TelemetryTree(0.54, (Factor("activity", "activity", 0.5, ("activity",)), Factor("clock", "clock", 1.08, ("clock",))))
    drawn = waterfall(fast, 100.0)
    assert "+4.00" in words(drawn) and len(rectangles(drawn, "gain")) == 1


def test_a_merged_factor_says_so() -> None:
    merged = tree(ofu=0.3, tensor=0.31, tensor_max=0.4, sm=None, sm_max=None, gr=0.7, gr_max=0.8)
    assert "SM fill × tensor issue" in " ".join(words(waterfall(merged, 100.0)))


def test_an_unknown_factor_is_named_and_takes_nothing() -> None:
    # no activity at all: what follows can't be divided
    dark = TelemetryTree(0.0, (Factor("activity", "activity", 0.0, ("activity",)), Factor("clock", "clock", None, ("clock",))))
    assert "not known: clock" in words(waterfall(dark, 100.0))
    assert "unknown" in words(waterfall(TelemetryTree(None, ()), 100.0))


def test_a_column_too_narrow_for_millions_says_them_short() -> None:
    drawn = words(waterfall(chain(0.3), 98_765_432_100.0, width=560))
    assert any(w.startswith("−") and w.endswith(" M") for w in drawn)


@pytest.mark.parametrize(("width", "in_rows"), [(359, True), (360, False)])
def test_a_picture_with_too_little_room_for_columns_has_a_row_for_each_step_and_says_the_same(width: int, in_rows: bool) -> None:
    # peak, four factors and OFU: six columns, of which each has room from 60 px on
    made = TelemetryTree(0.28, (*(Factor(name, name, 0.7, (name,)) for name in ("held_idle", "activity", "clock", "sm_fill")),))
    drawn, wide = waterfall(made, 1000.0, width=width), waterfall(made, 1000.0)
    assert len(rectangles(drawn, "full")) == (6 if in_rows else 0)
    lost = [w for w in words(wide) if w[0] in "−"]
    assert [w.split()[-1] for w in words(drawn) if "−" in w] == lost == ["−300", "−210", "−147", "−103"]
    assert "power, cooling" in " ".join(words(drawn)) and len(rectangles(drawn, "loss")) == 4


# -- the ledger and trust ---------------------------------------------------------------------------------------------


def test_the_parts_of_the_ledger_fill_the_bar_and_say_their_share() -> None:
    # 880 px: 75 % is 660 and 25 % is 220, less a hair of 1.5 px each
    drawn = ledger({"job": 75.0, "held_idle": 25.0, "total": 100.0})
    bars = [r["width"] for fill in ("ofu", "loss") for r in rectangles(drawn, fill) if r["height"] == 34]
    assert bars == [658.5, 218.5]
    assert [w for w in words(drawn) if w.endswith("%")] == ["75.0 %", "25.0 %"]


def test_series_that_do_not_count_are_hatched() -> None:
    drawn = trust({"stale": (1, 10.0), "slow interval": (2, 20.0), "ok": (7, 70.0)})
    assert drawn.count('fill="url(#trust-880-doubt)"') == 2  # the bar and the legend
    assert "1 GPU" in words(drawn) and "7 GPUs" in words(drawn)


# -- the scatter ------------------------------------------------------------------------------------------------------


def circles(svg: str) -> list[ET.Element]:
    return list(ET.fromstring(svg).iter(f"{SVG}circle"))


def test_a_circles_area_is_the_number_of_gpus() -> None:
    # 256 GPUs have the largest radius, 15; 64 GPUs a quarter of the area, half the radius
    drawn = scatter(agreement_of([Comparison("a", 256, 0.3, 0.3, 0.0), Comparison("b", 64, 0.4, 0.4, 0.0)]))
    assert [float(c.get("r", 0)) for c in circles(drawn)] == [15.0, 7.5]


def test_the_five_that_diverge_most_are_named() -> None:
    drawn = words(scatter(report().agreement or agreement_of([])))
    assert "moe-16b-latent-experts" in drawn and "MFU 54.3 %, OFU 25.6 %, 288 GPUs" in drawn
    assert [w for w in drawn if w in {"1", "2", "3", "4", "5"}] == ["1", "2", "3", "4", "5"] * 2


def test_a_job_beyond_the_axes_is_a_ring_at_their_end() -> None:
    drawn = scatter(agreement_of([Comparison("percent", 8, 54.0, 0.3, 179.0), Comparison("ratio", 8, 0.3, 0.3, 0.0)]))
    (ring,) = [c for c in circles(drawn) if c.get("fill") == "none"]
    assert float(ring.get("cy", 0)) == 30.0  # the upper end
    assert "1 beyond the axes, drawn as rings at their end" in words(drawn)


def test_of_many_jobs_a_thousand_are_drawn_and_the_picture_says_so() -> None:
    drawn = scatter(agreement_of([Comparison(f"job-{n}", 8, 0.3 + n / 10_000, 0.3, 0.1) for n in range(3000)]))
    assert len(circles(drawn)) == 1000 and "1,000 of 3,000 jobs drawn" in words(drawn)


# -- whatever comes ---------------------------------------------------------------------------------------------------

NUMBERS = st.none() | st.sampled_from([NAN, INFINITY, -INFINITY, 0.0, 1.0, 1.08, 1e-9]) | st.floats(-2, 1e9)


@given(st.text(st.characters()), st.sampled_from([WIDE, NARROW]))
def test_any_name_gives_well_formed_pictures(name: str, width: int) -> None:
    for key in (name, HOSTILE + name):
        ET.fromstring(groups([group(key)], key, width=width))
        ET.fromstring(scatter(agreement_of([Comparison(key, 8, 0.5, 0.3, 0.2)]), width=width))
        ET.fromstring(waterfall(TelemetryTree(0.5, (Factor("x", key, 0.5, ("x",)),)), 1.0, width=width))
        ET.fromstring(trust({key: (1, 1.0)}, width=width))


@given(NUMBERS, NUMBERS, st.sampled_from([WIDE, NARROW]))
def test_any_number_gives_well_formed_pictures_without_nan(first: float | None, second: float | None, width: int) -> None:
    hours = 0.0 if second is None else second
    for drawn in (
        course([CoursePoint(START, first, second, hours), CoursePoint(START + HOUR, second, first, 1.0)], None, width=width),
        groups([group("a", gpu_hours=hours, ofu=first), group("b")], "job", width=width),
        waterfall(TelemetryTree(first, (Factor("x", "x", second, ("x",)), Factor("y", "y", first, ("y",)))), hours, width=width),
        ledger({"job": hours, "free": 1.0}, width=width),
        scatter(agreement_of([Comparison("a", 8, first or 0.0, hours, None)]), width=width),
    ):
        ET.fromstring(drawn)
        assert not re.search(r'"(nan|-?inf)"|\bnan\b', drawn)


def _luminance(colour: str) -> float:
    # WCAG 2.2, relative luminance
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("names", "least"),
    [(("ink", "muted", "ofu", "loss", "gain", "doubt"), 4.5), (("pale", "shared", "free", "unknown"), 3.0)],
    ids=["text", "marks"],
)
def test_colours_stand_out_from_the_paper(names: tuple[str, ...], least: float, side: int) -> None:
    paper = _luminance(PALETTE["paper"][side])
    for name in names:
        low, high = sorted((paper, _luminance(PALETTE[name][side])))
        assert (high + 0.05) / (low + 0.05) >= least, name
