"""Tables of microbenchmarks: measured beside published and stated, as reports, text and JSON, and results read back."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benches.bench_results import H200, H800, of_bench, result, row, stamp
from ullage.benches.bench import BENCHES
from ullage.benches.result import record as result_record
from ullage.benches.result import restored
from ullage.errors import UllageError
from ullage.gpus.chip import find
from ullage.render.bench import headline, record, section, view
from ullage.render.bench_words import shown, unit, units
from ullage.reports.bench.bench import bench_report
from ullage.views.json_text import json_text
from ullage.views.text import section_text
from ullage.views.text import text as printed

A100 = "NVIDIA A100-PCIE-40GB"
SS_ZERO = ("SS", "zero")
FP16_FP32 = ("FP16", "FP32", "m64n256k16")
PEAK = 132 * 4096 * 1.83e9  # FLOP/s of an H200 in FP16: SMs × FLOPs per cycle × clock


def text(report, width=120):
    return printed(view(report), width=width)


def table_text(table, width=120):
    return section_text(section(table), width=width)


def only(found, *names):
    (table,) = bench_report([found], names).tables
    return table


def cell(table, labels, column, quantity):
    (line,) = [line for line in table.lines if line.labels == labels]
    return line.cells[column, quantity]


# --- what a table holds


def test_a_number_stands_beside_the_papers_and_beside_the_stated_peak():
    table = only(of_bench("wgmma", factor=1.05))
    found = cell(table, FP16_FP32, SS_ZERO, "throughput")
    assert found.value.value == pytest.approx(728.5e12 * 1.05)  # table VIII: 728.5 TFLOP/s
    assert found.published == {H800: 728.5e12}
    assert found.peak == PEAK
    assert found.share == pytest.approx(728.5e12 * 1.05 / PEAK)  # 764.9 of 989.4: 77 %
    assert table.nearest == H800


def test_a_sparse_product_is_compared_with_twice_the_dense_peak():
    found = cell(only(of_bench("wgmma-sparse")), ("FP16", "FP32", "sp.m64n256k32"), SS_ZERO, "throughput")
    assert found.peak == 2 * PEAK
    assert found.share == pytest.approx(1312.3e12 / (2 * PEAK))  # table IX


def test_two_cases_may_tell_one_quantity_each_of_the_same_place():
    table = only(of_bench("wgmma"))  # latency and throughput are two kernels with the same labels
    assert cell(table, FP16_FP32, SS_ZERO, "latency").value.value == 128.0
    assert cell(table, FP16_FP32, SS_ZERO, "throughput").value.value == 728.5e12


def test_only_columns_in_which_there_is_a_number_are_shown():
    assert [place for place in only(of_bench("wgmma")).places if place[0] == ("SS", "random")] == [(("SS", "random"), "throughput")]


def test_only_bytes_through_the_devices_memory_are_compared_with_its_bandwidth():
    def planted(labels, quantity):
        return {"global memory": 4.32e12, "L2 cache": 7e12}[labels["level"]]

    table = only(of_bench("memory-bandwidth", planted=planted))
    assert cell(table, ("global memory", "read"), (), "bandwidth").share == pytest.approx(0.9)  # 4.32 of 4.8 TB/s
    assert cell(table, ("L2 cache", "read"), (), "bandwidth").share is None


def test_columns_of_numbers_ascend_and_others_stand_as_the_cases_do():
    sizes = list(dict.fromkeys(column for column, _ in only(of_bench("bulk-copy")).places))
    assert sizes == sorted(sizes) and len(sizes) > 4
    assert only(of_bench("memory-throughput")).places[0][0] == ("FP32",)


@pytest.mark.parametrize(
    ("gpu", "nearest"),
    [(H200, H800), ("NVIDIA A100-SXM4-80GB", A100), ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"), ("NVIDIA B200", "")],
)
def test_the_nearest_published_gpu_is_one_of_the_same_generation(gpu, nearest):
    assert only(of_bench("memory-latency", machine={"gpu": gpu})).nearest == nearest


def test_of_a_gpu_that_nobody_knows_the_numbers_are_shown_without_a_peak():
    report = bench_report([of_bench("wgmma", machine={"gpu": "Whatever 9000"})])
    assert report.chip is None and report.tables[0].measured
    assert all(cell.share is None for cell in report.tables[0].cells)
    assert any("'Whatever 9000'" in note and "stated peak" in note for note in report.notes)


def lasting(*more):
    """Return rows of sustained-ceilings as they are when the power limit held the clock back, and others."""
    held = stamp(clock=1.41e9, power=698.0, throttle=("power cap",), lowest_clock=1.38e9, seconds=5.3, settled=1.1)
    values = {"throughput": 640e12, "power": 698.0, "efficiency": 0.917e12}
    first = row({"what": "BF16", "by": "wgmma"}, values, stamped=held, precision="bf16")
    memory = row({"what": "global memory", "by": "reads"}, {"bandwidth": 4.1e12, "power": 412.0}, stamped=stamp(clock=1.98e9))
    return result("sustained-ceilings", first, memory, *more)


def test_rows_of_a_layout_with_conditions_end_with_what_they_were_measured_under():
    shown = table_text(only(lasting()), 120).splitlines()[-3:]
    # 640 of 989.4 TFLOP/s, 4.1 of 4.8 TB/s
    assert shown == [
        "what           by        TFLOP/s          GB/s      W  TFLOP/J  SM clock (lowest), temperature, held back by",
        "BF16           wgmma  640.0 65 %        –       698.0    0.917  1,410 (1,380) MHz, 55 °C, power cap",
        "global memory  reads      –       4,100.0 85 %  412.0        –  1,980 MHz, 55 °C, nothing",
    ]


def test_conditions_that_do_not_fit_beside_the_numbers_stand_below_them():
    shown = table_text(only(lasting()), 80).splitlines()[-6:]
    assert (
        shown[0].startswith("BF16")
        and shown[0].endswith("0.917")
        and shown[2:]
        == [
            "",
            "what           by     SM clock (lowest), temperature, held back by",
            "BF16           wgmma  1,410 (1,380) MHz, 55 °C, power cap",
            "global memory  reads  1,980 MHz, 55 °C, nothing",
        ]
    )


# --- what has no number


def test_a_case_that_failed_says_why_and_takes_no_published_figure_away():
    table = only(of_bench("memory-latency", problems={0: "the result is wrong: 3 of 128 differ"}))
    found = cell(table, ("L1 cache",), (), "latency")
    assert found.value is None and found.published[H800] == 40.7
    assert table.problems == {"the result is wrong: 3 of 128 differ": 1}
    assert "wrong: 1 case: the result is wrong: 3 of 128 differ" in table_text(table)


def test_where_every_case_failed_the_table_says_why():
    cases = len(of_bench("launch").rows)
    table = only(of_bench("launch", problems=dict.fromkeys(range(cases), "PyTorch is missing")))
    assert not table.measured and table.places == ()
    assert f"failed: {cases} cases: PyTorch is missing" in table_text(table)


def test_a_bench_without_figures_or_results_says_both():
    assert "): not measured yet, no published figures\n" in text(bench_report([], ["launch"]))


def test_nothing_measured_is_said_so_in_the_first_line_and_in_a_note():
    report = bench_report([], ["memory-latency"])
    assert str(headline(report)) == "not measured yet" and report.gpu is None
    assert report.notes == ("not measured yet: the figures are the papers' own",)


# --- several results


def test_what_the_stated_peaks_of_a_model_rest_on_is_said():
    assert find("B200").warning in bench_report([of_bench("mma", machine={"gpu": "NVIDIA B200"})]).notes
    assert not any("tensor clock" in note for note in bench_report([of_bench("mma")]).notes)  # an H200: documented


def test_results_of_several_models_are_refused():
    with pytest.raises(UllageError, match="several GPUs: NVIDIA H200, NVIDIA B200"):
        bench_report([of_bench("wgmma"), of_bench("mma", machine={"gpu": "NVIDIA B200"})])


def test_results_of_two_devices_of_a_model_are_shown_together_and_the_notes_say_so():
    report = bench_report([of_bench("wgmma"), of_bench("mma", machine={"uuid_hash": "GPU-other"})])
    assert "the results are of 2 devices of this model" in report.notes


def test_of_two_results_of_a_bench_the_newest_counts():
    old, new = of_bench("memory-latency", date="2026-08-09T12:00:00Z"), of_bench("memory-latency", factor=2, date="2026-08-11T12:00:00Z")
    for results in ([old, new], [new, old]):
        report = bench_report(results)
        assert report.results == (new,)
        assert "memory-latency was measured more than once: the newest counts" in report.notes


def test_results_of_a_bench_that_is_no_longer_there_are_left_out():
    report = bench_report([result("gone\x1b[31m", row({"level": "L1"}, {"latency": 1.0})), of_bench("memory-latency")])
    assert [table.member.name for table in report.tables] == ["memory-latency"]
    assert "no microbenchmark is called 'gone\\x1b[31m' any more: its results are left out" in report.notes


def test_a_quick_suite_says_that_it_was_one():
    assert "only the cases that matter most were measured (--quick)" in bench_report([of_bench("wgmma", quick=True)]).notes


# --- text


def test_a_table_reads_so():
    found = of_bench("cluster-latency", factor=1.1)  # 180 cycles × 1.1
    lines = table_text(only(found)).splitlines()
    assert lines[1:] == [
        "cluster-latency (Hopper paper, section IV-E: 180 cycles): SM clock 1,755 MHz, 500 W, not throttled, data random",
        "memory               GPU               cycles",
        "another SM's shared  H200, measured     198.0",
        "                     H800 PCIe, paper   180.0",
    ]


def test_shares_stand_beside_numbers_and_labels_over_their_columns():
    lines = table_text(only(of_bench("wgmma-sizes"))).splitlines()
    assert lines[2:8] == [
        "kind:                                              dense",
        "A from:                              SS                              RS",
        "data:                         zero             random         zero             random",
        "N    GPU               cycles     TFLOP/s     TFLOP/s  cycles     TFLOP/s     TFLOP/s",
        "256  H200, measured     128.0  728.5 74 %  665.4 67 %   128.0  731.9 74 %  667.5 67 %",  # of 989.4
        "     H800 PCIe, paper   128.0  728.5       665.4        128.0  731.9       667.5",
    ]


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("name", sorted(BENCHES))
def test_no_table_is_wider_than_the_terminal(name, width):
    for report in (bench_report([of_bench(name)]), bench_report([], [name])):
        lines = table_text(report.tables[0], width).splitlines()
        assert max(map(len, lines)) <= width


@pytest.mark.parametrize("name", sorted(BENCHES))
def test_every_published_figure_is_in_the_text_of_its_table(name):
    table = only_published(name)
    written = table_text(table)
    for figure in table.member.figures:
        assert shown(figure.value, units(table)[figure.quantity]) in written


def only_published(name):
    (table,) = bench_report([], [name]).tables
    return table


def test_rates_have_the_prefix_that_fits_the_table():
    assert unit("rate", [3.1e12]).name == "G/s"  # 3,100 G/s, as for DPX
    assert unit("rate", [679.5, 4200.0]).name == "1/s"  # tokens
    assert unit("rate", [250_000.0]).name == "k/s"  # launches
    assert shown(250_000.0, unit("rate", [250_000.0])) == "250.0"


def test_the_first_line_tells_the_best_shares_and_how_many_cases_have_a_number():
    def planted(labels, quantity):
        return 4.32e12 if labels["level"] == "global memory" else None

    suite = [of_bench("wgmma-sizes"), of_bench("memory-bandwidth", planted=planted, problems={2: "not run: the time was up"})]
    # best: 1476.2 of 2 × 989.4 TFLOP/s sparse, 74.6 %; 4.32 of 4.8 TB/s; 72 + 5 cases, one without a number
    assert str(headline(bench_report(suite))) == (
        "NVIDIA H200: 75 % of the stated tensor peak (90 % of the stated memory bandwidth, 76 of 77 cases have a number)"
    )


def test_labels_from_a_file_cannot_reach_the_terminal_as_control_characters():
    evil = {"level": "\x1b[31m<script>\u202e"}
    found = result("memory-latency", row(evil, {"latency": 1.0}, stamped=stamp(data="\x07", throttle=("\x9b2J",))), notes=("\x1b]0;x\x07",))
    written = text(bench_report([replace(found, machine={**found.machine, "driver": "\x1b[2J"})]))
    assert {c for c in written if not c.isprintable()} == {"\n"}
    assert "<script>" in written  # as plain text


# --- JSON


@pytest.mark.parametrize("name", sorted(BENCHES))
def test_a_result_reads_back_as_it_was_written(name):
    found = of_bench(name, problems={0: "the result is wrong"}, notes=("a note",))
    assert restored(json.loads(json_text(result_record(found)))) == found


def test_the_reports_json_has_the_results_and_the_tables_in_si_units():
    found = of_bench("memory-latency")
    data = json.loads(json_text(record(bench_report([found]))))
    assert data["gpu"] == H200 and [restored(one) for one in data["results"]] == [found]
    (table,) = data["tables"]
    assert table["bench"] == "memory-latency" and table["nearest"] == H800
    assert table["rows"][0] == {
        "labels": {"level": "L1 cache"},
        "quantity": "latency",
        "unit": "cycles",
        "value": 40.7,
        "published": {"NVIDIA GeForce RTX 4090": 43.4, A100: 37.9, H800: 40.7},  # table IV
        "stated_peak": None,
        "share_of_peak": None,
        "stamp": {
            "sm_clock": 1.755e9, "clock_from": "kernel", "power": 500.0, "temperature": 55.0, "throttle": [], "data": "random",
                "lowest_clock": None, "seconds": None, "settled": None,
        },
        "problem": None,
    }  # fmt: skip


WHOLE = json.loads(json_text(result_record(of_bench("memory-latency", problems={1: "wrong"}))))


def places(found, path=()):
    """Yield the path to every value of a JSON document."""
    items = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def test_a_result_of_another_format_is_refused():
    for damaged in ({}, [], "x", None, {"format": 2}, {"format": None}):
        with pytest.raises(UllageError, match="no result of a microbenchmark"):
            restored(damaged, "x.json")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("rows", 0, "values", "latency", "value"), float("nan")),
        (("rows", 0, "values", "latency", "low"), float("inf")),
        (("rows", 0, "values", "latency", "value"), "40.7"),
        (("rows", 0, "values", "latency", "value"), 10**400),
        (("rows", 0, "labels"), ["level"]),
        (("rows", 0, "labels", "level"), {"a": 1}),
        (("rows", 0, "stamp", "power"), True),
        (("rows", 0, "stamp", "throttle"), 7),
        (("machine",), "NVIDIA H200"),
        (("rows",), None),
        (("bench",), 7),
    ],
)
def test_a_damaged_result_is_refused_with_its_place(path, value):
    damaged = copy.deepcopy(WHOLE)
    inner = damaged
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(UllageError, match=r"x\.json is a damaged result"):
        restored(damaged, "x.json")


ANYTHING = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just([]), st.just({}), st.just([{}]))


@given(st.sampled_from(list(places(WHOLE))), ANYTHING, st.booleans())
def test_whatever_is_damaged_in_a_file_it_is_refused_or_shown(path, value, gone):
    damaged = copy.deepcopy(WHOLE)
    inner = damaged
    for key in path[:-1]:
        inner = inner[key]
    if gone:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    try:
        found = restored(damaged)
    except UllageError:
        return
    report = bench_report([found])
    assert text(report) and json_text(record(report))
