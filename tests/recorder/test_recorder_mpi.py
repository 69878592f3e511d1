"""The time that ranks spend in MPI, whose ever MPI it is: with Open MPI where it is installed, with a double of MPICH elsewhere."""

from __future__ import annotations

import ctypes.util
import json
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.recorder.recorder_runs import HERE, compiled, library, run
from ullage import read_trace
from ullage.cupti.chunks import HostKind
from ullage.cupti.native.build import FOLDER
from ullage.live import launch
from ullage.live.ranks import LAUNCHERS, place

MILLISECOND = 1_000_000
HOOK = Path(launch.__file__).parent / "hook"


def mpich(tmp_path):
    """Return a program and the double of MPICH that it is linked with."""
    double = compiled(HERE / "mpi_double.c", "libmpidouble.so", ("-DLIBRARY", "-shared", "-fPIC", "-Wl,-soname,libmpidouble.so"))
    program = compiled(HERE / "mpi_double.c", "program", (f"-L{double.parent}", "-lmpidouble", f"-Wl,-rpath,{double.parent}"))
    return program, double


def open_mpi(folder, ranks, *words, **environment):
    """Run `mpi_program.c` on so many ranks of Open MPI; skips where it isn't installed."""
    if shutil.which("mpirun") is None or ctypes.util.find_library("mpi") is None:
        pytest.skip("no Open MPI")
    try:
        program = compiled(HERE / "mpi_program.c", "program", ("-l:" + ctypes.util.find_library("mpi"),))
    except AssertionError as error:
        pytest.skip(f"not Open MPI: {error}")
    recorder = ["env", f"LD_PRELOAD={library()}", program, *words]
    return run(folder, ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", ranks, *recorder], timeout=120, **environment)


def times(recording):
    """Return the time in each function of MPI in ms, in the order of the calls."""
    return [(name, (end - start) / MILLISECOND) for kind, name, _, _, start, end, *_ in recording.host if kind == HostKind.MPI]


def interval(recording):
    """Return the beginning and end of the last call of each function of MPI."""
    return {name: (start, end) for kind, name, _, _, start, end, *_ in recording.host if kind == HostKind.MPI}


def test_open_mpi_s_ranks_wait_as_long_as_they_are_made_to(tmp_path):
    ran = open_mpi(tmp_path, 4)
    assert ran.code == 0, ran.errors
    told = {line["rank"]: line for line in map(json.loads, ran.output.splitlines())}
    # each rank > 0 is sent its own number: 1 + 2 + 3 = 6; the left neighbour of 0 is 3
    assert [(told[rank]["sum"], told[rank]["left"]) for rank in range(4)] == [(6, 3), (6, 0), (6, 1), (6, 2)]
    assert len(ran.recordings) == 4
    for rank, line in told.items():
        recording = ran.of(line["pid"])
        assert (recording.info["rank"], recording.info["ranks"], recording.info["local_rank"]) == (rank, 4, rank)
        between = ["MPI_Send"] * 3 if rank == 0 else ["MPI_Recv"]
        assert [name for name, _ in times(recording)] == [
            "MPI_Init", "MPI_Barrier", *between, "MPI_Allreduce", "MPI_Sendrecv", "MPI_Finalize",
        ]  # fmt: skip
        assert recording.end is not None
    calls = [interval(ran.of(told[rank]["pid"])) for rank in range(4)]
    # one clock for all ranks: each comes to the barrier 100 ms × its rank after its MPI_Init, and none leaves before the last came
    assert all(calls[rank]["MPI_Barrier"][0] - calls[rank]["MPI_Init"][1] >= 100 * MILLISECOND * rank for rank in range(4))
    assert min(one["MPI_Barrier"][1] for one in calls) >= max(one["MPI_Barrier"][0] for one in calls)
    # rank 0 sleeps 50 ms, then sends: nobody has received before
    assert calls[0]["MPI_Send"][0] - calls[0]["MPI_Barrier"][1] >= 50 * MILLISECOND
    assert min(calls[rank]["MPI_Recv"][1] for rank in (1, 2, 3)) >= calls[0]["MPI_Barrier"][1] + 50 * MILLISECOND


def test_an_exit_code_of_a_rank_is_passed_on(tmp_path):
    assert open_mpi(tmp_path, 1, "5").code == 5


def test_mpi_abort_leaves_what_there_was(tmp_path):
    ran = open_mpi(tmp_path, 2, "abort")
    assert ran.code == 9
    assert any("MPI_Sendrecv" in recording.did(HostKind.MPI) for recording in ran.recordings)


def test_an_mpi_whose_handles_are_numbers_is_served_as_well(tmp_path):
    program, _ = mpich(tmp_path)
    ran = run(tmp_path, [program], preload=[library()], PMI_RANK="0", PMI_SIZE="9", MPI_LOCALRANKID="1")
    # 1 + 2·2 + 3·3 + 4·4 + 5·5 + 6·6 + 7·7 + 8·8 + 9·9 = 285, 1 for the long word, 1 for the equal addresses: all 13 arguments came through
    assert (ran.code, ran.output) == (6, "0 0 -17 287 0 5 0\n"), ran.errors
    recording = ran.only
    assert (recording.info["rank"], recording.info["ranks"], recording.info["local_rank"]) == (
        2,
        3,
        1,
    )  # MPI knows better than the environment
    assert [name for name, _ in times(recording)] == [
        "MPI_Init", "MPI_Allreduce", "MPI_Rget_accumulate", "MPI_Barrier", "MPI_Barrier", "MPI_Finalize",
    ]  # fmt: skip
    assert all(took >= 20 for _, took in times(recording))


def test_a_call_inside_another_counts_once(tmp_path):
    program, _ = mpich(tmp_path)
    took = dict(times(run(tmp_path, [program], preload=[library()]).only))
    assert took["MPI_Allreduce"] >= 40  # two barriers of 20 ms, not told on their own


def test_an_mpi_that_only_a_library_loads_is_found_by_who_calls(tmp_path):
    # as with mpi4py: Python doesn't know MPI, the module brings it along, and neither is seen by other libraries
    _, double = mpich(tmp_path)
    source = "int MPI_Init(void *, void *), MPI_Barrier(int); int go(void) { return MPI_Init(0, 0) + MPI_Barrier(0x44000000); }"
    module = compiled(source, "module.so", ("-shared", "-fPIC", f"-L{double.parent}", "-lmpidouble", f"-Wl,-rpath,{double.parent}"))
    code = f"import ctypes; print(ctypes.CDLL({str(module)!r}).go())"
    ran = run(tmp_path, [sys.executable, "-c", code], preload=[library()])
    assert (ran.code, ran.output) == (0, "0\n"), ran.errors
    assert ran.only.did(HostKind.MPI) == ["MPI_Init", "MPI_Barrier"]
    assert (ran.only.info["rank"], ran.only.info["ranks"]) == (2, 3)


def test_an_mpi_that_whoever_loaded_us_has_is_found_once(tmp_path):
    # as the benchmark does it: nothing comes next after a library that was loaded at run time
    source = """
    #include <dlfcn.h>
    #include <stdio.h>
    #include <stdlib.h>
    __attribute__((visibility("default"))) int PMPI_Barrier(long world) { return (int)world; }
    int main(void) { printf("%d\\n", ((int (*)(long))dlsym(dlopen(getenv("ULLAGE_RECORDER"), RTLD_NOW), "MPI_Barrier"))(7)); }
    """
    ran = run(tmp_path, [compiled(source, "loader", ("-rdynamic",))])
    assert ran.output == "7\n" and ran.only.did(HostKind.MPI) == ["MPI_Barrier"]


HANGING = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#ifdef LIBRARY
int PMPI_Init(void *a, void *b) { (void)a, (void)b; return 0; }
int PMPI_Barrier(long time) { usleep(time); return 0; }
__attribute__((weak)) int MPI_Init(void *a, void *b) { return PMPI_Init(a, b); }
__attribute__((weak)) int MPI_Barrier(long time) { return PMPI_Barrier(time); }
#else
int MPI_Init(void *, void *), MPI_Barrier(long);
static void *leave(void *given) { usleep(600000); exit(given != NULL); }
int main(int count, char **words) {
    struct itimerval soon = {.it_value = {.tv_usec = 600000}};
    pthread_t thread;
    if (count > 1 && !strcmp(words[1], "killed")) setitimer(ITIMER_REAL, &soon, NULL);
    if (count > 1 && !strcmp(words[1], "exits")) pthread_create(&thread, NULL, leave, NULL);
    MPI_Init(NULL, NULL);
    MPI_Barrier(count > 1 ? 60000000 : 600000);
}
#endif
"""


def hanging():
    """Return a program that is killed or exits in a barrier, as it is told, or comes out of it after 0.6 s."""
    double = compiled(HANGING, "libhanging.so", ("-DLIBRARY", "-shared", "-fPIC", "-Wl,-soname,libhanging.so"))
    return compiled(HANGING, "program", (f"-L{double.parent}", "-lhanging", f"-Wl,-rpath,{double.parent}"))


def barrier(recording):
    """Return (start, end, thread) of a barrier's records: those while it was open, and those when it was over."""
    found = {HostKind.WAITING: [], HostKind.MPI: []}
    for kind, name, _, _, start, end, thread, _ in recording.host:
        if name == "MPI_Barrier":
            found[kind].append((start, end, thread))
    return found[HostKind.WAITING], found[HostKind.MPI]


@pytest.mark.parametrize(("deed", "code"), [("killed", -signal.SIGALRM), ("exits", 0)])
def test_a_barrier_that_never_returns_is_in_the_recording_and_no_useful_time(deed, code, tmp_path):
    ran = run(tmp_path, [hanging(), deed], preload=[library()])
    assert ran.code == code
    waits, over = barrier(ran.only)
    assert over == [] and (ran.only.end is None) == (deed == "killed")
    (start,) = {start for start, _, _ in waits}  # told again and again, of one call
    assert [end for _, end, _ in waits] == sorted(end for _, end, _ in waits) and waits[-1][1] > start
    report = read_trace(ran.only.path).report()
    assert report.whole.host_parts[0].communication == waits[-1][1] - start
    assert report.whole.host_parts[0].useful < 0.2 * report.whole.elapsed


def test_a_long_barrier_that_returns_counts_once(tmp_path):
    ran = run(tmp_path, [hanging()], preload=[library()])
    waits, [(start, end, thread)] = barrier(ran.only)
    assert waits and {(one, who) for one, _, who in waits} == {(start, thread)}
    assert read_trace(ran.only.path).report().whole.host_parts[0].communication == end - start + ran.only.info["mpi_between_ns"]


HELPED = """
#include <pthread.h>
#include <unistd.h>
#ifdef LIBRARY
int MPI_Init(void *a, void *b) { (void)a, (void)b; return 0; }
int MPI_Recv(long time) { usleep(time); return 0; }
int MPI_Finalize(void) { return 0; }
#else
int MPI_Init(void *, void *), MPI_Recv(long), MPI_Finalize(void);
static void *serve(void *given) { MPI_Recv(300000); return given; }
int main(int count, char **words) {
    pthread_t thread;
    (void)words;
    MPI_Init(NULL, NULL);
    pthread_create(&thread, NULL, serve, NULL);
    usleep(200000); /* computes */
    pthread_join(thread, NULL);
    if (count > 1) _exit(0);
    MPI_Finalize();
}
#endif
"""


@pytest.mark.parametrize("words", [[], ["leaves"]])
def test_a_process_that_computes_while_its_helper_waits_in_mpi_computes(words, tmp_path):
    double = compiled(HELPED, "libhelped.so", ("-DLIBRARY", "-shared", "-fPIC", "-Wl,-soname,libhelped.so"))
    program = compiled(HELPED, "program", (f"-L{double.parent}", "-lhelped", f"-Wl,-rpath,{double.parent}"))
    ran = run(tmp_path, [program, *words], preload=[library()], ULLAGE_FLUSH="100000")
    report = read_trace(ran.only.path).report()
    (part,) = report.whole.host_parts
    assert part.communication == 0 and part.useful == report.whole.elapsed > 250 * MILLISECOND
    assert any("1 thread was in MPI beside the first thread" in note for note in report.notes)


def test_a_wait_of_pytorchs_that_never_returns_is_in_the_recording(tmp_path):
    code = (
        f"import os, signal, sys, time; sys.path.insert(0, {str(HOOK)!r})\n"
        "import _ullage_waits as hook\n"
        "waits = hook.Waits(hook.recorder())\n"
        "waits.begin(b'all_reduce'); waits.end(); waits.begin(b'barrier'); waits.begin(b'send'); waits.end()\n"
        "time.sleep(0.6); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    recording = run(tmp_path, [sys.executable, "-c", code]).only
    assert recording.did(HostKind.MPI) == ["all_reduce"]  # what is inside the barrier is its time
    assert set(recording.did(HostKind.WAITING)) == {"barrier"}


def test_without_a_folder_to_record_to_mpi_s_functions_are_only_passed_on(tmp_path):
    program, _ = mpich(tmp_path)
    ran = run(tmp_path, [program], preload=[library()], ULLAGE_RECORD="")
    assert (ran.code, ran.output, ran.recordings) == (6, "0 0 -17 287 0 5 0\n", [])


def test_without_the_recorder_the_double_does_the_same(tmp_path):
    program, _ = mpich(tmp_path)
    assert run(tmp_path, [program]).output == "0 0 -17 287 0 5 0\n"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "SLURM_PROCID": "0"}, (1, 4, 0)),
        ({"PMI_RANK": "2", "PMI_SIZE": "8", "MPI_LOCALRANKID": "2"}, (2, 8, 2)),
        ({"MV2_COMM_WORLD_RANK": "3", "MV2_COMM_WORLD_SIZE": "6", "MV2_COMM_WORLD_LOCAL_RANK": "1"}, (3, 6, 1)),
        ({"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "3", "FLUX_TASK_LOCAL_ID": "0"}, (1, 3, 0)),
        ({"RANK": "5", "WORLD_SIZE": "16", "LOCAL_RANK": "5", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, (5, 16, 5)),
        ({"SLURM_PROCID": "7", "SLURM_STEP_NUM_TASKS": "32", "SLURM_LOCALID": "3"}, (7, 32, 3)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "32"}, (None, None, None)),  # a batch script
        ({"PMI_RANK": "4", "PMI_SIZE": "4", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, (1, 2, 1)),
        ({"RANK": "-1", "WORLD_SIZE": "many", "LOCAL_RANK": "1x"}, (None, None, None)),
        ({}, (None, None, None)),
    ],
)
def test_ranks_are_told_by_whatever_started_the_program(tmp_path, names, expected):
    program = compiled(HERE / "recorder_program.c", "program")
    info = run(tmp_path, [program, "nested"], **names).only.info
    assert (info.get("rank"), info.get("ranks"), info.get("local_rank")) == expected
    where = place(names)
    assert (None, None, None) if where is None else (where.rank, where.ranks, where.local) == expected


def test_the_recorder_and_the_command_know_the_same_launchers():
    text = (FOLDER / "settings.c").read_text()
    table = re.findall(r'\{"(\w+)", "(\w+)", "(\w+)"\}', text)
    assert table == [(one.rank, one.ranks, one.local) for one in LAUNCHERS]
