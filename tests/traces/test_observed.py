"""When processes and devices were observed: one notion for windows, elapsed times, balance and bounds, held against brute force."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.seeds import some
from tests.traces.observed_brute_force import File, Row, drawn, drawn_with_regions, region_tables, sums, tables
from ullage.problems import Problems
from ullage.profiles import Profile
from ullage.recording import Device, Process, Recording
from ullage.render.trace import headline
from ullage.reports.trace.idleness import idleness
from ullage.reports.trace.trace import TraceReport, trace
from ullage.sums.lanes.common import beyond, beyond_region, rest, with_common
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.observed import TableTime
from ullage.sums.lanes.reduce import Reduced, reduce
from ullage.sums.lanes.run import Run, device_parts, host_parts, merge
from ullage.sums.lanes.spans import Spans
from ullage.tables import intervals

T = 1_767_225_600_000_000_000  # ns since 1970, when the runs begin
SEEDS = some(range(1500), 25)


def run_of(files: list[File]) -> Run:
    """The run of some files, as readers would give it."""
    return with_common(merge([reduced(file, number) for number, file in enumerate(files)]))


def with_tables(files: list[File]) -> Run:
    """The same with tables of the time in which all ranks were recorded, for which files are read again."""
    run = run_of(files)
    again = {place: reduced(files[int(place.split()[1])], int(place.split()[1]), limit) for place, limit in beyond(run).items()}
    return replace(run, captures=tuple(c.with_tables(again.get(c.recording.place, c)) for c in run.captures))


def reduced(
    file: File,
    number: int,
    limit: tuple[int, int] | None = None,
    tables: TableTime | str | None = None,
    shared: frozenset[int] = frozenset(),
) -> Reduced:
    """What is kept of a file."""
    recording = Recording(f"file {number}", clock="utc", covers=file.covers)  # type: ignore[arg-type]
    recording.processes = {p: Process(rank=p) for p in {r.process for r in file.rows} if p is not None}
    recording.mpi_clock = {
        p: (None if begin is None else T + begin, None if end is None else T + end) for p, (begin, end) in file.mpi.items()
    }
    recording.devices = {d: Device(key=f"shared {d}") for d in shared}
    rows = [*file.rows, *file.regions]
    batch = intervals(
        {
            "start": [T + r.start for r in rows],
            "end": [T + r.end for r in rows],
            "kind": [r.sort for r in file.rows] + ["region"] * len(file.regions),
            "name": [f"{r.sort} {n}" for n, r in enumerate(file.rows)] + [r.sort for r in file.regions],
            "process": [r.process for r in rows],
            "thread": [1 if r.device is None else None for r in rows],
            "device": [r.device for r in rows],
            "call": ["other" if r.sort == "api" else None for r in rows],
        }
    )
    return reduce(gather([batch], recording), limit=limit, tables=tables)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_run_comes_to_what_brute_force_says(seed: int) -> None:
    files = drawn(seed)
    expected, run = sums(files), run_of(files)
    assert run.elapsed() == expected.elapsed
    place = {f"file {n}": n for n in range(len(files))}
    hosts = {(place[h.process.key[0]], h.process.key[1]): (h.useful, h.offload, h.communication) for h in host_parts(run)}
    assert hosts == expected.hosts
    devices = {(place[d.device.place], d.device.number): (d.kernel, d.collective, d.memory) for d in device_parts(run)}
    assert devices == expected.devices
    for part in device_parts(run):
        assert part.kernel + part.collective + part.memory + part.idle == expected.elapsed
    whole = rest(run)
    assert whole is None or whole.elapsed == expected.recorded


@pytest.mark.parametrize("seed", SEEDS)
def test_tables_are_of_the_same_time_as_the_trees(seed: int) -> None:
    files = drawn(seed)
    run = with_tables(files)
    assert not beyond(run)
    ran: Counter[str] = Counter()
    often: Counter[str] = Counter()
    for capture in run.captures:
        for _, kind, count, time, _, _ in capture.kernels.rows:
            often[kind] += count
            ran[kind] += time
    expected, idle = tables(files)
    assert {kind: (often[kind], ran[kind]) for kind in often} == expected
    found = idleness(run)
    assert sum(sum(each.causes.values()) for c in run.captures for each in c.idle.values()) == idle
    assert (0 if found is None else found.total) == sum(part.idle for part in device_parts(run))
    assert sum(c.code.device.all for c in run.captures) == sum(time for kind, (_, time) in expected.items() if kind != "memcpy")
    assert sum(row.time for c in run.captures for row in c.products) == expected.get("kernel", (0, 0))[1]


def region_run(files: list[File], shared: frozenset[int], name: str, *, common: bool) -> Run:
    """A run with tables of a region, for which files are read again where that time is known only when all have been read."""
    first = merge([reduced(file, number, tables=name, shared=shared) for number, file in enumerate(files)])
    run = with_common(first) if common else first
    number = {f"file {n}": n for n in range(len(files))}
    again = {
        place: reduced(files[number[place]], number[place], tables=time, shared=shared) for place, time in beyond_region(run, name).items()
    }
    return replace(run, captures=tuple(c.with_tables(again.get(c.recording.place, c)) for c in run.captures))


def ticks(found: Spans) -> set[int]:
    return {tick - T for start, end in zip(found.start.tolist(), found.end.tolist(), strict=True) for tick in range(start, end)}


@pytest.mark.parametrize("seed", SEEDS)
def test_tables_of_a_region_are_of_the_same_time_as_its_trees(seed: int) -> None:
    files, shared = drawn_with_regions(seed)
    common = seed % 4 != 0
    run = region_run(files, shared, "a", common=common)
    expected = region_tables(files, "a", shared, common=common)
    assert not beyond_region(run, "a")
    ran: Counter[str] = Counter()
    often: Counter[str] = Counter()
    for capture in run.captures:
        for _, kind, count, time, _, _ in capture.kernels.rows:
            often[kind] += count
            ran[kind] += time
    assert {kind: (often[kind], ran[kind]) for kind in often} == expected.ran
    idle = sum(sum(each.causes.values()) for c in run.captures for each in c.idle.values())
    assert idle == expected.idle
    for n, capture in ((int(c.recording.place.split()[1]), c) for c in run.captures):
        inside = {p: ticks(when) for p, when in capture.tables.processes.items()}
        assert inside == {p: t for (m, p), t in expected.processes.items() if m == n}
        own = {d: ticks(when) for d, when in capture.tables.devices.items() if d >= 0}
        assert own == {d: t for (m, d), t in expected.devices.items() if m == n}
        calls = [t for (m, _), t in expected.calls.items() if m == n]
        assert (sum(row.count for row in capture.code.calls), sum(row.time for row in capture.code.calls)) == (
            sum(count for count, _ in calls),
            sum(time for _, time in calls),
        )
    assert sum(c.code.device.all for c in run.captures) == sum(time for kind, (_, time) in expected.ran.items() if kind != "memcpy")
    assert sum(row.time for c in run.captures for row in c.products) == expected.ran.get("kernel", (0, 0))[1]
    windows = run.region("a")
    if windows and not shared:  # idle time of a device of several files is told of each
        found = idleness(run, windows)
        assert (0 if found is None else found.total) == sum(part.idle for part in device_parts(run, windows))


def report_of(files: list[File]) -> TraceReport:
    """The report on some files: the run is compared while all ranks are known there."""
    run = run_of(files)
    recordings = tuple(c.recording for c in run.captures)
    return trace(Profile(("files",), "drawn", recordings, replace(run, common=None), (), Problems(), "talp"), "first-last")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bounds_hold_for_all_of_the_time_in_which_any_rank_was_recorded(seed: int) -> None:
    # in talp mode a collective is work; brute force counts kernels, so collectives are left out
    files = [replace(file, rows=[r for r in file.rows if r.sort != "collective"]) for file in drawn(seed)]
    expected, whole = sums(files), report_of(files).whole
    assert whole.host is not None
    assert (whole.host.low, whole.host.high) == pytest.approx(expected.host_parallel, abs=1e-12)
    for tree in (whole.host, whole.device):
        for _, node in tree.walk() if tree is not None else ():
            assert node.value is None or (node.low or 0) - 1e-12 <= node.value <= (node.high or 0) + 1e-12
    if expected.device_parallel is None:
        assert whole.device is None
    else:
        assert whole.device is not None
        assert (whole.device.low, whole.device.high) == pytest.approx(expected.device_parallel, abs=1e-12)


def eight(short: int = 125, long: int = 199) -> list[File]:
    """Eight ranks that compute alike, launching for 20 of 100: their profilers start one after another and stop together."""
    begins = [long - short - (long - short) * rank // 7 for rank in range(8)]
    return [
        File([Row("computing", begin, long, rank)] + [
            Row(sort, max(at, begin), min(at + length, long), rank, device)
            for at in range(0, long, 10) for sort, length, device in (("api", 2, None), ("kernel", 6, 0)) if at + length > begin
        ])
        for rank, begin in enumerate(begins)
    ]  # fmt: skip


def test_ranks_recorded_for_unequal_times_are_balanced_if_they_do_the_same() -> None:
    # all were from 74 to 199: 125 in which each launches 24 or 25 and computes on its device for 6 of 10
    report = report_of(eight())
    host, device = report.whole.host, report.whole.device
    assert host is not None and device is not None
    assert report.whole.elapsed == 125 and report.recorded == 199
    values = {node.metric: node.value for tree in (host, device) for _, node in tree.walk()}
    assert values["host_load_balance"] == values["device_load_balance"] == 1
    # all of the 199: rank 0 may have done anything in its first 74, and was useful for 125 less its calls
    assert host.low is not None and host.low < 0.7 < (host.value or 0) < 0.81 and host.certain
    assert "over 125 ns in which all ranks were recorded (of 199 ns in which any was): 8 processes" in str(headline(report))
    assert any(note.startswith("rank 0 was recorded for 1.25e-07 s, rank 7 for 1.99e-07 s") for note in report.notes)


@pytest.mark.parametrize(("short", "told"), [(989, True), (991, False)])
def test_the_headline_says_when_ranks_were_recorded_for_unequal_times(short: int, told: bool) -> None:
    # of 1,000 ns all ranks were recorded for less than 99 %, or for more
    report = report_of(eight(short, 1000))
    assert (report.recorded is not None) == told == ("in which all ranks were recorded" in str(headline(report)))
