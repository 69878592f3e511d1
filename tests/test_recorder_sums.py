"""What a program did beyond the events that are recorded is summed up in its memory: the same to the nanosecond, in a bounded recording."""

from __future__ import annotations

import pytest

from tests.scripted_runs import START, answers, drawn, ran
from tests.seeds import some
from ullage import read_trace
from ullage.cupti.chunks import HostKind

ALL = 10**12


def told(path):
    """Return (elapsed, communication) of a recording's process and of each of its regions."""
    traced = read_trace(path)
    run = traced.profile.run
    (whole,) = traced.report().whole.host_parts
    found = {}
    for name in run.processes[0].regions:
        (part,) = traced.report(region=name).whole.host_parts
        found[name] = part.elapsed, part.communication
    return (whole.elapsed, whole.communication), found


def expected(script, **more):
    found = answers(script, **more)
    return found.whole, {name: sums for name, sums in found.regions.items() if sums[0]}


def mine(told):
    whole, regions = told
    return whole, {name: sums for name, sums in regions.items() if name[-1] not in "123456789" and sums[0]}


@pytest.mark.parametrize("seed", some(range(60), 3))
@pytest.mark.parametrize("step", [0, 30])
def test_sums_and_events_say_what_the_script_says(seed, step, tmp_path):
    script = drawn(seed, step=step)
    for events in (ALL, 0, 40 * (seed % 7 * 40)):
        folder = tmp_path / str(events)
        folder.mkdir(exist_ok=True)
        recording = ran(folder, script, events=events, step=step)
        assert mine(told(recording.path)) == expected(script, between=step), events
