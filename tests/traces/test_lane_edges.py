"""Sums of lanes at their edges: what is empty, equal, first or last, and thresholds from both sides."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.traces.drawn_runs import made
from ullage.arrays import coded
from ullage.errors import UllageError
from ullage.recording import Recording, Summed, SummedCalls
from ullage.sums.lanes import queues
from ullage.sums.lanes.code.account import CodeAccount, merge_code
from ullage.sums.lanes.code.calls import ApiCalls
from ullage.sums.lanes.code.device import device_by_code
from ullage.sums.lanes.code.idle import Charge, NamedIdle, name_gap
from ullage.sums.lanes.code.levels import CodeLevel, levels
from ullage.sums.lanes.code.nests import nest
from ullage.sums.lanes.collectives.alignment import ClockLine, clocks
from ullage.sums.lanes.collectives.collectives import Collectives
from ullage.sums.lanes.collectives.tokens import fed
from ullage.sums.lanes.events_before_sums import events
from ullage.sums.lanes.gather import Capture, LaneRows, gather
from ullage.sums.lanes.launches import Launches
from ullage.sums.lanes.observed import Observed, TableTime
from ullage.sums.lanes.owners import find_owners
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.residency import residency
from ullage.sums.lanes.run import HostPart, Run, merge
from ullage.sums.lanes.spans import NONE, Spans, ends, spans
from ullage.sums.lanes.states import DeviceState, ProcessState, certainly_off, off_spans
from ullage.sums.lanes.timeline import lanes, together, told
from ullage.sums.lanes.window import TraceWindow, parse
from ullage.tables import intervals

COLUMNS = (
    "start", "end", "kind", "name", "process", "thread", "device", "correlation", "call", "sequence", "bytes", "tokens", "product",
    "blocks", "threads", "off",
)  # fmt: skip


def row(start: int, end: int, kind: str, name: str = "n", **more: Any) -> dict[str, Any]:
    return {"start": start, "end": end, "kind": kind, "name": name, "process": 1, **more}


def call(start: int, end: int, name: str = "cudaLaunchKernel", does: str = "launch", thread: int = 7, **more: Any) -> dict[str, Any]:
    return row(start, end, "api", name, **({"call": does, "thread": thread} | more))


def kernel(start: int, end: int, **more: Any) -> dict[str, Any]:
    return row(start, end, "kernel", **({"device": 0} | more))


def capture(*rows: dict[str, Any], **about: Any) -> Capture:
    recording = Recording("one.json", **about)
    return gather([intervals({name: [each.get(name) for each in rows] for name in COLUMNS})], recording)


# what is empty


def test_what_is_empty_is_empty_everywhere() -> None:
    nothing = np.zeros(0, np.int64)
    assert ends(NONE) == (0, 0)
    assert [len(part) for part in nest(nothing, nothing)] == [0, 0, 0, 0]
    # two ranges of no length: nothing is ever open, and neither encloses the other
    assert [part.tolist() for part in nest(np.array([5, 5]), np.array([5, 5]))] == [[], [], [], [-1, -1]]
    none = Collectives()
    assert {len(getattr(none, name)) for name in Collectives.__dataclass_fields__ if name != "words"} == {0}
    merged = merge_code([CodeAccount()])
    assert (merged.charged, merged.device.all, merged.device.unlaunched, merged.device.launched, merged.calls) == (0, 0, 0, 0, ())
    process = ProcessState(("p", 1), "p", None, "", (0, 10), NONE, NONE)
    part = HostPart(process, 10, 4, 3, 3)
    assert (part.parallel, part.recorder, part.off, part.pieces, part.threads, part.busy) == (0, 0, 0, (0, 0), 1, 7)
    assert Observed((0, 1), {}, {}).left_out == 0 and made(1, NONE, 10).captures[0].tables.window == (0, 0)
    device = DeviceState("g", "", (), NONE, NONE, NONE)
    assert (device.resolution, device.launches, device.bytes, device.number, device.sms) == (1, 0, 0, -1, None)


def test_the_first_word_of_a_table_that_is_hardly_used_is_a_name_too() -> None:
    # a table of ten words, of which two rows use the first, and none
    rows = {"start": [0, 5], "end": [4, 9], "kind": ["kernel"] * 2, "device": [0, 0], "name": coded(np.array([0, -1]), list("abcdefghij"))}
    found = gather([intervals(rows)], Recording("one.json"))
    assert [found.words[code] if code >= 0 else None for code in found.device.name.tolist()] == ["a", None]


@pytest.mark.parametrize(("resolution", "lasts", "doubted"), [(1000, 0, True), (1000, 1000, False), (1, 0, False)])
def test_only_a_clock_of_steps_hides_how_long_short_work_took(resolution: int, lasts: int, doubted: bool) -> None:
    ran = kernel(2000, 2000 + lasts, correlation=1)
    reduced = reduce(capture(call(0, 10_000, correlation=1), ran, kernel(9000, 10_000, correlation=1), resolution=resolution))
    assert [len(device.doubts) for device in reduced.devices] == [int(doubted)]


# clocks and ranks


def test_the_reference_of_clocks_differs_from_itself_by_nothing() -> None:
    found = clocks(np.array([1, 1, 0]), np.array([0, 1, 0]), np.array([10, 20, 15]), 2)
    assert found[1].reference and found[1].line == ClockLine(0, 0, 0.0, 0.0, 0.0) and found[1].matches == 2
    assert not found[0].reference and found[0].line is None


def test_processes_stand_in_the_order_of_their_ranks_and_those_without_one_behind() -> None:
    one = made(1, NONE, 10).captures[0]
    others = tuple(replace(one.processes[0], key=("rank0.json", n), rank=rank) for n, rank in enumerate((None, 1, 0, 2)))
    assert [p.rank for p in merge([replace(one, processes=others)]).processes] == [0, 1, 2, None]
    ranks = [replace(one, recording=Recording(f"{rank}", rank=rank), processes=()) for rank in (1, None, 0)]
    assert [c.recording.rank for c in merge(ranks).captures] == [0, 1, None]


def test_a_file_s_rank_names_its_only_process_and_none_of_several() -> None:
    def labels(*processes: int) -> list[str]:
        found = capture(*(call(0, 10, process=p, correlation=p) for p in processes), rank=3)
        return [p.label for p in reduce(found).processes]

    assert labels(5) == ["rank 3"]
    assert labels(5, 6) == ["process 5", "process 6"]


def test_a_device_of_nobody_may_be_anybody_s_of_its_capture_else_anybody_s_at_all() -> None:
    run, whole = made(2, NONE, 10), spans((0, 10))
    windows = {p.key: whole for p in run.processes}
    mine, theirs = (p.key for p in run.processes)
    device = replace(run.devices[0], owners=(theirs,), place="rank0.json")
    assert run.users(device, windows) == (theirs,)
    assert run.users(replace(device, owners=()), windows) == (mine,)
    assert run.users(replace(device, owners=(), place="elsewhere"), windows) == (mine, theirs)


# whose work it is


@pytest.mark.parametrize(
    ("resolution", "first", "second", "owner"),
    [
        (1000, 12_000, 12_001, 1),  # a clock of whole µs may be two steps off
        (1000, 12_001, 12_000, 2),
        (1, 10_000, 10_001, 1),  # one of ns is not
        (1, 10_001, 10_000, 2),
    ],
)
def test_a_call_after_its_work_fits_by_as_much_as_the_clock_s_steps_allow(resolution: int, first: int, second: int, owner: int) -> None:
    # calls of two processes bear the number of a kernel that began at 10,000
    calls = (call(start, start + 50_000, process=p, correlation=5) for p, start in ((1, first), (2, second)))
    found = capture(*calls, kernel(10_000, 11_000, process=None, correlation=5), resolution=resolution)
    find_owners(found)
    assert found.device.process.tolist() == [owner]


# queues


def test_delays_are_of_work_that_began_while_the_device_was_looked_at() -> None:
    # launched at 0, 10, 20, 30, begun 5 later; looked at from 15 until 30
    start, put = np.array([5, 15, 25, 35]), np.array([0, 10, 20, 30])
    rows = LaneRows(start, start + 2, stream=np.array([7, 7, 7, 7]))
    known = Launches(np.array([True, True, True, True]), np.zeros(4, bool), put, put + 1, put)
    assert queues.launch_delays(rows, known, spans((15, 30))).tolist() == [5, 5]
    assert queues.launch_delays(rows, known, spans((0, 40))).tolist() == [5, 5, 5, 5]
    assert queues.launch_delays(rows, known._replace(known=np.array([True, False, False, True])), spans((0, 40))).tolist() == [5, 5]


@pytest.mark.parametrize("seed", range(4))
def test_no_more_launches_stand_in_a_queue_than_at_some_moment_that_was_looked_at(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "BLOCK", 3)
    chance = random.Random(seed)
    for _ in range(50):
        begun = np.sort(np.array([chance.randrange(2, 60) for _ in range(chance.randrange(1, 12))]))
        called = np.array([chance.randrange(0, at) for at in begun.tolist()])
        looked = spans(*((a, a + 5) for a in sorted(chance.sample(range(0, 60, 6), chance.randrange(1, 5)))))
        stream = np.array([chance.choice((7, 7, 9)) for _ in called])
        known = np.array([chance.random() < 0.8 for _ in called])
        put = Launches(known, np.zeros(len(begun), bool), called, called + 1, called)
        mine = known & (stream == 7)
        (queue,) = [q for q in queues.queues(LaneRows(begun, begun + 1, stream=stream), put, looked) if q.stream == 7] or [None]
        if queue is None:
            assert not mine.any()
            continue
        calls = {int(c): int(begun[mine & (called == c)].min()) for c in called[mine]}  # of a call's work the first counts
        inside = [t for a, b in zip(looked.start.tolist(), looked.end.tolist(), strict=True) for t in range(a, b)]
        waiting = [sum(c <= t < b for c, b in calls.items()) for t in inside]
        delays = sorted(b - c for c, b in calls.items() if b in inside)
        assert (queue.longest, queue.queued, queue.elapsed, queue.launches) == (max(waiting), sum(waiting), len(inside), len(delays))
        assert queue.delay == (delays[(len(delays) - 1) // 2] if delays else None)
        assert queue.delay_95 == (delays[-(-95 * len(delays) // 100) - 1] if delays else None)


# what ranks were fed


@pytest.mark.parametrize("seed", range(4))
def test_tokens_and_kernels_count_for_the_step_in_which_they_were_looked_up_and_launched(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(25):
        begins = sorted(chance.sample(range(0, 80, 8), chance.randrange(1, 5)))
        steps = [(begin, begin + chance.randrange(1, 9)) for begin in begins]
        looked = [(chance.randrange(90), chance.randrange(1, 99)) for _ in range(chance.randrange(1, 6))]
        put = [(chance.randrange(90), chance.randrange(1, 9)) for _ in range(chance.randrange(6))]
        found = capture(
            call(0, 100, "cudaDeviceSynchronize", "sync"),
            *(row(a, b, "step", f"step {a}", thread=7) for a, b in steps),
            *(row(at, at + 1, "lookup", "64x8", thread=7, tokens=tokens) for at, tokens in looked),
            row(0, 1, "lookup", "2x8", thread=7, tokens=1),  # of another table, looked up for fewer
            *(call(at, at + 1, correlation=number) for number, (at, _) in enumerate(put, 1)),
            *(kernel(at + 20, at + 20 + lasts, correlation=number) for number, (at, lasts) in enumerate(put, 1)),
            kernel(3, 5, correlation=99),  # its launch was not recorded: it counts where it began
            row(0, 90, "collective", device=0, correlation=98),
        )
        reduced = reduce(found)
        (mine,) = fed(found, reduced.processes)
        assert mine.tokens.tolist() == [sum(tokens for at, tokens in looked if a <= at < b) for a, b in steps]
        assert mine.time.tolist() == [sum(lasts for at, lasts in (*put, (3, 2)) if a <= at < b) for a, b in steps]


# events, and what was only counted


def test_events_are_those_before_sums_began_on_their_thread() -> None:
    rows = LaneRows(np.array([0, 9, 10, 20]), np.array([10, 11, 12, 21]), thread=np.array([7, 7, 7, 8]))
    summed = Summed({7: 10})
    assert events(rows, summed).tolist() == [True, True, False, True]
    assert events(rows, summed, whole=True).tolist() == [False, False, False, True]  # it ended at 10, as sums began
    assert events(LaneRows(rows.start, rows.end - 1, thread=rows.thread), summed, whole=True).tolist() == [True, False, False, True]
    assert events(rows, None).all()


def test_calls_stand_by_their_time_and_only_those_of_mpi_are_counted_further() -> None:
    found = capture(
        call(0, 10, "b"), call(20, 30, "a"), call(40, 70, "c"), call(75, 75, "z"), row(76, 77, "mpi", None, thread=7),
        row(80, 85, "mpi", "MPI_Barrier", thread=7), row(90, 99, "mpi", "MPI_Wait", thread=7),
        summed=Summed({7: 88}, calls={"MPI_Barrier": SummedCalls(2, 50, (0, 0, 2)), "c": SummedCalls(5, 99, (5,))}),
    )  # fmt: skip
    looked = TableTime((0, 100), {1: spans((0, 100))}, {})
    rows = ApiCalls(found).rows(looked)
    assert [(r.name, r.sort, r.count, r.time, r.longest) for r in rows] == [
        ("c", "launch", 1, 30, 30), ("a", "launch", 1, 10, 10), ("b", "launch", 1, 10, 10),
        ("MPI_Wait", "mpi", 0, 9, 0), ("MPI_Barrier", "mpi", 3, 5, 50), ("", "mpi", 1, 1, 1), ("z", "launch", 1, 0, 0),
    ]  # fmt: skip
    assert [r.median for r in rows] == [30, 10, 10, 0, 50, 1, 0]  # of those only counted, each took 50 at most
    assert [r.name for r in ApiCalls(found).rows(looked, most=2)] == ["c", "a"]


# code


def test_a_function_holds_a_gap_from_nine_tenths_of_it_on() -> None:
    def around(lasts: int) -> NamedIdle | None:
        found = capture(call(0, 1), row(0, 200, "function", "outer", thread=7), row(10, 10 + lasts, "function", "inner", thread=7))
        charge = Charge(1, 7, spans((10, 110)), np.zeros(1, np.intp))
        return name_gap(10, 110, [charge], levels(found)).get("around")

    assert around(90) == NamedIdle("inner", 90)
    assert around(89) == NamedIdle("outer", 100)


def test_time_on_gradients_is_that_of_kernels_whose_thread_computes_them() -> None:
    # one kernel of a forward pass, one of the gradients of it, and one launched meanwhile by a thread that computes none
    found = capture(
        row(0, 30, "operator", "aten::mm", thread=7), call(1, 2, correlation=1), kernel(5, 15, correlation=1),
        row(0, 10, "forward", thread=7, sequence=4), row(40, 60, "backward", thread=8, sequence=4),
        row(40, 60, "operator", "aten::mm", thread=8), call(41, 42, correlation=2, thread=8), kernel(50, 57, correlation=2),
        row(40, 60, "operator", "aten::mm", thread=9), call(43, 44, correlation=3, thread=9), kernel(60, 63, correlation=3),
    )  # fmt: skip
    level = {"operator": CodeLevel({(1, t): found.code["operator", 1, t] for t in (7, 8, 9)}, found.words, borrows=False)}
    account = device_by_code(found, level, {0: spans((0, 100))})
    assert [(r.name, r.count, r.time, r.backward) for r in account.levels["operator"].rows] == [("aten::mm", 3, 20, 7)]


# SMs


@pytest.mark.parametrize(("threads", "held"), [(768, 4), (1024, 4), (640, 3), (2048, 7), (0, 1)])
def test_a_collective_holds_at_least_as_many_sms_as_its_blocks_fill_by_their_threads(threads: int, held: int) -> None:
    # 7 blocks, of which an SM of unknown limits holds whole ones of 2,048 threads, at most 32: 2, 2, 3, 1; of unknown size 32
    one = {"blocks": 7, "threads": threads, "registers": -1, "shared": -1}
    rows = LaneRows(np.array([0]), np.array([100]), kind=np.array([1], np.int8), **{name: np.array([value]) for name, value in one.items()})
    found = residency(rows, 10)
    assert found.least_exposed == pytest.approx(100 * held / 10)
    assert found.exposed == pytest.approx(100 * 7 / 10)


# off the processor


def test_time_off_the_processor_is_that_of_the_thread_that_is_the_host_lane() -> None:
    rows = [row(a, b, "off", thread=t) for a, b, t in ((10, 20, 7), (30, 50, 8))]
    found = capture(call(0, 5, process=1), *rows)
    found.recording.cpu_clocks[1] = frozenset({7, 8})
    found.recording.own_thread[1] = 8
    assert off_spans(found, 1, (7,), NONE) == spans((10, 20))
    assert off_spans(found, 1, (7, 8), NONE) == spans((30, 50))  # of several the process' own one counts
    assert off_spans(found, 1, (), NONE) == spans((30, 50))
    assert off_spans(found, 1, (9,), NONE) is None
    assert off_spans(found, 2, (7,), NONE) is None


# pictures


def pictured(useful: list[int], kernels: list[int], off: bool = False) -> Run:
    """A run whose ranks are useful and whose devices compute for so long of 100 ns."""
    run = made(len(useful), NONE, 100)
    ranks = zip(run.processes, useful, strict=True)
    processes = tuple(replace(p, offload=_first(100 - u), off=spans((99, 100)) if off else NONE, off_known=off) for p, u in ranks)
    devices = tuple(replace(d, kernel=_first(k)) for d, k in zip(run.devices, kernels, strict=False))
    return replace(run, processes=processes, devices=devices)


def _first(length: int) -> Spans:
    return spans((0, length)) if length else NONE


def chosen(run: Run, most: int) -> tuple[list[tuple[str, int]], dict[int, str]]:
    found, words = told(run, lanes(run, "ai"), most)
    return [(lane.kind, lane.number) for lane in found], words


def test_of_many_ranks_the_worst_the_median_and_the_best_are_shown() -> None:
    # by their devices: rank 3 computes least, 1 most; in the middle of five stands rank 0
    run = pictured([50] * 5, [30, 90, 20, 10, 80])
    assert chosen(run, 10) == ([(kind, n) for n in range(5) for kind in ("process", "device")], {})
    kept, words = chosen(run, 9)
    assert words == {3: "worst", 0: "median", 1: "best"}
    assert kept == [(kind, n) for n in (3, 0, 1) for kind in ("process", "device")]
    # by their hosts, where no device is there
    assert chosen(pictured([50, 10, 40, 30], []), 3) == (
        [("process", 1), ("process", 2), ("process", 0)],
        {1: "worst", 2: "median", 0: "best"},
    )
    # a device of two counts for the first
    shared = replace(
        run, devices=(replace(run.devices[0], owners=tuple(p.key for p in run.processes[:2]), kernel=_first(99)), *run.devices[1:])
    )
    assert chosen(shared, 9)[1] == {3: "worst", 4: "median", 0: "best"}
    # three ranks are all shown, without a word
    assert chosen(pictured([50, 10, 40], [1, 2, 3]), 2)[1] == {}


@pytest.mark.parametrize("off", [True, False])
def test_a_process_shows_when_it_was_off_the_processor_if_that_was_recorded(off: bool) -> None:
    (lane,) = [lane for lane in lanes(pictured([60], [], off), "ai") if lane.kind == "process"]
    assert ("off" in lane.states) == off
    sums = {name: int(columns.sum()) for name, columns in together([lane], 0, 100, 7).items()}
    assert sums == {"useful": 60 - off, "offload": 40, "communication": 0} | ({"off": 1} if off else {})


@pytest.mark.parametrize("seed", range(3))
def test_time_off_of_which_only_the_length_is_known_stands_at_the_end_of_its_row_where_nothing_is_busy(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        edges = sorted(chance.sample(range(100), 2 * chance.randrange(1, 5)))
        busy = spans(*zip(edges[::2], edges[1::2], strict=True)) if chance.random() < 0.8 else NONE
        begin = chance.randrange(90)
        end = begin + chance.randrange(1, 40)
        off, whole = chance.randrange(0, 45), [(120, 130)] if chance.random() < 0.5 else []
        rows = [(begin, end, off), *((a, b, -1) for a, b in whole)]
        start, stop, known = (np.array(column) for column in zip(*rows, strict=True))
        found = certainly_off(LaneRows(start, stop, off=known), busy)
        held = {t for a, b in zip(busy.start.tolist(), busy.end.tolist(), strict=True) for t in range(a, b)}
        first = begin
        while first in held and first < end:  # what is busy where the row begins is over by then
            first += 1
        ticks = [t for t in range(first, end) if t not in held]
        least = min(off, end - first) - (end - first - len(ticks))  # as much as can lie in what is busy may do so
        expected = set(ticks[len(ticks) - least :] if least > 0 else []) | {t for a, b in whole for t in range(a, b)}
        assert {t for a, b in zip(found.start.tolist(), found.end.tolist(), strict=True) for t in range(a, b)} == expected - held


# windows


def test_a_window_is_seconds_from_nothing_on_and_less_than_a_billion() -> None:
    assert parse("0:1") == TraceWindow("span", 0.0, 1.0) and parse("0:") == TraceWindow("span", 0.0, None)
    assert parse(":999999999") == TraceWindow("span", None, 999_999_999.0)
    assert parse(":") == TraceWindow() and parse("auto") == TraceWindow("auto")
    for text in ("-1:2", "1:1e9", "5", "a:b", "", "steps:"):
        with pytest.raises(UllageError, match="is not a window"):
            parse(text)


def test_a_window_is_left_to_the_steps_where_there_are_any_that_last() -> None:
    stepped = capture(call(0, 100), row(10, 20, "step", thread=7), row(30, 50, "step", thread=7))
    moments = capture(call(0, 100), row(10, 10, "step", thread=7))
    auto = TraceWindow("auto")
    assert (auto.settled(stepped), auto.settled(moments), auto.settled(capture(call(0, 9)))) == (
        TraceWindow("steps"),
        TraceWindow(),
        TraceWindow(),
    )
    assert TraceWindow("span", 1.0).settled(stepped) == TraceWindow("span", 1.0)
    assert TraceWindow("steps").of(stepped, (0, 100)) == (10, 50)
    assert TraceWindow().of(stepped, (3, 97)) == (3, 97)
    assert TraceWindow("span", 2e-9, 9e-9).of(stepped, (3, 97)) == (5, 12)
    assert TraceWindow("span", 2e-9, 1.0).of(stepped, (3, 97)) == (5, 97)
    with pytest.raises(UllageError, match="holds nothing"):
        TraceWindow("span", 94e-9).of(stepped, (3, 97))
    assert TraceWindow("span", 93e-9).of(stepped, (3, 97)) == (96, 97)
    assert TraceWindow("span", 0.5, 1.5).of(stepped, (0, 2_000_000_000)) == (500_000_000, 1_500_000_000)
