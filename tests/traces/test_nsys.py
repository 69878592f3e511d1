"""Nsight Systems databases of every generation of the schema give back the runs that were written to them."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tests.traces.nsys_runs import A100, BALANCED, BUSY, GRAPHS, H100, MPI, RUNS, SHARED, perfect, rank, read, run_of, totals
from ullage.simulate.traces.nsys import write
from ullage.simulate.traces.nsys_schema import GENERATIONS, columns
from ullage.simulate.traces.scenario import EPOCH, Scenario, ScenarioEvent
from ullage.sums.lanes.gather import KIND
from ullage.traces.nsys.nvtx import region


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("scenario", RUNS, ids=lambda s: s.name)
def test_every_generation_gives_the_same_times_to_the_nanosecond(scenario: Scenario, generation: str, tmp_path: Path) -> None:
    capture, problems = read(write(scenario, tmp_path / "a.sqlite", generation=generation))
    found = run_of(capture)
    assert totals(found) == totals(perfect(scenario))
    for name in {e.name for e in scenario.events if e.kind == "region"}:
        assert totals(found, name) == totals(perfect(scenario), name)
    assert [p.rank for p in found.processes] == sorted(scenario.ranks.values())
    lost = sum(e.kind == "lost" for e in scenario.events)
    assert problems.dropped.total() == lost and (capture.device.kind == KIND["lost"]).sum() == lost
    assert not capture.recording.cut and capture.recording.clock == ("own" if generation == "2020" else "utc")


@pytest.mark.parametrize("generation", GENERATIONS)
def test_names_and_sizes_come_through(generation: str, tmp_path: Path) -> None:
    capture, _ = read(write(BUSY, tmp_path / "a.sqlite", generation=generation))
    device = capture.device
    names = {capture.words[code] for code in device.name}
    assert {"void work<float>(int)", "Memcpy HtoD", "Memset", "gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"} == names
    assert sorted(device.bytes[device.bytes >= 0].tolist()) == [100, 4096]
    calls = {capture.words[code] for code in capture.calls.name}  # the file has "cudaLaunchKernel_v3020"
    assert {"cudaLaunchKernel", "cudaDeviceSynchronize", "cudaMemcpyAsync", "cuLaunchKernel"} == calls
    kernel = device.where((device.blocks == 64) & (device.threads == 256))
    assert len(kernel) == 1 and kernel.stream[0] == 7 and kernel.correlation[0] == 5
    collective = device.of("collective")
    assert [capture.words[code] for code in collective.operation] == ["allreduce"]
    assert (capture.host.of("off").start - capture.host.of("off").end).tolist() == [-50]
    assert len(capture.host.of("overhead")) == 1
    if generation not in ("2020", "2022"):
        assert 8 in capture.host.of("mpi").bytes


def test_devices_are_told_apart_by_what_each_process_sees(tmp_path: Path) -> None:
    # both processes know their GPU as device 0; the capture says that they are two
    capture, problems = read(write(MPI, tmp_path / "a.sqlite", generation="newest"))
    assert sorted(set(capture.device.device.tolist())) == [0, 1]
    assert {d.key: (d.name, d.sms) for d in capture.recording.devices.values()} == {A100[1]: (A100[0], 132), H100[1]: (H100[0], 132)}
    assert not problems.notes


def test_two_processes_on_one_device_are_one_device(tmp_path: Path) -> None:
    capture, problems = read(write(SHARED, tmp_path / "a.sqlite", generation="2026"))
    assert [(d.key, d.name) for d in capture.recording.devices.values()] == [
        (A100[1], "")
    ]  # TARGET_INFO_GPU has no rows in this generation
    assert not problems.notes


def test_without_the_table_of_devices_a_number_is_one_device_and_that_is_said(tmp_path: Path) -> None:
    path = write(MPI, tmp_path / "a.sqlite", generation="newest")
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE TARGET_INFO_CUDA_DEVICE")
    capture, problems = read(path)
    assert set(capture.device.device.tolist()) == {0} and capture.recording.devices[0].key == ""
    assert "several processes used a device 0" in problems.notes[0]


def test_instances_of_one_gpu_are_devices_of_their_own(tmp_path: Path) -> None:
    path = write(MPI, tmp_path / "a.sqlite", generation="newest")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE TARGET_INFO_CUDA_DEVICE SET gpuId = 0, uuid = 'MIG-' || pid")
    capture, _ = read(path)
    assert {d.key for d in capture.recording.devices.values()} == {"MIG-0", "MIG-1"} and len(set(capture.device.device.tolist())) == 2


def test_a_graph_traced_whole_is_one_row(tmp_path: Path) -> None:
    # ten nodes of 80 ns, end to end from 50 to 850; traced whole it is one row with the same edges
    capture, _ = read(write(GRAPHS, tmp_path / "a.sqlite", graphs="graph"))
    graph = capture.device.of("graph")
    assert len(capture.device) == 1 and (graph.start[0], graph.end[0]) == (EPOCH + 50, EPOCH + 850)
    assert graph.correlation[0] == 9
    host, device = totals(run_of(capture))
    expected_host, expected_device = totals(perfect(GRAPHS))
    assert host == expected_host and device is not None and expected_device is not None
    assert device.kernel_time == expected_device.kernel_time == 800


def test_a_synchronisation_is_no_work_of_the_device(tmp_path: Path) -> None:
    path = write(BALANCED, tmp_path / "a.sqlite")
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION").fetchone() == (1,)
    assert len(read(path)[0].device) == 1


@pytest.mark.parametrize("generation", GENERATIONS)
def test_any_table_may_be_missing(generation: str, tmp_path: Path) -> None:
    whole, complete = totals(perfect(BUSY)), write(BUSY, tmp_path / "whole.sqlite", generation=generation)
    for table in columns(generation):
        path = Path(shutil.copy(complete, tmp_path / "a.sqlite"))
        with sqlite3.connect(path) as connection:
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE name LIKE ?", (table + "%",)).fetchall():
                connection.execute(f'DROP TABLE "{name}"')
        found = totals(run_of(read(path)[0]))
        if not table.startswith(("CUPTI", "NVTX", "MPI", "OSRT")):
            assert found[1] is not None and whole[1] is not None and found[1].max_active_time == whole[1].max_active_time, table


@pytest.mark.parametrize(
    "table", ["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_MEMCPY", "NVTX_EVENTS"]
)
def test_any_column_but_the_times_may_be_missing(table: str, tmp_path: Path) -> None:
    complete = write(BUSY, tmp_path / "whole.sqlite", generation="2024")
    for column in columns("2024")[table]:
        path = Path(shutil.copy(complete, tmp_path / "a.sqlite"))
        with sqlite3.connect(path) as connection:
            connection.execute(f'ALTER TABLE {table} DROP COLUMN "{column}"')
        capture, _ = read(path)
        if column not in ("start", "end", "globalTid"):  # nobody knows whose calls they are without the last
            assert run_of(capture).elapsed() == 2000


def test_the_newest_of_a_tables_versions_counts(tmp_path: Path) -> None:
    path = write(BUSY, tmp_path / "a.sqlite", generation="2024")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL_V2 AS SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL")
        connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL_V10 AS SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1")
    assert len(read(path)[0].device.of("kernel", "collective")) == 1


def test_mpi_init_and_finalize_are_neither_communication_nor_part_of_the_run(tmp_path: Path) -> None:
    # TALP's clock runs from the end of MPI_Init (200) to the begin of MPI_Finalize (900): 700, less 100 of MPI_Bcast and 20 of CUDA
    events = (
        ScenarioEvent(110, 150, "api", "cudaMalloc", 1, thread=1, call="other"),  # MPI_Init looks for GPUs, as one that knows CUDA does
        ScenarioEvent(120, 140, "memset", "Memset", 1, device=0),
        ScenarioEvent(250, 260, "api", "cudaMalloc", 1, thread=1, call="other"),
        ScenarioEvent(880, 890, "api", "cudaFree", 1, thread=1, call="other"),
        ScenarioEvent(100, 200, "mpi", "MPI_Init_thread", 1, thread=1),
        ScenarioEvent(300, 400, "mpi", "MPI_Bcast", 1, thread=1),
        ScenarioEvent(900, 950, "mpi", "MPI_Finalize", 1, thread=1),
    )
    for generation in ("2022", "2024"):
        run = run_of(read(write(Scenario("m", events, {1: 0}), tmp_path / "a.sqlite", generation=generation))[0])
        assert run.captures[0].left_out == 20  # the memset within MPI_Init; a note says so
        host, _ = totals(run)
        assert host is not None and (host.elapsed, host.useful_time, host.max_busy_time) == (700, 580, 600)


def test_ranges_that_no_user_named_are_no_regions() -> None:
    assert region("aten::add, seq = 3, op_id = 7, sizes = [[2], [2]]") is None
    assert region("MmBackward0, seq = 3") is None and region("record_param_comms, op_id = 3") is None
    assert region("ncclAllReduce") is None and region("ncclGroupStart") is None and region("nccl:all_reduce") is None
    assert region("ProfilerStep#7") == "ProfilerStep#7" and region("my::step") == "my::step"
    assert region("FSDP::forward, op_id = 9") == "FSDP::forward"


def test_a_range_that_was_never_closed_ends_with_the_last_one(tmp_path: Path) -> None:
    path = write(BUSY, tmp_path / "a.sqlite", generation="2024")
    with sqlite3.connect(path) as connection:
        connection.execute(
            "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid) VALUES (200, 60, 'open', ?)", (1 << 48 | 5 << 24 | 105,)
        )
    capture, problems = read(path)
    opened = capture.host.where(capture.host.name == capture.words.index("open"))
    assert (opened.start.tolist(), opened.end.tolist()) == ([EPOCH + 200], [EPOCH + 1700])
    assert problems.repaired.total() == 1


def test_a_range_may_end_on_another_thread(tmp_path: Path) -> None:
    path = write(BUSY, tmp_path / "a.sqlite", generation="2024")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE NVTX_EVENTS SET eventType = 60, endGlobalTid = globalTid + 1")
    assert totals(run_of(read(path)[0]), "step 1") == totals(perfect(BUSY), "step 1")


def test_impossible_times_are_counted_and_never_taken_for_idle(tmp_path: Path) -> None:
    path = write(BUSY, tmp_path / "a.sqlite", generation="2024")
    year = 365 * 86_400 * 10**9
    with sqlite3.connect(path) as connection:
        add = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, demangledName) VALUES (?, ?, 0, 7, 1)"
        connection.executemany(add, [(0, 0), (100, 100 + 236 * year), (900, 800), (236 * year, 236 * year + 5), (None, None)])
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET end = start - 1 WHERE correlationId = 22")
    capture, problems = read(path)
    # begun at 100, at 900, and the scenario's own at 1900; of (0, 0), the far future and NULL not even that is known
    assert sorted((capture.device.of("lost").start - EPOCH).tolist()) == [100, 900, 1900] and capture.recording.untimed == 3
    assert problems.dropped == {"device events with impossible times": 6, "calls of the GPU runtime with impossible times": 1}


def test_what_the_profiler_did_after_the_last_event_is_no_part_of_the_run(tmp_path: Path) -> None:
    late = replace(
        BUSY,
        events=(
            *BUSY.events,
            ScenarioEvent(2500, 2600, "overhead", "flush", 5, thread=105),
            ScenarioEvent(2700, 2800, "off", "", 5, thread=105),
        ),
    )
    capture, _ = read(write(late, tmp_path / "a.sqlite"))
    assert totals(run_of(capture)) == totals(perfect(BUSY))


def test_times_that_were_exported_as_utc_are_not_moved_again(tmp_path: Path) -> None:
    path = write(BALANCED, tmp_path / "a.sqlite", generation="2024")
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PARAM_TIME_NORMALIZE', 'true')")
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"):
            connection.execute(f"UPDATE {table} SET start = start + {EPOCH}, end = end + {EPOCH}")
    capture, problems = read(path)
    assert int(capture.device.start[0]) == EPOCH + 12 and not problems.lines()
    assert totals(run_of(capture)) == totals(perfect(BALANCED))


def test_the_rank_of_a_lone_process_is_that_of_its_launcher(tmp_path: Path) -> None:
    path = write(replace(BALANCED, ranks={}), tmp_path / "a.sqlite", generation="2024")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)")
        said = [
            ("PROCESS_0:ENVIRONMENT_VARIABLE", f'{name}="{value}"')
            for name, value in (("SLURM_PROCID", 9), ("PMI_RANK", 3), ("PMI_SIZE", 4))
        ]
        connection.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", said)
    recording = read(path)[0].recording
    assert (recording.rank, recording.ranks) == (3, 4)


def test_a_schema_that_nobody_tried_yet_is_said(tmp_path: Path) -> None:
    path = write(BALANCED, tmp_path / "a.sqlite", generation="2024")
    assert not read(path)[1].notes
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE META_DATA_EXPORT SET value = '4.1.0' WHERE name = 'EXPORT_SCHEMA_VERSION'")
    assert "export schema 4.1.0, newer than those tried (up to 3.25)" in read(path)[1].notes[0]


def test_mpi_without_gpu_prefers_talps_mode_and_collectives_the_other(tmp_path: Path) -> None:
    assert read(write(MPI, tmp_path / "a.sqlite"))[0].recording.prefers == "talp"
    assert read(write(BUSY, tmp_path / "b.sqlite"))[0].recording.prefers is None  # it has both
    lone = Scenario("c", (*rank(0, 0, 9, 99, 108, 5), replace(BUSY.events[9], process=0)), {0: 0}, {0: A100})
    assert read(write(lone, tmp_path / "c.sqlite"))[0].recording.prefers == "ai"
