"""Text, page and data of one report say the same: every number shown is in the data, and every table of factors is in both."""

from __future__ import annotations

import html as markup
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.render.forms import plain, untold
from tests.traces.kineto_events import call, kernel, on_host, written
from tests.traces.test_factors import MAIN_THREAD, WORKER, paraver
from ullage.profiles import Tables
from ullage.render.trace import view
from ullage.render.trace_json import record
from ullage.reports.trace.trace import TraceReport, TraceRequest, trace
from ullage.simulate.traces import kineto, nsys, talp
from ullage.simulate.traces.pils import USE_CASES, pils
from ullage.simulate.traces.training import TrainingPlan, training
from ullage.sums.lanes.collectives.matching import match
from ullage.traced import read_trace
from ullage.views import html as page_of
from ullage.views import text as text_of
from ullage.views.numbers import factor, percent

CASE_4 = list(USE_CASES.values())[3].load
KNOWN = ("10 µs", "95")  # below which a gap is short, and a percentile
NOT_SHOWN = re.compile(r"(…|and)\s+[\d,]+ more")


def ranks(folder: Path) -> TraceReport:
    return read_trace(kineto.write(training(TrainingPlan(ranks=3, steps=3, layers=2)), folder)).report(price=2.0)


def unequal_ranks(folder: Path) -> TraceReport:
    files = kineto.write(training(TrainingPlan(ranks=2, steps=3, layers=2)), folder)
    late = written(folder, call(9_000.0, 10.0), kernel(9_020.0, 4_000.0), name="late.json", distributedInfo={"rank": 2, "world_size": 3})
    return read_trace([*files, late]).report()


def late_ranks(folder: Path, tables: Tables = "common") -> TraceReport:
    """Three ranks of one clock, of which the last is recorded for the middle half of the time."""
    files = kineto.write(training(TrainingPlan(ranks=3, steps=4, layers=2)), folder)
    data = json.loads(files[2].read_text())
    low, high = (edge([e["ts"] for e in data["traceEvents"] if e["ph"] == "X"]) for edge in (min, max))
    quarter = (high - low) / 4
    data["traceEvents"] = [e for e in data["traceEvents"] if e["ph"] != "X" or low + quarter < e["ts"] < high - quarter]
    files[2].write_text(json.dumps(data))
    return read_trace(files, tables=tables).report()


def late_ranks_in_full(folder: Path) -> TraceReport:
    return late_ranks(folder, "recorded")


def one_region(folder: Path) -> TraceReport:
    return read_trace(nsys.write(training(TrainingPlan(ranks=2, steps=2, layers=2)), folder / "run.sqlite")).report(region="optimizer")


def late_ranks_in_a_region(folder: Path, tables: Tables = "common") -> TraceReport:
    late_ranks(folder, tables)
    return read_trace(sorted(folder.glob("*.json")), tables=tables).report(region="optimizer")


def late_ranks_in_a_region_in_full(folder: Path) -> TraceReport:
    return late_ranks_in_a_region(folder, "recorded")


def read_without_its_region(folder: Path) -> TraceReport:
    read = read_trace(nsys.write(training(TrainingPlan(ranks=2, steps=2, layers=2)), folder / "run.sqlite"))
    return trace(read.profile, read.window, TraceRequest(region="optimizer"))


def steps(folder: Path) -> TraceReport:
    return read_trace(kineto.write(training(TrainingPlan(ranks=1, steps=4, layers=2)), folder), window="steps").report(mode="talp")


def in_doubt(folder: Path) -> TraceReport:
    return read_trace(kineto.write(training(TrainingPlan(ranks=2, steps=2, graph="hidden")), folder)).report()


def mpi(folder: Path) -> TraceReport:
    return read_trace(kineto.write(pils(CASE_4), folder)).report(mode="talp")


def nsight(folder: Path) -> TraceReport:
    return read_trace(nsys.write(training(TrainingPlan(ranks=2, steps=2, layers=2)), folder / "run.sqlite")).report(price=0.5)


def threads(folder: Path) -> TraceReport:
    return paraver(folder, MAIN_THREAD + WORKER)


def sums(folder: Path) -> TraceReport:
    talp.write(pils(CASE_4), folder / "talp.json")
    return read_trace(folder / "talp.json").report()


def contradicted(folder: Path) -> TraceReport:
    path = folder / "talp.json"
    talp.write(pils(CASE_4), path)
    path.write_text(re.sub(r'("parallelEfficiency": )[\d.]+', r"\g<1>0.99", path.read_text(), count=1))
    return read_trace(path).report()


def hosts_alone(folder: Path) -> TraceReport:
    return read_trace(written(folder, on_host(0, 100, "aten::mm", cat="cpu_op"), on_host(20, 30, "part"))).report()


def unequal_sequences(folder: Path) -> TraceReport:
    return read_trace(kineto.write(training(TrainingPlan(ranks=3, steps=3, layers=2, lengths="ranks")), folder)).report()


REPORTS: list[Callable[[Path], TraceReport]] = [
    ranks, unequal_ranks, late_ranks, late_ranks_in_full,
    one_region, steps, in_doubt, mpi, nsight, threads, sums, contradicted, hosts_alone, unequal_sequences,
    late_ranks_in_a_region, late_ranks_in_a_region_in_full,
]  # fmt: skip


@pytest.fixture(params=REPORTS, ids=lambda make: make.__name__, scope="module")
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TraceReport:
    return request.param(tmp_path_factory.mktemp("report"))


def shown(words: str, data: dict[str, Any]) -> list[str]:
    return untold(NOT_SHOWN.sub("", words), data, KNOWN)


def text(report: TraceReport, by: str | None = None) -> str:
    return text_of.text(view(report, by=by), whole=True, width=400)


def html(report: TraceReport) -> str:
    return page_of.html(view(report))


def test_every_number_of_text_and_page_is_in_the_data(report: TraceReport) -> None:
    data = record(report)
    for by in (None, "rank", "device", "region", "step"):
        assert shown(text(report, by), data) == [], by
        assert shown(plain(page_of.html(view(report, by=by))), data) == []


def test_a_number_that_the_data_lack_is_seen(tmp_path: Path) -> None:
    report = ranks(tmp_path)
    data = record(report)
    assert shown("in gaps of 0.123456 s, 12.3456789 % of 7,654,321", data) == ["0.123456 s", "12.3456789 %", "7,654,321"]
    assert shown(text(report), {"whole": data["elapsed_s"]}) != []


def tables(page: str) -> dict[str, list[list[str]]]:
    """The cells of a page's tables by what each is called."""
    found = re.findall(r'(?s)<table[^>]*aria-label="([^"]*)"[^>]*>(.*?)</table>', page)
    return {name: [cells(row) for row in re.findall(r"(?s)<tr>(.*?)</tr>", body)] for name, body in found}


def cells(row: str) -> list[str]:
    return [markup.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in re.findall(r"(?s)<t[hd][^>]*>(.*?)</t[hd]>", row)]


def table_in(words: str, head: str) -> list[list[str]]:
    """The rows of a text's table by its head, a pattern; cells stand two spaces apart."""
    lines = words.splitlines()
    first = next((n for n, line in enumerate(lines) if re.match(head, line)), None)
    if first is None:
        return []
    rows = lines[first : next((n for n in range(first, len(lines)) if not lines[n]), len(lines))]
    return [re.split(r"\s{2,}", row.strip()) for row in rows]


def test_trees_have_the_same_factors_everywhere(report: TraceReport) -> None:
    data, words, page = record(report), text(report), markup.unescape(html(report))
    for side, tree in (("host", report.whole.host), ("device", report.whole.device)):
        assert (data[side] is None) == (tree is None)
        for _, node in tree.walk() if tree is not None else ():
            assert node.value in data[side].values()
            assert f"{node.label} {percent(node.value) if node.certain else 'cannot tell'}" in page or node.value is None
            value = factor(node.value) if node.certain else r"\?  cannot tell  "
            assert re.search(rf"{re.escape(node.label)}\s+{value}", words), node.label
        labels = set() if tree is None else {node.metric for _, node in tree.walk()}
        assert ("mpi_parallel_efficiency" in labels) <= ("MPI parallel efficiency" in words)
    assert ("MPI parallel efficiency" in words) == ("MPI parallel efficiency" in page)


@pytest.mark.parametrize(("key", "whose"), [("bill", "devices"), ("host_bill", "hosts")])
def test_what_factors_cost_is_in_all_forms(key: str, whose: str, report: TraceReport) -> None:
    bill = record(report)[key]
    said = table_in(text(report), f"what the {whose}' loss is made of")
    drawn = tables(html(report)).get(f"loss of the {whose}", [])
    if bill is None or not bill["seconds"]:
        assert said == drawn == []
        return
    assert said[1:] == drawn[1:] and said[0][1:] == drawn[0][1:]
    assert {row[0] for row in said[1:-1]} == {loss["label"] for loss in bill["losses"] if loss["share"] and abs(loss["share"]) >= 0.0005}


@pytest.mark.parametrize(("by", "key"), [("region", "regions"), ("rank", "ranks"), ("device", "by_device"), ("step", "steps")])
def test_every_part_of_a_run_has_its_factors_in_all_forms(by: str, key: str, report: TraceReport) -> None:
    parts = record(report)[key]
    said, drawn = table_in(text(report, by), rf"efficiencies by {by}\s")[1:], tables(page_of.html(view(report, by=by))).get(f"by {by}", [])
    assert [re.sub(r"\s+", " ", part["name"]) for part in parts] == [row[0] for row in said if not row[0].endswith(".")]
    assert drawn[1:] == [row for row in said if not row[0].endswith(".")][:40]
    for part, row in zip(parts, said, strict=False):
        known = {factor(value) for side in ("host", "device") for value in (part[side] or {}).values()}
        limits = {f"{factor(low)}–{factor(high)}" for side in part["bounds"].values() for low, high in (side or {}).values()}
        assert set(row[2:]) <= known | limits


def test_lanes_have_the_same_shares_in_text_and_page(report: TraceReport) -> None:
    data, page = record(report), tables(html(report))
    for key in ("processes", "devices"):
        said, drawn = table_in(text(report), rf"{key}: shares of the run's time")[1:], page.get(key, [])[1:]
        shares = [[percent(share, 1) for share in part["shares"].values()] for part in data[key]]
        assert all({cell for cell in row if cell.endswith("%")} <= set(all_of) for row, all_of in zip(said, shares, strict=False))
        assert len(drawn) == len(shares)
        for row, all_of in zip(drawn, shares, strict=True):
            assert {cell for cell in row if cell.endswith("%")} <= set(all_of)


def test_what_talp_printed_and_its_times_contradict_is_on_the_page_too(tmp_path: Path) -> None:
    report = contradicted(tmp_path)
    words, page, data = text(report), tables(html(report)), record(report)
    assert "contradict them" in words and "contradict them" in plain(html(report))
    assert [row[:4] for row in page["contradictions"][1:]] == [row[:4] for row in table_in(words, "contradictions")[1:]]
    assert data["restated"]["contradict"] == len(page["contradictions"]) - 1 == 1


def test_tables_say_what_they_are_of_where_that_is_more_than_the_trees(tmp_path: Path) -> None:
    for make, of in (
        (unequal_ranks, None),
        (late_ranks, None),
        (late_ranks_in_full, "all that was recorded"),
        (one_region, None),
        (late_ranks_in_a_region, None),
        (late_ranks_in_a_region_in_full, "the region in all that was recorded"),
        (read_without_its_region, "the whole run"),
        (nsight, None),
    ):
        folder = tmp_path / make.__name__
        folder.mkdir()
        report = make(folder)
        said, page = text(report), plain(html(report))
        assert record(report)["tables_of"] == of
        for head in ("ernels by family", "ernels by name", "collectives matched across ranks"):
            assert all((f"{head}, of {of}" in form) == (of is not None) for form in (said, page)), head
        assert (f"why devices idled: what their host did, of {of}" in said) == (of is not None)
        assert (f"gaps, of {of}" in page) == (of is not None)
        # tables of code do not say what they are of, and so are not there beside a region that they are not of
        assert ("calls of the GPU's interface" in said) == (report.region is None or of is None)


def test_tables_and_trees_of_unequal_ranks_hold_the_same_times(tmp_path: Path) -> None:
    # kernels of these runs never overlap on a device, so that a table's sums are the united times of the trees
    for make, same in (
        (unequal_ranks, True),
        (late_ranks, True),
        (late_ranks_in_full, False),
        (one_region, True),
        (late_ranks_in_a_region, True),
        (late_ranks_in_a_region_in_full, False),
        (read_without_its_region, False),
    ):
        folder = tmp_path / make.__name__
        folder.mkdir()
        report = make(folder)
        assert report.kernels is not None and report.idle is not None and report.code is not None and report.gemms is not None
        parts = report.whole.device_parts
        assert (report.kernels.kernel_time == sum(p.kernel + p.collective for p in parts)) == same
        assert (report.idle.total == sum(p.idle for p in parts)) == same
        exposed = report.kernels.overlap_all.collective_exposed, report.kernels.overlap_all.memory_exposed
        if report.region is None or same:
            assert exposed == (sum(p.collective for p in parts), sum(p.memory for p in parts))
        assert report.code.device.all == report.kernels.kernel_time and report.code.idle_time == report.idle.total
        assert report.gemms.time == sum(row.time for row in report.kernels.kernels if row.family == "gemm")


def test_collectives_of_a_region_are_those_that_some_rank_runs_in_it(tmp_path: Path) -> None:
    late_ranks(tmp_path)
    for region, several in (("forward", False), ("optimizer", True)):
        report = read_trace(sorted(tmp_path.glob("*.json"))).report(region=region)
        assert report.run is not None
        every, expected = match(report.run.captures), set[int]()
        for key, lane, start, end in zip(every.rows.key, every.rows.lane, every.rows.start, every.rows.end, strict=True):
            who = every.lanes[lane]
            capture = report.run.captures[who.capture]
            inside = capture.tables.devices[capture.devices[who.device].number]
            if any(start < high and end > low for low, high in zip(inside.start, inside.end, strict=True)):
                expected.add(int(key))
        assert (0 if report.late is None else report.late.collectives) == len(expected) and bool(expected) == several


def test_collectives_count_where_any_rank_runs_them_in_the_time_of_all(tmp_path: Path) -> None:
    report = late_ranks(tmp_path)
    assert report.kernels is not None and report.late is not None
    rows = [row for row in report.kernels.kernels if row.kind == "collective"]
    # those across the edge of the time of all may have ended or begun outside on some ranks
    matched = report.late.collectives
    assert matched == sum(row.count for row in report.bandwidths)
    assert 3 * (matched - 2) <= sum(row.count for row in rows) <= 3 * matched
