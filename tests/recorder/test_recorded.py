"""Recordings: what a program wrote of itself, read as intervals, against sums worked out by hand and against every other source."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.recorder.recordings import CUPTI, EPOCH, KERNEL, MAIN, PROCESS, Made, busy, call, copy, host, kernel, mark, of, record, rows
from tests.traces.test_trace_sources_agree import BESIDE_KINETO, SCENARIOS, assert_agrees
from ullage import read_trace
from ullage.cli._parts import question_or_group
from ullage.cupti.chunks import ChunkType, HostKind
from ullage.cupti.kinds import ActivityKind
from ullage.cupti.releases import RELEASES
from ullage.simulate.traces import kineto
from ullage.simulate.traces.pils import USE_CASES, pils
from ullage.simulate.traces.recording import write
from ullage.simulate.traces.training import TrainingPlan, training
from ullage.traces.recorded.rings import KILLED


def test_two_streams_and_a_copy_give_the_times_worked_out_by_hand(tmp_path: Path) -> None:
    # kernels 2-12 and 7-17: K = 15; the copy 15-27 is alone from 17 on: M = 10; of 0-40 the rest is idle
    # calls 0-2, 3-5, 20-30: W = 14, U = 26
    report = read_trace(busy(tmp_path / "a.ullage")).report()
    [device], [process] = report.whole.device_parts, report.whole.host_parts
    assert (device.kernel, device.memory, device.idle, report.whole.elapsed) == (15, 10, 15, 40)
    assert (process.offload, process.useful, process.communication) == (14, 26, 0)
    assert not report.partial


@pytest.mark.parametrize("name", [*SCENARIOS, *BESIDE_KINETO])
def test_a_recording_gives_the_answer_to_the_nanosecond(name: str, tmp_path: Path) -> None:
    scenario = (SCENARIOS | BESIDE_KINETO)[name]
    assert_agrees(scenario, write(scenario, tmp_path))


@pytest.mark.parametrize("name", ["rounds", "training"])
def test_regions_may_be_nvtx_ranges(name: str, tmp_path: Path) -> None:
    assert_agrees(SCENARIOS[name], write(SCENARIOS[name], tmp_path, regions="nvtx", per_buffer=40))


@pytest.mark.parametrize("version", [known.version for known in RELEASES])
def test_every_release_of_cupti_gives_the_same_answer(version: int, tmp_path: Path) -> None:
    scenario = training(TrainingPlan(graph="kernels"))
    assert_agrees(scenario, write(scenario, tmp_path, version=version, per_buffer=97))


@pytest.mark.parametrize("number", USE_CASES)
def test_the_papers_use_cases_give_the_trees_that_pytorchs_profiler_gives(number: str, tmp_path: Path) -> None:
    scenario = pils(USE_CASES[number].load)
    for folder in ("recorded", "kineto"):
        (tmp_path / folder).mkdir()
    write(scenario, tmp_path / "recorded")
    kineto.write(scenario, tmp_path / "kineto")
    ours, theirs = (read_trace(tmp_path / folder).tree("talp") for folder in ("recorded", "kineto"))
    assert dict(ours.items()) == dict(theirs.items())
    for metric, printed in USE_CASES[number].printed.items():
        assert ours[metric] == pytest.approx(printed, abs=0.0051)


def test_a_folder_of_ranks_is_one_run_for_the_command(tmp_path: Path) -> None:
    write(training(TrainingPlan(ranks=3)), tmp_path)
    result = CliRunner().invoke(question_or_group("trace"), [str(tmp_path), "--by", "rank"])
    assert result.exit_code == 0, result.output
    assert "3 processes, 3 devices" in result.output
    assert "rank 2" in result.output
    assert "(Ullage recording); ai mode" in result.output


def test_a_kernel_says_its_grid_its_block_and_its_call(tmp_path: Path) -> None:
    shape = {"gridX": 6, "gridY": 5, "gridZ": 4, "blockX": 32, "blockY": 2, "blockZ": 1}
    made = Made(tmp_path / "a.ullage").clocks(0).named({KERNEL: "gemm"})
    found, recording, _ = rows(made.buffer(kernel(10, 30, tie=5, **shape)).end())
    told = {"name": "gemm", "process": PROCESS, "device": 0, "stream": 7, "correlation": 5, "blocks": 120, "threads": 64}
    assert of(found, "kernel") == [{"start": 10, "end": 30, **told}]
    assert (recording.clock, recording.host, recording.source) == ("utc", "node-1", "Ullage recording")


def test_a_recording_says_of_which_boot_it_is(tmp_path: Path) -> None:
    _, recording, _ = rows(Made(tmp_path / "a.ullage").info(boot="1f0c").clocks(0).buffer(call(0, 1, tie=1), kernel(2, 12, tie=1)).end())
    assert (recording.boot, recording.host) == ("1f0c", "node-1")


def test_kernels_of_nccl_are_collectives_with_their_operation(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0).named({KERNEL: "gemm", 0x7100: "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"})
    found, recording, _ = rows(made.buffer(kernel(0, 5), kernel(5, 9, name=0x7100)).end())
    [collective] = of(found, "collective")
    assert (collective["start"], collective["operation"]) == (5, "allreduce")
    assert recording.prefers == "ai"


@pytest.mark.parametrize(("waits", "mode"), [("all_reduce", "ai"), ("MPI_Allreduce", "talp")])
def test_a_job_of_pytorch_is_looked_at_in_ai_mode_and_one_of_mpi_as_talp_does(waits: str, mode: str, tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0).named({0x7100: "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"}).named({1: waits}, flags=1)
    path = made.host(host(1, 9, 1, HostKind.MPI)).buffer(call(1, 2, tie=1), kernel(2, 9, tie=1, name=0x7100)).clocks(20).end()
    assert read_trace(path).report().mode == mode


def test_a_pointer_means_what_was_last_said_of_it_before_its_buffer(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0).named({KERNEL: "first"}).buffer(kernel(0, 1))
    made.named({KERNEL: "second", 0x7100: "third"}).buffer(kernel(2, 3), kernel(4, 5, name=0x7100), kernel(6, 7, name=0x7200))
    found, _, _ = rows(made.named({KERNEL: "fourth"}).end())
    assert [row["name"] for row in found] == ["first", "second", "third", None]


def test_copies_say_how_they_go_how_much_and_on_which_device(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0)
    made.buffer(
        copy(0, 5, bytes=100, device=1),
        copy(5, 9, bytes=200, device=2, kind=ActivityKind.MEMCPY2, copyKind=10, srcDeviceId=2, dstDeviceId=3),
        record(ActivityKind.MEMSET, 10, 12, bytes=64, deviceId=1, streamId=3),
        record(ActivityKind.UNIFIED_MEMORY_COUNTER, 20, 25, counterKind=1, value=4096, srcId=9, dstId=1),
        record(ActivityKind.UNIFIED_MEMORY_COUNTER, 30, 35, counterKind=2, value=8192, srcId=1, dstId=9),
        record(ActivityKind.UNIFIED_MEMORY_COUNTER, 40, 0, counterKind=3, value=1),  # a page fault: nothing runs
    )
    found, _, problems = rows(made.clocks(50).end())
    moved = [(row["name"], row["bytes"], row["device"]) for row in found]
    assert moved == [
        ("Memcpy DtoD", 100, 1), ("Memcpy PtoP", 200, 2), ("Memset", 64, 1),
        ("Memcpy Unified HtoD", 4096, 1), ("Memcpy Unified DtoH", 8192, 1),
    ]  # fmt: skip
    assert not problems.dropped


def test_a_graph_recorded_as_a_whole_is_a_graph(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0)
    found, _, _ = rows(made.buffer(record(ActivityKind.GRAPH_TRACE, 3, 9, graphId=4, deviceId=1, streamId=7, correlationId=2)).end())
    told = {"name": "graph 4", "process": PROCESS, "device": 1, "stream": 7, "correlation": 2}
    assert of(found, "graph") == [{"start": 3, "end": 9, **told}]


def test_a_call_and_the_drivers_call_inside_it_count_once(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0)
    made.buffer(call(0, 10, tie=1), call(2, 8, "cuLaunchKernel", tie=1), kernel(9, 20, tie=1)).clocks(100)
    path = made.end()
    assert [(row["call"], row["thread"]) for row in of(rows(path)[0], "api")] == [("launch", MAIN)] * 2
    assert read_trace(path).report().whole.host_parts[0].offload == 10


def test_a_launch_that_failed_put_nothing_on_a_device(tmp_path: Path) -> None:
    # two launches ran; the third was refused (cudaErrorInvalidConfiguration, 9) and leaves no doubt about the device's idle time
    made = Made(tmp_path / "a.ullage").clocks(0)
    made.buffer(call(0, 1, tie=1), kernel(1, 5, tie=1), call(6, 7, tie=2), kernel(7, 9, tie=2), call(10, 11, tie=3, returned=9))
    device = read_trace(made.clocks(100).end()).tree().device
    assert device is not None and device.exact
    assert device.value == 0.06


def test_devices_are_told_apart_by_what_cupti_says_of_them(tmp_path: Path) -> None:
    gpu, mig = (list(bytes.fromhex(digits * 4)) for digits in ("9af100c2", "0102030f"))
    made = Made(tmp_path / "a.ullage", devices=[{"index": 2, "name": "NVIDIA H200", "uuid": "AB-12", "sms": 132}]).clocks(0)
    made.named({0x100: "NVIDIA H100"})
    told = {"name": 0x100, "numMultiprocessors": 114}
    made.buffer(
        record(ActivityKind.DEVICE, id=0, **{"uuid.bytes": as_signed(gpu)}, **told),
        record(ActivityKind.DEVICE, id=1, isMigEnabled=1, **{"uuid.bytes": as_signed(gpu), "migUuid.bytes": as_signed(mig)}, **told),
        kernel(0, 5),
    )
    _, recording, _ = rows(made.end())
    assert {number: (device.name, device.key, device.sms) for number, device in recording.devices.items()} == {
        0: ("NVIDIA H100", "GPU-9af100c2-9af1-00c2-9af1-00c29af100c2", 114),
        1: ("NVIDIA H100", "MIG-0102030f-0102-030f-0102-030f0102030f", 114),
        2: ("NVIDIA H200", "GPU-ab-12", 132),
    }


def as_signed(values: list[int]) -> list[int]:
    return [value - 256 if value > 127 else value for value in values]


def test_clocks_that_drift_are_joined_by_lines(tmp_path: Path) -> None:
    # CUPTI's clock gains 10 µs in the first second and nothing in the next: what it calls 500,005,000 was 500,000,000
    made = Made(tmp_path / "a.ullage").clocks(0).clocks(10**9, drift=10_000).clocks(2 * 10**9, drift=10_000)
    found, _, _ = rows(made.buffer(kernel(500_005_000, 500_005_000), kernel(1_500_010_000, 1_500_010_007)).end())
    assert [(row["start"], row["end"]) for row in found] == [(500_000_000, 500_000_000), (1_500_000_000, 1_500_000_007)]


def test_a_clock_that_is_set_meanwhile_makes_no_kernel_longer(tmp_path: Path) -> None:
    # the machine's clock is set back by an hour after 1 of 3 s: CUPTI's and the monotonic one don't care
    made = Made(tmp_path / "a.ullage").clocks(0).clocks(10**9)
    made.clocks(2 * 10**9, set_by=-3600 * 10**9).buffer(kernel(999_999_990, 1_000_000_020)).clocks(3 * 10**9, set_by=-3600 * 10**9)
    found, _, problems = rows(made.end())
    assert found[0]["end"] - found[0]["start"] == 30
    assert problems.lines()[0] == "the clock of node-1 was set by 3.6e+03 s meanwhile"


@pytest.mark.parametrize("hour", [3600 * 10**9, -3600 * 10**9])
def test_if_cuptis_clock_is_set_each_time_belongs_to_the_nearer_reading(hour: int, tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0).clocks(10**9)
    made.clocks(2 * 10**9, drift=hour).clocks(3 * 10**9, drift=hour)
    found, _, problems = rows(made.buffer(kernel(5 * 10**8, 5 * 10**8 + 30), kernel(25 * 10**8 + hour, 25 * 10**8 + hour + 40)).end())
    assert [(row["start"], row["end"]) for row in found] == [(5 * 10**8, 5 * 10**8 + 30), (25 * 10**8, 25 * 10**8 + 40)]
    assert not problems.dropped


def test_a_recording_without_clocks_is_measured_on_its_own(tmp_path: Path) -> None:
    found, recording, _ = rows(Made(tmp_path / "a.ullage").buffer(kernel(3, 8)).end())
    assert (found[0]["start"] + EPOCH, recording.clock) == (CUPTI + 3, "own")


def test_a_killed_program_leaves_what_it_had_flushed(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0).buffer(call(0, 1, tie=1), kernel(1, 5, tie=1)).clocks(10)
    path = made.killed()
    report = read_trace(path).report()
    assert report.partial
    assert f"{path} ends early: {KILLED}" in report.notes
    assert report.whole.device_parts[0].kernel == 4
    assert report.whole.device is not None and report.whole.device.high == 1  # it may have worked all the time


def test_records_that_cupti_dropped_make_idle_time_uncertain(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0).buffer(kernel(1, 5)).add(ChunkType.DROPPED, (3).to_bytes(8, "little"))
    found, recording, problems = rows(made.clocks(10).end())
    assert recording.untimed == 3
    assert problems.lines()[0].startswith("3 activity records that CUPTI dropped left out")
    assert len(found) == 1


def test_a_kernel_without_times_is_lost_not_idle(tmp_path: Path) -> None:
    # CUPTI writes two zeros where it has no time; a forced flush leaves a kernel that still runs without its end
    made = Made(tmp_path / "a.ullage").clocks(0)
    made.buffer(kernel(-CUPTI, -CUPTI), kernel(6, -CUPTI), kernel(1, 5))
    found, recording, problems = rows(made.clocks(10).end())
    assert recording.untimed == 1
    assert [(row["start"], row["end"]) for row in of(found, "lost")] == [(6, 6)]
    assert problems.dropped["device events with impossible times"] == 2


def test_nvtx_ranges_are_regions_whichever_buffer_and_thread_their_marks_are_in(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0).named({0x10: "forward", 0x20: "backward", 0x30: "never ended", 0x40: "ncclAllReduce"})
    made.buffer(mark(9, 4, 1), mark(2, 2, 1, 0x10), mark(30, 4, 2, thread=99), mark(3, 2, 3, 0x30))  # 2 ends before it begins, in the file
    made.buffer(mark(12, 2, 2, 0x20), mark(14, 2, 4, 0x40), mark(15, 4, 4), mark(16, 1, 5, 0x10))  # 5 is a moment, no range
    found, _, problems = rows(made.clocks(40).end())
    regions = [(row["name"], row["start"], row["end"], row["thread"]) for row in of(found, "region")]
    assert regions == [("forward", 2, 9, MAIN), ("backward", 12, 30, MAIN), ("never ended", 3, 40, MAIN)]
    assert problems.repaired["regions that never ended end with the recording"] == 1


def test_regions_of_the_host_end_with_the_recording_if_nothing_ends_them(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0)
    made.host(host(1, 0, 1, HostKind.OPEN, serial=7), host(2, 0, 2, HostKind.OPEN, serial=8), host(2, 5, 2, serial=8))
    found, _, _ = rows(made.clocks(20).named({1: "epoch", 2: "step"}, flags=1).end())
    assert [(row["name"], row["start"], row["end"]) for row in of(found, "region")] == [("step", 2, 5), ("epoch", 1, 20)]


def test_the_run_is_what_lies_between_mpi_init_and_mpi_finalize(tmp_path: Path) -> None:
    # as TALP counts: Init returns at 30, Finalize is called at 90; a barrier 40-60 is 20 of these 60
    made = Made(tmp_path / "a.ullage").clocks(0).named({1: "MPI_Init_thread", 2: "MPI_Barrier", 3: "MPI_Finalize"}, flags=1)
    made.host(host(10, 30, 1, HostKind.MPI), host(40, 60, 2, HostKind.MPI), host(90, 99, 3, HostKind.MPI))
    whole = read_trace(made.clocks(200).end()).report().whole
    assert (whole.elapsed, whole.host_parts[0].communication) == (60, 20)


def test_a_collective_in_which_a_program_was_killed_is_communication(tmp_path: Path) -> None:
    # seen open at 50 and at 90, then nothing more: 70 of 100 ns; the one at 5 was seen open at 8, and ended at 10
    made = Made(tmp_path / "a.ullage").clocks(0).named({1: "MPI_Allreduce"}, flags=1).host(host(5, 8, 1, HostKind.WAITING))
    made.host(host(5, 10, 1, HostKind.MPI)).host(host(20, 50, 1, HostKind.WAITING)).host(host(20, 90, 1, HostKind.WAITING))
    path = made.clocks(100).killed()
    found, _, problems = rows(path)
    assert [(row["start"], row["end"], row.get("operation")) for row in of(found, "mpi")] == [(5, 10, "allreduce"), (20, 90, None)]
    assert problems.repaired == {"calls of MPI that never ended end where they were last seen": 1}
    process = read_trace(path).report().whole.host_parts[0]
    assert (process.communication, process.useful) == (75, 25)


def test_calls_of_different_threads_that_began_together_are_told_apart(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0).named({1: "MPI_Recv"}, flags=1)
    made.host(host(5, 8, 1, HostKind.WAITING), host(5, 8, 1, HostKind.WAITING, thread=77)).host(host(5, 10, 1, HostKind.MPI))
    found, _, _ = rows(made.clocks(20).end())
    assert [(row["thread"], row["start"], row["end"]) for row in of(found, "mpi")] == [(MAIN, 5, 10), (77, 5, 8)]


def test_the_run_begins_when_the_recorder_came_into_the_program(tmp_path: Path) -> None:
    # it came at -50, and first had something to write at 0: of 150 ns the device computes 30, the region 100
    made = Made(tmp_path / "a.ullage").info(started=EPOCH - 50).clocks(0).host(host(-40, 60, 1)).named({1: "all"}, flags=1)
    path = made.buffer(call(0, 1, tie=1), kernel(1, 31, tie=1)).clocks(100).end()
    assert read_trace(path).tree()["device_parallel_efficiency"] == 0.2
    assert read_trace(path).tree(region="all")["device_parallel_efficiency"] == 0.3


def test_where_only_waits_were_recorded_the_report_says_so(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").info(kinds={"10": 0, "38": 0}).clocks(0)
    made.buffer(record(ActivityKind.SYNCHRONIZATION, 5, 9, type=3), record(ActivityKind.SYNCHRONIZATION, 5, 9, type=2), kernel(1, 8))
    found, _, problems = rows(made.clocks(10).end())
    assert [(row["name"], row["call"], row["start"], row["end"]) for row in of(found, "api")] == [("cuStreamSynchronize", "sync", 5, 9)]
    assert "of the hosts' calls only the waits were recorded: launches and copies count as useful time" in problems.notes


def test_what_cupti_refused_is_said_with_the_reason(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").info(kinds={"10": 35, "5": 0}, problems=[{"what": "cuptiSubscribe", "code": 39}]).clocks(0)
    _, _, problems = rows(made.buffer(call(1, 2, "cudaMalloc")).clocks(10).end())
    assert [note.partition(";")[0] for note in problems.notes] == [
        "cuptiSubscribe: another profiler is already attached to this program (CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)",
        "cupti recording concurrent kernel: the driver lets only the administrator read the GPU's counters "
        "(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES)",
        "no kernels were recorded: there is no device tree",
    ]


def test_the_observers_own_cost_stands_in_the_report(tmp_path: Path) -> None:
    # 0.003 s of 1 s in the program's threads, 0.02 + 0.01 s in its own
    made = Made(tmp_path / "a.ullage").clocks(0).buffer(call(1, 2)).clocks(10**9)
    path = made.end(callback_ns=3_000_000, flush_ns=20_000_000, writer_ns=10_000_000)
    assert "the recorder itself: 0.003 s in the program's threads (0.3 % of the run), 0.03 s in its own" in read_trace(path).report().notes


def test_while_recording_was_stopped_the_device_may_have_worked(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0).buffer(kernel(0, 10), kernel(60, 70), call(0, 100, "cudaDeviceSynchronize"))
    path = made.info(paused=20 + 3 * 10**12).info(resumed=50 + 3 * 10**12).clocks(100).end()
    report = read_trace(path).report()
    assert "recording was stopped once: what happened meanwhile is not known, and counts as idle" in report.notes
    device = report.whole.device
    assert device is not None and (device.low, device.high) == (0.2, 0.6)  # from 20 on nobody knows of the gap 10-60


def test_two_processes_of_one_node_share_one_gpu_by_its_uuid(tmp_path: Path) -> None:
    for process in (1, 2):
        made = Made(tmp_path / f"{process}.ullage", rank=process - 1, devices=[{"index": 0, "uuid": "GPU-1"}]).info(pid=process)
        made.clocks(0).buffer(call(0, 1, tie=1), kernel(10 * process, 10 * process + 15, tie=1)).clocks(100).end()
    report = read_trace(tmp_path).report()
    assert len(report.whole.device_parts) == 1
    assert report.whole.device_parts[0].kernel == 25  # 10-25 and 20-35, united


def test_a_pause_that_the_recorder_itself_notes_is_no_idle_time(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0).named({KERNEL: "gemm"})
    made.buffer(call(0, 1, tie=1), kernel(2, 12, tie=1)).host(host(20, 30, 0, HostKind.PAUSE))
    found, _, problems = rows(made.clocks(40).end())
    assert [(row["start"], row["device"]) for row in found if row["kind"] == "lost"] == [(20, 0)]
    assert any("was stopped once" in note for note in problems.notes)


def helped(path: Path, *rows: tuple[int, ...]) -> Path:
    """A program whose MPI_Init ends at 0 and whose MPI_Finalize begins at 100, with more records."""
    made = Made(path).clocks(-10).named({1: "MPI_Init_thread", 2: "MPI_Recv", 3: "MPI_Finalize", 4: "MPI_Barrier", 5: "step"}, flags=1)
    made.host(*rows)
    return made.host(host(100, 105, 3, HostKind.MPI)).clocks(110).end()


def test_a_helper_that_sits_in_mpi_is_not_the_process_communicating(tmp_path: Path) -> None:
    # the main thread computes but for a barrier of 20; its helper's record comes before that of MPI_Init, as threads are written one by one
    helper = host(1, 99, 2, HostKind.MPI, thread=77)
    path = helped(tmp_path / "a.ullage", helper, host(-5, 0, 1, HostKind.MPI), host(50, 70, 4, HostKind.MPI))
    found, _, problems = rows(path)
    assert [(row["thread"], row["start"], row["end"]) for row in of(found, "mpi")] == [(MAIN, 50, 70)]
    assert [(row["thread"], row["start"], row["end"]) for row in of(found, "helper")] == [(77, 1, 99)]
    report = read_trace(path).report()
    assert report.whole.host_parts[0].communication == 20 and report.whole.host_parts[0].useful == 80
    (note,) = [line for line in problems.lines() if "beside" in line]
    assert "1 thread was in MPI beside the thread that called MPI_Init (77 for 9.8e-08 s)" in note


def test_where_a_library_s_thread_calls_mpi_init_the_first_thread_is_the_process_if_it_does_anything(tmp_path: Path) -> None:
    begins, sits = host(-5, 0, 1, HostKind.MPI, thread=77), host(1, 99, 2, HostKind.MPI, thread=77)
    path = helped(tmp_path / "a.ullage", begins, sits)
    assert read_trace(path).report().whole.host_parts[0].communication == 98  # nothing else is known of it
    path = helped(tmp_path / "b.ullage", begins, sits, host(10, 20, 5, HostKind.REGION, thread=PROCESS))
    assert read_trace(path).report().whole.host_parts[0].communication == 0


def test_without_mpi_init_every_thread_s_waits_count(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0).named({1: "all_reduce"}, flags=1)
    made.host(host(10, 20, 1, HostKind.MPI), host(30, 40, 1, HostKind.MPI, thread=77))
    assert read_trace(made.clocks(100).end()).report().whole.host_parts[0].communication == 20
