"""OpenMP's threads, as its runtime tells of them (OMPT): LLVM's where it is installed, GNU's that tells nothing, and a scripted one."""

from __future__ import annotations

import ctypes.util
import json
import random
import shutil
from collections import Counter

import pytest

from tests.recorder.recorder_runs import HERE, compiled, library, run
from tests.recorder.scripted_runs import START, ran
from tests.seeds import some
from ullage import read_trace
from ullage.metrics.metric import ratio
from ullage.render.talp_json import talp_json

ALL = 10**12  # bytes of events
SECOND = 10**9
QUIET = "1000000000"  # ms between two flushes: the script alone says when


# --- a scripted runtime, and what follows from its script ---


def regions(seed, count=12, workers=3, communicates=False):
    """Return a script in which so many parallel regions follow one another, with teams of all sizes, and threads that come and go late."""
    dice, now, lines, there = random.Random(seed), START, [], set()
    lines.append((now, 0, "init", 0, ""))
    held = set()  # whom the last region's barrier keeps until the next region
    for team in range(1, count + 1):
        now += dice.choice([0, 5, 1000, 30_000])
        if communicates and dice.random() < 0.5:
            lines.append((now, 0, "barrier", 700, ""))
            now += 700 + dice.choice([0, 50])
        if dice.random() < 0.3:
            lines.append((now, 0, "flush", 0, ""))
        lines.append((now, 0, "fork", team, ""))
        threads = [0, *(n for n in range(1, workers + 1) if dice.random() < 0.8)]
        ends = []
        for thread in threads:
            mine = now + dice.choice([0, 1, 40, 2000])
            if thread and thread not in there:
                there.add(thread)
                lines.append((mine, thread, "worker", 0, ""))
                mine += dice.choice([0, 3])
            if thread in held:
                held.remove(thread)
                lines += [(mine, thread, "met", 0, ""), (mine, thread, "outof", 0, "")]
            lines.append((mine, thread, "into", team, ""))
            for _ in range(dice.randrange(4)):
                mine += dice.choice([0, 10, 700, 9000])
                mine = _waits(dice, lines, mine, thread)
            mine += dice.choice([0, 100, 20_000])
            ends.append(mine)
            if thread and dice.random() < 0.4:
                held.add(thread)
                lines.append((mine, thread, "meet", 0, ""))
            elif thread:
                lines += [(mine, thread, "meet", 0, ""), (mine + 1, thread, "met", 0, ""), (mine + 1, thread, "outof", 0, "")]
        last = max(ends) + dice.choice([0, 2, 60])
        lines += [(ends[0], 0, "meet", 0, ""), (last, 0, "met", 0, ""), (last + 1, 0, "outof", 0, ""), (last + 4, 0, "join", team, "")]
        now = last + 4
    now += dice.choice([0, 50_000])
    lines.append((now, 0, "finalize", 0, ""))
    return sorted(lines, key=lambda line: line[0])


def _waits(dice, lines, now, thread):
    """Add a wait of some kind, in which tasks may be done; return when it is over."""
    kind = dice.choice(["lock", "meet", "tasks"])
    if kind == "lock":
        lines += [(now, thread, "lock", 0, ""), (now + 80, thread, "locked", 0, "")]
        return now + 80
    lines.append((now, thread, "meet", 0, ""))
    now += dice.choice([0, 300])
    for _ in range(dice.randrange(3) if kind == "tasks" else 0):
        lines += [(now, thread, "task", 0, ""), (now + 500, thread, "tasked", 0, "")]
        now += 500 + dice.choice([0, 20])
    lines.append((now, thread, "met", 0, ""))
    return now


def states(script):
    """Return, for each thread, (start, end, state) from the script's beginning to its end, told line by line."""
    begins, ends = script[0][0], script[-1][0]
    joined = {team: now for now, _, deed, team, _ in script if deed == "join"}
    forked = {team: now for now, _, deed, team, _ in script if deed == "fork"}
    found = {}
    for thread in sorted({line[1] for line in script}):
        spans, since, state, team, stack, inside = [], begins, "useful" if thread == 0 else "serialisation", 0, [], False

        def until(now, spans=spans):
            over = max(min(joined.get(team, begins), now), since) if state == "waits" else now  # noqa: B023 - called at once
            spans.append((since, over, "imbalance" if state == "waits" else state))  # noqa: B023
            spans.append((over, now, "serialisation"))

        for now, _, deed, argument, _ in (line for line in script if line[1] == thread):
            if deed == "into" and thread and not inside and state == "waits":
                handed = max(min(joined.get(team, begins), now), since)
                fork = max(min(forked[argument], now), handed)
                spans += [(since, handed, "imbalance"), (handed, fork, "serialisation"), (fork, now, "scheduling")]
            else:
                until(now)
            if deed == "into":
                team, inside, stack = argument, True, []
            elif deed == "outof":
                inside, stack = False, []
            elif deed in ("meet", "lock", "task"):
                stack.append(deed)
            elif deed in ("met", "locked", "tasked"):
                stack.pop()
            waits = bool(stack) and stack[-1] != "task"
            if thread == 0:
                hands_out = deed in ("fork", "outof") or (state == "scheduling" and deed not in ("into", "join"))
                state = "scheduling" if hands_out else "waits" if waits else "useful"
            else:
                state = "waits" if waits or not inside else "useful"
            since = now
        until(ends)
        found[thread] = [span for span in spans if span[0] < span[1]]
    return found


def lost(script):
    """Return ns by state, over all threads; while the process communicates, threads that wait do so too."""
    talks = [(now, now + took) for now, _, deed, took, _ in script if deed == "barrier"]
    times = Counter()
    for thread, spans in states(script).items():
        for a, b, state in spans:
            talking = sum(max(0, min(b, end) - max(a, start)) for start, end in talks)
            communicates = talking if state != "useful" or thread == 0 else 0
            times[state] += b - a - communicates
            times["communication"] += communicates
    return times


def told(path):
    """Return the same as `lost` of a recording."""
    totals = read_trace(path).report().whole.host_totals
    times = {why: getattr(totals, f"openmp_{why}_time") for why in ("imbalance", "scheduling", "serialisation")}
    rest = totals.processes * totals.elapsed - totals.useful_time - totals.parallel_time
    return times | {"useful": totals.useful_time, "communication": rest}


@pytest.mark.parametrize("seed", some(range(60), 3))
def test_events_of_threads_say_what_the_script_says(seed, tmp_path):
    script = regions(seed, communicates=seed % 2 == 1)
    expected = lost(script)
    assert told(ran(tmp_path, script, events=ALL, OMPT="1", ULLAGE_FLUSH=QUIET).path) == {"communication": 0} | dict(expected)


@pytest.mark.parametrize("seed", some(range(60), 3))
@pytest.mark.parametrize("events", [0, 1500])
def test_sums_of_threads_say_what_the_script_says(seed, events, tmp_path):
    script = regions(seed)
    assert told(ran(tmp_path, script, events=events, OMPT="1", ULLAGE_FLUSH=QUIET).path) == {"communication": 0} | dict(lost(script))


@pytest.mark.parametrize("seed", some(range(20), 1))
def test_instructions_are_counted_while_any_of_the_threads_is_useful(seed, tmp_path):
    # three instructions a ns of useful time, whichever thread's
    script = regions(seed)
    recording = ran(tmp_path, script, events=ALL, OMPT="1", ULLAGE_FLUSH=QUIET, COUNTERS="0 1 0")
    report = read_trace(recording.path).report()
    assert report.whole.host_totals.instructions == 3 * lost(script)["useful"]


# --- real runtimes ---


def program(folder, compiler, deed, code=0, word=None, preload=None, **environment):
    """Run `openmp_program.c`; skips where the compiler, or its OpenMP, is not installed."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    try:
        made = compiled(HERE / "openmp_program.c", "program", ("-fopenmp",), compiler)
    except AssertionError as error:
        pytest.skip(f"{compiler} has no OpenMP: {error}"[:100])
    done = run(folder, [made, deed, *([word] if word else [])], preload=preload or [library()], **environment)
    assert done.code == code, done.errors
    return done


def host_totals(done):
    return read_trace(done.only.path).report().whole.host_totals


@pytest.mark.parametrize("events", [ALL, 0])
def test_threads_of_llvm_that_have_less_work_wait_for_the_others(events, tmp_path):
    done = program(tmp_path, "clang", "uneven", ULLAGE_EVENTS=str(events))
    totals = host_totals(done)
    assert totals.processes == 4
    # twice: threads wait about 150, 100 and 50 ms for the last one; then three of them 100 ms for the first one, which is alone
    waited = alone = 0
    for line in done.output.splitlines():
        *arrived, rested = map(int, line.split())
        waited, alone = waited + sum(max(arrived) - one for one in arrived), alone + 3 * rested
    assert totals.openmp_imbalance_time == pytest.approx(waited, abs=0.1 * SECOND)
    assert totals.openmp_serialisation_time >= alone - 0.1 * SECOND
    assert totals.useful_time >= (2 * (50 + 100 + 150) + 2 * 100) * SECOND / 1000


def test_threads_of_llvm_that_meet_at_barriers_wait_for_the_last(tmp_path):
    totals = host_totals(program(tmp_path, "clang", "barriers"))
    assert totals.openmp_imbalance_time >= 0.2 * SECOND  # three threads, three times 50 ms each, where none is late


def test_tasks_that_a_waiting_thread_of_llvm_does_are_useful(tmp_path):
    totals = host_totals(program(tmp_path, "clang", "tasks"))
    assert totals.useful_time >= 8 * 0.05 * SECOND


def test_threads_of_llvm_wait_for_a_lock(tmp_path):
    totals = host_totals(program(tmp_path, "clang", "critical"))
    # they come one after another, 50 ms each: 150 + 100 + 50 ms after it, at the region's end; as much before it, where none is late
    assert totals.openmp_imbalance_time >= 0.3 * SECOND


@pytest.mark.parametrize("events", [ALL, 0])
def test_a_killed_program_leaves_what_its_threads_did(events, tmp_path):
    totals = host_totals(program(tmp_path, "clang", "kill", code=-9, ULLAGE_EVENTS=str(events)))
    assert totals.processes == 4
    assert totals.useful_time >= 0.3 * SECOND  # 50 + 100 + 150 ms


def test_the_tree_of_a_program_with_threads_multiplies_and_goes_into_talp_s_form(tmp_path):
    report = read_trace(program(tmp_path, "clang", "uneven").only.path).report()
    values = {node.metric: node.value for _, node in report.whole.host.walk()}
    parts = ("openmp_load_balance", "openmp_scheduling_efficiency", "openmp_serialisation_efficiency")
    assert values["host_parallel_efficiency"] == pytest.approx(values[parts[0]] * values[parts[1]] * values[parts[2]], rel=1e-12)
    totals = report.whole.host_totals
    written = json.loads(talp_json(report))["Application"]["Global"]
    assert (written["numCpus"], written["numMpiRanks"], written["mpiTime"]) == (4, 1, 0)
    names = {"Imbalance": "LoadImbalance", "Scheduling": "Scheduling", "Serialisation": "Serialization"}
    assert all(written[f"omp{theirs}Time"] == getattr(totals, f"openmp_{ours.lower()}_time") for ours, theirs in names.items())
    assert written["ompParallelEfficiency"] == round(ratio(totals.useful_time, totals.processes * totals.elapsed), 2)
    (tmp_path / "talp.json").write_text(talp_json(report))
    again = read_trace(tmp_path / "talp.json").report().whole.host_totals
    assert (again.useful_time, again.parallel_time, again.processes) == (totals.useful_time, totals.parallel_time, 4)


def unseen(done):
    """Return the notes of a report that no waits of OpenMP were seen."""
    return [note for note in read_trace([one.path for one in done.recordings]).report().notes if "no waits of OpenMP's threads" in note]


def test_gnu_s_runtime_tells_nothing_and_the_report_says_so_once(tmp_path):
    done = [program(tmp_path, "gcc", "uneven", word="all", RANK=rank, WORLD_SIZE="2") for rank in "01"][-1]
    assert len(done.recordings) == 2
    (note,) = unseen(done)
    assert "libgomp.so.1" in note
    assert "libomp" in note


def test_of_a_program_whose_threads_are_seen_or_that_has_none_nothing_is_said(tmp_path):
    assert unseen(program(tmp_path, "clang", "tasks")) == []
    (tmp_path / "alone").mkdir()
    assert unseen(program(tmp_path / "alone", "gcc", "tasks", word="all", OMP_THREAD_LIMIT="1")) == []


def test_threads_are_left_alone_where_that_is_asked_for(tmp_path):
    done = program(tmp_path, "clang", "tasks", word="all", ULLAGE_OPENMP="0")
    assert host_totals(done).processes == 1
    assert unseen(done) == []


def test_llvm_s_runtime_stands_in_for_gnu_s(tmp_path):
    found = ctypes.util.find_library("omp") or ctypes.util.find_library("omp5")
    if found is None:
        pytest.skip("no libomp")
    done = program(tmp_path, "gcc", "uneven", preload=[library(), found])
    assert host_totals(done).openmp_imbalance_time > 0.3 * SECOND


TOOL = """
#include <stdio.h>
typedef struct { int (*initialize)(void *, int, void *); void (*finalize)(void *); long data; } result;
static int begin(void *a, int b, void *c) { (void)a, (void)b, (void)c; puts("another tool"); fflush(stdout); return 1; }
static void end(void *a) { (void)a; }
result *ompt_start_tool(unsigned a, const char *b) { static result ours = {begin, end, 0}; (void)a, (void)b; return &ours; }
"""


@pytest.mark.parametrize("how", ["preloaded", "named"])
def test_another_tool_keeps_working(how, tmp_path):
    if shutil.which("clang") is None:
        pytest.skip("no clang")
    tool = compiled(TOOL, "libtool.so", ("-shared", "-fPIC"))
    made = compiled(HERE / "openmp_program.c", "program", ("-fopenmp",), "clang")
    named = {"OMP_TOOL_LIBRARIES": str(tool)} if how == "named" else {}
    done = run(tmp_path, [made, "uneven"], preload=[library(), *([tool] if how == "preloaded" else [])], **named)
    assert (done.code, done.output.splitlines()[0]) == (0, "another tool"), done.errors
