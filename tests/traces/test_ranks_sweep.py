"""PyTorch profiles of ranks that begin and end at different moments, drawn tick by tick, against the trees' equations over sets of ticks.

Nothing of the code under test is used but what it answers: the equations are written out here (TALP paper, eq. 6 to 12, and what
collectives add to them), over the time in which all ranks were recorded.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.seeds import some
from ullage import read_trace

BASE = 1_767_189_312_000_000_000
NAMES = {
    "kernel": ("gemm", "void at::native::vectorized_elementwise_kernel<4>"),
    "collective": ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclKernel_AllGather_RING_LL_Sum_int8_t"),
    "memcpy": ("Memcpy HtoD (Pinned -> Device)",),
    "memset": ("Memset (Device)",),
}
CATEGORIES = {"kernel": "kernel", "collective": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}
CALLS = {"kernel": "cudaLaunchKernel", "collective": "cudaLaunchKernelExC", "memcpy": "cudaMemcpyAsync", "memset": "cudaMemsetAsync"}
Ticks = set[int]


@dataclass
class Rank:
    """One rank, in microseconds: its events, when it lived, when it was in a call, and what each of its devices did when."""

    number: int
    events: list[dict[str, Any]] = field(default_factory=list)
    lived: Ticks = field(default_factory=set)
    called: Ticks = field(default_factory=set)
    ran: dict[int, dict[str, Ticks]] = field(default_factory=dict)

    def note(self, category: str, name: str, start: int, end: int, pid: int, tid: int, **args: Any) -> range:
        """Write an event down and return its ticks."""
        about = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": end - start, "args": args}
        self.events.append(about)
        self.lived.update(range(start, end))
        return range(start, end)


def drawn(chance: random.Random) -> list[Rank]:
    """Return ranks that all live from 60 to 90: each launches work now and then, which runs on one of its devices and streams later."""
    return [_rank(chance, number) for number in range(chance.choice((1, 2, 2, 3, 5)))]


def _rank(chance: random.Random, number: int) -> Rank:
    rank, process = Rank(number), 1000 + number
    begin, end = chance.randrange(60), chance.randrange(91, 160)
    rank.note("cpu_op", "aten::linear", begin, begin + 1, process, process)
    rank.note("cpu_op", "aten::linear", end - 1, end, process, process)
    devices = [number] if chance.random() < 0.7 else [10 * number, 10 * number + 1]
    now = begin + 1
    for correlation in range(1, chance.randrange(2, 14)):
        now += chance.randrange(8)
        kind, device = chance.choice(("kernel", "kernel", *NAMES)), chance.choice(devices)
        returned = now + chance.randrange(1, 4)
        rank.called.update(rank.note("cuda_runtime", CALLS[kind], now, returned, process, process, correlation=correlation))
        start = now + chance.randrange(25)
        where = {"device": device, "stream": chance.choice((7, 7, 20)), "correlation": correlation}
        ticks = rank.note(
            CATEGORIES[kind], chance.choice(NAMES[kind]), start, start + chance.randrange(1, 20), device, where["stream"], **where
        )
        rank.ran.setdefault(device, {name: set() for name in NAMES})[kind].update(ticks)
        now = returned
        if chance.random() < 0.2:
            until = now + chance.randrange(1, 10)
            rank.called.update(
                rank.note("cuda_runtime", "cudaDeviceSynchronize", now, until, process, process, correlation=100 + correlation)
            )
            now = until
    if max(rank.lived) < 90:
        rank.note("cpu_op", "aten::linear", 90, 91, process, process)
    return rank


def written(folder: Path, ranks: list[Rank], chance: random.Random) -> None:
    """Write a file for each rank; events stand in any order."""
    for rank in ranks:
        chance.shuffle(rank.events)
        about = {"baseTimeNanoseconds": BASE, "distributedInfo": {"backend": "nccl", "rank": rank.number, "world_size": len(ranks)}}
        (folder / f"rank{rank.number}.json").write_text(json.dumps({**about, "traceEvents": rank.events}))


def efficiencies(ranks: list[Rank], mode: str) -> dict[str, float | None]:
    """Return the trees' factors by their equations, over the time in which all ranks were recorded; None where nothing may be divided."""
    low, high = max(min(rank.lived) for rank in ranks), min(max(rank.lived) for rank in ranks) + 1
    common, elapsed = set(range(low, high)), high - low
    useful = sum(len(common - rank.called) for rank in ranks)
    host = {name: useful / (len(ranks) * elapsed) for name in ("host_parallel_efficiency", "device_offload_efficiency")}
    host |= {"host_communication_efficiency": 1.0, "host_load_balance": 1.0}  # no host communicates
    times = []
    for did in (did for rank in ranks for did in rank.ran.values()):
        kernel = did["kernel"] | did["collective"] if mode == "talp" else did["kernel"]
        collective = did["collective"] - kernel
        memory = (did["memcpy"] | did["memset"]) - kernel - collective
        times.append([len(part & common) for part in (kernel, collective, memory)])
    if not times:
        return {**host}
    total, (most_kernel, most_collective, most_active) = (
        sum(kernel for kernel, _, _ in times),
        (max(sum(t[:n]) for t in times) for n in (1, 2, 3)),
    )
    device = {
        "device_parallel_efficiency": total / (len(times) * elapsed),
        "device_load_balance": _ratio(total, len(times) * most_kernel),
        "device_communication_efficiency": _ratio(most_kernel, most_active),
        "orchestration_efficiency": most_active / elapsed,
    }
    if mode == "ai":
        device |= {"collective_efficiency": _ratio(most_kernel, most_collective), "copy_efficiency": _ratio(most_collective, most_active)}
    return host | device


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@pytest.mark.parametrize("seed", some(range(1000), 8))
def test_trees_of_ranks_recorded_for_unequal_times_follow_their_equations(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    ranks = drawn(chance)
    written(tmp_path, ranks, chance)
    found = read_trace(tmp_path)
    for mode in ("talp", "ai"):
        told, expected = dict(found.tree(mode).items()), efficiencies(ranks, mode)
        assert set(told) <= {*expected, "transfer_efficiency", "arrival_efficiency"}
        for name, value in expected.items():
            if name in told or value is None:
                assert told.get(name) == (None if value is None else pytest.approx(value, abs=1e-12)), (mode, name)
            else:  # a factor that the run can't have is not told
                assert value == 1, (mode, name)
