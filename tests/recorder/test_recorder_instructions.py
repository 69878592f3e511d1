"""What processors make of useful time, by their counters: by the system's own events, and by a double that counts what a script says."""

from __future__ import annotations

import errno
import json

import pytest

from tests.recorder.recorder_runs import HERE, compiled, library, run, run_cuda
from tests.recorder.scripted_runs import START, answers, drawn, ended, ran
from tests.seeds import some
from ullage import read_trace
from ullage.render.talp_json import talp_json
from ullage.render.trace import view
from ullage.render.trace_json import record
from ullage.views.html import html

MILLISECOND = 1_000_000
TASK_CLOCK = "1:1,1:1"  # PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK in place of both: ns on a processor, which any machine counts
ALL = 10**12
FREE = "0 1 0"  # of the double: to read costs nothing, all is counted, nobody refuses


def program(folder, *words, **environment):
    """Run `instructions_program.c` with the system's own counters; skips where these are not to be had."""
    made = compiled(HERE / "instructions_program.c", "program", ("-rdynamic",))
    given = {"ULLAGE_INSTRUCTIONS": TASK_CLOCK} | environment
    done = run(folder, [made, *words], preload=[library()], **given)
    assert done.code == 0, done.errors
    if any("refused" in one.info.get("useful", {}) for one in done.recordings) and environment == {}:
        pytest.skip("the system doesn't let programs count")
    return done


def total(recording):
    """Return the hosts' sums of a recording's run."""
    return read_trace(recording.path).report().whole.host_totals


def test_the_system_counts_what_a_thread_does_between_calls_of_mpi_and_nothing_else(tmp_path):
    # 90 ms of its own between MPI_Init and MPI_Finalize, 300 ms in barriers; 60 ms are before and after
    done = program(tmp_path)
    computed = int(done.output)
    useful = done.only.info["useful"]
    assert useful["instructions"] == pytest.approx(useful["cycles"], rel=0.01)
    assert computed - MILLISECOND <= useful["cycles"] <= computed + 20 * MILLISECOND  # the last barrier alone would be 60
    assert total(done.only).cycles == pytest.approx(computed, rel=0.15)


def test_counters_whose_descriptors_were_closed_read_nobody_else_s(tmp_path):
    done = program(tmp_path, "close")
    assert done.output.split()[0] == "1"


def test_a_child_counts_its_own(tmp_path):
    done = program(tmp_path, "fork")
    child, computed = map(int, done.output.split())
    assert done.of(child).info["useful"]["cycles"] == pytest.approx(50 * MILLISECOND, rel=0.3)
    (parent,) = (one for one in done.recordings if one.info["pid"] != child)
    assert parent.info["useful"]["cycles"] <= computed + 20 * MILLISECOND


def test_nothing_is_counted_where_nobody_wants_it(tmp_path):
    done = program(tmp_path, ULLAGE_INSTRUCTIONS="0")
    assert "useful" not in done.only.info
    assert total(done.only).instructions is None
    assert not [note for note in read_trace(done.only.path).report().notes if "IPC" in note]


@pytest.mark.parametrize("seed", some(range(40), 2))
@pytest.mark.parametrize("events", [ALL, 0])
def test_useful_time_and_nothing_else_is_counted(seed, events, tmp_path):
    script = [line for line in drawn(seed, threads=3) if line[2] != "past"]  # which are told when they are over
    recording = ran(tmp_path, script, events=events, COUNTERS=FREE)
    elapsed, communication = answers(script).whole
    useful = elapsed - communication
    counted = {name: recording.info["useful"][name] for name in ("instructions", "cycles", "time")}
    assert counted == {"instructions": 3 * useful, "cycles": 2 * useful, "time": useful}
    found = total(recording)
    assert (found.instructions, found.cycles, found.useful_time) == (3 * useful, 2 * useful, useful)


def loop(calls):
    """Return a script of so many calls of MPI, each 400 ns, 600 ns after the last one."""
    return [(START, 0, "init", 5000, ""), (START + 10_000, 0, "loop", calls, ""), (START + 10**10, 0, "finalize", 10, "")]


@pytest.mark.parametrize("cost", [0, 1000])
def test_readings_take_little_of_the_time_and_what_is_counted_stands_for_all(cost, tmp_path):
    # two readings of 1,000 ns around each stretch of 600 ns would take 77 % of the time; at most 1/64 and a millisecond may go by so
    recording, printed = ended(tmp_path, loop(200_000), events=0, COUNTERS=f"{cost} 1 0")
    report = read_trace(recording.path).report()
    useful, readings = recording.info["useful"], int(printed)
    notes = [note for note in report.notes if "instructions and cycles were counted in" in note]
    if cost:
        assert 10_000 < readings * cost <= 1_000_000 + 1000 * 4 + 10**10 / 64
        assert useful["time"] < report.whole.host_totals.useful_time / 2
        assert len(notes) == 1
    else:
        assert not notes
    assert useful["instructions"] == 3 * useful["time"]
    assert report.whole.host_totals.instructions == pytest.approx(3 * report.whole.host_totals.useful_time, rel=1e-6)


def test_counters_that_take_turns_with_others_are_scaled(tmp_path):
    script = [line for line in drawn(1) if line[2] != "past"]
    recording = ran(tmp_path, script, events=ALL, COUNTERS="0 4 0")  # a quarter of the time is counted
    found = total(recording)
    assert recording.info["useful"]["time"] == pytest.approx(found.useful_time / 4, rel=0.01)
    assert found.instructions == pytest.approx(3 * found.useful_time, rel=0.01)


def test_reports_show_what_was_counted(tmp_path):
    script = [(START, 0, "init", 0, ""), (START + 2 * 10**9, 0, "barrier", 10**9, ""), (START + 3 * 10**9, 0, "finalize", 0, "")]
    report = read_trace(ran(tmp_path, script, events=ALL, COUNTERS=FREE).path).report()
    # 2 s of useful time with three instructions and two cycles a ns, 1 s in MPI
    assert "Useful time of the hosts: 6e+09 instructions, 1.5 a cycle, 2 GHz" in str(report)
    assert "Instructions per cycle" in html(view(report))
    sums = record(report)["host_totals"]
    assert (sums["instructions"], sums["cycles"], sums["instructions_per_cycle"], sums["useful_clock_hz"]) == (6e9, 4e9, 1.5, 2e9)
    talp = json.loads(talp_json(report))["Application"]["Global"]
    assert (talp["instructions"], talp["cycles"], talp["usefulTime"]) == (6 * 10**9, 4 * 10**9, 2 * 10**9)


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.ENOENT, "virtual machines"), (errno.EACCES, "perf_event_paranoid"), (errno.EPERM, "seccomp"), (errno.EMFILE, "Too many open")],
)
def test_a_refusal_is_told_once(code, words, tmp_path):
    for rank in "01":
        (tmp_path / rank).mkdir()
        ran(tmp_path / rank, loop(3), events=ALL, COUNTERS=f"0 1 {code}", RANK=rank, WORLD_SIZE="2")
    report = read_trace([path for rank in "01" for path in (tmp_path / rank / "rec").glob("*.ullage")]).report()
    assert [words in note for note in report.notes if "no instructions and no IPC" in note] == [True]
    assert report.whole.host_totals.instructions is None


def test_calls_of_cuda_are_no_useful_time(tmp_path):
    for name, more, known in (("alone", {}, False), ("apart", {"ULLAGE_CALLBACKS": "runtime,driver"}, True)):
        (tmp_path / name).mkdir()
        done = run_cuda(tmp_path / name, "--seconds", "0.1", ULLAGE_INSTRUCTIONS=TASK_CLOCK, **more)
        assert done.code == 0, done.errors
        if "refused" in done.only.info["useful"]:
            pytest.skip("the system doesn't let programs count")
        report = read_trace(done.only.path).report()
        assert (report.whole.host_totals.instructions is not None) == known
        assert bool([note for note in report.notes if "ULLAGE_CALLBACKS" in note]) != known
