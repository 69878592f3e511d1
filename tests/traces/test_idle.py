"""Why devices idle: every nanosecond goes to one cause, that of the host thread which launched next."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.recording import Recording
from ullage.simulate.traces.scenario import EPOCH, Scenario, ScenarioEvent
from ullage.sums.lanes.gather import Capture, gather
from ullage.sums.lanes.idle import CAUSES, Idle, idle
from ullage.sums.lanes.reduce import Reduced, reduce
from ullage.sums.lanes.spans import spans


def _call(start: int, end: int, call: str, correlation: int | None = None, thread: int = 1, process: int = 0) -> ScenarioEvent:
    return ScenarioEvent(start, end, "api", f"cuda_{call}", process, thread=thread, call=call, correlation=correlation)


def _kernel(start: int, end: int, correlation: int | None = None, name: str = "gemm", **more: Any) -> ScenarioEvent:
    return ScenarioEvent(start, end, "kernel", name, more.pop("process", 0), device=0, stream=7, correlation=correlation, **more)


def _gathered(*events: ScenarioEvent) -> tuple[Capture, Reduced]:
    scenario = Scenario("run", events, {p: p for p in {e.process for e in events}}, {0: ("G", "gpu")})
    capture = gather(scenario.batches(), scenario.recording())
    return capture, reduce(capture)


def _idle(*events: ScenarioEvent) -> Idle:
    return _gathered(*events)[1].idle["gpu"]


def _causes(found: Idle) -> dict[str, int]:
    return {cause: time for cause, time in found.causes.items() if time}


def test_a_gap_is_charged_to_what_the_launching_thread_did_in_it():
    # gap 20–100: waiting until 25, host code until 90, the launch until 95, then handed over until 100
    # gap 5–10: the first launch until 8, handed over until 10
    found = _idle(_call(5, 8, "launch", 1), _kernel(10, 20, 1), _call(8, 25, "sync"), _call(90, 95, "launch", 2), _kernel(100, 110, 2))
    assert _causes(found) == {"sync": 5, "useful": 65, "offload": 5 + 3, "launched": 5 + 2}
    assert [(g.start - EPOCH, g.end - EPOCH, g.cause, g.before, g.after) for g in found.gaps] == [
        (20, 100, "useful", "gemm", "gemm"),
        (5, 10, "offload", "", "gemm"),
    ]
    assert found.owner == ("run", 0)


def test_communication_comes_before_waiting_and_a_descheduled_thread_before_useful():
    # gap 10–50: MPI 10–20 (a wait 15–25 counts from 20), malloc 25–30, off the CPU 28–40 counts from 30, useful 40–45, launch 45–50
    found = _idle(
        _call(0, 1, "launch", 1),
        _kernel(1, 10, 1),
        ScenarioEvent(10, 20, "mpi", "MPI_Barrier", 0, thread=1),
        _call(15, 25, "sync"),
        _call(25, 30, "other"),
        ScenarioEvent(28, 40, "off", "descheduled", 0, thread=1),
        _call(45, 50, "launch", 2),
        _kernel(50, 60, 2),
    )
    assert _causes(found) == {"communication": 10, "sync": 5, "offload": 5 + 5 + 1, "off": 10, "useful": 5}


def test_another_thread_that_waits_is_not_blamed():
    # thread 2 waits all the time; thread 1 launches what ends the gap 10–30, useful until 28
    events = (_call(0, 1, "launch", 1), _kernel(1, 10, 1), _call(28, 30, "launch", 2), _kernel(30, 40, 2))
    assert _causes(_idle(*events, _call(1, 40, "sync", thread=2))) == {"offload": 1 + 2, "useful": 18}


def test_work_handed_over_before_the_gap_is_held_up_by_the_device():
    # the launches return at 2 and 4; the kernels start at 4 and only at 50
    found = _idle(_call(0, 2, "launch", 1), _call(2, 4, "launch", 2), _kernel(4, 10, 1), _kernel(50, 60, 2))
    assert _causes(found) == {"offload": 2, "launched": 2 + 40}
    assert found.rhythm.launches == 2
    assert (found.rhythm.delay, found.rhythm.delay_95) == (4, 48)  # 4 − 0 and 50 − 2
    assert (found.rhythm.gaps, found.rhythm.median, found.rhythm.short) == (2, 4, 1.0)


@pytest.mark.parametrize(("gap", "short"), [(9_999, 1.0), (10_000, 0.0)])
def test_a_gap_is_short_below_ten_microseconds(gap: int, short: float):
    found = _idle(_call(0, 2, "launch", 1), _kernel(0, 10, 1), _call(3, 10 + gap, "launch", 2), _kernel(10 + gap, 20 + gap, 2))
    assert (found.rhythm.gaps, found.rhythm.median, found.rhythm.short) == (1, gap, short)


def test_a_runtime_call_and_the_drivers_call_inside_it_are_one_launch():
    # the outer call returns at 30, the inner one at 22: handed over from 30 to 40
    found = _idle(_call(0, 1, "launch", 1), _kernel(1, 10, 1), _call(20, 30, "launch", 2), _call(21, 22, "launch", 2), _kernel(40, 50, 2))
    assert _causes(found) == {"offload": 1 + 10, "useful": 10, "launched": 10}


def test_without_the_call_all_launching_threads_stand_in():
    # the kernel at 40 has no correlation; threads 1 and 2 both launch, thread 3 only waits and doesn't count
    found = _idle(
        _call(0, 1, "launch", 1),
        _kernel(1, 10, 1),
        _call(12, 15, "other", thread=2),
        _call(20, 24, "launch", 9, thread=2),
        _call(10, 40, "sync", thread=3),
        _kernel(24, 30, 9),
        _kernel(40, 50),
    )
    # gap 0–1 the launch; gap 10–24 is thread 2's: 3 + 4 in calls, 7 useful; gap 30–40: neither thread 1 nor 2 calls anything
    assert _causes(found) == {"offload": 1 + 7, "useful": 7 + 10}


def test_work_launched_before_the_recording_began_was_handed_over_all_along():
    # calls are numbered in their order; number 4 is below 5, the first that was recorded, so its gap 3–10 is not the host's
    found = _idle(_call(0, 1, "launch", 5), _kernel(1, 3, 5), _kernel(10, 20, 4))
    assert _causes(found) == {"offload": 1, "launched": 7}
    assert found.rhythm.launches == 1


def test_time_after_the_last_work_is_the_busiest_launching_threads():
    # after 10: thread 1, which launches, waits until 30; then nothing until 40, where thread 2's call ends
    found = _idle(_call(0, 1, "launch", 1), _kernel(1, 10, 1), _call(10, 30, "sync"), _call(35, 40, "other", thread=2))
    assert _causes(found) == {"offload": 1, "sync": 20, "useful": 10}
    assert found.gaps[0].after == ""


def test_a_device_without_host_rows_idles_for_reasons_unknown():
    found = _idle(_kernel(0, 10), _kernel(30, 40))
    assert _causes(found) == {"unknown": 20}
    assert found.rhythm.delay is None


def test_idle_time_in_doubt_has_no_cause():
    capture, reduced = _gathered(_call(0, 1, "launch", 1), _kernel(1, 10, 1), _call(28, 30, "launch", 2), _kernel(30, 40, 2))
    doubted = replace(reduced.devices[0], unknown=spans((EPOCH + 12, EPOCH + 20)))
    found, _ = idle(capture, doubted, reduced.processes, spans(reduced.window))
    assert _causes(found) == {"offload": 1 + 2, "useful": 18 - 8, "unknown": 8}


def test_a_device_never_idle_has_no_gaps():
    found = _idle(_call(0, 5, "launch", 1), _kernel(0, 10, 1))
    assert set(found.causes.values()) == {0} and found.gaps == () and found.rhythm.median is None


def test_only_the_longest_gaps_are_kept_longest_first():
    # kernels of 1 ns after gaps of 1, 2, …, 30 ns
    moment, events = 0, [_call(0, 1, "other")]
    for long in range(1, 31):
        moment += long
        events.append(_kernel(moment, moment + 1))
        moment += 1
    assert [g.end - g.start for g in _idle(*events).gaps] == list(range(30, 10, -1))


_TIME = st.integers(0, 60)
_SPAN = st.tuples(_TIME, st.integers(0, 12))


@st.composite
def _runs(draw: st.DrawFn) -> tuple[ScenarioEvent, ...]:
    events = []
    for process in range(draw(st.integers(1, 2))):
        for start, long in draw(st.lists(_SPAN, max_size=4)):
            events.append(_call(start, start + long, draw(st.sampled_from(["sync", "other", "copy"])), thread=1, process=process))
        for start, long in draw(st.lists(_SPAN, max_size=2)):
            events.append(ScenarioEvent(start, start + long, draw(st.sampled_from(["mpi", "off"])), "x", process, thread=1))
        for number, (start, long) in enumerate(draw(st.lists(_SPAN, max_size=4))):
            correlation = 10 * process + number
            if draw(st.booleans()):
                events.append(_call(start, start + long, "launch", correlation, draw(st.integers(1, 2)), process))
            begin = start + draw(st.integers(0, 9))
            events.append(_kernel(begin, begin + draw(st.integers(1, 9)), correlation, process=process))
    return (*events, _kernel(70, 71))


@given(_runs())
def test_causes_add_up_to_all_idle_time_and_agree_with_a_look_at_every_nanosecond(events: tuple[ScenarioEvent, ...]):
    capture, reduced = _gathered(*events)
    device = reduced.devices[0]
    looked = {p.key[1]: p.window for p in reduced.processes if p.key in device.owners or not device.owners}
    low, high = (edge - EPOCH for edge in reduced.window)
    seen = {n for a, b in looked.values() for n in range(a - EPOCH, b - EPOCH)} if looked else set(range(low, high))
    doubt = {n for a, b in zip(device.unknown.start, device.unknown.end, strict=True) for n in range(a - EPOCH, b - EPOCH)}
    expected: Counter[str] = Counter()
    for moment in seen - {n for e in events if e.kind == "kernel" for n in range(e.start, e.end)}:
        later = sorted((e for e in events if e.kind == "kernel" and e.start > moment), key=lambda e: e.start)
        if len({e.process for e in later if e.start == later[0].start}) > 1 or not later:
            return  # either may be the next one
        if len({e.correlation for e in later if e.start == later[0].start}) > 1:
            return
        expected["unknown" if moment in doubt else _cause(events, later[0], moment, looked, device.owners)] += 1
    assert _causes(reduced.idle["gpu"]) == dict(expected)
    assert sum(reduced.idle["gpu"].causes.values()) == len(seen) - sum(
        int((s.end - s.start).sum()) for s in (device.kernel, device.collective, device.memory)
    )
    assert isinstance(capture.recording, Recording) and tuple(reduced.idle["gpu"].causes) == CAUSES


def _cause(
    events: tuple[ScenarioEvent, ...], following: ScenarioEvent, moment: int, looked: dict[int, tuple[int, int]], owners: Any
) -> str:
    """What the definition says of one nanosecond."""
    process = following.process
    calls = [e for e in events if e.kind == "api" and e.process == process]
    if not calls or process not in looked:
        return "unknown"
    launches = [c for c in calls if c.correlation is not None and c.correlation == following.correlation]
    launching = {c.thread for c in calls if c.call in ("launch", "copy")} or {c.thread for c in calls}
    busiest = max(sorted(launching), key=lambda t: len({n for c in calls if c.thread == t for n in range(c.start, c.end)}))
    threads = {launches[0].thread if launches else busiest}
    if launches and moment >= launches[0].end:
        return "launched"
    if launches and moment >= launches[0].start:
        return "offload"
    numbers = [c.correlation for c in calls if c.correlation is not None]
    if not launches and following.correlation is not None and numbers and following.correlation < min(numbers):
        return "launched"  # before the recording began
    running = [e for e in events if e.process == process and e.start <= moment < e.end]
    own = [e for e in running if e.thread in threads]
    if any(e.kind == "mpi" for e in running):
        return "communication"
    if any(e.call == "sync" for e in own):
        return "sync"
    if any(e.kind == "api" for e in own):
        return "offload"
    if not looked[process][0] <= moment + EPOCH < looked[process][1]:
        return "unknown"
    return "off" if any(e.kind == "off" for e in own) else "useful"


def test_a_thread_answers_for_what_it_launched_beside_work_that_nobody_is_known_to_have_launched():
    # two threads launch; the kernel at 40 tells no launch, and the one at 80 is thread 2's
    capture, _ = _gathered(
        _call(0, 1, "launch", 1), _call(2, 3, "launch", 2, thread=2), _kernel(1, 10, 1), _kernel(10, 20, 2), _kernel(40, 50),
        _call(70, 75, "launch", 4, thread=2), _kernel(80, 90, 4),
    )  # fmt: skip
    reduced = reduce(capture, host="union")
    _, charges = idle(capture, reduced.devices[0], reduced.processes, spans(reduced.window))
    assert [(c.thread, c.spans.total) for c in charges if c.spans.total] == [(1, 1), (2, 25)]
