"""Whatever happens to a program, to CUPTI or to the disk: the program goes its way, and what could be recorded is there."""

from __future__ import annotations

import errno
import re
import subprocess
import sys

import pytest

from tests.cupti import cupti_double
from tests.cupti.cupti_counting import WORK, double
from tests.recorder.recorder_runs import HERE, TRACED, compiled, in_python, library, program, run, run_cuda, run_program
from ullage.cupti.chunks import ChunkType, HostKind, chunks
from ullage.cupti.counters.recorded import plan
from ullage.cupti.kinds import ActivityKind

INTERFACE = (HERE.parents[1] / "src/ullage/cupti/native/cupti_interface.h").read_text()
FUNCTIONS = [name for name in re.findall(r"X\((cupti\w+),", INTERFACE) if not name.endswith("_v2")]
SHARED = ("-shared", "-fPIC")


def code_of(ran, what):
    return next((problem["code"] for problem in ran.only.info.get("problems", ()) if problem["what"] == what), None)


# --- how programs end ---


@pytest.mark.parametrize(("how", "code"), [(["--exit", "7"], 7), (["--abort"], -6), (["--kill"], -9)])
def test_a_program_s_own_end_is_passed_on_and_what_was_flushed_is_kept(tmp_path, how, code):
    # a flush every 50 ms: of half a second of kernels all but the last are there, each as the program did it
    ran = run_cuda(tmp_path, "--seconds", "0.5", *how)
    (told,) = cupti_double.told(ran.output)
    assert (ran.code, ran.errors) == (code, "")
    kept = ran.only.operations()
    assert set(kept) <= set(told.operations)
    assert kept
    assert (ran.only.end is None) == (code < 0)
    assert code < 0 or len(kept) == len(told.operations)


def test_a_child_that_begins_cuda_itself_has_its_own_recording(tmp_path):
    ran = run_cuda(tmp_path, "--fork")
    told = cupti_double.told(ran.output)
    assert len(told) == len(ran.recordings) == 2
    for one in told:
        assert ran.of(one.pid).operations() == sorted(one.operations)


def test_a_child_of_a_program_that_is_traced_leaves_cupti_alone(tmp_path):
    # CUPTI's threads stay with the parent: what the child launches can't be recorded, what it does on the host can
    pid = in_python(tmp_path, """
path = r.attach("rec"); launch(); open_one = r.begin("parent's")
pid = os.fork()
if not pid:
    launch(); r.end(open_one); r.end(r.begin("child's")); r.flush(); sys.exit(0)
os.waitpid(pid, 0); launch(); r.end(open_one); r.detach()
print(json.dumps([os.getpid(), pid]))
""")  # fmt: skip
    ran = run(tmp_path, ["true"])
    parent, child = (ran.of(one) for one in pid)
    assert (parent.did(), len(parent.records(ActivityKind.CONCURRENT_KERNEL))) == (["parent's"], 2)
    assert (child.did(), child.buffers, child.info["parent"]) == (["child's"], [], pid[0])
    assert child.end is not None


def test_a_child_records_to_its_own_file_or_to_none(tmp_path):
    ran = run_program(tmp_path, "fork")
    assert ran.output == "7\n"  # the child's own exit code
    parent, child = ran.recordings
    assert (parent.did(), child.did()) == (["parent's"], ["child's"])
    assert child.info["parent"] == parent.info["pid"]


def test_a_child_that_does_nothing_leaves_no_file(tmp_path):
    assert run_program(tmp_path, "fork quietly").only.did() == ["parent's"]


def test_a_child_forked_past_the_c_library_writes_nothing_into_its_parent_s_file(tmp_path):
    assert run_program(tmp_path, "fork raw").only.did() == ["parent's"]


def test_a_program_that_becomes_another_leaves_a_recording_for_each(tmp_path):
    first, second = run_program(tmp_path, "exec").recordings
    assert first.info["pid"] == second.info["pid"]
    assert (first.did(), first.end) == (["before exec"], None)
    assert second.did() == ["inner", "outer"]
    (tmp_path / "cuda").mkdir()
    ran = run_cuda(tmp_path / "cuda", "--exec", "--kernels", "3")
    assert [len(one.operations) for one in cupti_double.told(ran.output)] == [5, 5]
    assert ran.recordings[-1].operations() == sorted(cupti_double.told(ran.output)[1].operations)


def test_an_open_region_of_a_program_that_ends_at_once_is_known(tmp_path):
    ran = run_program(tmp_path, "open")
    assert (ran.code, ran.only.did(HostKind.OPEN), ran.only.did(), ran.only.end) == (3, ["never ends"], [], None)


def test_what_was_not_flushed_when_a_program_aborts_is_gone_and_nothing_else(tmp_path):
    ran = run_program(tmp_path, "lost", ULLAGE_FLUSH="0")
    assert (ran.code, ran.only.did()) == (-6, ["kept"])


def test_quick_exit_is_an_end_as_well(tmp_path):
    ran = run_program(tmp_path, "quick")
    assert (ran.code, ran.only.did(), ran.only.end is not None) == (6, ["quick"], True)


def test_handlers_and_destructors_at_the_end_are_still_recorded(tmp_path):
    # handlers run in the reverse of their order, ours in between; whatever comes later is appended after END
    assert run_program(tmp_path, "late").only.did() == ["early", "in a handler", "in a handler", "in a destructor"]


# --- what programs do ---


def test_a_program_that_closes_all_its_files_keeps_them_to_itself(tmp_path):
    ran = run_program(tmp_path, "closed")
    name, size = ran.output.split()
    assert (tmp_path / name).read_text() == "x" * int(size)  # its own bytes, none of ours
    assert ran.only.did() == ["before", "after"]


def test_a_relative_folder_is_where_the_program_began(tmp_path):
    assert run_program(tmp_path, "chdir", ULLAGE_RECORD="rec").only.did() == ["elsewhere"]


def test_a_cancelled_thread_keeps_no_lock(tmp_path):
    assert run_program(tmp_path, "cancel").only.did()[-1] == "afterwards"


def test_errno_stays_as_it_was(tmp_path):
    assert run_program(tmp_path, "errno").output == "77\n"


def test_attaching_twice_goes_to_the_first_folder_and_after_detaching_to_the_next(tmp_path):
    ran = run_program(tmp_path, "attach", ULLAGE_RECORD="")
    assert ran.output == f"0 0 0 {errno.ENOENT} 0 0\n"
    told = [run(tmp_path / folder, ["true"]).recordings for folder in ("one", "two")]
    assert told == [[], []]  # they lie in the folders themselves
    ran = run(tmp_path, ["sh", "-c", "mkdir rec; mv one/* two/* rec"])
    assert sorted(name for one in ran.recordings for name in one.did()) == ["in one", "in two"]


# --- the disk ---


@pytest.mark.parametrize("folder", ["/proc/nothing", "/dev/null/rec", "/dev/full"])
def test_where_no_file_can_be_made_the_program_runs_as_ever(tmp_path, folder):
    ran = run_cuda(tmp_path, "--exit", "3", ULLAGE_RECORD=folder)
    assert (ran.code, ran.errors, ran.recordings) == (3, "", [])


def test_a_limit_on_the_size_of_files_ends_the_recording_not_the_program(tmp_path):
    # the limit's signal, SIGXFSZ, would end the program; chunks that don't fit are left out whole
    ran = run_program(tmp_path, "limit")
    assert (ran.code, ran.only.did()[0]) == (0, "fits")
    assert ran.only.path.stat().st_size <= 2048


def test_where_no_file_may_have_a_byte_the_program_runs_as_ever(tmp_path):
    ran = run(tmp_path, ["sh", "-c", f"ulimit -f 0; exec {program()} nested"])
    assert (ran.code, ran.errors, list((tmp_path / "rec").iterdir())) == (0, "", [])


def test_a_disk_that_is_nearly_full_is_left_to_the_program(tmp_path):
    ran = run_cuda(tmp_path, ULLAGE_RESERVE=str(1 << 60))
    assert (ran.code, ran.only.buffers, code_of(ran, "write")) == (0, [], errno.ENOSPC)
    assert ran.only.end["lost_bytes"] > 0


def test_a_nearly_full_disk_gets_no_chunk_of_any_kind_but_who_ran_and_how_it_ended(tmp_path):
    ran = run_program(tmp_path, "threads", ULLAGE_RESERVE=str(1 << 60))
    with ran.only.path.open("rb") as file:
        assert {chunk.type for chunk in chunks(file, "it")} == {ChunkType.INFO, ChunkType.END}
    assert (ran.code, code_of(ran, "write")) == (0, errno.ENOSPC)
    assert ran.only.end["records"] == 0 and ran.only.end["lost"] >= 40_000  # 4 threads × 5,000 regions × 2 records


SHORT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/uio.h>
ssize_t writev(int file, const struct iovec *parts, int count) { /* the disk is full in the middle of each larger chunk */
    ssize_t (*real)(int, const struct iovec *, int) = (ssize_t (*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    return real(file, parts, count > 1 && parts[1].iov_len + (count > 3) * parts[2].iov_len > 1500 ? 2 : count);
}
"""


def test_a_chunk_that_was_cut_is_taken_back(tmp_path):
    ran = run_cuda(tmp_path, "--kernels", "40", preload=[compiled(SHORT, "short.so", SHARED)])
    assert (ran.code, code_of(ran, "write")) == (0, errno.ENOSPC)
    # a busy machine may flush a small buffer early, which the disk still takes
    assert all(len(buffer) <= 1500 for buffer in ran.only.buffers)
    assert ran.only.end["lost_bytes"] > 2000


# --- CUPTI ---


@pytest.mark.parametrize("function", FUNCTIONS)
def test_whatever_of_cupti_fails_the_program_runs_and_the_failure_is_told(tmp_path, function):
    ran = run_cuda(tmp_path, "--exit", "5", CUPTI_DOUBLE_FAULTS=f"{function}=999")
    (told,) = cupti_double.told(ran.output)
    assert (ran.code, ran.errors, told.launches) == (5, "", 10)
    assert ran.only.end is not None
    if function in (
        "cuptiActivityRegisterCallbacks",
        "cuptiActivityFlushAll",
        "cuptiActivityFlushPeriod",
        "cuptiSetThreadIdType",
        "cuptiSubscribe",
    ):
        assert code_of(ran, function) == 999
    if function == "cuptiActivityEnable":
        assert set(ran.only.info["kinds"].values()) == {999}


@pytest.mark.parametrize("good", range(0, 40, 4))
def test_an_error_in_the_middle_stops_nothing(tmp_path, good):
    ran = run_cuda(tmp_path, "--exit", "5", CUPTI_DOUBLE_FAULTS=f"error-after={good}")
    (told,) = cupti_double.told(ran.output)
    assert (ran.code, told.launches, ran.only.end is not None) == (5, 10, True)
    assert set(ran.only.operations()) <= set(told.operations)


def test_another_subscriber_keeps_cupti_to_itself(tmp_path):
    ran = run_cuda(tmp_path, CUPTI_DOUBLE_FAULTS="subscriber")
    assert (ran.code, code_of(ran, "cuptiSubscribe"), ran.only.info["kinds"], ran.only.buffers) == (0, 39, {}, [])


def test_without_the_privilege_each_kind_says_so(tmp_path):
    ran = run_cuda(tmp_path, CUPTI_DOUBLE_FAULTS="privileges")
    assert (ran.code, set(ran.only.info["kinds"].values())) == (0, {35})


def test_what_cupti_drops_is_counted(tmp_path):
    ran = run_cuda(tmp_path, "--kernels", "20", CUPTI_DOUBLE_FAULTS="dropped=4")
    (told,) = cupti_double.told(ran.output)
    assert ran.only.dropped == ran.only.end["dropped"] == 4
    assert len(ran.only.operations()) == len(told.operations) - 4


def test_memory_is_bounded_and_what_finds_no_room_is_counted(tmp_path):
    # one buffer of 4 KiB holds 18 records of 224 bytes; while it is written there is no other
    ran = run_cuda(tmp_path, "--kernels", "400", "--flood", ULLAGE_KINDS="10", ULLAGE_BUFFER="4096", ULLAGE_MEMORY="4096")
    kept = len(ran.only.records(ActivityKind.CONCURRENT_KERNEL))
    assert kept + ran.only.dropped == 400
    assert ran.only.end["memory_peak"] == 4096


@pytest.mark.parametrize("fault", ["full=3", "disorder", "unknown-kind=200"])
def test_odd_buffers_are_kept_as_they_are(tmp_path, fault):
    ran = run_cuda(tmp_path, "--kernels", "12", ULLAGE_KINDS="10,1", CUPTI_DOUBLE_FAULTS=fault)
    (told,) = cupti_double.told(ran.output)
    assert ran.only.operations() == sorted(told.operations)


def test_buffers_after_a_kind_that_nobody_knows_are_kept(tmp_path):
    ran = run_cuda(tmp_path, "--kernels", "12", ULLAGE_KINDS="10", CUPTI_DOUBLE_FAULTS="unknown-kind=5")
    # 12 records of 224 bytes and one of 48 that can't be read past: it's the reader who must say so
    assert sum(map(len, ran.only.buffers)) == 12 * 224 + 48


def test_no_library_is_a_problem_of_the_recording_alone(tmp_path):
    ran = run_cuda(tmp_path, "--exit", "5", ULLAGE_CUPTI="/nowhere/libcupti.so")
    assert (ran.code, ran.errors, code_of(ran, "dlopen libcupti")) == (5, "", -1)


LITTLE = """
int cuptiActivityRegisterCallbacks(void *a, void *b) { return 0; }
int cuptiActivityEnable(int kind) { return 0; }
"""
HANGING = LITTLE + "int pause(void); int cuptiActivityFlushAll(unsigned flag) { for (;;) pause(); }"


def test_a_library_that_lacks_functions_is_let_alone(tmp_path):
    ran = run_cuda(tmp_path, "--exit", "5", ULLAGE_CUPTI=str(compiled(LITTLE, "libcupti.so", SHARED)))
    assert (ran.code, code_of(ran, "cuptiActivityFlushAll"), ran.only.info["kinds"]) == (5, -1, {})


@pytest.mark.parametrize("flush", ["0", "50"])
def test_cupti_that_never_answers_keeps_the_program_no_longer_than_the_deadline(tmp_path, flush):
    hanging = str(compiled(HANGING, "libcupti.so", SHARED))
    ran = run_cuda(tmp_path, "--exit", "5", ULLAGE_CUPTI=hanging, ULLAGE_DEADLINE="200", ULLAGE_FLUSH=flush, timeout=30)
    assert (ran.code, code_of(ran, "cuptiActivityFlushAll"), ran.only.end is not None) == (5, errno.ETIMEDOUT, True)


NO_THREADS = "int pthread_create(void *a, void *b, void *c, void *d) { return 11; }"


def test_without_threads_of_its_own_the_recorder_writes_at_once(tmp_path):
    preload = [compiled(NO_THREADS, "nothreads.so", SHARED)]
    ran = run_cuda(tmp_path, "--kernels", "40", preload=preload, ULLAGE_BUFFER="4096")
    (told,) = cupti_double.told(ran.output)
    assert ran.only.operations() == sorted(told.operations)
    assert code_of(ran, "pthread_create") == errno.EAGAIN


def test_another_tool_s_injection_is_called_first(tmp_path):
    source = (
        f'#include <fcntl.h>\nint InitializeInjection(void) {{ return open("{tmp_path}/called", O_CREAT | O_EXCL | O_WRONLY, 0600) >= 0; }}'
    )
    ran = run_cuda(tmp_path, ULLAGE_NEXT_INJECTION=str(compiled(source, "other.so", SHARED)))
    assert (ran.code, (tmp_path / "called").exists(), len(ran.only.operations())) == (0, True, 12)


def test_another_tool_s_injection_that_is_not_there_is_a_problem_of_the_recording_alone(tmp_path):
    ran = run_cuda(tmp_path, ULLAGE_NEXT_INJECTION="/nowhere.so")
    assert (ran.code, code_of(ran, "dlopen ULLAGE_NEXT_INJECTION"), len(ran.only.operations())) == (0, -1, 12)


BEGINS_CUDA = """
#include <dlfcn.h>
#include <stdlib.h>
int cuptiActivityRegisterCallbacks(void *a, void *b) { return 0; }
int cuptiActivityFlushAll(unsigned flag) { return 0; }
int cuptiActivityEnable(int kind) { /* what is asked for first begins CUDA, and that injects */
    int (*initialize)(void) = (int (*)(void))dlsym(dlopen(getenv("ULLAGE_RECORDER"), RTLD_NOW), "InitializeInjection");
    return initialize() == 1 ? 0 : 9;
}
"""


def test_attaching_that_makes_the_driver_inject_the_recorder_waits_for_nobody(tmp_path):
    cupti = str(compiled(BEGINS_CUDA, "libcupti.so", SHARED))
    ran = run_program(tmp_path, "attach", ULLAGE_RECORD="", ULLAGE_CUPTI=cupti, ULLAGE_KINDS="10", timeout=20)
    assert ran.output.split()[:3] == ["0", "0", "0"]


def test_the_recorder_as_its_own_next_injection_is_called_once(tmp_path):
    assert len(run_cuda(tmp_path, ULLAGE_NEXT_INJECTION=str(library())).only.operations()) == 12


def test_nvtx_gets_its_functions_from_cupti(tmp_path):
    source = "int InitializeInjectionNvtx2(void *table) { return table == (void *)7 ? 1 : 9; }"
    code = f"import ctypes; print(ctypes.CDLL({str(library())!r}).InitializeInjectionNvtx2(ctypes.c_void_p(7)))"
    for wanted, answer in (("1", "1\n"), ("0", "0\n")):
        cupti = str(compiled(source, "libcupti.so", SHARED))
        assert run(tmp_path, [sys.executable, "-c", code], ULLAGE_CUPTI=cupti, ULLAGE_NVTX=wanted).output == answer


def test_it_speaks_only_when_asked(tmp_path):
    assert run_cuda(tmp_path, ULLAGE_CUPTI="/nowhere").errors == ""
    assert "ullage recorder: dlopen libcupti" in run_cuda(tmp_path, ULLAGE_CUPTI="/nowhere", ULLAGE_DEBUG="1").errors


# --- under the compilers' own watch ---

DEEDS = ("nested", "disordered", "threads", "closed", "fork", "limit", "errno", "attach", "strings", "late", "quick")


@pytest.mark.full
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_sanitizers_find_nothing(tmp_path, sanitizer):
    flag, runtime = f"-fsanitize={sanitizer}", {"thread": "libtsan.so"}.get(sanitizer, "libasan.so")
    recorder = library(flag, "-g", "-O1", "-fno-omit-frame-pointer")
    found = subprocess.run(["gcc", f"-print-file-name={runtime}"], capture_output=True, text=True, check=True).stdout.strip()
    options = {"ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0", "TSAN_OPTIONS": "report_signal_unsafe=0:die_after_fork=0"}
    tried = run(tmp_path, ["true"], preload=[found], **options)
    if tried.code:
        pytest.skip(f"{runtime} doesn't run here")
    for deed in DEEDS:
        ran = run(tmp_path, [compiled(HERE / "recorder_program.c", "program"), deed], preload=[found], recorder=recorder, **options)
        assert ran.errors == "", deed
    counters = tmp_path / "counters.plan"
    counters.write_bytes(plan(double(), "GH100", [WORK], 50))
    for more in (
        {}, {"ULLAGE_BUFFER": "4096"}, {"ULLAGE_CALLBACKS": "runtime,driver"}, {"ULLAGE_MEMORY": "8192", "ULLAGE_BUFFER": "4096"},
        {"ULLAGE_COUNTERS": str(counters), "ULLAGE_CUPTI": str(cupti_double.wheel())},
    ):  # fmt: skip
        ran = run_cuda(tmp_path, "--threads", "4", "--kernels", "200", recorder=recorder, preload=[found], **TRACED | options | more)
        assert (ran.code, ran.errors) == (0, "")
