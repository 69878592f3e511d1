"""The flame graph of stalls: widths are samples, names are harmless, and the folded form says the same."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cupti.test_stalls import sampled
from ullage.cupti.stalls import REASONS
from ullage.render.stalls import folded, view
from ullage.render.svg.flame import ROW, flame
from ullage.reports.stalls.frames import Frame, frames, paths
from ullage.reports.stalls.stalls import stall_report
from ullage.views.draw import NARROW, WIDE
from ullage.views.html import html

SVG = "{http://www.w3.org/2000/svg}"


def boxes(picture):
    """Return (title, x, y, width) of each frame, the key's squares left out."""
    found = []
    for group in ElementTree.fromstring(picture).iter(f"{SVG}g"):
        title, drawn = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        if title is not None:
            found.append((title.text, *(float(drawn.get(name)) for name in ("x", "y", "width"))))
    return found


def test_a_frame_is_as_wide_as_its_samples_and_stands_on_what_it_belongs_to():
    # 880 pixels for 80 samples, 11 a sample; a box ends a pixel before its neighbour. Kernel a has 60, b 20; of a's instruction 0: 50
    report = stall_report(sampled(("a", 0, "wait", 40), ("a", 0, "selected", 10), ("a", 16, "barrier", 10), ("b", 0, "wait", 20)))
    assert boxes(flame(report)) == [
        ("all samples: 80 samples, 100.0 %", 0, 3 * ROW, 879),
        ("a: 60 samples, 75.0 %", 0, 2 * ROW, 659),
        ("0x0000: 50 samples, 62.5 %", 0, ROW, 549),
        ("wait: 40 samples, 50.0 %", 0, 0, 439),
        ("selected: 10 samples, 12.5 %", 440, 0, 109),
        ("0x0010: 10 samples, 12.5 %", 550, ROW, 109),
        ("barrier: 10 samples, 12.5 %", 550, 0, 109),
        ("b: 20 samples, 25.0 %", 660, 2 * ROW, 219),
        ("0x0000: 20 samples, 25.0 %", 660, ROW, 219),
        ("wait: 20 samples, 25.0 %", 660, 0, 219),
    ]


def test_frames_too_thin_to_draw_are_drawn_as_one():
    # 2,000 kernels of one sample beside one of 100,000: each of them is 0.009 pixels wide, all together 17
    rows = [("large", 0, "wait", 100_000), *((f"k{n}", 0, "wait", 1) for n in range(2000))]
    found = boxes(flame(stall_report(sampled(*rows))))
    assert len(found) == 5
    title, x, _, width = found[-1]
    assert title == "more, each too thin to draw"
    assert x + width == pytest.approx(WIDE - 1, abs=0.01)


def test_the_folded_form_is_a_line_for_each_path():
    report = stall_report(sampled(("a;b", 0, "wait", 40), ("a;b", 0, "selected", 10), ("c d", 16, "barrier", 7)))
    assert folded(report) == "a,b;0x0000;wait 40\na,b;0x0000;selected 10\nc d;0x0010;barrier 7\n"


HOSTILE = '<script>alert("1")</script>&\x1b[31m\n\u202e;'


@pytest.mark.parametrize("form", [flame, folded, lambda report: html(view(report))])
def test_a_hostile_name_is_only_text(form):
    written = form(stall_report(sampled((HOSTILE, 0, "wait", 5), ("a", 0, f"<b>{HOSTILE}", 5))))
    assert "\x1b" not in written
    assert "\u202e" not in written
    if form is folded:
        assert written.count("\n") == 2
    else:
        assert "<script>alert" not in written
        assert "<b>" not in written


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.sampled_from(sorted(REASONS)), st.integers(1, 10**9)), min_size=1))
def test_frames_carry_no_more_than_they_have_and_stay_inside_the_picture(rows):
    report = stall_report(sampled(*rows))
    root = frames(report)
    _check(root)
    assert sum(count for _, count in paths(root)) == report.samples == sum(row[3] for row in rows)
    assert sum(int(line.rpartition(" ")[2]) for line in folded(report).splitlines()) == report.samples
    for width in (WIDE, NARROW):
        assert all(x >= 0 and x + wide <= width + 0.02 for _, x, _, wide in boxes(flame(report, width=width)))


def _check(frame: Frame) -> None:
    assert not frame.children or sum(child.samples for child in frame.children) == frame.samples
    assert list(frame.children) == sorted(frame.children, key=lambda child: (-child.samples, child.name))
    for child in frame.children:
        _check(child)
