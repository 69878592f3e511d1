"""Time in which a program's thread is on no processor is told from its useful time: to the nanosecond where its clocks are scripted, and
of a real program that computes, sleeps, reads from a disk and is stopped within what its own clocks say."""

from __future__ import annotations

import json
import random
import signal

import numpy as np
import pytest

from tests.recorder.recorder_runs import HERE, compiled, library, run
from tests.recorder.scripted_runs import START, drawn, ran
from tests.recorder.scripted_runs import off as scripted_off
from tests.seeds import some
from ullage import read_trace
from ullage.cupti.chunks import HostKind
from ullage.live.following import Following
from ullage.render.talp_json import talp_json
from ullage.render.trace import view
from ullage.render.trace_json import record
from ullage.sums.lanes.gather import NOT_KNOWN, LaneRows
from ullage.sums.lanes.spans import spans, union
from ullage.sums.lanes.states import certainly_off
from ullage.traces.recorded import notes
from ullage.traces.recorded.facts import RecordingFacts
from ullage.views.html import html
from ullage.views.text import text

STEP = 30  # ns of a reading of any clock, while the recorder measures itself
ALL = 10**12  # bytes of events
HELPERS = "123456789"


def told(path):
    """Return for how long a recording's process was off the CPU, in all and in each of its first thread's regions."""
    traced = read_trace(path)
    regions = traced.profile.run.processes[0].regions
    parts = {name: traced.report(region=name).whole.host_parts[0] for name in regions if name[-1] not in HELPERS}
    (whole,) = traced.report().whole.host_parts
    for part in (whole, *parts.values()):
        assert part.useful + part.communication + part.off + part.recorder == part.elapsed
    return whole.off, {name: part.off for name, part in parts.items()}


def without_past(script):
    """What is told of when it is over was useful, or off, before."""
    return [line for line in script if line[2] != "past"]


@pytest.fixture(autouse=True)
def clocked(monkeypatch):
    monkeypatch.delenv("ULLAGE_CPU_CLOCK", raising=False)


def runs(folder, script, budgets, **more):
    for events in budgets:
        place = folder / str(events)
        place.mkdir(exist_ok=True)
        yield ran(place, script, events=events, step=STEP, **more)


@pytest.mark.parametrize("seed", some(range(60), 2))
@pytest.mark.parametrize("threads", [1, 3])
def test_time_off_the_cpu_is_what_the_script_says_in_events_and_in_sums(seed, threads, tmp_path):
    script = without_past(drawn(seed, step=STEP, threads=threads, off=True))
    whole, regions = scripted_off(script)
    for recording in runs(tmp_path, script, (ALL, 0, 1600 * (seed % 7))):
        found, inside = told(recording.path)
        assert found == whole > 0
        assert inside == {name: regions[name] for name in inside}


@pytest.mark.parametrize("seed", some(range(20), 1))
def test_the_trees_of_a_running_program_are_those_of_the_finished_one(seed, tmp_path):
    script = without_past(drawn(seed, step=STEP, off=True))
    for recording in runs(tmp_path, script, (ALL, 0, 4000)):
        followed = Following(recording.path, keep=seed * 1_000_000)
        followed.advance()
        tree, finished = followed.tree(), read_trace(recording.path).report().whole
        live, whole = tree.host_totals, finished.host_totals
        assert (live.off_time, live.useful_time) == (whole.off_time, whole.useful_time)
        assert tree["on_cpu_efficiency"] == finished.host.find("on_cpu_efficiency").value


@pytest.mark.parametrize("seed", some(range(40), 1))
@pytest.mark.parametrize("ending", ["kill", "leave"])
def test_a_killed_process_leaves_what_was_known_of_it(seed, ending, tmp_path):
    script = without_past(drawn(seed, step=STEP, ending=ending, off=True))
    code = -signal.SIGKILL if ending == "kill" else 0
    for recording in runs(tmp_path, script, (ALL, 0, 4000), code=code):
        assert told(recording.path)[0] == scripted_off(script)[0]


def one_piece(off, then=()):
    """A thread that is off for so many ns between two calls."""
    lines = [(START, 0, "init", 1000, ""), (START + 2000, 0, "off", off, ""), *then]
    end = START + 10_000 + off
    return [*lines, (end, 0, "test", 40, ""), (end + 100, 0, "finalize", 10, "")]


@pytest.mark.parametrize(("off", "in_events"), [(9_999, 0), (10_000, 10_000)])
def test_what_is_too_short_for_a_record_is_known_where_no_record_is_made(off, in_events, tmp_path):
    events, sums = (told(recording.path)[0] for recording in runs(tmp_path, one_piece(off), (ALL, 0)))
    assert (events, sums) == (in_events, off)


def test_who_writes_tells_of_a_thread_that_is_off_for_long(tmp_path):
    script = one_piece(5_000_000, [(START + 5_003_000, 0, "flush", 0, ""), (START + 5_004_000, 0, "kill", 0, "")])
    for recording in runs(tmp_path, script, (ALL, 0), code=-signal.SIGKILL):
        assert told(recording.path)[0] == 5_000_000


def test_without_a_cpu_clock_all_is_useful_as_before(tmp_path):
    (recording,) = runs(tmp_path, one_piece(50_000), (ALL,), ULLAGE_CPU_CLOCK="0")
    (part,) = read_trace(recording.path).report().whole.host_parts
    assert (part.off, part.process.off_known) == (0, False)
    assert "cpu_clock_ns" not in recording.info and not recording.did(HostKind.OFF)
    assert read_trace(recording.path).report().whole.host.find("on_cpu_efficiency") is None


def dense(calls, on, off):
    """Calls of 400 ns, after each of which the thread is useful for some time, and off."""
    lines, now = [(START, 0, "init", 1000, "")], START + 1000
    for _ in range(calls):
        lines += [(now + on, 0, "off", off, ""), (now + on + off, 0, "test", 400, "")]
        now += on + off + 400
    return [*lines, (now + 10, 0, "finalize", 10, "")]


def test_readings_take_no_more_than_their_share_of_a_thread_and_what_is_told_is_certain(tmp_path):
    # a reading costs 31 ns here, so one is earned in 256 * 31 = 7,936 ns: two for each call of 2,400 ns are more than that, after the
    # first 1 ms / 31 ns = 32,258 ahead
    script = dense(40_000, 1000, 1000)
    recording = ran(tmp_path, script, events=0, step=STEP)
    readings = recording.end["cpu_readings"]
    assert 32_000 < readings <= 1_000_000 / 31 + (script[-1][0] - START) / (256 * 31) + 10
    assert 15_000_000 < told(recording.path)[0] <= 40_000 * 1000


def test_regions_one_after_the_other_read_no_more_than_that_either(tmp_path):
    # each edge ends one stretch of useful time and starts the next: 80,000 edges, 500 ns apart
    script = [(START, 0, "init", 1000, "")]
    for number in range(40_000):
        at = START + 2000 + 1000 * number
        script += [(at, 0, "begin", number % 60, "step"), (at + 500, 0, "end", number % 60, "")]
    script.append((script[-1][0] + 1000, 0, "finalize", 10, ""))
    readings = ran(tmp_path, script, events=0, step=STEP).end["cpu_readings"]
    assert 32_000 < readings <= 1_000_000 / 31 + (script[-1][0] - START) / (256 * 31) + 10


def test_a_long_stretch_is_looked_at_even_where_nothing_is_earned(tmp_path):
    script = dense(40_000, 1000, 0)
    now = script[-1][0]
    script[-1:] = [(now + 1000, 0, "off", 5_000_000, ""), (now + 5_001_000, 0, "test", 400, ""), (now + 6_000_000, 0, "finalize", 10, "")]
    recording = ran(tmp_path, script, events=0, step=STEP)
    # since the last reading, at most 7,936 ns and two calls before, the thread may have been off meanwhile as well
    assert 5_000_000 - 2 * 7_936 < told(recording.path)[0] <= 5_000_000


SLACK = 200_000  # ns between two readings of clocks that are of one moment


@pytest.mark.parametrize("events", [ALL, 0])
def test_a_real_program_is_off_the_cpu_for_as_long_as_its_own_clocks_say(events, tmp_path):
    done = run(tmp_path, [real_program(), tmp_path / "blocks"], preload=[library()], ULLAGE_EVENTS=str(events))
    said = {name: (int(least), int(most)) for name, least, most in (line.rsplit(" ", 2) for line in done.output.splitlines())}
    recording = next(one for one in done.recordings if one.info["pid"] == one.host[0][6])
    report = read_trace(recording.path)
    for name, (least, most) in said.items():
        (part,) = report.report(region=name).whole.host_parts
        assert least - SLACK <= part.off <= most + SLACK, name
        assert part.useful + part.off == part.elapsed
    assert said["sleeps"][0] >= 99_000_000 and said["is stopped"][0] >= 99_000_000 and said["alternates"][0] >= 30_000_000
    tree = report.report().whole.host
    assert tree.value == pytest.approx(tree.find("on_cpu_efficiency").value)  # nothing else is lost


def real_program():
    return compiled(HERE / "off_cpu_program.c", "off_cpu_program", ("-I", str(HERE.parents[1] / "src" / "ullage" / "live" / "include")))


def test_the_report_tells_useful_time_from_time_off_the_cpu_in_each_form(tmp_path):
    (recording,) = runs(tmp_path, one_piece(20_000), (ALL,))  # 30,100 ns from MPI_Init's end to MPI_Finalize, 40 + 30 of them in a call
    report = read_trace(recording.path).report()
    assert "└─ On-CPU efficiency" in text(view(report)) and "off the CPU" in html(view(report))
    said = record(report)
    (process,) = said["processes"]
    assert (process["off_s"], process["shares"]["off"]) == (20_000 / 1e9, 20_000 / 29_100)
    assert said["host_totals"]["off_time"] == 20_000
    told_by_talp = json.loads(talp_json(report))
    assert told_by_talp["Application"]["Global"]["usefulTime"] == round(process["useful_s"] * 1e9) + 20_000


@pytest.mark.parametrize(("seconds", "said"), [(0.00999, False), (0.01, True)])
def test_the_report_says_what_the_first_thread_waited_for_as_the_system_accounts_it(seconds, said, tmp_path):
    told_ = RecordingFacts(info={"processor_wait_ns": round(seconds * 1e9), "disk_wait_ns": round(seconds * 1e9)})
    lines = notes.system_waits(told_, lasted=1_000_000_000)
    told_so = f"its first thread waited {seconds:.3g} s for a processor, which others had, and {seconds:.3g} s for disks"
    assert lines == [told_so] * said
    assert notes.system_waits(RecordingFacts(), lasted=1) == []


def rows(some_rows):
    start, end, off = (np.array(column, np.int64) for column in zip(*some_rows, strict=True)) if some_rows else (np.zeros(0, np.int64),) * 3
    return LaneRows(start, end, off=off)


def certain_by_brute_force(some_rows, busy):
    """Moment by moment: each row's free moments from its end backwards, as many as can't have been busy ones."""
    found = set()
    for start, end, off in some_rows:
        while off != NOT_KNOWN and start < end and start in busy:
            start += 1
        taken = [t for t in range(start, end) if t in busy]
        free = [t for t in range(start, end) if t not in busy]
        most = len(free) if off == NOT_KNOWN else max(min(off, end - start) - len(taken), 0)
        found |= set(free[len(free) - most :])
    return found


@pytest.mark.parametrize("seed", some(range(3000), 300))
def test_what_is_certainly_off_is_found_as_moment_by_moment(seed):
    dice = random.Random(seed)
    busy = spans(*((a, a + dice.randrange(9)) for a in (dice.randrange(60) for _ in range(dice.randrange(6)))))
    some_rows, now = [], 0
    for _ in range(dice.randrange(5)):
        now += dice.randrange(8)
        length = dice.randrange(1, 15)
        some_rows.append((now, now + length, dice.choice([NOT_KNOWN, dice.randrange(length + 3)])))
        now += length
    moments = {t for a, b in zip(busy.start.tolist(), busy.end.tolist(), strict=True) for t in range(a, b)}
    expected = sorted(certain_by_brute_force(some_rows, moments))
    found = certainly_off(rows(some_rows), busy)
    assert [(a, b) for a, b in zip(*map(list, found), strict=True)] == [
        (a, b) for a, b in zip(*map(list, union(np.array(expected, np.int64), np.array(expected, np.int64) + 1)), strict=True)
    ]
