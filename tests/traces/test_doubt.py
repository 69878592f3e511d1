"""Idle time that may have been work: when it is in doubt, until when, and what is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ullage.problems import Problems
from ullage.recording import Recording
from ullage.simulate.traces.scenario import EPOCH, Scenario, ScenarioEvent
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.run import device_parts, merge
from ullage.sums.lanes.spans import Spans
from ullage.sums.lanes.states import DeviceState
from ullage.traces.trace import TraceOptions, recognised


def _call(start: int, end: int, call: str, correlation: int | None = None, name: str = "", thread: int = 1) -> ScenarioEvent:
    names = {"launch": "cudaLaunchKernel", "graph": "cudaGraphLaunch", "copy": "cudaMemcpyAsync", "sync": "cudaDeviceSynchronize"}
    return ScenarioEvent(start, end, "api", name or names[call], 0, thread=thread, call=call, correlation=correlation)


def _kernel(start: int, end: int, correlation: int | None = None, kind: str = "kernel", device: int = 0, stream: int = 7) -> ScenarioEvent:
    return ScenarioEvent(start, end, kind, "gemm", 0, device=device, stream=stream, correlation=correlation)


def _device(*events: ScenarioEvent, said: Callable[[Recording], Any] = lambda _: None) -> DeviceState:
    scenario = Scenario("run", events, {0: 0}, {0: ("G", "gpu"), 1: ("G", "gpu-1")})
    recording = scenario.recording()
    said(recording)
    return reduce(gather(scenario.batches(), recording)).devices[0]


def _pairs(found: Spans) -> list[tuple[int, int]]:
    return [(int(a) - EPOCH, int(b) - EPOCH) for a, b in zip(found.start, found.end, strict=True)]


_SOUND = (_call(0, 2, "launch", 1), _kernel(5, 10, 1), _call(10, 100, "other", name="cudaMalloc"))


def test_a_recording_with_nothing_missing_leaves_no_doubt():
    assert _pairs(_device(*_SOUND).unknown) == [] and _device(*_SOUND).doubts == ()


def test_a_graph_launch_without_records_is_in_doubt_until_a_wait_for_the_device_returns():
    # the wait that began at 15, before the launch had returned, proves nothing; the one from 40 to 60 does
    events = (_call(15, 30, "sync", thread=2), _call(20, 25, "graph", 2), _call(40, 60, "sync"))
    found = _device(*_SOUND, *events)
    assert _pairs(found.unknown) == [(20, 60)]
    assert found.doubts == ("cannot tell idle: 1 graph launch has no kernel records",)


def test_without_a_wait_the_doubt_lasts_to_the_end_and_known_work_is_not_in_doubt():
    found = _device(*_SOUND, _call(20, 25, "graph", 2), _call(26, 28, "graph", 3), _kernel(50, 60, 1))
    assert _pairs(found.unknown) == [(20, 50), (60, 100)]
    assert found.doubts == ("cannot tell idle: 2 graph launches have no kernel records",)


def test_a_wait_for_one_of_two_streams_proves_nothing():
    wait = _call(40, 60, "sync", name="cudaStreamSynchronize")
    assert _pairs(_device(*_SOUND, _call(20, 25, "graph", 2), wait).unknown) == [(20, 60)]
    other = _kernel(5, 10, 1, stream=8)
    assert _pairs(_device(*_SOUND, _call(20, 25, "graph", 2), wait, other).unknown) == [(20, 100)]


def test_with_two_devices_no_wait_says_for_which_it_is():
    events = (_call(20, 25, "graph", 2), _call(40, 60, "sync"), _kernel(5, 10, 1, device=1))
    assert _pairs(_device(*_SOUND, *events).unknown) == [(20, 100)]


def test_a_replay_with_few_of_its_kernels_is_in_doubt():
    # replays of 4, 4 and 1 kernels: the median is 4, and 1 is less than half
    events = [_call(30, 31, "graph", 4), _kernel(35, 36, 4), _call(40, 60, "sync")]
    for number, begin in ((2, 12), (3, 20)):
        events += [_call(begin, begin + 1, "graph", number), *(_kernel(begin + n, begin + n + 1, number) for n in range(1, 5))]
    found = _device(*_SOUND, *events)
    assert _pairs(found.unknown) == [(30, 35), (36, 60)]
    assert found.doubts == ("cannot tell idle: 1 graph replay has far fewer records than the like",)


def test_a_small_graph_that_is_replayed_often_is_not_in_doubt():
    # 3 of 7 replays have one kernel: another graph
    events = []
    for number in range(7):
        begin = 12 + 10 * number
        events += [_call(begin, begin + 1, "graph", 10 + number)]
        events += [_kernel(begin + n, begin + n + 1, 10 + number) for n in range(1, 2 if number < 3 else 5)]
    assert _pairs(_device(*_SOUND, *events).unknown) == []


def test_a_graph_recorded_as_a_whole_is_in_doubt_as_work_not_as_idle_time():
    # the graph ran 30–50, one of its kernels 30–35 was recorded beside
    events = (_call(20, 22, "graph", 2), _kernel(30, 50, 2, kind="graph"), _kernel(30, 35, 3))
    found = _device(*_SOUND, *events)
    assert _pairs(found.unknown) == [] and _pairs(found.graph) == [(35, 50)]
    assert found.doubts == ("cannot tell kernels from gaps and copies: 1 graph was recorded as a whole",)


def test_a_launch_without_record_is_in_doubt_where_most_have_theirs():
    dropped = (_call(20, 21, "launch", 2), _call(40, 60, "sync"))
    assert _pairs(_device(*_SOUND, *dropped).unknown) == []  # 1 of 2 has a record: that may be how the source is
    found = _device(*_SOUND, *dropped, _call(3, 4, "launch", 3), _kernel(5, 10, 3))
    assert _pairs(found.unknown) == [(20, 60)]
    assert found.doubts == ("cannot tell idle: 1 launch or copy has no device record",)


def test_work_begun_later_on_each_stream_ends_the_doubt_about_a_launch_for_a_stream_keeps_its_order():
    # the launch at 20 has no record; later ones run from 40 on stream 7, from 50 on stream 8
    events = (_call(20, 21, "launch", 2), _call(30, 31, "launch", 3), _kernel(40, 45, 3))
    assert _pairs(_device(*_SOUND, *events).unknown) == [(20, 40)]
    other = (_call(2, 3, "launch", 5), _kernel(6, 8, 5, stream=8), _call(31, 32, "launch", 4), _kernel(50, 55, 4, stream=8))
    assert _pairs(_device(*_SOUND, *events, *other).unknown) == [(20, 40), (45, 50)]


def test_a_copy_whose_call_was_shorter_than_any_recorded_one_copied_nothing():
    # recorded copies take 5 and 6 on the host; of those without a record one takes 1, one takes 5
    recorded = (_call(11, 16, "copy", 3), _kernel(17, 18, 3, kind="memcpy"), _call(20, 26, "copy", 4), _kernel(27, 28, 4, kind="memcpy"))
    assert _pairs(_device(*_SOUND, *recorded, _call(30, 31, "copy", 5)).unknown) == []
    assert _pairs(_device(*_SOUND, *recorded, _call(30, 35, "copy", 5)).unknown) == [(30, 100)]


@pytest.mark.parametrize(
    "harmless_",
    [
        (_call(15, 40, "other", name="cudaStreamBeginCapture"), _call(45, 50, "other", name="cudaStreamEndCapture")),  # into a graph
        (_call(19, 22, "launch", 3, name="cuLaunchKernel"), _kernel(12, 14, 3)),  # the same call at another level
    ],
)
def test_a_launch_that_runs_nothing_by_itself_is_not_in_doubt(harmless_: tuple[ScenarioEvent, ...]):
    enough = (_call(3, 4, "launch", 4), _kernel(5, 10, 4))
    events = (*_SOUND, *enough, _call(20, 21, "launch", 2))
    assert _pairs(_device(*events).unknown) == [(20, 100)]
    assert _pairs(_device(*events, *harmless_).unknown) == []


def test_without_correlations_nothing_is_claimed():
    assert _pairs(_device(_kernel(5, 10), _call(0, 2, "graph", 1), _call(10, 100, "other", name="cudaMalloc")).unknown) == []


def test_an_event_of_unbelievable_length_may_have_lasted_to_the_next():
    # one begins at 20 in the gap 10–50; one at 52, within a kernel, so the next gap 60–100 may be its
    found = _device(*_SOUND, _kernel(50, 60), _kernel(20, 20, kind="lost"))
    assert _pairs(found.unknown) == [(20, 50)]
    found = _device(*_SOUND, _kernel(50, 60), _kernel(52, 52, kind="lost"))
    assert _pairs(found.unknown) == [(60, 100)]
    assert found.doubts == ("cannot tell idle: 1 device event has no believable duration",)


def test_what_a_cut_file_or_untimed_events_leave_idle_is_all_in_doubt():
    def cut(recording: Recording) -> None:
        recording.cut = "at byte 9,437,184"

    def untimed(recording: Recording) -> None:
        recording.untimed = 1200

    assert _pairs(_device(*_SOUND, said=cut).unknown) == [(0, 5), (10, 100)]
    assert _device(*_SOUND, said=cut).doubts == ("cannot tell idle: the file ends early (at byte 9,437,184)",)
    assert _pairs(_device(*_SOUND, said=untimed).unknown) == [(0, 5), (10, 100)]
    assert _device(*_SOUND, said=untimed).doubts == ("cannot tell idle: 1,200 device events have no usable time",)


def test_an_event_of_no_length_ran_within_two_steps_of_a_coarse_clock():
    def coarse(recording: Recording) -> None:
        recording.resolution = 10

    assert _pairs(_device(*_SOUND, _kernel(50, 50), said=coarse).unknown) == [(50, 70)]
    assert _pairs(_device(*_SOUND, _kernel(50, 50)).unknown) == []


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("hta_a100_rank0of2_nccl_data.json.gz", 0.0),  # 3 memsets of no bytes
        ("hta_a100_alexnet.json.gz", 0.0),  # 2
        ("tracelens_h100_google_owlv2-large-patch14-ensemble__1016001.json.gz", 0.001),  # 305, a few of them as long as recorded ones
        ("tracelens_mi300_vllm_decode_hipgraph.json.gz", 0.0),  # graphs of hundreds of kernels
    ],
)
def test_real_recordings_are_hardly_in_doubt(shared_data: Path, name: str, most: float):
    kind, file = recognised(shared_data / "kineto" / name)
    recording = Recording(name)
    assert kind.read is not None
    reduced = reduce(gather(kind.read(file, recording, TraceOptions(), Problems()), recording))
    low, high = reduced.window
    assert [d.unknown.total <= most * (high - low) for d in reduced.devices] == [True]


def test_doubts_of_captures_that_share_a_device_are_laid_together():
    # one process' capture knows the device busy 30–50 only as a graph; the other recorded a kernel 40–45 on it
    def capture(process: int, *events: ScenarioEvent) -> Scenario:
        return Scenario(f"{process}.json", events, {process: process}, {0: ("G", "gpu")})

    def own(process: int, start: int, end: int, kind: str, name: str, **more: Any) -> ScenarioEvent:
        return ScenarioEvent(start, end, kind, name, process, **more)

    whole = own(0, 30, 50, "graph", "graph", device=0), own(0, 0, 100, "api", "cudaMalloc", call="other", thread=1)
    kernel = own(1, 40, 45, "kernel", "gemm", device=0), own(1, 0, 100, "api", "cudaMalloc", call="other", thread=1)
    captures = [reduce(gather(s.batches(), s.recording())) for s in (capture(0, *whole), capture(1, *kernel))]
    part = device_parts(merge(captures))[0]
    assert (part.kernel, part.graph, part.idle) == (20, 15, 80)
    assert part.device.doubts == ("cannot tell kernels from gaps and copies: 1 graph was recorded as a whole",)
