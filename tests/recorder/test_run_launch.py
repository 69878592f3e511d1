"""How `ullage run` starts a program: its environment, its signals, its exit code; which rank it is; where recordings meet."""

from __future__ import annotations

import ast
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ullage.errors import UllageError
from ullage.live.gathering import gathering
from ullage.live.launch import HOOK, NotRun, RecorderSettings, _Passing, environment, run
from ullage.live.ranks import RankPlace, place

RECORDER = RecorderSettings(Path("/r.so"), Path("/out"), Path("/libcupti.so.13"), (10, 1), "10:104")


def test_a_program_gets_the_recorder_and_keeps_what_others_preloaded():
    given = environment(RECORDER, {"LD_PRELOAD": "/tcmalloc.so", "PYTHONPATH": "/mine", "HOME": "/h"})
    assert given["LD_PRELOAD"] == "/r.so:/tcmalloc.so" and given["PYTHONPATH"] == f"{HOOK}:/mine" and given["HOME"] == "/h"
    assert given["CUDA_INJECTION64_PATH"] == "/r.so" and given["ULLAGE_KINDS"] == "10,1" and given["ULLAGE_NAMES"] == "10:104"
    assert "ULLAGE_NEXT_INJECTION" not in given


def test_another_tools_injection_is_handed_on_and_our_own_is_not():
    assert environment(RECORDER, {"CUDA_INJECTION64_PATH": "/nsys.so"})["ULLAGE_NEXT_INJECTION"] == "/nsys.so"
    assert "ULLAGE_NEXT_INJECTION" not in environment(RECORDER, {"CUDA_INJECTION64_PATH": "none"})
    assert "ULLAGE_NEXT_INJECTION" not in environment(RECORDER, {"CUDA_INJECTION64_PATH": "/r.so"})


def test_without_cupti_the_driver_is_left_alone_and_mpi_is_still_seen():
    given = environment(RecorderSettings(Path("/r.so"), Path("/out")), {}, python=False)
    assert "CUDA_INJECTION64_PATH" not in given and "PYTHONPATH" not in given and given["LD_PRELOAD"] == "/r.so"


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)])
def test_the_exit_code_is_the_programs_own(script, code):
    assert run(["sh", "-c", script], dict(os.environ)) == code


def test_a_signal_to_us_reaches_the_program():
    script = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(9)); print('ready', flush=True); time.sleep(60)"
    driver = f"import os, sys; from ullage.live.launch import run; sys.exit(run([sys.executable, '-c', {script!r}], dict(os.environ)))"
    ours = subprocess.Popen([sys.executable, "-c", driver], stdout=subprocess.PIPE, text=True)
    assert ours.stdout.readline() == "ready\n"
    ours.send_signal(signal.SIGTERM)
    assert ours.wait(30) == 9


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [("no-such-program", 127, "there is no program"), (".", 126, "is a folder"), ("notes.txt", 126, "no program that can")],
)
def test_what_is_no_program_is_said_with_the_code_of_a_shell(tmp_path, monkeypatch, name, code, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(NotRun, match=words) as error:
        run([name], dict(os.environ))
    assert error.value.code == code


def test_a_signal_that_comes_before_the_program_is_there_waits_for_it():
    passing = _Passing()
    passing(signal.SIGTERM, None)
    child = subprocess.Popen(["sleep", "60"])
    passing.to(child)
    assert child.wait(30) == -signal.SIGTERM


def launched(*command, before="", **options):
    """What a program prints that was started by `run` in a process of its own, after some other code."""
    code = f"import os, signal; from ullage.live.launch import run\n{before}\nrun({command!r}, dict(os.environ))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, **options).stdout


def test_signals_that_we_ignore_the_program_ignores_too():
    # as nohup does it
    code = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"
    assert launched(sys.executable, "-c", code, before="signal.signal(signal.SIGHUP, signal.SIG_IGN)") == "True True\n"


def test_open_files_and_its_own_name_reach_the_program(tmp_path):
    # as `ullage run -- program <(other)` and make's jobs need it
    (tmp_path / "told").write_text("from a file, ")
    with (tmp_path / "told").open() as file:
        os.set_inheritable(file.fileno(), True)
        assert launched("sh", "-c", f"cat /dev/fd/{file.fileno()}; echo $0", close_fds=False) == "from a file, sh\n"


def test_a_program_that_is_not_in_path_is_pointed_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    (tmp_path / "bare").write_text("echo hi\n")
    (tmp_path / "bare").chmod(0o755)
    with pytest.raises(NotRun, match="in PATH") as error:
        run(["tool"], dict(os.environ))
    assert error.value.hint == "the one in this folder is ./tool" and error.value.code == 127
    with pytest.raises(NotRun, match="Exec format") as error:
        run(["./bare"], dict(os.environ))
    assert "#!/bin/sh" in error.value.hint and error.value.code == 126


def test_ranks_are_told_by_every_launchers_words():
    assert place({"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0"}).rank == 2
    slurm = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3"}
    assert place(slurm) == RankPlace(5, 8, 1, "77-3", unique=True)
    assert place({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}).ranks == 2
    assert place({"RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "2"}).here == 2


def test_a_batch_script_of_slurm_is_no_rank_of_its_job():
    assert place({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "77"}) is None


TORCH = {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "n1"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "4"}
SLURM = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3", "SLURM_STEP_NUM_TASKS": "4"}


def test_two_launches_of_one_user_at_the_same_time_have_two_names():
    # torchrun calls each run without a name "none"; the port tells them apart
    first, second = (place(TORCH | {"MASTER_PORT": port}) for port in ("29601", "29602"))
    assert first.job != second.job and "none" not in first.job and first.unique and second.unique
    restarted = place(TORCH | {"MASTER_PORT": "29601", "TORCHELASTIC_RESTART_COUNT": "1"})
    assert restarted.job != first.job
    # a job that was put back in the queue has the same number
    assert place(MPICH | SLURM).job != place(MPICH | SLURM | {"SLURM_RESTART_COUNT": "1"}).job


def test_a_word_that_only_names_the_batch_job_does_not_name_the_launch():
    assert place(MPICH | SLURM).unique  # srun started as many
    assert not place(MPICH | {"SLURM_JOB_ID": "77"}).unique  # mpirun in a batch script, maybe twice at once
    assert not place(MPICH | SLURM | {"SLURM_STEP_NUM_TASKS": "2"}).unique  # srun started what started them
    assert not place(MPICH).unique and not place(TORCH).unique


def test_all_ranks_of_a_launch_have_one_name():
    # MVAPICH's PMI_ID is the rank
    mvapich = [place({"MV2_COMM_WORLD_RANK": n, "MV2_COMM_WORLD_SIZE": "2", "PMI_ID": n, "SLURM_JOB_ID": "7"}) for n in "01"]
    assert mvapich[0].job == mvapich[1].job == "7"
    # Open MPI's daemons on other hosts are a step of Slurm's, its ranks beside mpirun are not
    ompi = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "8", "PMIX_NAMESPACE": "11", "SLURM_JOB_ID": "7"}
    assert place(ompi).job == place(ompi | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}).job


def test_long_names_that_begin_alike_stay_apart():
    names = [place(TORCH | {"TORCHELASTIC_RUN_ID": "x" * 200 + end}).job for end in "ab"]
    assert names[0] != names[1] and max(map(len, names)) <= 80


@pytest.mark.parametrize("env", [{}, {"RANK": "5", "WORLD_SIZE": "2"}, {"PMI_RANK": "-1", "PMI_SIZE": "2"}, {"SLURM_PROCID": "0"}])
def test_one_process_or_nonsense_is_no_rank(env):
    assert place(env) is None


def of_two(folder, keep=None, **more):
    """What the ranks 0 and 1 of a job get."""
    return [gathering(keep, RankPlace(rank, 2, rank, "job-1", unique=True, **more), folder) for rank in (0, 1)]


def test_ranks_of_one_job_meet_in_one_folder_that_nobody_else_may_use(tmp_path):
    first, second = of_two(tmp_path)
    assert first.folder == second.folder and first.folder.stat().st_mode & 0o077 == 0 and first.own != second.own
    assert first.answers and not second.answers and first.ended() == {}
    second.done(0)
    assert first.ended() == {1: 0}


def test_rank_0_waits_for_the_others_and_no_longer_than_it_was_told(tmp_path):
    first, second = of_two(tmp_path)
    first.done(0)
    assert first.wait(0.0) == ({0: 0}, [1])
    threading.Timer(0.1, second.done, (0,)).start()
    assert first.wait(30.0) == ({0: 0, 1: 0}, [])


def test_where_a_rank_failed_the_others_are_not_waited_for_long(tmp_path):
    # they may hang for want of it, and are ended when this one ends; 600 s would be the test's end
    first, _ = of_two(tmp_path)
    first.done(134)
    assert first.wait(600.0) == ({0: 134}, [1])


def test_ranks_of_other_hosts_are_not_waited_for_where_they_cant_be_seen(tmp_path):
    first, _ = of_two(tmp_path, here=1)
    first.done(0)
    assert first.wait(600.0) == ({0: 0}, [1])


def test_what_an_earlier_job_of_that_name_left_is_not_taken_for_this_ones(tmp_path):
    before = of_two(tmp_path)
    for rank in before:
        (rank.own / "node-1-2.ullage").write_bytes(b"old")
        rank.done(0)
    wider = gathering(None, RankPlace(7, 8, 7, "job-1", unique=True), tmp_path)  # an earlier job was larger
    (wider.own / "node-1-9.ullage").write_bytes(b"old")
    first, second = of_two(tmp_path)
    assert first.ended() == {} and first.recordings() == []
    (second.own / "node-1-3.ullage").write_bytes(b"new")
    assert [path.name for path in first.recordings()] == ["node-1-3.ullage"]


def test_a_rank_whose_rank_0_is_elsewhere_leaves_nothing_behind(tmp_path):
    alone = gathering(None, RankPlace(1, 2, 0, "job-1", here=1, unique=True), tmp_path)
    (alone.own / "node-2-3.ullage").write_bytes(b"")
    alone.remove(sleep=lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_ends_after_rank_0_has_gone_is_no_error(tmp_path):
    first, second = of_two(tmp_path)
    first.remove()
    second.done(0)
    second.remove()
    assert list(tmp_path.iterdir()) == []


def test_ranks_keep_their_recordings_apart_and_refuse_those_of_an_earlier_run(tmp_path):
    first, second = of_two(tmp_path, keep=tmp_path / "kept")
    (second.own / "node-1-3.ullage").write_bytes(b"")
    for rank in (second, first):
        rank.remove()
    assert first.recordings() == [second.own / "node-1-3.ullage"]
    with pytest.raises(UllageError, match="earlier run"):
        gathering(tmp_path / "kept", RankPlace(1, 2, 1, "job-2"), strict=True)
    # of which rank 0 left nothing: the ranks of the next one meet all the same
    again = [gathering(tmp_path / "kept", RankPlace(rank, 2, rank, "job-2")) for rank in (0, 1)]
    assert {rank.folder for rank in again} == {tmp_path / "kept" / "run-job-2-2"} and all("earlier run" in rank.notes[0] for rank in again)


PLANTED = {
    "link": lambda name: name.symlink_to(name.parent),
    "file": lambda name: name.write_text(""),
    "writable": lambda name: (name.mkdir(), name.chmod(0o777)),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_folder_of_somebody_else_s_keeps_no_rank_from_starting(planted, tmp_path):
    name = tmp_path / f"ullage-run-{os.getuid()}-job-1"
    PLANTED[planted](name)
    first, second = of_two(tmp_path)
    assert first.folder == second.folder == name.with_name(f"{name.name}-2")
    assert "what was recorded went to" in first.notes[0] and not first.kept
    with pytest.raises(UllageError):
        gathering(None, RankPlace(0, 2, 0, "job-1", unique=True), tmp_path, strict=True)


def test_where_every_name_is_taken_there_is_one_error(tmp_path):
    for number in ("", *(f"-{n}" for n in range(2, 11))):
        (tmp_path / f"ullage-run-{os.getuid()}-job-1{number}").write_text("")
    with pytest.raises(UllageError, match="can't be used"):
        of_two(tmp_path)


def test_launches_that_only_the_batch_job_names_meet_by_who_started_them(tmp_path):
    run = gathering(None, RankPlace(0, 2, 0, "77"), tmp_path)
    assert run.folder.name == f"ullage-run-{os.getuid()}-77-{os.getppid()}"


def test_runs_after_an_earlier_one_go_into_the_folder_it_kept(tmp_path):
    (tmp_path / "host-1.ullage").write_bytes(b"")
    with pytest.raises(UllageError, match="earlier run"):
        gathering(tmp_path, None, strict=True)
    for number in (2, 3):
        run = gathering(tmp_path, None)
        assert (run.folder, run.kept) == (tmp_path / f"run-{number}", True) and "earlier run" in run.notes[0]
        (run.own / "host-1.ullage").write_bytes(b"")


def test_what_can_t_be_kept_where_it_should_is_kept_elsewhere(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "tmp").mkdir()
    run = gathering(tmp_path / "file" / "kept", None, tmp_path / "tmp")
    assert run.kept and run.folder.parent == tmp_path / "tmp" and "can't be used" in run.notes[0]


def test_a_temporary_folder_goes_and_a_kept_one_stays(tmp_path):
    temporary, kept = gathering(None, None, tmp_path), gathering(tmp_path / "kept", None)
    temporary.remove()
    kept.remove()
    assert not temporary.folder.exists() and kept.folder.is_dir()


def waits():
    spec = importlib.util.spec_from_file_location("_ullage_waits", HOOK / "_ullage_waits.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Noted:
    """A recorder that keeps what it is told."""

    def __init__(self):
        self.told = []

    def ullage_now(self):
        return time.monotonic_ns()

    def ullage_host(self, kind, name, start, end, size):
        self.told.append((kind, name, end - start, size))


def wrapped(module, noted):
    """A module whose functions are timed, as the hook does it."""
    hook = waits()
    hook.wrap(module, tuple(vars(module)), noted, hook.Waits(noted))
    return module


def test_only_the_outermost_call_of_torch_distributed_counts():
    def broadcast(value):
        return value

    module, noted = SimpleNamespace(broadcast=broadcast), Noted()
    module.broadcast_object_list = lambda value: module.broadcast(value) + 1
    wrapped(module, noted)
    assert module.broadcast_object_list(1) == 2 and module.broadcast(5) == 5
    assert [(kind, name) for kind, name, *_ in noted.told] == [(1, b"broadcast_object_list"), (1, b"broadcast")]


def test_an_exception_of_a_collective_passes_and_its_time_counts():
    def barrier():
        time.sleep(0.01)
        raise RuntimeError("a rank is gone")

    noted = Noted()
    module = wrapped(SimpleNamespace(barrier=barrier), noted)
    with pytest.raises(RuntimeError, match="gone"):
        module.barrier()
    assert noted.told[0][1] == b"barrier" and noted.told[0][2] >= 10_000_000


def test_the_recorder_learns_of_a_wait_when_it_begins():
    told = []
    recorder = SimpleNamespace(ullage_wait_begin=told.append, ullage_wait_end=lambda: told.append("end"))
    module = wrapped(SimpleNamespace(barrier=lambda: told.append("inside")), recorder)
    module.barrier()
    assert told == [b"barrier", "inside", "end"]


def test_what_waits_is_wrapped_once_however_often_its_module_is_loaded():
    noted = Noted()
    module = SimpleNamespace(all_reduce=lambda: 7)
    assert wrapped(wrapped(module, noted), noted).all_reduce() == 7
    assert len(noted.told) == 1


def test_the_hook_leaves_the_programs_path_and_its_own_sitecustomize_alone(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.mine = 'loaded'\n")
    env = {**os.environ, "PYTHONPATH": f"{HOOK}:{tmp_path}", "ULLAGE_RECORD": str(tmp_path), "ULLAGE_RECORDER": "/no/such.so"}
    code = f"import builtins, sys; print(builtins.mine, {str(HOOK)!r} in sys.path)"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "loaded False\n" and done.stderr == ""


def test_the_hook_imports_next_to_nothing_into_a_program_without_pytorch(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(HOOK), "ULLAGE_RECORD": str(tmp_path), "ULLAGE_RECORDER": "/no/such.so"}
    code = "import sys; print({'ctypes', 'threading', 'typing', 'importlib.util'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import sitecustomize; " + code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n" and done.stderr == ""


def test_the_hooks_first_file_is_one_that_every_python_can_read():
    # Python 2.7 has no annotations, no f-strings, no keyword-only arguments, and reads ASCII alone unless told otherwise
    text = (HOOK / "sitecustomize.py").read_bytes().decode("ascii")
    tree = ast.parse(text)
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.AnnAssign | ast.NamedExpr | ast.Nonlocal)]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert functions and all(f.returns is None and not f.args.kwonlyargs and not any(a.annotation for a in f.args.args) for f in functions)
    assert "__future__" not in text


def test_nvtx_goes_to_the_recorder_unless_another_tool_has_it():
    for recorder, who in ((RECORDER, "2"), (replace(RECORDER, nvtx_by_cupti=True), "1")):
        given = environment(recorder, {})
        assert (given["NVTX_INJECTION64_PATH"], given["ULLAGE_NVTX"]) == ("/r.so", who)
        assert environment(recorder, {"NVTX_INJECTION64_PATH": "/nsys.so"})["NVTX_INJECTION64_PATH"] == "/nsys.so"
    assert environment(RECORDER, {"ULLAGE_NVTX": "0"})["ULLAGE_NVTX"] == "0"
