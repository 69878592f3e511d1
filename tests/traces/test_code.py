"""Which code idle time, kernels and calls belong to: equal to a second, slow account, on drawn runs and on public traces."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.seeds import some
from tests.traces import code_brute_force as slow
from tests.traces.kineto_events import call as api
from tests.traces.kineto_events import kernel, on_host, written
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.render.trace import view
from ullage.render.trace_json import record
from ullage.simulate.traces.kineto import write
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent
from ullage.simulate.traces.training import TrainingPlan, training
from ullage.sums.lanes.code.device import device_by_code
from ullage.sums.lanes.code.levels import CodeLevel
from ullage.sums.lanes.code.nests import nest
from ullage.sums.lanes.gather import Capture, LaneRows, gather
from ullage.sums.lanes.reduce import Reduced, reduce
from ullage.sums.lanes.spans import spans
from ullage.sums.lanes.window import TraceWindow, parse
from ullage.tables import intervals
from ullage.traced import read_trace
from ullage.traces.calls import call, is_collective
from ullage.traces.trace import TraceOptions, recognised
from ullage.views.html import html
from ullage.views.text import text

DATA = Path(__file__).parents[3] / "shared" / "data" / "kineto"
FILES = sorted(DATA.glob("*.json.gz"))


def drawn(seed: int) -> tuple[ScenarioEvent, ...]:
    """Events of one or two processes with two threads, on one or two devices: nested ranges and such that only overlap, ties."""
    chance, events = random.Random(seed), list[ScenarioEvent]()
    devices = chance.choice((1, 1, 2))
    for process in range(chance.choice((1, 1, 2))):
        for _ in range(chance.randrange(1, 12)):
            start, thread = chance.randrange(60), chance.randrange(1, 3)
            end = start + chance.randrange(12)
            correlation = chance.choice((None, *range(100 * process, 100 * process + 8)))
            sort = chance.choice(("launch", "launch", "copy", "sync", "other"))
            events.append(ScenarioEvent(start, end, "api", f"cuda_{sort}", process, thread=thread, call=sort, correlation=correlation))
            if chance.random() < 0.3:  # the same call once more, or the driver's call inside it
                inner = chance.choice((f"cuda_{sort}", "cu_call"))
                events.append(
                    ScenarioEvent(start, max(end - 1, start), "api", inner, process, thread=thread, call=sort, correlation=correlation)
                )
        for _ in range(chance.randrange(8)):
            start, device = chance.randrange(70), chance.randrange(devices)
            kind = chance.choice(("kernel", "kernel", "collective", "memcpy"))
            end = start + chance.randrange(1, 9)
            on = {"device": device, "stream": chance.choice((7, 7, 20)), "correlation": 100 * process + chance.randrange(10)}
            events.append(ScenarioEvent(start, end, kind, kind, process, **on))
        events += [_named(chance, process) for _ in range(chance.randrange(25))]
        if chance.random() < 0.3:
            start = chance.randrange(60)
            events.append(ScenarioEvent(start, start + chance.randrange(9), "mpi", "MPI_Barrier", process, thread=chance.randrange(1, 3)))
    return tuple(events)


def _named(chance: random.Random, process: int) -> ScenarioEvent:
    kind = chance.choice(("operator", "function", "function", "region", "module"))
    start, name = chance.randrange(65), chance.choice(("a", "b", "c_1", "c_2"))
    return ScenarioEvent(start, start + chance.choice((0, 1, 3, 8, 30)), kind, name, process, thread=chance.randrange(1, 3))


def _window(seed: int) -> TraceWindow | None:
    first = seed % 30
    return parse(f"{first}e-9:{first + 25}e-9") if seed % 4 == 0 else None


def as_rows(events: tuple[ScenarioEvent, ...]) -> slow.Rows:
    found = slow.Rows()
    for e in events:
        if e.kind in ("kernel", "collective", "graph", "memcpy", "memset"):
            found.device.append((e.device, e.stream, e.kind, e.process, e.correlation, e.start, e.end))
        elif e.kind == "api":
            found.calls.append((e.process, e.thread, e.name, e.call, e.correlation, e.start, e.end))
        elif e.kind == "mpi":
            found.talks.append((e.process, e.thread, e.name, e.start, e.end))
        elif e.kind in ("host", "operator", "function", "region", "module"):
            level = "annotation" if e.kind in ("region", "module") else e.kind.replace("host", "operator")
            found.code[level].append((e.process, e.thread, e.kind, e.name, e.start, e.end))
    return found


def looked_at(reduced: Reduced, rows: slow.Rows, zero: int) -> dict[Any, list[slow.Span]]:
    """When the tables look at each process: while it lives, or while it is in their region."""
    found = {}
    for process in reduced.processes:
        low, high = (edge - zero for edge in process.window)
        region, named = reduced.tables.region, rows.code["annotation"]
        own = [(a, b) for p, _, kind, name, a, b in named if (p, kind, name) == (process.key[1], "region", region)]
        found[process.key[1]] = [(low, high)] if region is None else [(max(a, low), min(b, high)) for a, b in slow.united(own)]
        found[process.key[1]] = [(a, b) for a, b in found[process.key[1]] if b > a]
    return found


def known(reduced: Reduced, number: int, rows: slow.Rows, zero: int) -> slow.Known:
    """What this account takes from the other one: windows, host threads, when a device is looked at and in doubt."""
    device = next(d for d in reduced.devices if d.number == number)
    mine = [p for p in reduced.processes if p.key in device.owners]
    each = looked_at(reduced, rows, zero)
    looked = [span for p in (mine or reduced.processes) for span in each[p.key[1]]]
    calls = {p.key[1]: [c for c in rows.calls if c[0] == p.key[1]] for p in mine}
    main: tuple[Any, Any] = (device.owners[0][1] if device.owners else None, None)
    most = 0
    for process, own in calls.items():
        works = [c for c in own if c[3] in slow.PUTS] or own
        threads = [c[1] for c in works]
        best = max(sorted(set(threads)), key=threads.count, default=None)
        if best is not None and threads.count(best) > most:
            most, main = threads.count(best), (process, best)
    return slow.Known(
        windows={p.key[1]: (p.window[0] - zero, p.window[1] - zero) for p in reduced.processes},
        threads={p.key[1]: p.threads for p in reduced.processes},
        main=main,
        seen=slow.united(looked if reduced.processes else [(edge - zero for edge in reduced.window)]),
        doubt=[(a - zero, b - zero) for a, b in zip(device.unknown.start.tolist(), device.unknown.end.tolist(), strict=True)],
    )


def compare(rows: slow.Rows, capture: Capture, reduced: Reduced, zero: int) -> None:
    """Hold a reduced capture against the slow account: the same names with the same times."""
    named, code, everything = slow.lanes(rows), reduced.code, []
    sums: dict[str, Any] = {level: ({}, 0) for level in slow.LEVELS}
    for device in reduced.devices:
        given = known(reduced, device.number, rows, zero)
        found = slow.charges(rows, device.number, given)
        everything.append(found)
        for level in slow.LEVELS:
            sums[level] = _plus(sums[level], slow.idle_by_code(rows, found, named, level))
        streams = {q.stream: (q.launches, q.delay, q.delay_95, q.queued, q.longest) for q in reduced.idle[device.key].rhythm.streams}
        assert streams == slow.queues(rows, device.number, given.seen)
        assert all(q.elapsed == sum(b - a for a, b in given.seen) for q in reduced.idle[device.key].rhythm.streams)
        _gaps(rows, reduced, device.key, found, named, zero)
    charged = sum(b - a for found in everything for *_, spans in found for a, b in spans)
    assert code.charged == charged
    idle = sum(sum(i.causes.values()) for i in reduced.idle.values())
    assert charged == idle - sum(i.causes["launched"] + i.causes["unknown"] for i in reduced.idle.values()) - _shared(
        reduced, charged, idle
    )
    for level, times in code.idle.items():
        assert ({r.name: (r.count, r.time, r.longest) for r in times.rows}, times.outside) == sums[level], level
        assert sum(r.time for r in times.rows) + times.outside == charged
    seen = {device.number: known(reduced, device.number, rows, zero).seen for device in reduced.devices}
    for level, times in code.device.levels.items():
        by_name, outside, unlaunched, whole = slow.device_by_code(rows, named, level, seen)
        assert {r.name: (r.count, r.time, r.longest) for r in times.rows} == by_name, level
        assert (times.outside, code.device.unlaunched, code.device.all) == (outside, unlaunched, whole)
        assert sum(r.time for r in times.rows) + outside + unlaunched == whole
    calls = {(c.name, c.sort): (c.count, c.time, c.longest, c.median, c.waited) for c in code.calls}
    assert calls == slow.calls_by_name(rows, everything, looked_at(reduced, rows, zero))


def _shared(reduced: Reduced, charged: int, idle: int) -> int:
    """Idle time with a cause for which several threads stand in, so that none answers for it."""
    named = sum(i.causes["launched"] + i.causes["unknown"] for i in reduced.idle.values())
    return idle - named - charged if any(len(p.threads) > 1 for p in reduced.processes) else 0


def _plus(one: Any, other: Any) -> Any:
    merged = dict(one[0])
    for name, (count, time, longest) in other[0].items():
        a, b, c = merged.get(name, (0, 0, 0))
        merged[name] = (a + count, b + time, max(c, longest))
    return merged, one[1] + other[1]


def _gaps(rows: slow.Rows, reduced: Reduced, key: str, found: list[Any], named: Any, zero: int) -> None:
    by_span = {gap: (process, thread, spans) for gap, process, thread, spans in found}
    for gap in reduced.idle[key].gaps:
        process, thread, spans = by_span.get((gap.start - zero, gap.end - zero), (None, None, []))
        for level in slow.LEVELS:
            times, _ = slow.idle_by_code(rows, [(None, process, thread, spans)], named, level)
            most = min(((-time, name) for name, (_, time, _) in times.items()), default=None)
            assert gap.code.get(level) == (None if most is None else (most[1], -most[0])), (level, gap)


def ranges(*starts: int) -> LaneRows:
    """Ranges of 10 ns each, whose code is their start."""
    begin = np.array(starts, np.int64)
    return LaneRows(begin, begin + 10, name=begin.astype(np.int32))


def test_a_thread_without_ranges_takes_those_of_the_thread_with_the_most_of_equally_many_the_lowest():
    def around(threads: dict[int, LaneRows], borrows: bool = True) -> int:
        level = CodeLevel({(1, thread): rows for thread, rows in threads.items()}, [], borrows)
        return int(level.around(np.array([1]), np.array([9]), np.array([105]))[0])

    assert around({7: ranges(101), 5: ranges(100)}) == 100
    assert around({7: ranges(101, 200), 5: ranges(100)}) == 101
    assert around({5: ranges(100, 200), 7: ranges(101)}) == 100
    assert around({5: ranges(100)}, borrows=False) == -1


def test_a_kernel_of_no_length_is_counted_where_it_begins_and_one_that_is_not_looked_at_is_not():
    rows = {
        "start": [0, 10, 10, 90, 10, 10],
        "end": [100, 20, 30, 90, 10, 30],
        "kind": ["operator", "api", "kernel", "kernel", "kernel", "memcpy"],
        "name": ["aten::mm", "cudaLaunchKernel", "k", "k", "k", "m"],
        "call": [None, "launch", None, None, None, None],
        "process": [1] * 6,
        "thread": [7, 7, None, None, None, None],
        "device": [None, None, 0, 0, 0, 0],
        "correlation": [None, 3, 3, 3, 3, 3],
    }
    capture = gather([intervals(rows)], Recording("one.json"))
    level = {"operator": CodeLevel({(1, 7): capture.code["operator", 1, 7]}, capture.words, False)}
    found = device_by_code(capture, level, {0: spans((0, 80))})
    assert (found.all, found.unlaunched, found.launched) == (20, 0, 20)
    # the kernels of 20 ns and of none; that at 90 is not looked at, a copy is no kernel
    assert [(row.name, row.count, row.time) for row in found.levels["operator"].rows] == [("aten::mm", 2, 20)]


@pytest.mark.parametrize("block", some(range(10), 2))
def test_the_innermost_range_is_found_at_every_moment(block: int):
    for seed in range(200 * block, 200 * block + 200):
        compare_innermost(seed)


def compare_innermost(seed: int) -> None:
    chance = random.Random(seed)
    rows = [(start, start + chance.randrange(20)) for start in (chance.randrange(30) for _ in range(chance.randrange(14)))]
    start, end = (np.array([row[n] for row in rows], np.int64) for n in range(2))
    moments = np.arange(-1, 55)
    open_ = [[(a, -b, n) for n, (a, b) in enumerate(rows) if a <= moment < b] for moment in moments.tolist()]
    expected = [max(ranges)[2] if ranges else -1 for ranges in open_]
    found = nest(start, end)
    assert found.at(moments).tolist() == expected
    assert (found.start < found.end).all() and (found.start[1:] >= found.end[:-1]).all()


@pytest.mark.parametrize("first", some(range(0, 6000, 100), 1))
def test_every_drawn_run_agrees_with_the_slow_account(first: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ullage.sums.lanes.code.levels._BLOCK", 3)  # so that ranges reach from block to block
    compared = 0
    for seed in range(first, first + 100):
        events = drawn(seed)
        scenario = Scenario("run", events, {p: p for p in {e.process for e in events}}, {0: ("G", "gpu-0"), 1: ("G", "gpu-1")})
        capture = gather(scenario.batches(), scenario.recording())
        try:
            host = random.Random(seed).choice(("busiest", "busiest", "union"))
            reduced = reduce(capture, _window(seed), host=host, tables="a" if seed % 3 == 0 else None)
            compare(as_rows(events), capture, reduced, scenario.epoch)
        except (slow.Ambiguous, UllageError):  # nobody can tell which launch ended a gap; or nothing lies in the window
            continue
        compared += 1
    assert compared > 50


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.name.split(".")[0], marks=[pytest.mark.full] * (p.stat().st_size > 500_000)) for p in FILES]
)
def test_every_public_profile_agrees_with_the_slow_account(path: Path):
    capture, reduced = read(path)
    rows = slow.kineto(path, call, is_collective)
    zero = int(capture.calls.start.min()) - min(c[5] for c in rows.calls) if rows.calls else 0
    try:
        compare(rows, capture, reduced, zero)
    except slow.Ambiguous:
        pytest.skip("rows of different launches begin at one moment")


def read(path: Path) -> tuple[Capture, Reduced]:
    form, file = recognised(path)
    recording = Recording(path.name)
    assert form.read is not None
    capture = gather(form.read(file, recording, TraceOptions(), Problems()), recording)
    return capture, reduce(capture)


@pytest.mark.parametrize(
    "plan",
    [TrainingPlan(stack=True), TrainingPlan(stack=True, host_bound=True, ranks=1), TrainingPlan(stack=True, graph="kernels", ranks=1)],
)
def test_a_simulated_stack_reads_back_and_the_slow_loader_is_named(plan: TrainingPlan, tmp_path: Path):
    scenario = training(plan)
    for path, process in zip(write(scenario, tmp_path), scenario.ranks, strict=True):
        capture, reduced = read(path)
        compare(as_rows(scenario.of(process)), capture, reduced, scenario.epoch)
        # every second batch takes 2 ms to decode, in which the device has nothing to do; of three steps the first and the third
        decoding = next(row for row in reduced.code.idle["function"].rows if row.name == "data.py(31): decode")
        assert decoding == reduced.code.idle["function"].rows[0] and decoding.time > 2 * 1_800_000
        (idle,) = reduced.idle.values()
        assert idle.gaps[0].code["around"].name == "data.py(31): decode"


NAMES = ["<script>alert(1)</script>", "\x1b[31mred", "a" * 5000, ""]


def report(tmp_path: Path, *events: Any) -> Any:
    launches = (api(0, 5, correlation=1), kernel(4, 6), api(90, 5, correlation=2), kernel(94, 6, correlation=2))
    return read_trace(str(written(tmp_path, *launches, *events))).report()


def test_names_in_a_profile_do_no_harm_wherever_they_are_shown(tmp_path: Path):
    named = [on_host(10 + 10 * n, 9, name, cat) for n, name in enumerate(NAMES) for cat in ("python_function", "cpu_op", "user_annotation")]
    found = report(tmp_path, *named)
    said, page = text(view(found, top=100)), str(html(view(found)))
    assert "\x1b" not in said and "\x1b" not in page and "<script>alert(1)" not in page
    assert max(map(len, said.splitlines())) < 250
    assert json.loads(json.dumps(record(found)))["code"]["idle"]["function"]["rows"]


def test_tables_of_code_add_up_and_text_page_and_data_agree(tmp_path: Path):
    # the device idles 0–4 (the launch), 10–90 (host code, of which load takes 40 and parse, inside it, 30), 90–94 (the launch)
    functions = [on_host(20, 40, "load", "python_function"), on_host(25, 30, "parse", "python_function")]
    found = report(tmp_path, *functions, on_host(0, 100, "main", "python_function"))
    code = found.code
    assert [(row.name, row.count, row.time) for row in code.idle["function"].rows] == [
        ("main", 2, 48_000), ("parse", 1, 30_000), ("load", 1, 10_000),
    ]  # fmt: skip
    for times in code.idle.values():
        assert sum(row.time for row in times.rows) + times.outside + code.launched + code.unknown == code.idle_time == 88_000
    assert [(c.name, c.count, c.time, c.median, c.waited) for c in code.calls] == [("cudaLaunchKernel", 2, 10_000, 5_000, 8_000)]
    assert found.idle.gaps[0].code["function"] == ("main", 44_000) and found.idle.gaps[0].code["around"].name == "main"
    assert re.search(r"\nparse +34.1 % +30.00 µs +1 +30.00 µs\n", str(found)) and ">parse<" in str(html(view(found)))
    row = record(found)["code"]["idle"]["function"]["rows"][1]
    assert row == {"name": "parse", "count": 1, "time": 30_000, "longest": 30_000, "share": pytest.approx(30 / 88)}


def test_an_address_does_not_make_two_functions_of_one(tmp_path: Path):
    names = ["<built-in method to of Tensor object at 0x7ce279c5bf20>", "<built-in method to of Tensor object at 0x1>"]
    found = report(tmp_path, *(on_host(20 + 10 * n, 10, name, "python_function") for n, name in enumerate(names)))
    assert [row.name for row in found.code.idle["function"].rows] == ["<built-in method to of Tensor object>"]


def test_copies_are_summed_by_direction_with_their_bandwidth(tmp_path: Path):
    copies = [kernel(20 + n, 0.5, "Memcpy HtoD (Pinned -> Device)", bytes=1000) | {"cat": "gpu_memcpy"} for n in range(2)]
    (row,) = report(tmp_path, *copies).code.copies
    assert (row.direction, row.count, row.bytes, row.time, row.bandwidth) == ("host to device (Pinned -> Device)", 2, 2000, 1000, 2e9)


LONG = "at::native::vectorized_elementwise_kernel_of_a_name_that_never_ends<{}>"


def test_a_table_of_gaps_is_no_wider_than_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gaps(name: Callable[[int], str]) -> list[str]:
        events = [kernel(100.0 * n, 10.0, name=name(n), correlation=n) for n in range(1, 7)]
        around = [on_host(0, 900.0, f"/a/long/path/to/{name(0)}.py(12): step", cat="python_function")]
        calls = [api(100.0 * n - 5, 2.0, correlation=n) for n in range(1, 7)]
        said = str(read_trace(written(tmp_path, *around, *calls, *events)).report())
        return said.partition("longest gaps")[2].partition("\n\n")[0].splitlines()

    for columns in (80, 100, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        narrow, wide = gaps(lambda n: f"k{n}"), gaps(LONG.format)
        assert len(narrow) == len(wide) == 1 + 5 + 1 and re.search(r" k1 +k2 ", "\n".join(narrow))
        assert max(map(len, wide[1:])) <= columns and all("…" in line and ("µs" in line or "ns" in line) for line in wide[1:6])
