"""Pictures and the page of microbenchmarks: curves, the roofline, sections with their stamps."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import pytest

from tests.benches.bench_results import H200, of_bench, result, row, stamp
from ullage.benches.bench import BENCHES
from ullage.gpus.chip import find
from ullage.render.bench import view
from ullage.render.svg.plot import COLOURS, chart, curves, plot
from ullage.render.svg.plot import Curve as Line
from ullage.render.svg.roofline import roofline as picture
from ullage.reports.bench.bench import bench_report
from ullage.reports.bench.roofline import Roof, Roofline, RooflinePoint, roofline
from ullage.views.html import html as printed

SVG = "{http://www.w3.org/2000/svg}"
PLOTTED = sorted(name for name, member in BENCHES.items() if member.layout.plot and of_bench(name).rows)


def html(report):
    return printed(view(report))


def only(found):
    return bench_report([found]).tables[0]


def drawn(markup):
    return ElementTree.fromstring(str(markup))


def texts(markup):
    return ["".join(one.itertext()) for one in drawn(markup).iter(f"{SVG}text")]


# --- curves


def test_a_curve_goes_through_the_measured_points_and_the_papers_is_dashed_beside_it():
    found = curves(only(of_bench("wgmma-sizes", factor=0.5)))
    mine = next(one for one in found if one.name == "dense SS zero")
    paper = next(one for one in found if one.name == "dense SS zero, H800 PCIe, paper")
    # table X over N, TFLOP/s
    assert paper.points == ((8.0, 158.2), (16.0, 287.0), (32.0, 477.3), (64.0, 719.6), (128.0, 728.5), (256.0, 728.5))
    assert [y for _, y in mine.points] == pytest.approx([79.1, 143.5, 238.65, 359.8, 364.25, 364.25])
    assert paper.dashed and not mine.dashed and paper.key == mine.key


def test_with_nothing_measured_every_published_gpu_has_its_curves():
    (table,) = bench_report([], ["async-copy"]).tables
    names = {curve.name for curve in curves(table)}
    assert "8x8 SyncShare, H800 PCIe, paper" in names and "8x8 SyncShare, A100-PCIE-40GB, paper" in names
    assert all(curve.dashed for curve in curves(table))


@pytest.mark.parametrize("width", [360, 880])
@pytest.mark.parametrize("name", PLOTTED)
def test_every_plot_is_well_formed_and_keeps_its_words_inside(name, width):
    markup = plot(only(of_bench(name)), width=width)
    assert markup is not None
    left, _, wide, _ = map(float, drawn(markup).get("viewBox").split())
    for one in drawn(markup).iter(f"{SVG}text"):
        assert left <= float(one.get("x")) <= left + wide


def test_a_bench_without_a_curve_or_with_a_single_point_has_no_plot():
    assert plot(only(of_bench("memory-latency"))) is None
    one = result("dpx-blocks", row({"blocks": 132, "function": "__viaddmax_s32"}, {"rate": 1e12}))
    assert plot(only(one)) is None


def test_lines_of_a_series_share_a_colour_and_dashed_ones_are_told_once():
    shown = [
        Line("a", ((1, 1), (2, 2)), series="a"),
        Line("b", ((1, 2), (2, 3)), series="b"),
        Line("b, X, paper", ((1, 2), (2, 2)), dashed=True, series="b", paper="X, paper"),
    ]
    markup = str(chart("x", "X", shown, ("n", "cycles"), width=880, standalone=True))
    assert [words for words in texts(markup) if words in ("a", "b", "X, paper", "b, X, paper")] == ["a", "b", "X, paper"]
    strokes = [one.get("class") for one in drawn(markup).iter(f"{SVG}path")]
    assert strokes == [f"s-{COLOURS[0]}", f"s-{COLOURS[1]}", f"s-{COLOURS[1]}"]


def ticks(points):
    """Return the words under the x axis and beside the y axis."""
    markup = chart("x", "X", [Line("a", points)], ("n", "GB/s"), width=880, standalone=False)
    found = list(drawn(f'<svg xmlns="http://www.w3.org/2000/svg">{markup}</svg>').iter(f"{SVG}text"))
    return [t.text for t in found if t.get("text-anchor") == "middle"], [t.text for t in found if t.get("text-anchor") == "end"][:-1]


def test_an_axis_is_logarithmic_only_where_a_linear_one_would_hide_something():
    # sizes that double: log; 1 and 1,000 GB/s on one axis: log, decades
    assert ticks(((1, 1.0), (2, 10.0), (4, 100.0), (1024, 1000.0)))[1] == ["1", "10", "100", "1,000"]
    # blocks in even steps and rates within a factor 4: linear, from 0
    across, up = ticks(((1, 10.0), (132, 20.0), (264, 30.0), (396, 40.0)))
    assert across == ["1", "132", "264", "396"] and up == ["0", "10", "20", "30", "40"]


# --- the roofline


def random_only(value, **more):
    return row({"type": "x"}, {"throughput": value}, stamped=stamp("random"), **more)


def test_roofs_are_the_best_dense_products_on_random_data_and_the_best_bandwidths():
    suite = [
        result(
            "mma",
            random_only(300e12, precision="bf16"),
            random_only(400e12, precision="bf16"),
            random_only(900e12, precision="bf16", sparse=True),
            row({"type": "x"}, {"throughput": 500e12}, stamped=stamp("zero"), precision="bf16"),
        ),
        result("memory-bandwidth", row({"level": "global memory", "mix": "read"}, {"bandwidth": 4.3e12})),
    ]
    found = roofline(suite, find(H200))
    assert found.roofs == (
        Roof("bf16", 400e12, slope=False, kind="burst"),
        Roof("global memory", 4.3e12, slope=True, kind="burst"),
        Roof("bf16", 132 * 4096 * 1.83e9, slope=False, kind="stated"),
        Roof("global memory", 4.8e12, slope=True, kind="stated"),
    )


def test_without_measurements_the_makers_roofs_are_drawn_and_without_a_known_gpu_there_is_no_picture():
    stated = roofline([], find(H200))
    assert {roof.name for roof in stated.roofs} == {"global memory", *find(H200).precisions}
    assert roofline([], None) is None
    assert roofline([of_bench("memory-latency")], None) is None  # no product and no bandwidth


def test_a_kernel_with_flops_and_bytes_is_a_point_at_its_intensity():
    # 2e12 FLOP over 1e10 B: 200 FLOP/B
    suite = [result("mma", random_only(300e12, precision="bf16", flops=2 * 10**12, bytes=10**10))]
    (point,) = roofline(suite, find(H200)).points
    assert point == RooflinePoint("mma: x", 200.0, 300e12)
    assert "mma: x: 200 FLOP/B, 300 TFLOP/s" in str(picture(roofline(suite, find(H200))))


@pytest.mark.parametrize("width", [360, 880])
def test_names_of_roofs_that_lie_together_do_not_touch(width):
    roofs = [Roof(f"p{n}", 1e15 + n * 1e12, slope=False, kind="burst") for n in range(6)]
    markup = picture(Roofline(H200, (*roofs, Roof("global memory", 4e12, slope=True, kind="burst")), ()), width=width)
    found = [one for one in drawn(markup).iter(f"{SVG}text") if re.match(r"p\d ", one.text)]
    heights = sorted(float(one.get("y")) for one in found)
    assert len(heights) == 6
    assert all(b - a >= 15.9 for a, b in itertools.pairwise(heights))  # 12 pixels high


def test_a_precision_is_named_once_with_what_was_measured_of_what_is_stated():
    words = texts(picture(roofline([result("mma", random_only(700e12, precision="bf16"))], find(H200))))
    assert "bf16  700 of 989" in words and "global memory 4.8 TB/s stated" in words
    assert "burst" in words and "stated" in words


def test_sustained_roofs_come_first_and_bursts_are_dotted_above_them():
    held = stamp("random", seconds=5.3, settled=1.1)
    suite = [
        result("wgmma", random_only(700e12, precision="bf16"), random_only(1300e12, precision="fp8")),
        result("sustained-ceilings", row({"what": "BF16"}, {"throughput": 600e12}, stamped=held, precision="bf16"),
               row({"what": "global memory"}, {"bandwidth": 4.1e12}, stamped=held)),
    ]  # fmt: skip
    found = roofline(suite, find(H200))
    assert [(roof.name, roof.value, roof.kind) for roof in found.roofs if roof.kind != "stated"] == [
        ("bf16", 600e12, "sustained"), ("global memory", 4.1e12, "sustained"), ("bf16", 700e12, "burst"), ("fp8", 1300e12, "burst"),
    ]  # fmt: skip
    markup = picture(found)
    words = texts(markup)
    assert "bf16  600 of 989" in words and "fp8  1,300 of 1,979" in words and "global memory 4.1 of 4.8 TB/s" in words
    assert [word for word in words if word in ("sustained", "burst", "stated")] == ["sustained", "burst", "stated"]
    dashes = [one.get("stroke-dasharray") for one in drawn(markup).iter(f"{SVG}line") if one.get("stroke-width") == "1.6"]
    # slopes: sustained, stated; flats: bf16 sustained, bf16 and fp8 bursts, bf16 and fp8 stated
    assert dashes == [None, "5 4", None, "1.5 3", "1.5 3", "5 4", "5 4"]


def test_where_nothing_was_sustained_a_burst_is_a_solid_line():
    found = roofline([result("wgmma", random_only(700e12, precision="bf16"))], find(H200))
    dashes = {one.get("stroke-dasharray") for one in drawn(picture(found)).iter(f"{SVG}line") if one.get("stroke-width") == "1.6"}
    assert dashes == {None, "5 4"}


def test_a_value_far_below_all_others_does_not_stretch_the_picture():
    suite = [result("mma", random_only(1.0, precision="fp64"), random_only(700e12, precision="bf16"))]
    words = texts(picture(roofline(suite, find(H200))))
    assert not any("e-" in word for word in words if not word.startswith("fp64"))


# --- the page


def suite():
    return [of_bench(name, problems={1: "the result is wrong: 3 of 128 differ"}) for name in ("memory-latency", "wgmma-sizes", "launch")]


def test_the_page_leads_with_the_answer_and_a_list_of_its_sections():
    page = str(html(bench_report([*suite(), of_bench("memory-bandwidth")], ["cluster-latency"])))
    assert "<h1>NVIDIA H200: <strong>75 %</strong> of the stated tensor peak<small>" in page and "cases have a number)</small></h1>" in page
    assert '<a href="#memory-latency">Latency of each level of memory</a>' in page
    assert " (not measured yet)</a></li>" in page  # cluster-latency
    assert page.count("<section ") == 1 + 1 + 1 + 5  # the contents, the roofline, the ceilings, and five benches


def test_every_measured_row_shows_its_clock_and_power_and_every_number_its_stamp():
    page = str(html(bench_report([of_bench("memory-latency")])))
    assert page.count("<td>1,755 MHz, 500 W</td>") == 4
    assert page.count('title="SM clock 1,755 MHz, 500 W, not throttled, data random, clock from the kernel"') == 4
    assert "driver 580.95.05, CUDA compiler 13.0, PyTorch 2.11.0, power limit 700 W, 2026-08-10" in page


def test_throttling_is_seen_in_the_row():
    found = result("memory-latency", row({"level": "L1 cache"}, {"latency": 40.0}, stamped=stamp(throttle=("power cap",))))
    page = str(html(bench_report([found])))
    assert "1,755 MHz, 500 W, throttled" in page and "throttled (power cap)" in page


def test_a_case_without_a_number_says_why():
    page = str(html(bench_report(suite())))
    assert '<td title="the result is wrong: 3 of 128 differ">wrong</td>' in page
    assert "wrong: 1 case: the result is wrong: 3 of 128 differ" in page


def test_a_page_of_published_figures_says_that_nothing_was_measured():
    page = str(html(bench_report([], list(BENCHES))))
    assert "<h1><strong>not measured yet</strong></h1>" in page and "Published figures" in page
    assert "H800 PCIe, paper" in page and "measured</th>" not in page


def test_foreign_words_stay_words():
    evil = '"><script>alert(1)</script>'
    found = result("memory-latency", row({"level": evil}, {"latency": 40.0}, stamped=stamp(data=evil)), row({"level": "x"}, problem=evil))
    page = str(html(bench_report([found], ["wgmma"])))
    assert "<script>alert" not in page and page.count("<script>") == 1  # our own
    assert "&lt;script&gt;" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")  # loads nothing
