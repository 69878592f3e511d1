"""`ullage run` from end to end, on doubles of the driver and of libcupti: what becomes of the program, what is said, what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cupti import cupti_double
from tests.recorder.recorder_runs import library
from tests.recorder.run_runs import ULLAGE, environment, record, run
from ullage import read_trace
from ullage.cupti.chunks import ChunkType, chunks
from ullage.views.document import document

NOTHING = (
    "nothing was recorded: the program used no GPU through CUDA, called no MPI, opened no region, "
    "and had no threads of OpenMP that tell when they wait"
)


def program(*words):
    return [cupti_double.program(), *words]


def info(path):
    """What a recording says of itself."""
    said = {}
    with path.open("rb") as file:
        for chunk in chunks(file, str(path)):
            said |= chunk.json() if chunk.type == ChunkType.INFO else {}
    return said


def test_the_trees_are_of_what_the_program_did(tmp_path):
    ran, said = record(tmp_path, command=program("--kernels", "20"))
    (told,) = cupti_double.told(ran.out.decode())
    kernels = [end - start for _, _, start, end, _ in told.of(10)]
    assert ran.code == 0 and len(kernels) == 20
    # one stream: they follow one another; the clocks of the double and of the recorder are the same
    assert said["device_totals"]["kernel_time"] == pytest.approx(sum(kernels), abs=1000)
    assert [family["count"] for family in said["kernels"]["families"]] == [20]
    assert said["host_totals"]["processes"] == 1 and said["exit"] == 0
    assert ran.said.lstrip().startswith("Device parallel efficiency")
    assert ran.left == []


def test_the_report_names_the_program_and_no_file_that_is_gone(tmp_path):
    ran, said = record(tmp_path, command=program("--kernels", "3"))
    assert said["files"] == [f"{cupti_double.program()} --kernels 3"]
    assert str(tmp_path / "tmp") not in ran.said + json.dumps(said)


@pytest.mark.parametrize(
    ("words", "code"), [(["--exit", "7"], 7), (["--seconds", "0.3", "--kill"], 137), (["--seconds", "0.3", "--abort"], 134)]
)
def test_the_exit_code_is_the_programs_and_what_was_flushed_is_reported(words, code, tmp_path):
    ran, said = record(tmp_path, "--flush", "20", command=program(*words))
    assert ran.code == said["exit"] == code
    assert said["device_totals"]["kernel_time"] > 0
    assert ("partial" in ran.said) == (code != 7)
    assert ran.left == []


def test_a_libcupti_that_crashes_takes_neither_the_program_nor_the_command_with_it(tmp_path):
    ran = run(tmp_path, command=program("--exit", "7"), given=environment(tmp_path, CUPTI_DOUBLE_FAULTS="crash"))
    assert ran.code == 7 and "Traceback" not in ran.said
    assert any(note.startswith("CUDA is not recorded: ") and "crashes when it is asked its version" in note for note in ran.notes)


def test_a_program_that_is_killed_before_anything_was_flushed_is_said_to_be(tmp_path):
    ran = run(tmp_path, command=program("--kill"))
    assert ran.code == 137 and ran.left == []
    # that CUDA began is in its rings, what its devices did was CUPTI's to tell
    said = "ended without closing; 1 record read from its rings, and of its devices what it had flushed (`ullage run --flush 100` flushes"
    assert said in "".join(ran.notes)


@pytest.mark.parametrize(("word", "processes", "launches"), [("--fork", 2, 20), ("--worker", 1, 10), ("--exec", 2, 10)])
def test_programs_that_fork_or_become_another_are_reported_process_by_process(word, processes, launches, tmp_path):
    # --exec: the first program's end is not its own, and of its devices it had flushed nothing
    ran, said = record(tmp_path, command=program(word))
    assert ran.code == 0
    assert said["host_totals"]["processes"] == processes
    assert sum(family["count"] for family in said["kernels"]["families"]) == launches


def test_processes_that_a_launcher_gives_one_rank_are_one_run(tmp_path):
    ran, said = record(tmp_path, command=["env", "RANK=0", "WORLD_SIZE=4", *program("--fork")])
    assert ran.code == 0 and said["host_totals"]["processes"] == 2
    assert [process["rank"] for process in said["processes"]] == [0, 0]


def test_a_program_without_cuda_is_told_in_a_sentence(tmp_path):
    ran = run(tmp_path, command=program("--no-cuda"))
    assert ran.code == 0 and ran.notes == [NOTHING] and ran.left == []


def test_files_that_were_asked_for_and_cant_be_written_are_said_so(tmp_path):
    ran, said = record(tmp_path, "--out", "run.html", "--talp", "talp.json", command=["true"])
    assert said == document("run", {"exit": 0, "ofu": None, "run_notes": [NOTHING]})
    assert "run.html is not written: nothing was recorded" in ran.said and "talp.json is not written" in ran.said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", "tmp"]


def unready(tmp_path, **more):
    """An environment in which something is missing; nothing of an earlier build is found."""
    given = environment(tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"), **more)
    return {name: value for name, value in given.items() if name != "ULLAGE_RECORDER" or "ULLAGE_RECORDER" in more}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"CC": "/no/such/cc"}, "CC names '/no/such/cc', which is not there"),
        ({"XDG_CACHE_HOME": "/proc/none"}, "can't be kept in /proc/none"),
        ({"ULLAGE_RECORDER": "/no/such.so"}, "ULLAGE_RECORDER names /no/such.so"),
    ],
)
def test_a_recorder_that_cant_be_built_keeps_no_program_from_running(given, words, tmp_path):
    ran = run(tmp_path, command=program("--exit", "3"), given=unready(tmp_path) | given)
    assert ran.code == 3 and len(cupti_double.told(ran.out.decode())) == 1
    (note,) = ran.notes
    assert note.startswith("the program ran without being recorded") and words in note


@pytest.mark.parametrize(
    ("options", "given", "words"),
    [
        (["--cupti", "/no/such"], {}, "there is no libcupti at /no/such"),
        ([], {"CUPTI_DOUBLE_VERSION": "777777"}, "version 777777, whose records are not known here (known are 12.0 (18)"),
    ],
)
def test_without_a_libcupti_that_is_known_the_program_runs_and_strictly_it_does_not(options, given, words, tmp_path):
    given = environment(tmp_path, **given)
    ran = run(tmp_path, *options, command=program("--exit", "3"), given=given)
    assert ran.code == 3 and len(ran.notes) == 1 and words in ran.notes[0] and ran.notes[0].startswith("CUDA is not recorded: ")
    strict = run(tmp_path, *options, "--strict", command=["touch", "ran"], given=given)
    assert strict.code == 1 and not (tmp_path / "ran").exists() and strict.left == []


def test_a_driver_that_is_older_than_the_library_is_said(tmp_path):
    ran = run(tmp_path, given=environment(tmp_path, CUDA_DOUBLE_DRIVER="12020"))
    assert "CUPTI is of CUDA 13.1, newer than the driver, which allows CUDA 12.2" in "".join(ran.notes)


def test_what_cupti_refuses_for_one_reason_is_one_note(tmp_path):
    ran = run(tmp_path, given=environment(tmp_path, CUPTI_DOUBLE_FAULTS="cuptiActivityEnable=35"))
    assert sum("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" in note for note in ran.notes) == 1


def test_the_programs_streams_are_as_without_us(tmp_path):
    told = os.urandom(3_000_001)
    ran = run(tmp_path, "--quiet", command=["cat"], input=told)
    assert ran.out == told and ran.said == ""


@pytest.mark.full
def test_whoever_closes_our_streams_gets_the_programs_exit_code_all_the_same(tmp_path):
    command = " ".join([*ULLAGE, "run", "--no-counters", "--json", "-", "--", str(cupti_double.program()), "--exit", "4"])
    for closed in (">&-", "2>&-", "| head -c 1 >/dev/null", "2>&1 >/dev/null | head -c 1 >/dev/null"):
        script = f"{command} {closed}; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", script], env=environment(tmp_path), capture_output=True)
        assert done.returncode == 4, closed
        assert b"Traceback" not in done.stderr


def test_stdout_has_the_programs_words_and_then_the_json(tmp_path):
    ran = run(tmp_path, "--json", "-", command=["sh", "-c", f"echo first; {cupti_double.program()} >/dev/null"])
    first, _, rest = ran.out.decode().partition("\n")
    assert first == "first" and json.loads(rest)["exit"] == 0


@pytest.mark.full
def test_every_form_of_the_report_is_written_and_talps_gives_the_same_tree(tmp_path):
    forms = ["run.html", "run.svg", "run.txt", "run.parquet", "run.pftrace"]
    keep = ["--keep", tmp_path / "kept", "--talp", tmp_path / "talp.json"]
    ran, said = record(tmp_path, *keep, "--out", forms[0], "--price", "2.5", "--by", "device", command=program("--kernels", "5"))
    assert ran.code == 0 and "GPU 0 (Double of an H200)" in ran.said and said["bill"]["money"] > 0
    for form in forms[1:]:
        done = subprocess.run([*ULLAGE, "trace", "kept", "--out", form], cwd=tmp_path, capture_output=True)
        assert done.returncode == 0, done.stderr
    assert all((tmp_path / form).stat().st_size > 500 for form in forms)
    ours, theirs = read_trace(tmp_path / "kept").tree("talp"), read_trace(tmp_path / "talp.json").tree()
    assert dict(ours.items()) == dict(theirs.items())


@pytest.mark.full
def test_a_timeline_of_every_event_needs_no_kept_recordings(tmp_path):
    ran = run(tmp_path, "--quiet", "--out", "run.pftrace")
    assert ran.code == 0 and (tmp_path / "run.pftrace").stat().st_size > 1000 and ran.said == "ullage: wrote run.pftrace\n"


def test_a_region_that_is_not_there_costs_nobody_the_run(tmp_path):
    ran, said = record(tmp_path, "--region", "forwrd")
    assert ran.code == 0 and said["region"] is None and said["device_totals"]["kernel_time"] > 0
    assert any(note.startswith("no region is called 'forwrd': this is the whole run") for note in ran.notes)


def test_recordings_stay_where_a_file_could_not_be_written(tmp_path):
    command = ["sh", "-c", f"{cupti_double.program()} --exit 5; code=$?; rm -r gone; exit $code"]
    (tmp_path / "gone").mkdir()
    ran = run(tmp_path, "--out", tmp_path / "gone" / "run.html", command=command)
    assert ran.code == 5 and ran.said.lstrip().startswith("Device parallel efficiency") and "can't be written" in ran.said
    (folder,) = ran.left
    assert f"the recordings are in {tmp_path / 'tmp' / folder}: `ullage trace` reads them" in ran.said
    assert read_trace(tmp_path / "tmp" / folder).report().whole.device is not None


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--out", "run.docx"], 1),
        (["--out", "no/such/run.html"], 1),
        (["--also", "powr"], 1),
        (["--also", "environment"], 1),
        (["--jsn", "x"], 2),
    ],
)
def test_what_cant_be_is_refused_before_the_program_runs(options, code, tmp_path):
    ran = run(tmp_path, *options, command=["touch", "ran"])
    assert ran.code == code and not (tmp_path / "ran").exists() and ran.left == []


def test_graphs_as_a_whole_and_further_kinds_are_asked_for(tmp_path):
    ran = run(
        tmp_path,
        "--keep",
        "kept",
        "--graphs",
        "whole",
        "--also",
        "decompression",
        "--also",
        "unified-memory",
        command=program("--graphs", "3"),
    )
    (path,) = (tmp_path / "kept").glob("*.ullage")
    assert ran.code == 0 and {"10", "25", "51", "54"} <= info(path)["kinds"].keys()
    usual = run(tmp_path, "--keep", "usual")
    (path,) = (tmp_path / "usual").glob("*.ullage")
    assert usual.code == 0 and not {"25", "51", "54"} & info(path)["kinds"].keys()


@pytest.mark.full
def test_a_run_within_a_run_is_reported_by_the_inner_one(tmp_path):
    inner = [*ULLAGE, "run", "--no-counters", "--json", tmp_path / "inner.json", "--", cupti_double.program(), "--exit", "6"]
    ran, outer = record(tmp_path, command=inner)
    assert ran.code == 6 and outer["run_notes"] == [NOTHING] and "device_totals" not in outer
    assert json.loads((tmp_path / "inner.json").read_text())["device_totals"]["kernel_time"] > 0
    assert ran.left == []


def test_a_daemon_that_outlives_the_run_leaves_nothing_behind(tmp_path):
    # it goes on when the run's folder is gone, and starts a program of CUDA then
    later = f"sleep 1; {cupti_double.program()} --seconds 0.2 >/dev/null; touch {tmp_path / 'over'}"
    ran = run(tmp_path, command=["bash", "-c", f"{cupti_double.program()} >/dev/null; setsid bash -c '{later}' >/dev/null 2>&1 &"])
    assert ran.code == 0 and ran.left == []
    until = time.monotonic() + 60
    while not (tmp_path / "over").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert (tmp_path / "over").exists() and ran.left == []


@pytest.mark.full
def test_a_hundred_short_children_are_let_alone(tmp_path):
    ran = run(tmp_path, command=["bash", "-c", "for i in $(seq 100); do /bin/echo $i; done"])
    assert ran.out.split() == [b"%d" % number for number in range(1, 101)] and ran.notes == [NOTHING]


def test_a_program_that_clears_its_environment_or_goes_elsewhere_runs_as_ever(tmp_path):
    ran = run(tmp_path, command=["env", "-i", "/bin/sh", "-c", "cd /; ulimit -n 16; echo $ULLAGE_RECORD-$PWD"])
    assert ran.code == 0 and ran.out == b"-/\n" and ran.notes == [NOTHING]


@pytest.mark.parametrize(("number", "all_of_them"), [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGTERM, False)])
def test_a_program_that_is_interrupted_is_reported_and_nothing_is_left(number, all_of_them, tmp_path):
    # Ctrl-C reaches the whole group of the terminal; others send a signal to one process
    script = f"{cupti_double.program()} >/dev/null; echo ready; exec sleep 60"
    command = [*ULLAGE, "run", "--no-counters", "--", "bash", "-c", script]
    ours = subprocess.Popen(
        command, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True
    )
    assert ours.stdout.readline() == "ready\n"
    time.sleep(0.2)  # bash becomes sleep
    (os.killpg if all_of_them else os.kill)(ours.pid, number)
    said = ours.communicate(timeout=120)[1]
    assert ours.returncode == 128 + number
    assert "Device parallel efficiency" in said and "Traceback" not in said
    assert list((tmp_path / "tmp").glob("ullage-run-*")) == []


def test_a_bare_node_records_with_numpy_and_pyarrow_alone(tmp_path):
    # all else is hidden from it; the folder is the command's
    hidden = "import sys; sys.modules |= dict.fromkeys(['click', 'ibis', 'duckdb', 'pynvml', 'torch'], None); "
    code = hidden + f"from ullage.live.__main__ import main; sys.exit(main(['rec', '--', {str(cupti_double.program())!r}, '--exit', '9']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 9, done.stderr
    assert len(list(Path(tmp_path, "rec").glob("*.ullage"))) == 1
    assert read_trace(tmp_path / "rec").report().whole.device is not None
    again = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True)
    assert again.returncode == 9 and "earlier run" in again.stderr
    assert len(list(Path(tmp_path, "rec", "run-2").glob("*.ullage"))) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data.replace(b"GLIBC_2.", b"GLIBC_9."), "needs GNU's C library 9."),  # preloaded, the linker ends the program for it
        (lambda data: data[:18] + b"\xb7\x00" + data[20:], "is for aarch64"),
    ],
)
def test_a_recorder_that_this_machine_cannot_load_is_a_note_and_the_program_runs(tmp_path, change, words):
    carried = tmp_path / "carried.so"
    carried.write_bytes(change(library().read_bytes()))
    given = environment(tmp_path) | {"ULLAGE_RECORDER": str(carried)}
    ran = run(tmp_path, given=given)
    assert ran.code == 0 and cupti_double.told(ran.out.decode())
    assert any("ran without being recorded" in note and words in note for note in ran.notes), ran.said


def test_a_program_that_has_nothing_to_record_costs_neither_numpy_nor_pyarrow(tmp_path):
    command = [sys.executable, "-X", "importtime", "-m", "ullage", "run", "--", "true"]
    ran = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True)
    loaded = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines() if line.startswith("import time:")}
    assert ran.returncode == 0 and "ullage.live.recording" in loaded
    assert not loaded & {"numpy", "pyarrow", "duckdb", "ibis", "rich"}


FORKS = """
import os, time, ullage
with ullage.region("own"):
    time.sleep(0.01)
for _ in range(3):
    child = os.fork()
    if child == 0:
        with ullage.region("item"):
            time.sleep(0.01)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_processes_that_leave_in_the_middle_are_in_the_report(tmp_path):
    ran = run(tmp_path, command=[sys.executable, "-c", FORKS])
    assert ran.code == 0 and "started" not in ran.said
    assert "4 processes" in ran.said and "item" in ran.said
    assert ran.left == []


def test_processes_that_left_without_a_recording_are_counted(tmp_path):
    # of three there are only the files that say that they began
    code = (
        "import os, ullage\nfor i in '123': open(os.environ['ULLAGE_RECORD'] + f'/n-{i}-0.started', 'w')\nwith ullage.region('own'): pass\n"
    )
    ran, said = record(tmp_path, command=[sys.executable, "-c", code])
    assert ran.code == 0
    assert any(note.startswith("4 processes started, 1 recorded") for note in ran.notes)
    assert any(note.startswith("4 processes started, 1 recorded") for note in said["run_notes"])
    assert ran.left == []


def test_a_process_whose_recording_can_t_be_written_is_counted(tmp_path):
    code = "import ullage\nwith ullage.region('own'): pass"
    ran = run(tmp_path, command=["sh", "-c", f'ulimit -f 0; exec {sys.executable} -c "{code}"'])
    assert ran.code == 0
    assert any(note.startswith("1 process started, 0 recorded") for note in ran.notes), ran.said


def test_processes_with_nothing_to_record_are_none_that_left_without(tmp_path):
    ran = run(tmp_path, command=["sh", "-c", "for i in 1 2 3; do /bin/true; done"])
    assert ran.code == 0 and "started" not in ran.said


def test_without_any_folder_the_program_runs_unrecorded_and_strict_refuses(tmp_path):
    names = [tmp_path / "tmp" / f"ullage-run-{os.getuid()}-job-7{number}" for number in ("", *(f"-{n}" for n in range(2, 11)))]
    given = environment(tmp_path, OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2", PMIX_NAMESPACE="job-7")
    for name in names:
        name.symlink_to("/")
    ran = run(tmp_path, command=["sh", "-c", "echo ran; exit 5"], given=given)
    assert (ran.code, ran.out) == (5, b"ran\n")
    assert ran.said.startswith("ullage: the program runs without being recorded: ")
    strict = run(tmp_path, "--strict", command=["sh", "-c", "echo ran; exit 5"], given=given)
    assert (strict.code, strict.out) == (1, b"") and "belongs to somebody else" in strict.said


def test_a_folder_that_holds_an_earlier_run_gets_the_next_one_too(tmp_path):
    for _ in range(2):
        ran = run(tmp_path, "--keep", tmp_path / "kept")
        assert ran.code == 0
    assert f"what was recorded went to {tmp_path / 'kept' / 'run-2'}" in ran.said
    assert read_trace(tmp_path / "kept" / "run-2").report().whole.device is not None
