"""The timeline: spans where they were, exact sums where they are too fine, and the part of a long run that tells something."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traces.drawn_runs import MS, made, many, run_of, use_case_4
from ullage.render.svg.axis import ticks
from ullage.render.svg.timeline import timeline
from ullage.simulate.traces.scenario import ScenarioEvent
from ullage.sums.lanes.run import Run
from ullage.sums.lanes.spans import NONE, clip, spans, union
from ullage.sums.lanes.timeline import columns, edges, part
from ullage.views.draw import NARROW, WIDE, extent
from ullage.views.palette import PALETTE

SVG = "{http://www.w3.org/2000/svg}"
LEFT, RIGHT = 118, WIDE - 92  # of the lanes on a page
HOSTILE = '<script>alert("1")</script>\x1b[31m\u202e'

SECOND = 1000 * MS
RUNS: dict[str, tuple[Run, str]] = {
    "use case": (use_case_4(), "talp"),
    "long": (made(2, many(50_000, SECOND), SECOND, offload=many(20_000, SECOND, seed=1)), "ai"),
    "steps": (made(2, many(5_000, SECOND), SECOND, steps=(("one", 0, SECOND // 2), ("two", SECOND // 2, SECOND))), "ai"),
    "ranks": (made(40, many(200, SECOND), SECOND), "talp"),
    "empty": (Run((), (), ()), "talp"),
}


def words(svg: str) -> list[str]:
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter(f"{SVG}text")]


def bars(svg: str, state: str) -> list[tuple[float, float]]:
    """Left edge and width of the lanes' rectangles of one state; the legend's squares are 12 wide."""
    found = (node for node in ET.fromstring(svg).iter(f"{SVG}rect") if node.get("class") == f"f-{state}")
    return [(float(n.get("x", 0)), float(n.get("width", 0))) for n in found if n.get("height") == "24"]


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("name", RUNS)
def test_every_timeline_is_well_formed_labelled_small_and_the_same_each_time(name: str, width: int) -> None:
    run, mode = RUNS[name]
    drawn = timeline(run, mode=mode, width=width)
    root = ET.fromstring(drawn)
    ids = [node.get("id") for node in root.iter() if node.get("id")]
    assert drawn == timeline(run, mode=mode, width=width)
    assert len(ids) == len(set(ids)) and set(root.get("aria-labelledby", "").split()) <= set(ids)
    assert root.findtext(f"{SVG}title") and root.findtext(f"{SVG}desc")
    assert len(drawn) < 300_000
    assert not re.search(r"<(script|image|use|foreignObject|a)\b|href|@import", drawn)


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("name", RUNS)
def test_no_text_leaves_its_timeline(name: str, width: int) -> None:
    run, mode = RUNS[name]
    root = ET.fromstring(timeline(run, mode=mode, width=width))
    top, height = (float(edge) for edge in root.get("viewBox", "").split()[1::2])
    for node in root.iter(f"{SVG}text"):
        long = extent("".join(node.itertext()), float(node.get("font-size", 0))) * 0.87  # `extent` errs on the wide side
        x, y = float(node.get("x", 0)), float(node.get("y", 0))
        start = x - {"start": 0.0, "middle": long / 2, "end": long}[node.get("text-anchor", "start")]
        # a file of its own has 24 px of paper around it, where the last label of an axis may end
        assert start > -1 and start + long < width + 20 and top + 8 < y < top + height - 20, "".join(node.itertext())


def test_spans_of_a_short_run_are_drawn_where_they_were() -> None:
    # 1 s is 670 px: rank 0 offloads for its first 330 ms, rank 1 for 55 ms, and is in MPI from 100 ms on
    drawn, scale = timeline(use_case_4()), (RIGHT - LEFT) / 1000
    assert bars(drawn, "offload") == [(LEFT, pytest.approx(330 * scale)), (LEFT, pytest.approx(55 * scale, abs=0.01))]
    assert bars(drawn, "communication") == [(LEFT + 100 * scale, pytest.approx(900 * scale))]
    assert bars(drawn, "kernel") == [(LEFT, pytest.approx(330 * scale)), (LEFT, pytest.approx(33 * scale, abs=0.01))]
    assert [w for w in words(drawn) if re.match(r"\d+ % ", w)] == ["67 % useful", "33 % kernel", "4 % useful", "3 % kernel"]


def test_a_collective_has_its_own_colour_only_where_it_counts_apart() -> None:
    run = made(1, spans((0, 400)), 1000, collective=spans((400, 600)))
    assert bars(timeline(run, mode="ai"), "collective") and "40 % kernel" in words(timeline(run, mode="ai"))
    assert not bars(timeline(run, mode="talp"), "collective") and "60 % kernel" in words(timeline(run, mode="talp"))


def test_the_step_of_median_length_is_looked_at() -> None:
    # steps of 500, 200 and 300 ms: the median is the third
    steps = (("long", 0, 500 * MS), ("short", 500 * MS, 700 * MS), ("middling", 700 * MS, SECOND))
    drawn = words(timeline(made(1, many(5_000, SECOND), SECOND, steps=steps), mode="ai"))
    assert any("300.0 ms of it: middling: of 3 steps the one of median length" in word for word in drawn)
    assert "middling" in drawn and "long" not in drawn


def test_without_steps_it_looks_where_a_working_device_idles_most_not_where_nothing_runs() -> None:
    # 1 s: the second half is silent, in the first kernels take 90 % of a slot, but 30 % between 200 and 300 ms
    slot = 50_000
    start = np.arange(0, SECOND // 2, slot)
    share = np.where((start >= 200 * MS) & (start < 300 * MS), 3, 9)
    run = made(1, union(start, start + slot * share // 10), SECOND)
    told = " ".join(words(timeline(run, mode="talp")))
    kernel = next(int(word.split()[0]) for word in words(timeline(run, mode="talp")) if word.endswith("% kernel"))
    assert "where devices at work idle most" in told and kernel in range(25, 36)


def test_an_asked_window_is_shown_below_the_whole() -> None:
    drawn = words(timeline(use_case_4(), window=(_begin() + 100 * MS, _begin() + 300 * MS)))
    assert any("The whole run is 1.000 s; below, 200.0 ms of it" in word for word in drawn)
    assert "100 % kernel" in drawn  # GPU 0 is busy until 330 ms


def _begin() -> int:
    return use_case_4().processes[0].window[0]


def test_of_many_lanes_the_worst_median_and_best_are_shown() -> None:
    # 40 ranks and their devices are 80 lanes; 3 of each are shown
    drawn = words(timeline(RUNS["ranks"][0]))
    assert [w.split(", ")[1] for w in drawn if w.startswith("rank ")] == ["worst", "median", "best"]
    assert any(w.startswith("+ 74 more lanes") for w in drawn)


def test_captures_without_a_common_clock_begin_together() -> None:
    run = made(2, spans((100, 300)), 1000, begins=(5_000, 999_000_000), clock="own")
    assert len(set(bars(timeline(run), "kernel"))) == 1 and len(bars(timeline(run), "kernel")) == 2


def test_names_are_escaped() -> None:
    run = run_of(
        ScenarioEvent(0, 10, "api", "cudaLaunchKernel", 0, thread=0, call="launch", correlation=1),
        ScenarioEvent(0, 10, "kernel", "k", 0, device=0, stream=7, correlation=1),
        ScenarioEvent(0, 1000, "region", HOSTILE, 0, thread=0),
    )
    drawn = timeline(run)
    ET.fromstring(drawn)
    assert "<script" not in drawn and "\x1b" not in drawn and "\u202e" not in drawn and "&lt;script&gt;" in drawn


PAIRS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=20)


@given(PAIRS, st.integers(-20, 150), st.integers(1, 120), st.integers(1, 40))
def test_columns_sum_exactly_what_they_cover(pairs: list[tuple[int, int]], low: int, long: int, pixels: int) -> None:
    s = spans(*pairs)
    at, found = edges(low, low + long, pixels), columns(s, low, low + long, pixels)
    # brute force: count the whole ns, one by one
    on = {t for a, b in pairs for t in range(a, b)}
    assert found.tolist() == [sum(t in on for t in range(a, b)) for a, b in itertools.pairwise(at.tolist())]
    assert found.sum() == clip(s, low, low + long).total
    assert part(s, low, low + long).total == clip(s, low, low + long).total


def test_columns_of_the_longest_time_do_not_overflow() -> None:
    at = edges(-(2**61), 2**61, 880)
    assert (at[0], at[-1]) == (-(2**61), 2**61) and (np.diff(at) > 0).all()
    assert columns(NONE, -(2**61), 2**61, 880).sum() == 0


@given(st.integers(0, 10**19 // 2), st.integers(1, 10**18), st.integers(2, 12))
def test_ticks_lie_within_are_few_and_differ(low: int, long: int, most: int) -> None:
    found, _ = ticks(low, low + long, most)
    moments, labels = [m for m, _ in found], [label for _, label in found]
    assert len(found) <= most + 1 and all(low <= m <= low + long for m in moments)
    assert len(set(labels)) == len(labels)


# Machado, Oliveira, Fernandes (2009), table 1, severity 1: what is left of a colour for a kind of vision
VISION = {
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def _linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def _lab(linear: np.ndarray) -> np.ndarray:
    matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(matrix @ np.clip(linear, 0, 1) / np.array([0.9505, 1, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("vision", [None, *VISION])
def test_states_of_a_lane_differ_for_any_colour_vision(vision: str | None, side: int) -> None:
    sees = np.eye(3) if vision is None else np.array(VISION[vision])
    for lane in (("useful", "offload", "communication"), ("kernel", "collective", "memory", "idle")):
        for a, b in itertools.combinations(lane, 2):
            apart = np.linalg.norm(_lab(sees @ _linear(PALETTE[a][side])) - _lab(sees @ _linear(PALETTE[b][side])))
            assert apart >= 15, (a, b)  # a difference of 2.3 is just noticeable


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
def test_states_stand_out_from_the_paper(side: int) -> None:
    weights = np.array([0.2126, 0.7152, 0.0722])
    paper = _linear(PALETTE["paper"][side]) @ weights
    for name in ("useful", "offload", "communication", "kernel", "collective", "memory"):
        low, high = sorted((paper, _linear(PALETTE[name][side]) @ weights))
        assert (high + 0.05) / (low + 0.05) >= 3.0, name
