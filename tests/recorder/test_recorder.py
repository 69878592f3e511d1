"""What a program did stands in its recording, record by record: CUDA by injection, regions, host calls, attaching."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cupti import cupti_double
from tests.recorder.recorder_runs import KINDS, PAUSE, TRACED, in_python, library, read, run, run_cuda, run_program
from ullage.cupti.chunks import HostKind
from ullage.cupti.kinds import ActivityKind

BOOT = Path("/proc/sys/kernel/random/boot_id")


def test_an_injected_program_s_kernels_and_copies_are_recorded_as_it_did_them(tmp_path):
    ran = run_cuda(tmp_path, "--kernels", "23", "--names", "3")
    (told,) = cupti_double.told(ran.output)
    assert (ran.code, ran.errors, len(told.operations)) == (0, "", 25)
    assert ran.only.operations() == sorted(told.operations)
    assert {name for _, name in ran.only.records(ActivityKind.CONCURRENT_KERNEL)} == {"fake_kernel_0", "fake_kernel_1", "fake_kernel_2"}
    assert ran.only.end is not None
    assert ran.only.info["injected"] is True


def test_small_buffers_and_many_threads_lose_nothing(tmp_path):
    # 4 threads × 50 kernels and 2 copies, 16 to a buffer of 4 KiB, while the writer runs beside them
    ran = run_cuda(tmp_path, "--threads", "4", "--kernels", "50", "--microseconds", "20", ULLAGE_BUFFER="4096")
    (told,) = cupti_double.told(ran.output)
    assert ran.only.operations() == sorted(told.operations)
    assert len(told.operations) == 4 * 52
    assert len(ran.only.buffers) > 10
    assert ran.only.end["bytes"] == sum(map(len, ran.only.buffers))
    assert (ran.only.dropped, ran.only.end["lost_bytes"], ran.only.end["refused"]) == (0, 0, 0)


def test_calls_of_cuda_carry_the_system_s_thread_numbers(tmp_path):
    ran = run_cuda(tmp_path)
    threads = {int(record["threadId"]) for record, _ in ran.only.records(ActivityKind.RUNTIME)}
    assert threads == {ran.only.info["pid"]}  # the main thread's number is its process's


def test_info_says_who_ran_and_what_cupti_answered(tmp_path):
    ran = run_cuda(
        tmp_path,
        "--kernels",
        "1",
        CUPTI_DOUBLE_FAULTS="kind=12:35",
        OMPI_COMM_WORLD_RANK="3",
        OMPI_COMM_WORLD_SIZE="8",
        OMPI_COMM_WORLD_LOCAL_RANK="1",
    )
    info = ran.only.info
    assert (info["rank"], info["ranks"], info["local_rank"]) == (3, 8, 1)
    assert info["program"] == [str(cupti_double.program()), "--kernels", "1"]
    assert (info["cupti"], info["library"]) == (130101, str(cupti_double.library()))
    assert set(info["kinds"]) == set(map(str, KINDS))
    assert (info["kinds"]["10"], info["kinds"]["12"]) == (0, 35)
    assert "problems" not in info  # a kind that is refused is an answer, no failure
    assert ran.only.path.name.startswith(f"{info['host']}-{info['pid']}-")
    assert info["boot"] == BOOT.read_text().strip()


def test_clocks_tie_cupti_s_time_to_the_program_s(tmp_path):
    # the double's CUPTI is 5 s ahead: 3 clocks are read at one moment, within the time that reading takes
    ran = run_cuda(tmp_path, "--seconds", "0.3", CUPTI_DOUBLE_SKEW="5000000000")
    assert len(ran.only.clocks) >= 3  # at the beginning, every 50 ms, at the end
    for cupti, real, monotonic in ran.only.clocks:
        assert 4e9 < cupti - real < 6e9
        assert abs((real - monotonic) - (ran.only.clocks[0][1] - ran.only.clocks[0][2])) < 1e9


def test_the_time_in_which_cupti_begins_is_a_call_of_cuda(tmp_path):
    recording = run_cuda(tmp_path, "--kernels", "3").only
    [(start, end, thread)] = [(start, end, thread) for kind, name, _, _, start, end, thread, _ in recording.host if name == "cuInit"]
    assert recording.did(HostKind.API) == ["cuInit"] and thread == recording.info["pid"]  # of the main thread
    # on the clock of the first reading, which is made in it
    assert start < recording.clocks[0][2] < end


def test_where_cupti_does_not_begin_there_is_no_such_call(tmp_path):
    recording = run_cuda(tmp_path, "--kernels", "3", ULLAGE_CUPTI="/nowhere/libcupti.so.13").only
    assert recording.did(HostKind.API) == []


def test_a_callback_for_each_call_records_its_name_and_time(tmp_path):
    ran = run_cuda(tmp_path, "--kernels", "7", ULLAGE_KINDS="10", ULLAGE_CALLBACKS="runtime,driver")
    calls = ran.only.did(HostKind.API)
    # 7 launches; cudaDeviceSynchronize after 5 and at the end; 2 copies; each calls the driver
    assert sorted(calls) == sorted(
        ["cudaLaunchKernel", "cuLaunchKernel"] * 7 + ["cudaDeviceSynchronize", "cuCtxSynchronize"] * 2
        + ["cudaMemcpy", "cudaMemcpy", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuInit"]
    )  # fmt: skip
    assert all(start <= end for *_, start, end, _, _ in ran.only.host)
    assert ran.only.end["api_callbacks"] == len(calls) - 1  # cuInit is told by nobody


def test_names_come_before_the_buffers_that_point_to_them_and_once(tmp_path):
    ran = run_cuda(tmp_path, "--kernels", "40", "--names", "2", ULLAGE_BUFFER="4096")
    assert all(name for _, name in ran.only.records(ActivityKind.CONCURRENT_KERNEL))
    content = ran.only.path.read_bytes()
    assert content.count(b"fake_kernel_0") == 1


def test_offsets_of_another_release_read_no_names_and_crash_nothing(tmp_path):
    # the second word of a kernel's record, and its times, are no addresses
    ran = run_cuda(tmp_path, ULLAGE_NAMES="10:8+16+24,1:16")
    assert ran.code == 0
    assert len(ran.only.records(ActivityKind.CONCURRENT_KERNEL)) == 10
    assert ran.only.texts[-1] == {}


def test_regions_nest_and_an_open_record_stands_where_each_begins(tmp_path):
    host = run_program(tmp_path, "nested").only.host
    assert [(kind, name, depth, serial) for kind, name, depth, serial, *_ in host] == [
        (HostKind.OPEN, "outer", 0, 1),
        (HostKind.OPEN, "inner", 1, 2),
        (HostKind.MPI, "all_reduce", 2, 0),
        (HostKind.REGION, "inner", 1, 2),
        (HostKind.REGION, "outer", 0, 1),
    ]
    assert host[2][4:6] == (100, 250)
    assert host[2][7] == 4096
    outer, inner = host[4], host[3]
    assert outer[4] <= inner[4] <= inner[5] <= outer[5]
    assert (host[0][4], host[0][5]) == (outer[4], 0)  # an open region has its beginning and no end


def test_regions_may_end_in_another_order_than_they_began(tmp_path):
    recording = run_program(tmp_path, "disordered").only
    assert recording.did() == ["second", "first", "third"]
    assert recording.end["unmatched"] == 2  # `third` a second time, and one that never was; 0 says that nothing was recorded


def test_threads_record_side_by_side_and_lose_nothing(tmp_path):
    # 4 threads × 5,000 regions × 2 records; a thread keeps 1,024 until they are written
    recording = run_program(tmp_path, "threads").only
    regions = recording.did()
    assert {name: regions.count(name) for name in set(regions)} == {f"thread {i}": 5000 for i in range(4)}
    own = recording.did(HostKind.OVERHEAD)
    assert (recording.end["records"] - len(own), recording.end["lost"]) == (40_000, 0)
    assert len({record[3] for record in recording.host} - {0}) == 20_000  # no serial number twice
    by_thread = {}
    for record in recording.host:
        by_thread.setdefault(record[6], set()).update({record[1]} - {""})
    assert all(len(names) == 1 for names in by_thread.values())


def test_names_of_any_kind_are_kept_as_far_as_they_can_be(tmp_path):
    regions = run_program(tmp_path, "strings").only.did()
    assert regions[:5] == ['größe\n"\\', "�� broken", "", "x" * 4096, ""]
    assert regions[5:] == [f"name {i}" for i in range(3000)]


def test_notes_are_laid_over_what_is_known(tmp_path):
    info = run_program(tmp_path, "note").only.info
    assert (info["model"], info["step"]) == ("qwen", 3)


def test_a_program_that_does_nothing_of_interest_leaves_no_file(tmp_path):
    ran = run_program(tmp_path, "nothing")
    assert (ran.code, ran.recordings, (tmp_path / "rec").exists()) == (4, [], False)
    quiet = run(tmp_path, ["/bin/sh", "-c", "ls / | wc -l; exit 9"], preload=[library()])
    assert (quiet.code, quiet.recordings) == (9, [])


def test_preloaded_injected_and_attached_is_one_recorder_and_one_file(tmp_path):
    code = f"""
import ctypes, sys
from ullage.cupti.recorder import this_recorder
r = this_recorder()
ctypes.CDLL({str(library())!r}).InitializeInjection()
first = r.path
print(r.attach("elsewhere") == first, r.begin("step") > 0)
"""
    ran = run(tmp_path, [sys.executable, "-c", code], preload=[library()], **TRACED)
    assert (ran.code, ran.output) == (0, "True True\n"), ran.errors
    assert ran.only.did(HostKind.OPEN) == ["step"]
    assert not (tmp_path / "elsewhere").exists()


def test_python_attaches_pauses_flushes_and_detaches(tmp_path):
    told = in_python(tmp_path, """
told = [r.path is None, r.begin("before")]
path = r.attach("rec")
launch(); told += [r.flush(), path.stat().st_size]
r.stop(); launch(); r.start(); launch()
region = r.begin("step"); r.host(1, "wait", r.now(), r.now() + 5, 64); r.end(region); r.note({"rank": 2})
told += [r.detach(), r.detach(), r.begin("after"), ctypes.CDLL(str(cupti_double.library())).cupti_double_finalized()]
print(json.dumps([str(path), *told]))
""")  # fmt: skip
    path, unknown, before, flushed, size, detached, again, after, finalized = told
    assert (unknown, before, flushed, detached, again, after) == (True, 0, True, True, False, 0)
    assert finalized == 1  # from the exit of a call of CUDA, as guide 2.3.7 asks
    recording = read(tmp_path / path)
    assert len(recording.records(ActivityKind.CONCURRENT_KERNEL)) == 2  # of 3: one was launched while it was paused
    assert (recording.did(), recording.did(PAUSE), recording.info["rank"]) == (["step"], ["recording paused"], 2)
    assert recording.end is not None
    assert recording.path.stat().st_size > size > 500


def test_a_pause_that_lasts_to_the_end_is_told_as_well(tmp_path):
    (path,) = in_python(tmp_path, "path = r.attach('rec'); launch(); r.stop(); launch(); print(json.dumps([str(path)]))")
    recording = read(tmp_path / path)
    assert (len(recording.records(ActivityKind.CONCURRENT_KERNEL)), recording.did(PAUSE)) == (1, ["recording paused"])
    assert recording.end is not None


def test_python_attaches_again_to_a_new_file(tmp_path):
    paths = in_python(tmp_path, """
paths = []
for n in range(3):
    paths.append(str(r.attach("rec"))); launch(); r.end(r.begin(f"step {n}")); r.detach()
print(json.dumps(paths))
""")  # fmt: skip
    assert len(set(paths)) == 3
    for n, path in enumerate(paths):
        recording = read(tmp_path / path)
        assert recording.did() == [f"step {n}"]
        assert [name for _, name in recording.records(ActivityKind.CONCURRENT_KERNEL)] == ["kernel"]
        assert recording.end["records"] == 2


def test_attaching_where_nothing_can_be_written_is_told_and_can_be_tried_elsewhere(tmp_path):
    told = in_python(tmp_path, """
from ullage.errors import UllageError
Path("file").write_text("")
try: r.attach("file/rec")
except UllageError as error: print(json.dumps([error.problem, r.begin("x"), str(r.attach("rec").parent)]))
""")  # fmt: skip
    assert told == ["no recording can be written to file/rec", 0, str(tmp_path / "rec")]


def test_the_library_exports_what_is_meant_to_be_called_and_nothing_else():
    listed = subprocess.run(["nm", "-D", "--defined-only", str(library())], capture_output=True, text=True, check=True).stdout
    names = {line.split()[2] for line in listed.splitlines()}
    ours = {name for name in names if not re.match(r"P?MPI_|mpi_", name)}
    looked_up = {"InitializeInjection", "InitializeInjectionNvtx2", "ncclProfiler_v4", "ompt_start_tool"}  # by CUDA, NVTX, NCCL, OpenMP
    assert {*looked_up, "ullage_attach", "ullage_region_begin"} <= ours
    assert all(name.startswith(("InitializeInjection", "ullage_")) for name in ours - looked_up), ours
    assert len(names) - len(ours) > 300  # each of MPI's functions in C's spelling and in Fortran's


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z5scaleIfEvPT_S0_i", "void scale<float>(float*, float, int)"),
        ("_Znonsense", "_Znonsense"),
        ("nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNN", "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNN"),
    ],
)
def test_kernels_are_named_as_people_write_them(tmp_path, symbol, name):
    ran = run_cuda(tmp_path, "--kernels", "2", PROGRAM_KERNEL=symbol)
    assert {found for _, found in ran.only.records(ActivityKind.CONCURRENT_KERNEL)} == {name}


def test_a_name_that_changes_where_it_stands_is_written_again_and_a_pointer_into_nothing_has_none(tmp_path):
    (path,) = in_python(tmp_path, """
double, text = ctypes.CDLL(str(cupti_double.library())), ctypes.create_string_buffer(b"first")
double.cupti_double_marker.argtypes = (ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
path = r.attach("rec")
double.cupti_double_marker(2, 1, ctypes.addressof(text), None, 1)
r.flush()
text.value = b"other"
double.cupti_double_marker(2, 2, ctypes.addressof(text), None, 2)
double.cupti_double_marker(2, 3, 0x10, None, 3)
r.detach()
print(json.dumps([str(path)]))
""")  # fmt: skip
    found = read(tmp_path / path).records(ActivityKind.MARKER)
    assert [(int(record["id"]), name) for record, name in found] == [(1, "first"), (2, "other"), (3, None)]
