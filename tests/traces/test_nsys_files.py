"""Real Nsight Systems databases, each held against plain SQL and a walk over its rows in Python; skipped where they are not."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tests.traces.nsys_runs import read, run_of
from ullage.sums.lanes.gather import CALL
from ullage.sums.lanes.run import device_parts, host_parts

FILES = (
    "extrap_con_kernel",
    "extrap_concurrent_s1",
    "extrap_concurrent_s2",
    "extrap_concurrent_s4",
    "extrap_concurrent_s16",
    "extrap_exgpu_s1000",
    "nsysai_healthy_1pct",
    "nsysai_healthy_judged_1pct",
    "nsysai_mfu_2gpu_before",
    "nsysai_mock",
    "pipit_cloverleaf_cuda_perlmutter",
)


@pytest.fixture
def folder(shared_data: Path) -> Path:
    """The folder of databases."""
    if not (shared_data / "nsys").is_dir():
        pytest.skip("there are no Nsight Systems databases beside this checkout")
    return shared_data / "nsys"


def rows(path: Path, sql: str) -> list[tuple[int, ...]]:
    """What SQLite itself gives; nothing for a table or a column that isn't there."""
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as connection:
        try:
            return connection.execute(sql).fetchall()
        except sqlite3.OperationalError:
            return []


def covered(spans: list[tuple[int, int]]) -> int:
    """How long at least one of some spans runs, one after the other."""
    total, until = 0, -(2**63)
    for start, end in sorted(spans):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


@pytest.mark.parametrize("name", FILES)
def test_times_of_devices_are_those_of_plain_sql(name: str, folder: Path) -> None:
    path = folder / f"{name}.sqlite"
    kernels, work = defaultdict[int, list[tuple[int, int]]](list), defaultdict[int, list[tuple[int, int]]](list)
    for table in ("KERNEL", "MEMCPY", "MEMSET"):
        for device, start, end in rows(path, f'SELECT deviceId, start, "end" FROM CUPTI_ACTIVITY_KIND_{table}'):
            work[device].append((start, end))
            if table == "KERNEL":
                kernels[device].append((start, end))
    capture, problems = read(path)
    parts = device_parts(run_of(capture))
    assert [p.kernel + p.collective for p in parts] == [covered(kernels[d]) for d in sorted(kernels)]
    assert [p.kernel + p.collective + p.memory for p in parts] == [covered(work[d]) for d in sorted(work)]
    assert not problems.lines() and not capture.recording.cut


@pytest.mark.parametrize("name", FILES)
def test_offload_time_is_the_union_of_the_calls_of_the_threads_that_launch(name: str, folder: Path) -> None:
    path = folder / f"{name}.sqlite"
    calls = rows(
        path, 'SELECT r.globalTid, r.start, r."end", s.value FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId'
    )
    submitting = {who for who, _, _, word in calls if any(part in str(word) for part in ("Launch", "Memcpy", "Memset"))}
    spans = defaultdict[int, list[tuple[int, int]]](list)
    for who, start, end, _ in calls:
        if who in submitting:
            spans[who >> 24 & 0xFFFFFF].append((start, end))
    capture, _ = read(path)
    assert [p.offload + p.communication for p in host_parts(run_of(capture))] == [covered(spans[p]) for p in sorted(spans)]
    assert len(capture.calls) == len(calls)


def test_adding_up_calls_that_were_written_twice_would_double_offload_time(folder: Path) -> None:
    capture, _ = read(folder / "extrap_exgpu_s1000.sqlite")
    (part,) = host_parts(run_of(capture))
    assert int((capture.calls.end - capture.calls.start).sum()) / part.offload == pytest.approx(2.0, abs=0.001)


def test_calls_of_the_driver_count_as_offload(folder: Path) -> None:
    # 1,074 of the 7,466 calls are the driver's (eventClass 1): Triton launches through it
    path = folder / "nsysai_mfu_2gpu_before.sqlite"
    ((driver,),) = rows(path, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE eventClass = 1")
    capture, _ = read(path)
    words = np.array(capture.words)[capture.calls.name]
    drivers = np.char.startswith(words.astype(str), "cu") & ~np.char.startswith(words.astype(str), "cuda")
    assert (driver, int(drivers.sum()), len(capture.calls)) == (1074, 1074, 7466)
    assert (capture.calls.call[drivers] == CALL["launch"]).any()


def test_what_two_ranks_on_two_gpus_did_is_told_apart(folder: Path) -> None:
    capture, _ = read(folder / "nsysai_mfu_2gpu_before.sqlite")
    run = run_of(capture)
    assert [p.key[1] for p in run.processes] == [144, 145] and [len(d.owners) for d in run.devices] == [1, 1]
    assert capture.recording.prefers == "ai" and capture.recording.host == "modal" and capture.recording.clock == "utc"
    assert len(capture.device.of("collective")) == 66  # ncclDevKernel_SendRecv
    assert not any(name.startswith(("aten::", "nccl")) for name in run.processes[0].regions)


def test_the_machine_is_described(folder: Path) -> None:
    mock = read(folder / "nsysai_mock.sqlite")[0].recording
    (device,) = mock.devices.values()
    assert (device.name, device.key, device.sms) == ("NVIDIA GeForce RTX 3080", "GPU-554a6988-03dd-6206-3dd1-f43fb60a3ed0", 68)
    leaf = read(folder / "pipit_cloverleaf_cuda_perlmutter.sqlite")[0].recording
    (device,) = leaf.devices.values()
    # four GPUs and no word about which of them the process saw: the name is certain, the UUID is not
    assert (device.name, device.key, device.sms) == ("NVIDIA A100-SXM4-80GB", "", 108)
    assert (leaf.host, leaf.rank, leaf.ranks) == ("nid008553", 0, 1)
    old = read(folder / "extrap_exgpu_s1000.sqlite")[0].recording
    assert old.clock == "own" and old.devices[0].sms == 108
