"""What a program did beyond the events that are recorded is summed up in its memory: the same to the nanosecond, in a bounded recording."""

from __future__ import annotations

import random
import signal

import pytest
from click.testing import CliRunner

from tests.recorder.scripted_runs import START, TALKS, answers, drawn, ran
from tests.seeds import some
from ullage import read_trace
from ullage.cli.run import RunRequest, command, read_megabytes
from ullage.cupti.chunks import HostKind
from ullage.cupti.native.build import FOLDER
from ullage.cupti.rings import beside
from ullage.errors import UllageError
from ullage.live.launch import USUAL_EVENTS

ALL = 10**12  # bytes of events
HELPERS = "123456789"  # how the names of other threads' regions end


def told(path):
    """Return (elapsed, communication) of a recording's process and of each of its first thread's regions."""
    traced = read_trace(path)
    (whole,) = traced.report().whole.host_parts
    found = {}
    for name in traced.profile.run.processes[0].regions:
        (part,) = traced.report(region=name).whole.host_parts
        if name[-1] not in HELPERS:
            found[name] = part.elapsed, part.communication
    return (whole.elapsed, whole.communication), found


def expected(script, between=0):
    found = answers(script, between)
    return found.whole, {name: sums for name, sums in found.regions.items() if sums[0] and name[-1] not in HELPERS}


def runs(folder, script, budgets, **more):
    """Run a script once for each of these bytes of events."""
    for events in budgets:
        place = folder / str(events)
        place.mkdir(exist_ok=True)
        yield ran(place, script, events=events, **more)


@pytest.mark.parametrize("seed", some(range(60), 1))
@pytest.mark.parametrize("step", [0, 30])
def test_sums_and_events_say_what_the_script_says(seed, step, tmp_path):
    script = drawn(seed, step=step)
    for recording in runs(tmp_path, script, (ALL, 0, 1600 * (seed % 7)), step=step):
        assert told(recording.path) == expected(script, step)


@pytest.mark.parametrize("seed", some(range(40), 1))
def test_threads_and_those_that_follow_them_are_told_apart(seed, tmp_path):
    script = [line for line in drawn(seed, threads=4, deeds=600) if line[2] != "past"]  # what is written before it is told is useful time
    for recording in runs(tmp_path, script, (ALL, 0, 4000)):
        assert told(recording.path) == expected(script)


@pytest.mark.parametrize("seed", some(range(40), 1))
@pytest.mark.parametrize("ending", ["kill", "leave"])
def test_what_ends_a_process_takes_nothing_of_its_sums(seed, ending, tmp_path):
    script = drawn(seed, ending=ending)
    code = -signal.SIGKILL if ending == "kill" else 0
    for recording in runs(tmp_path, script, (0, 4000), code=code):
        assert recording.end is None and beside(recording.path).exists()
        assert told(recording.path) == expected(script)


@pytest.mark.parametrize("seed", some(range(20), 1))
def test_calls_are_counted_as_the_script_made_them(seed, tmp_path):
    script = [line for line in drawn(seed) if line[2] != "past" and (line[2] not in TALKS or line[3])]
    found = answers(script)
    for recording in runs(tmp_path, script, (ALL, 0, 3000)):
        rows = {row.name: row for row in read_trace(recording.path).report().code.calls}
        assert {name: row.count for name, row in rows.items()} == found.count
        assert {name: row.longest for name, row in rows.items()} == found.longest


def test_a_recording_grows_with_the_logarithm_of_how_long_a_program_runs(tmp_path):
    def script(calls):
        return [(START, 0, "init", 0, ""), (START, 0, "loop", calls, ""), (START + 1000 * calls, 0, "finalize", 0, "")]

    sizes = [recording.path.stat().st_size for n in (2000, 20_000) for recording in runs(tmp_path, script(n), (n * 4,))]
    assert sizes[1] < 20_000 * 4 + 1024 * 40 + 20_000 and sizes[0] < 2000 * 4 + 1024 * 40 + 20_000


def test_the_report_says_until_when_events_are_recorded(tmp_path):
    script = drawn(5)
    (whole, some_) = runs(tmp_path, script, (ALL, 0))
    said = (
        "then its time is summed up: the trees are exact; who came last, occurrences of regions, calls of MPI in them and the timeline are "
        "of the events"
    )
    assert not any(said in note for note in read_trace(whole.path).report().notes)
    assert any(said in note for note in read_trace(some_.path).report().notes)
    assert {kind for kind, *_ in some_.host} == {HostKind.MPI, HostKind.SUM}  # of MPI, its first and last calls
    assert some_.did(HostKind.MPI) == ["MPI_Init", "MPI_Finalize"]
    assert not set(TALKS.values()) - {row.name for row in read_trace(some_.path).report().code.calls}


def test_the_recorder_and_the_command_have_the_same_size_in_mind():
    assert RunRequest().events == USUAL_EVENTS
    assert f"USUAL_EVENTS = {USUAL_EVENTS} " in (FOLDER / "settings.c").read_text()


@pytest.mark.parametrize(("text", "size"), [("0", 0), ("0.5", 500_000), ("ALL", None), ("-1", ""), ("nan", ""), ("inf", ""), ("16MB", "")])
def test_sizes_are_numbers_of_mb_or_all(text, size):
    if size == "":
        ran_ = CliRunner().invoke(command, ["--events", text, "--", "true"])
        assert ran_.exit_code == 2 and "is not a size in MB from 0 on, nor 'all'" in ran_.output
    else:
        assert read_megabytes(text, "--events", 0) == size


@pytest.mark.parametrize("seed", some(range(200), 2))
def test_damaged_sums_are_read_as_far_as_they_make_sense_or_refused(seed, tmp_path):
    dice = random.Random(seed)
    recording = ran(tmp_path, drawn(0, ending="kill"), events=0, code=-signal.SIGKILL)
    place = recording.path if seed % 2 else beside(recording.path)
    data = bytearray(place.read_bytes())
    used = [at for at, byte in enumerate(data) if byte]
    for _ in range(dice.choice([1, 5, 50])):
        data[dice.choice(used)] = dice.choice([0, 1, 127, 255])
    place.write_bytes(data[: dice.choice([len(data), dice.randrange(len(data))])])
    try:
        (whole,) = read_trace(recording.path).report().whole.host_parts
    except UllageError:
        return
    assert 0 <= whole.communication <= whole.elapsed
