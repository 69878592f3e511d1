"""Waits for events: which operation waits for which, through streams that do nothing, and what files tell of it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

import ullage
from tests.seeds import some
from tests.traces import whatif_reference as reference
from tests.traces.test_trace_what_if import NAMES, SORTS, answered
from tests.traces.whatif_plans import draw_events
from ullage.recording import Recording
from ullage.simulate.traces import kineto, nsys, recording
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.reduce import reduce
from ullage.tables import intervals

FORMATS = {
    "kineto": lambda run, path: kineto.write(run, path)[0].parent,
    "nsys": lambda run, path: nsys.write(run, path / "run.sqlite"),
    "old nsys": lambda run, path: nsys.write(run, path / "run.sqlite", generation="2022"),
}


def scenario(plan) -> Scenario:
    """What a recorder sees of a plan: each rank is a process with a device of its own."""
    calls, ops = reference.simulate(plan)
    number = {}  # of each call within its process, as CUPTI counts
    for place, row in enumerate(calls):
        number[place] = 1 + sum(other["rank"] == row["rank"] for other in calls[:place])
    found = []
    for place, row in enumerate(calls):
        process, times = 7001 + row["rank"], (row["start"], row["end"])
        found.append(
            ScenarioEvent(*times, "api", NAMES[row["sort"]], process, thread=process, correlation=number[place], call=SORTS[row["sort"]])
        )
        if "record" in row:
            told = {"awaited_stream": row["awaited"] + 7, "awaited": number[row["record"]]}
            stream = None if row["stream"] is None else row["stream"] + 7
            found.append(ScenarioEvent(*times, "event", "", process, device=row["rank"], stream=stream, correlation=number[place], **told))
    for op in ops:
        one = {"device": op["rank"], "stream": op["stream"] + 7, "correlation": number[op["call"]], "blocks": 8, "threads": 128}
        joint = {"operation": "allreduce", "group": "0", "sequence": op["key"], "members": len(plan)} if op["key"] is not None else {}
        name = f"kernel {op['name']}" if op["key"] is None else "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
        kind = "kernel" if op["key"] is None else "collective"
        found.append(ScenarioEvent(op["start"], op["end"], kind, name, 7001 + op["rank"], **one, **joint))
    for rank in range(len(plan)):  # what its host did before its first call shows that it lived
        first = min(row["start"] + 1 for row in calls if row["rank"] == rank)
        found.append(ScenarioEvent(0, first, "host", "aten::empty", 7001 + rank, thread=7001 + rank))
    ranks = {7001 + rank: rank for rank in range(len(plan))}
    return Scenario("plan", tuple(found), ranks, {rank: ("NVIDIA H100 80GB HBM3", f"GPU-{rank}") for rank in range(len(plan))})


@pytest.mark.parametrize("seed", some(range(40), 3))
@pytest.mark.parametrize("form", FORMATS)
def test_files_tell_the_waits_that_were_recorded(seed: int, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(NAMES, "sync", "cudaDeviceSynchronize")
    plan = draw_events(seed, ranks=1 + seed % 2)
    read = ullage.read_trace(FORMATS[form](scenario(plan), tmp_path), what_if=True).report().what_if
    true = answered(plan)
    assert (read.recorded, read.inferred, read.off) == (true.recorded, 0, 0)
    if len(plan) == 1:  # what is read of several ends when the first of them does
        assert [s.time for s in read.speedups] == [s.time for s in true.speedups]


def waits(calls, operations, events):
    """The waits for events of a capture: calls are (start, name); operations (start, end, stream, call); events (stream, call, awaited
    stream, call that recorded). Calls are meant by their places, from 1; each lasts 1 ns."""
    rows = [
        intervals(
            {
                "start": [start for start, _ in calls],
                "end": [start + 1 for start, _ in calls],
                "kind": ["api"] * len(calls),
                "name": [name for _, name in calls],
                "call": ["launch" if "Launch" in name else "sync" if "Synchronize" in name else "other" for _, name in calls],
                "process": [0] * len(calls),
                "thread": [0] * len(calls),
                "correlation": range(1, len(calls) + 1),
            }
        ),
        intervals(
            {
                "start": [row[0] for row in operations],
                "end": [row[1] for row in operations],
                "kind": ["kernel"] * len(operations),
                "process": [0] * len(operations),
                "device": [row[4] if len(row) > 4 else 0 for row in operations],
                "stream": [row[2] for row in operations],
                "correlation": [row[3] for row in operations],
            }
        ),
        intervals(
            {
                "start": [calls[row[1] - 1][0] for row in events],
                "end": [calls[row[1] - 1][0] for row in events],
                "kind": ["event"] * len(events),
                "process": [0] * len(events),
                "device": [0] * len(events),
                "stream": [row[0] for row in events],
                "correlation": [row[1] for row in events],
                "awaited_stream": [row[2] for row in events],
                "awaited": [row[3] for row in events],
            }
        ),
    ]
    work = reduce(gather(rows, Recording("one.json", clock="own")), replay=True).work
    found = work.events
    columns = (found.after, found.call, found.before, found.sure)
    return sorted(zip(*(np.asarray(column).tolist() for column in columns), strict=True))


LAUNCH, RECORD, HOLD, MEET = "cudaLaunchKernel", "cudaEventRecord", "cudaStreamWaitEvent", "cudaEventSynchronize"


def test_the_first_operation_after_a_wait_waits_for_the_last_one_before_the_recording():
    # operations 0 and 1 are on stream 1, before and after the recording; 2 and 3 on stream 2, before and after the wait
    calls = [(10, LAUNCH), (20, RECORD), (30, LAUNCH), (40, LAUNCH), (50, HOLD), (60, LAUNCH)]
    operations = [(100, 200, 1, 1), (210, 300, 1, 3), (220, 230, 2, 4), (240, 250, 2, 6)]
    assert waits(calls, operations, [(2, 5, 1, 2)]) == [(3, -1, 0, True)]


def test_a_wait_passes_through_a_stream_that_does_nothing():
    # stream 1 works, stream 2 only waits for it and is recorded, stream 3 waits for stream 2
    calls = [(10, LAUNCH), (20, RECORD), (30, HOLD), (40, RECORD), (50, HOLD), (60, LAUNCH)]
    operations = [(100, 200, 1, 1), (200, 300, 3, 6)]
    assert waits(calls, operations, [(2, 3, 1, 2), (3, 5, 2, 4)]) == [(1, -1, 0, True)]


def test_a_wait_that_was_put_after_the_recording_is_not_part_of_the_event():
    # stream 2 is recorded, then waits for stream 1: stream 3, which waits for that recording, waits for nothing
    calls = [(10, LAUNCH), (20, RECORD), (30, RECORD), (40, HOLD), (50, HOLD), (60, LAUNCH)]
    operations = [(100, 200, 1, 1), (200, 300, 3, 6)]
    assert waits(calls, operations, [(2, 4, 1, 2), (3, 5, 2, 3)]) == []


def test_what_is_asked_for_at_the_moment_of_a_recording_is_not_part_of_it():
    # stream 2 waits for stream 1 and is recorded at 30: the recording does not have the wait
    calls = [(10, LAUNCH), (20, RECORD), (30, HOLD), (30, RECORD), (50, HOLD), (60, LAUNCH)]
    operations = [(100, 200, 1, 1), (200, 300, 3, 6)]
    assert waits(calls, operations, [(2, 3, 1, 2), (3, 5, 2, 4)]) == []
    # an operation is given to stream 1 at 20, when that is recorded: it is not part of it
    calls = [(10, LAUNCH), (20, LAUNCH), (20, RECORD), (50, HOLD), (60, LAUNCH)]
    operations = [(100, 150, 1, 1), (150, 200, 1, 2), (200, 300, 2, 5)]
    assert waits(calls, operations, [(2, 4, 1, 3)]) == [(2, -1, 0, True)]


def test_an_operation_waits_for_what_its_stream_was_told_at_the_same_moment_and_nothing_else_waits_for_that_again():
    # stream 2 is told to wait at 30, when it is given an operation; stream 3 waits for that operation alone
    calls = [(10, LAUNCH), (20, RECORD), (30, HOLD), (30, LAUNCH), (40, RECORD), (50, HOLD), (60, LAUNCH)]
    operations = [(100, 200, 1, 1), (200, 300, 2, 4), (300, 400, 3, 7)]
    assert waits(calls, operations, [(2, 3, 1, 2), (3, 6, 2, 5)]) == [(1, -1, 0, True), (2, -1, 1, True)]


def test_a_wait_whose_recording_is_not_known_is_likely_only():
    calls = [(10, LAUNCH), (20, RECORD), (30, HOLD), (40, LAUNCH)]
    operations = [(100, 200, 1, 1), (200, 300, 2, 4)]
    assert waits(calls, operations, [(2, 3, 1, None)]) == [(1, -1, 0, False)]


def test_a_recording_that_comes_after_the_wait_or_was_never_seen_is_left_out():
    calls = [(10, LAUNCH), (20, HOLD), (30, RECORD), (40, LAUNCH)]
    operations = [(100, 200, 1, 1), (200, 300, 2, 4)]
    assert waits(calls, operations, [(2, 2, 1, 3)]) == []
    assert waits(calls, operations, [(2, 2, 1, 99)]) == []


def test_a_host_waits_for_what_the_event_marks_and_for_all_of_a_stream():
    calls = [(10, LAUNCH), (20, RECORD), (30, LAUNCH), (40, MEET), (500, "cudaStreamSynchronize")]
    operations = [(100, 200, 1, 1), (210, 300, 1, 3)]
    assert waits(calls, operations, [(None, 4, 1, 2), (None, 5, 1, None)]) == [(-1, 3, 0, True), (-1, 4, 1, True)]


def test_a_host_that_waits_for_an_event_before_which_nothing_was_done_waits_for_nothing():
    # the operation ends while the host waits, but it was put on its stream after the recording
    calls = [(10, RECORD), (20, LAUNCH), (150, MEET)]
    assert waits(calls, [(100, 150, 1, 2)], [(None, 3, 1, 1)]) == [(-1, 2, -1, True)]


def test_a_stream_whose_number_two_devices_have_is_that_of_the_wait_or_none():
    calls = [(10, LAUNCH), (15, LAUNCH), (20, RECORD), (30, HOLD), (40, LAUNCH)]
    # device 0 and 1 both have a stream 1: the wait is on device 0, so its stream 1 is meant
    assert waits(calls, [(100, 200, 1, 1, 0), (100, 200, 1, 2, 1), (200, 300, 2, 5, 0)], [(2, 4, 1, 3)]) == [(2, -1, 0, True)]
    # only devices 1 and 2 have one: which is meant is not known
    assert waits(calls, [(100, 200, 1, 1, 1), (100, 200, 1, 2, 2), (200, 300, 2, 5, 0)], [(2, 4, 1, 3)]) == []
    # only device 1 has one: streams of several devices wait for one another, too
    assert waits(calls, [(100, 200, 1, 1, 1), (100, 200, 3, 2, 1), (200, 300, 2, 5, 0)], [(2, 4, 1, 3)]) == [(2, -1, 0, True)]


def test_of_an_event_that_is_recorded_again_the_last_recording_before_the_wait_counts(tmp_path: Path):
    # Nsight Systems without numbers of recordings: the event 5 is recorded by the calls 2 and 4; call 3 waits for the first
    def api(at: int, name: str, number: int) -> ScenarioEvent:
        return ScenarioEvent(at, at + 1, "api", name, 7001, thread=7001, correlation=number, call="launch" if name == LAUNCH else "other")

    def ran(start: int, stream: int, number: int) -> ScenarioEvent:
        return ScenarioEvent(start, start + 10, "kernel", "k", 7001, device=0, stream=stream, correlation=number, blocks=1, threads=1)

    calls = [(10, LAUNCH), (20, RECORD), (30, HOLD), (40, RECORD), (50, LAUNCH)]
    events = [api(at, name, place + 1) for place, (at, name) in enumerate(calls)]
    wait = {"device": 0, "stream": 8, "correlation": 3, "awaited_stream": 7}
    events += [ran(100, 7, 1), ran(200, 8, 5), ScenarioEvent(30, 31, "event", "", 7001, **wait, awaited=2)]
    path = nsys.write(Scenario("again", tuple(events), {7001: 0}, {0: ("NVIDIA H100", "GPU-0")}), tmp_path / "a.sqlite", generation="2022")
    database = sqlite3.connect(path)
    database.execute("UPDATE CUPTI_ACTIVITY_KIND_CUDA_EVENT SET eventId = 5")
    database.execute("UPDATE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION SET eventId = 5")
    columns = [row[1] for row in database.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_CUDA_EVENT)")]
    again = ", ".join({"correlationId": "4", "streamId": "9"}.get(name, f'"{name}"') for name in columns)
    database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT SELECT {again} FROM CUPTI_ACTIVITY_KIND_CUDA_EVENT")
    database.commit()
    database.close()
    assert ullage.read_trace(path, what_if=True).report().what_if.recorded == 1


@pytest.mark.parametrize("form", [*FORMATS, "recording"])
def test_the_stream_that_a_host_waited_for_is_told(form: str, tmp_path: Path):
    # the kernel of stream 7 ends at 100 us, that of stream 8 at 101 us; the call waits for stream 7 alone and returns at 102 us. Without
    # it one would think that it had waited for the later one
    def api(start: int, end: int, name: str, number: int, does: str) -> ScenarioEvent:
        return ScenarioEvent(start, end, "api", name, 7001, thread=7001, correlation=number, call=does)

    def ran(end: int, stream: int, number: int) -> ScenarioEvent:
        return ScenarioEvent(10_000, end, "kernel", f"k{stream}", 7001, device=0, stream=stream, correlation=number, blocks=1, threads=1)

    events = [api(0, 1_000, LAUNCH, 1, "launch"), api(1_000, 2_000, LAUNCH, 2, "launch"), ran(100_000, 7, 1), ran(101_000, 8, 2)]
    events += [api(2_000, 102_000, "cudaStreamSynchronize", 3, "sync"), api(102_000, 150_000, "cudaMalloc", 4, "other")]
    events.append(ScenarioEvent(2_000, 102_000, "event", "", 7001, device=0, correlation=3, awaited_stream=7))
    key = "GPU-00000000-7472-6169-6e00-000000000000"
    run = Scenario("streams", tuple(events), {7001: 0}, {0: ("NVIDIA H100 80GB HBM3", key)})
    written = FORMATS.get(form, lambda run, path: recording.write(run, path)[0].parent)(run, tmp_path)
    path = {row.name: row.kind for row in ullage.read_trace(written, what_if=True).report().what_if.path.rows}
    assert "k7" in path and "k8" not in path


@pytest.mark.parametrize(("name", "recorded"), [("hta_a100_alexnet.json.gz", 6), ("hta_a100_simple_add.json.gz", 0)])
def test_forks_and_joins_of_convolutions_are_recorded_in_a_real_profile(shared_data: Path, name: str, recorded: int):
    found = ullage.read_trace(shared_data / "kineto" / name, what_if=True).report().what_if
    assert found.recorded == recorded
