"""Collectives matched at the edges: several streams of unnamed ones, exchanges of all ranks and of some."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from ullage import read_trace

ALL_REDUCE, EXCHANGE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "ncclDevKernel_SendRecv"
Kernel = tuple[str, int, int, int]  # name, stream, start and end in µs


def late(folder: Path, ranks: Sequence[Sequence[Kernel]]):
    """Return who comes late in a job of ranks that run these kernels."""
    for rank, kernels in enumerate(ranks):
        events = []
        for number, (name, stream, start, end) in enumerate(kernels, 1):
            at = {"ph": "X", "pid": 1000 + rank, "tid": 1, "ts": number, "dur": 1, "args": {"correlation": number}}
            where = {"pid": rank, "tid": stream, "ts": start, "dur": end - start}
            events.append({**at, "cat": "cuda_runtime", "name": "cudaLaunchKernel"})
            about = {"correlation": number, "device": rank, "stream": stream}
            events.append({"ph": "X", "cat": "kernel", "name": name, **where, "args": about})
        head = {"baseTimeNanoseconds": 10**18, "distributedInfo": {"rank": rank, "world_size": len(ranks), "backend": "nccl"}}
        (folder / f"rank{rank}.json").write_text(json.dumps(head | {"traceEvents": events}))
    return read_trace(folder).report().late


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_unnamed_collectives_of_several_streams_stay_apart(tmp_path: Path, streams: int):
    # on each stream three all-reduces, to each of which rank 1 comes 50 µs late; streams are a millisecond apart
    def kernels(rank: int) -> list[Kernel]:
        starts = [(stream, 1000 * stream + 10_000 * turn + 100) for turn in range(3) for stream in range(streams)]
        return [(ALL_REDUCE, 7 + stream, start + 50 * rank, start + 200) for stream, start in starts]

    found = late(tmp_path, [kernels(0), kernels(1)])
    assert found.collectives == 3 * streams
    assert {one.label: (one.collectives, one.last, one.lost) for one in found.stragglers} == {
        "rank 1": (3 * streams, 3 * streams, 3 * streams * 50_000),
        "rank 0": (3 * streams, 0, 0),
    }


def exchanging(ranks: int, among: set[int], last: int) -> list[list[Kernel]]:
    """Eight exchanges that end together on the ranks `among` which they are; the one that comes last is 2 ms late."""
    return [
        [(EXCHANGE, 7, 10_000 * turn + 100 + (2000 if rank == last else 0), 10_000 * turn + 5000) for turn in range(8)]
        if rank in among
        else [("gemm", 7, 10_000 * turn + 100, 10_000 * turn + 900) for turn in range(8)]
        for rank in range(ranks)
    ]


def test_an_exchange_of_all_ranks_that_ends_at_one_moment_is_a_collective(tmp_path: Path):
    found = late(tmp_path, exchanging(4, {0, 1, 2, 3}, last=3))
    assert found.collectives == 8
    assert found.stragglers[0].label == "rank 3" and (found.stragglers[0].last, found.stragglers[0].collectives) == (8, 8)


def test_an_exchange_of_two_among_four_ranks_names_nobody(tmp_path: Path):
    found = late(tmp_path, exchanging(4, {0, 3}, last=3))
    assert found is None or all(one.last == 0 for one in found.stragglers)
