"""What NCCL says of its operations in NVTX payloads of Nsight Systems: bytes, communicator and number of ranks of collectives."""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

import numpy as np
import pytest

import ullage
from tests.traces.kineto_events import reading
from ullage.simulate.traces import nsys
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent
from ullage.traces.nsys.nccl import NcclCalls, Payload

PROCESS, COMMUNICATOR = 7001, 0xC0FFEE_DEADBEEF
WHO = 1 << 48 | PROCESS << 24 | PROCESS
INIT, SIZED = 16777218, 16777223  # numbers of NCCL's own schemas
NAMES = {"AllReduce": "ncclAllReduce", "AllGather": "ncclAllGather", "ReduceScatter": "ncclReduceScatter", "SendRecv": "ncclGroupEnd"}


def sized(size: int, communicator: int = COMMUNICATOR) -> bytes:
    """A payload of a call that moves so many bytes, as Nsight Systems 2026 writes it."""
    return struct.pack("<IIIIQQ", 1, 0, SIZED, 0, 24, 56) + struct.pack("<QQQ", communicator, size, 0)


def ranks(number: int) -> bytes:
    return struct.pack("<IIIIQQ", 1, 0, INIT, 0, 24, 56) + struct.pack("<QiiII", COMMUNICATOR, number, 0, 0, 0)


def captured(folder: Path, kernels, ranges) -> Path:
    """A capture: kernels are (operation, start of the launch), each launched in 1 us; ranges of NCCL (start, end, name, payload)."""
    events = []
    for number, (word, at) in enumerate(kernels, 1):
        events.append(ScenarioEvent(at, at + 1, "api", "cudaLaunchKernelExC", PROCESS, thread=PROCESS, correlation=number, call="launch"))
        kernel = {"device": 0, "stream": 20, "correlation": number, "blocks": 8, "threads": 128}
        events.append(ScenarioEvent(at * 100, at * 100 + 50_000, "collective", f"ncclDevKernel_{word}_RING_LL", PROCESS, **kernel))
    run = Scenario("nccl", tuple(events), {PROCESS: 0}, {0: ("NVIDIA H100 80GB HBM3", "GPU-0")})
    path = nsys.write(run, folder / "nccl.sqlite")
    database = sqlite3.connect(path)
    database.execute("DROP TABLE IF EXISTS NVTX_EVENTS")
    database.execute("CREATE TABLE NVTX_EVENTS (start, end, eventType, globalTid, text, textId, domainId, binaryData BLOB)")
    rows = [(start, end, 59, WHO, name, None, 1, data) for start, end, name, data in ranges]
    database.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    database.execute("DROP TABLE IF EXISTS NVTX_PAYLOAD_SCHEMA_ENTRIES")
    database.execute(
        "CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId, schemaId, idx, flags, type, name, description, arrayOrUnionDetail, offset)"
    )
    entries = [(INIT, 0, 18, "NCCL communicator ID", None), (INIT, 1, 5, "No. of ranks", 8), (INIT, 2, 5, "Rank", 12)]
    entries += [(SIZED, 0, 18, "NCCL communicator ID", None), (SIZED, 1, 22, "Message size [bytes]", 8)]
    for schema, place, kind, name, offset in entries:
        database.execute(
            "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (1, ?, ?, NULL, ?, ?, NULL, NULL, ?)", (schema, place, kind, name, offset)
        )
    database.commit()
    database.close()
    return path


def told(path: Path):
    """The bytes, the group and the members of a capture's collectives, in the order of their start."""
    rows, _, problems = reading(path)
    assert not problems.lines()
    return [(row["bytes"], row["group"], row["members"]) for row in rows if row["kind"] == "collective"]


GROUP = f"{COMMUNICATOR:#x}"


def test_a_kernel_has_the_size_of_the_call_in_which_it_was_launched(tmp_path: Path):
    ranges = [(0, 50, "ncclCommInitRank", ranks(8)), (100, 200, "ncclAllReduce", sized(4096)), (300, 400, "ncclAllReduce", sized(1 << 33))]
    path = captured(tmp_path, [("AllReduce_Sum_f32", 150), ("AllReduce_Sum_f32", 350), ("AllReduce_Sum_f32", 450)], ranges)
    assert told(path) == [(4096, GROUP, 8), (1 << 33, GROUP, 8), (None, None, None)]


@pytest.mark.parametrize(("word", "times"), [("AllReduce", 1), ("AllGather", 4), ("ReduceScatter", 4)])
def test_of_gathers_and_scatters_nccl_says_one_ranks_part(tmp_path: Path, word: str, times: int):
    call = (100, 200, NAMES[word], sized(1000))
    assert told(captured(tmp_path, [(word, 150)], [(0, 50, "ncclCommInitRank", ranks(4)), call])) == [(1000 * times, GROUP, 4)]
    # a communicator that is older than the recording
    assert told(captured(tmp_path, [(word, 150)], [call])) == [(1000 if times == 1 else None, GROUP, None)]


def test_a_group_of_sends_and_receives_moves_the_larger_of_both(tmp_path: Path):
    calls = [
        (110, 120, "ncclSend", sized(100)),
        (130, 140, "ncclRecv", sized(300)),
        (150, 160, "ncclSend", sized(50)),
        (170, 180, "ncclRecv", sized(10)),
    ]
    ends = [(100, 105, "ncclGroupStart", None), (200, 300, "ncclGroupEnd", None)]
    assert told(captured(tmp_path, [("SendRecv", 250)], [*calls, *ends])) == [(310, GROUP, None)]


def test_what_several_kernels_or_communicators_of_a_group_moved_is_not_told(tmp_path: Path):
    calls = [(110, 120, "ncclAllReduce", sized(100)), (130, 140, "ncclAllReduce", sized(300))]
    end = (200, 300, "ncclGroupEnd", None)
    assert told(captured(tmp_path, [("AllReduce", 250)], [*calls, end])) == [(400, GROUP, None)]
    assert told(captured(tmp_path, [("AllReduce", 240), ("AllReduce", 260)], [*calls, end])) == [(None, None, None)] * 2
    other = [calls[0], (130, 140, "ncclAllReduce", sized(300, communicator=5))]
    assert told(captured(tmp_path, [("AllReduce", 250)], [*other, end])) == [(None, None, None)]
    mixed = [calls[0], (130, 140, "ncclAllGather", sized(300))]
    assert told(captured(tmp_path, [("AllReduce", 250)], [*mixed, end])) == [(None, None, None)]


def test_an_inner_group_launches_nothing_and_each_group_has_its_own_calls(tmp_path: Path):
    first = [
        (110, 120, "ncclAllReduce", sized(100)),
        (130, 140, "ncclGroupEnd", None),
        (150, 160, "ncclAllReduce", sized(200)),
        (170, 190, "ncclGroupEnd", None),
    ]
    second = [(210, 220, "ncclAllReduce", sized(7)), (230, 240, "ncclGroupEnd", None)]
    assert told(captured(tmp_path, [("AllReduce", 180), ("AllReduce", 235)], [*first, *second])) == [(300, GROUP, None), (7, GROUP, None)]


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 31, sized(8)[:47], sized(8).replace(struct.pack("<I", SIZED), struct.pack("<I", 9)), "text", 5]
)
def test_payloads_that_are_damaged_or_of_another_schema_tell_nothing(tmp_path: Path, data: object):
    assert told(captured(tmp_path, [("AllReduce", 150)], [(100, 200, "ncclAllReduce", data)])) == [(None, None, None)]


def test_the_bandwidth_of_a_collective_follows(tmp_path: Path):
    # 8 ranks, 1 MB in 50 us: 2 * 7 / 8 * 1e6 / 50e-6 = 35 GB/s on the bus
    ranges = [(0, 50, "ncclCommInitRank", ranks(8)), (100, 200, "ncclAllReduce", sized(1_000_000))]
    found = ullage.read_trace(captured(tmp_path, [("AllReduce_Sum_f32", 150)], ranges)).report()
    assert [round(row.bus) for row in found.bandwidths] == [35_000_000_000]


def test_calls_of_threads_that_never_called_nccl_are_let_go():
    calls = NcclCalls()
    calls.calls[WHO].append(Payload(0, 10, "allreduce", 8, 1))
    calls.launched(np.array([WHO, WHO + 1]), np.array([1, 2]), np.array([5, 5]))
    calls.match()
    assert set(calls.known) == {(PROCESS, 1)}
