"""Export to Perfetto: every event arrives, whatever overlaps whatever, and in a form that Perfetto's own reader takes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traces.drawn_runs import MS, made, use_case_4
from tests.traces.kineto_events import call, kernel, on_host, written
from ullage.protobuf import double, message, number, string
from ullage.recording import Device, Process, Recording
from ullage.render.perfetto import events, perfetto
from ullage.render.trace_json import record
from ullage.sums.lanes.spans import spans
from ullage.tables import intervals
from ullage.traced import read_trace

# -- a reader of the wire format that shares nothing with the writer ---------------------------------------------------


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Each field's number and value: an integer, or the bytes of a message, of text, of eight bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        else:
            assert tag & 7 in (1, 2)
            long = 8 if tag & 7 == 1 else varint()
            assert at + long <= len(data)
            yield tag >> 3, data[at : at + long]
            at += long


@dataclass
class Seen:
    """What a trace shows: slices by (group, track name), counters' values, arrows by their number."""

    slices: dict[tuple[str, str], list[tuple[int, int, str]]] = field(default_factory=dict)
    counters: dict[tuple[str, str], list[tuple[int, float]]] = field(default_factory=dict)
    arrows: dict[int, set[str]] = field(default_factory=dict)
    notes: dict[str, dict[str, Any]] = field(default_factory=dict)


def seen(chunks: Iterable[bytes]) -> Seen:
    """Read a trace as Perfetto does: events by their time, those of one moment in the order of the file, a stack for each track."""
    tracks: dict[int, tuple[str, int]] = {}
    groups: dict[int, str] = {}
    words: dict[tuple[int, int], dict[int, str]] = {}
    moments: list[tuple[int, int, int, dict[int, Any], list[bytes]]] = []
    for place, (tag, packet) in enumerate(fields(b"".join(chunks))):
        assert tag == 1
        parts = dict(fields(packet))
        sequence = parts[10]
        if 12 in parts:
            for sort, entry in fields(parts[12]):
                known = dict(fields(entry))
                words.setdefault((sequence, sort), {})[known[1]] = known[2].decode()
        if 60 in parts:
            about = dict(fields(parts[60]))
            if 3 in about:
                groups[about[1]] = dict(fields(about[3])).get(6, b"").decode() or groups.get(about[1], "")
            else:
                tracks[about[1]] = (about[2].decode(), about[5])
        if 11 in parts:
            event = list(fields(parts[11]))
            moments.append((parts[8], place, sequence, dict(event), [value for tag, value in event if tag == 4]))
    found = Seen()
    stacks: dict[int, list[tuple[int, str]]] = {}
    for moment, _, sequence, event, said in sorted(moments, key=lambda m: m[:2]):
        name, group = tracks[event[11]]
        lane, stack = (groups[group], name), stacks.setdefault(event[11], [])
        if event[9] == 1:
            called = words[sequence, 2][event[10]] if 10 in event else event[23].decode()
            stack.append((moment, called))
            if 47 in event:
                found.arrows.setdefault(struct.unpack("<Q", event[47])[0], set()).add(called)
            for note in said:
                about = dict(fields(note))
                found.notes.setdefault(called, {})[words[sequence, 3][about[1]]] = about.get(4, about.get(6))
        elif event[9] == 2:
            start, called = stack.pop()
            found.slices.setdefault(lane, []).append((start, moment, called))
        else:
            found.counters.setdefault(lane, []).append((moment, struct.unpack("<d", event[44])[0]))
    assert not any(stacks.values())
    return found


# -- states ------------------------------------------------------------------------------------------------------------


def test_the_states_of_a_run_are_slices() -> None:
    run = use_case_4()
    begin, shown = run.processes[0].window[0], seen(perfetto(run)).slices
    assert sorted(shown["GPU 0, G", "state"]) == [(begin, begin + 330 * MS, "kernel"), (begin + 330 * MS, begin + 1000 * MS, "idle")]
    host = shown["rank 0 (process 0 on node-1)", "host"]
    assert sorted(host) == [(begin, begin + 330 * MS, "offload"), (begin + MS, begin + 330 * MS, "waits for the device")]
    assert (begin + 100 * MS, begin + 1000 * MS, "communication") in shown["rank 1 (process 1 on node-1)", "host"]


def test_the_kernel_share_of_each_step_is_a_counter() -> None:
    # steps of 100: kernels take 80 of the first and 30 of the second
    run = made(1, spans((0, 80), (150, 180)), 200, steps=(("a", 0, 100), ("b", 100, 200)))
    shown = seen(perfetto(run))
    assert shown.counters["GPU 0, H100", "kernel share by step"] == [(0, 0.8), (100, 0.3), (200, 0.0)]
    assert sorted(shown.slices["rank 0 (process 1 on node)", "steps"]) == [(0, 100, "a"), (100, 200, "b")]


# -- events ------------------------------------------------------------------------------------------------------------

TIME = st.integers(0, 12)  # few moments, so that many coincide
ROW = st.tuples(TIME, TIME, st.sampled_from(["kernel", "memcpy", "api", "region"]), st.sampled_from(["a", "b", "c"]), st.integers(0, 1))


def batch(rows: list[tuple[int, int, str, str, int]]) -> Any:
    start, long, kind, name, lane = zip(*rows, strict=True)
    return intervals(
        {
            "start": start,
            "end": [a + b for a, b in zip(start, long, strict=True)],
            "kind": kind,
            "name": name,
            "process": [4711] * len(rows),
            "thread": [None if k in ("kernel", "memcpy") else n for k, n in zip(kind, lane, strict=True)],
            "device": [0 if k in ("kernel", "memcpy") else None for k in kind],
            "stream": [n if k in ("kernel", "memcpy") else None for k, n in zip(kind, lane, strict=True)],
        }
    )


@given(st.lists(st.lists(ROW, min_size=1, max_size=12), min_size=1, max_size=4))
def test_no_event_is_lost_cut_or_moved_whatever_overlaps_and_in_whatever_order_it_comes(
    batches: list[list[tuple[int, int, str, str, int]]],
) -> None:
    shown = seen(events([batch(rows) for rows in batches], Recording("x", rank=3))).slices
    device = lambda kind: kind in ("kernel", "memcpy")  # noqa: E731
    expected = sorted(
        (f"stream {lane}" if device(kind) else f"thread {lane}: {'GPU interface' if kind == 'api' else 'regions'}", a, a + b, name)
        for rows in batches
        for a, b, kind, name, lane in rows
    )
    assert sorted((track, *event) for (_, track), found in shown.items() for event in found) == expected
    assert {group for group, _ in shown} <= {"GPU 0 (rank 3)", "rank 3 (process 4711)"}


def test_names_come_from_what_the_recording_says_at_the_end() -> None:
    recording = Recording("x", host="node-1")

    def late() -> Iterator[Any]:
        yield batch([(0, 5, "kernel", "gemm", 7), (0, 5, "api", "launch", 9)])
        recording.devices[0] = Device("H100")
        recording.processes[4711] = Process(rank=2)

    assert set(seen(events(late(), recording)).slices) == {
        ("GPU 0, H100", "stream 7"),
        ("rank 2 (process 4711 on node-1)", "thread 9: GPU interface"),
    }


def test_an_arrow_leads_from_a_launch_to_its_kernel_and_bytes_are_told() -> None:
    rows = {
        "start": [0, 5, 20, 30],
        "end": [2, 9, 21, 40],
        "kind": ["api", "kernel", "api", "memcpy"],
        "name": ["launch", "gemm", "sync", "copy"],
        "call": ["launch", None, "sync", None],
        "correlation": [7, 7, 8, 9],
        "bytes": [None, None, None, 4096],
        "operation": [None, "allreduce", None, None],
    }
    shown = seen(events([intervals(rows)], Recording("x")))
    assert sorted(map(sorted, shown.arrows.values())) == [["copy"], ["gemm", "launch"]]
    assert shown.notes == {"copy": {"bytes": 4096}, "gemm": {"operation": b"allreduce"}}


def test_the_traces_of_two_files_can_be_joined() -> None:
    one = list(events([batch([(0, 5, "kernel", "a", 0)])], Recording("x", rank=0), number=0))
    two = list(events([batch([(0, 5, "kernel", "b", 0)])], Recording("y", rank=1), number=1))
    assert seen(one + two).slices == {("GPU 0 (rank 0)", "stream 0"): [(0, 5, "a")], ("GPU 0 (rank 1)", "stream 0"): [(0, 5, "b")]}


def test_times_since_1970_stay_exact() -> None:
    late = 1_767_225_600_123_456_789
    rows = intervals({"start": [late], "end": [late + 1], "kind": ["kernel"], "name": ["k"], "device": [0]})
    assert seen(events([rows], Recording("x"))).slices == {("GPU 0", "stream ?"): [(late, late + 1, "k")]}


def test_memory_does_not_grow_with_a_trace_that_comes_in_order() -> None:
    def in_order() -> Iterator[Any]:
        for first in range(0, 20_000, 500):
            start = np.arange(first, first + 500) * 10
            yield intervals({"start": start, "end": start + 9, "kind": ["kernel"] * 500, "device": [0] * 500})

    chunks = events(in_order(), Recording("x"))
    sizes = [len(chunk) for chunk in chunks]
    assert len(sizes) > 20 and max(sizes) < 60 * 500  # a batch at a time, some 50 bytes an event


# -- the wire format, and Perfetto's own classes -----------------------------------------------------------------------


def test_the_writer_and_the_reader_of_the_wire_format_agree() -> None:
    data = number(1, 300) + number(2, -1) + double(3, 0.5) + string(4, "×") + message(5, number(1, 1))
    assert list(fields(data)) == [(1, 300), (2, 2**64 - 1), (3, struct.pack("<d", 0.5)), (4, "×".encode()), (5, b"\x08\x01")]


def test_perfettos_own_classes_read_it() -> None:
    classes = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="the package perfetto is not installed")
    data = b"".join(events([batch([(3, 4, "kernel", "gemm", 7), (0, 2, "api", "launch", 9)])], Recording("x", rank=0)))
    trace = classes.Trace()
    trace.ParseFromString(data + b"".join(perfetto(use_case_4())))
    kinds = [packet.track_event.type for packet in trace.packet if packet.HasField("track_event")]
    # 2 events; of the use case 2 states of rank 0, 3 of rank 1 and 2 of each device
    assert kinds.count(1) == kinds.count(2) == 2 + 9
    assert {packet.timestamp for packet in trace.packet if packet.HasField("track_event")} >= {0, 2, 3, 7}
    assert "GPU 0 (rank 0)" in {packet.track_descriptor.process.process_name for packet in trace.packet}


def test_a_profile_is_written_with_its_operators_and_python_functions(tmp_path: Path) -> None:
    noted = [("aten::mm", "cpu_op"), ("train.py(1): main", "python_function"), ("nn.Module: Linear_0", "python_function")]
    annotated = [("ProfilerStep#0", "user_annotation"), ("forward", "user_annotation")]
    hosts = [on_host(10 * n, 9, name, cat=cat) for n, (name, cat) in enumerate((*noted, *annotated))]
    path = written(tmp_path, call(0, 5), kernel(10, 20), *hosts)
    read_trace(path).write(tmp_path / "run.pftrace")
    shown = seen([(tmp_path / "run.pftrace").read_bytes()]).slices
    found = sorted((track.rpartition(": ")[2], name) for (_, track), slices in shown.items() for _, _, name in slices)
    assert found == [
        ("GPU interface", "cudaLaunchKernel"), ("Python", "train.py(1): main"), ("modules", "Linear_0"), ("operators", "aten::mm"),
        ("regions", "forward"), ("steps", "ProfilerStep#0"), ("stream 7", "gemm"),
    ]  # fmt: skip


def test_what_is_shown_does_not_change_what_is_measured(tmp_path: Path) -> None:
    path = written(tmp_path, call(0, 5), kernel(10, 20), *(on_host(10 * n, 9, "aten::mm", cat="cpu_op") for n in range(3)))
    before = record(read_trace(path).report())
    read_trace(path).write(tmp_path / "run.pftrace")
    assert record(read_trace(path).report()) == before
