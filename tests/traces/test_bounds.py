"""Bounds of efficiencies: no value computed from times within their bounds lies outside, and what is exact stays exact."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import product
from types import SimpleNamespace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ullage.metrics.bounds import Interval, device_bounds, host_bounds, load_balance
from ullage.metrics.host import HOST
from ullage.metrics.tree import DEVICE_AI, DEVICE_TALP, Branch, bounded, evaluate
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent
from ullage.sums.lanes.bounds import device_ranges, host_ranges
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.run import Run, device_parts, device_totals, host_parts, host_totals, merge
from ullage.sums.lanes.spans import NONE, spans
from ullage.totals import DeviceTotals


@dataclass(frozen=True)
class _Box:
    """A device: times surely spent, and time of which it is not known on what."""

    kernel: int
    collective: int
    memory: int
    unknown: int
    choice: tuple[int, int, int]  # what the unknown time was in truth, as far as it is enough


_PART = st.integers(0, 40)
_BOXES = st.lists(st.builds(_Box, _PART, _PART, _PART, _PART, st.tuples(_PART, _PART, _PART)), min_size=1, max_size=4)


def _true(box: _Box) -> tuple[int, int, int]:
    left, times = box.unknown, []
    for known, extra in zip((box.kernel, box.collective, box.memory), box.choice, strict=True):
        times.append(known + min(extra, left))
        left -= min(extra, left)
    return times[0], times[0] + times[1], sum(times)


def _values(branch: Branch, sums: dict[str, float]) -> dict[str, float | None]:
    return {node.metric: node.value for _, node in evaluate(branch, sums).walk()}


def _totals(nests: list[tuple[int, int, int]], elapsed: int) -> DeviceTotals:
    k, kc, active = (list(column) for column in zip(*nests, strict=True))
    return DeviceTotals(
        devices=len(k),
        elapsed=elapsed,
        kernel_time=sum(k),
        collective_time=sum(kc) - sum(k),
        memory_time=sum(active) - sum(kc),
        max_kernel_time=max(k),
        max_kernel_collective_time=max(kc),
        max_active_time=max(active),
        max_kernel_transfer_time=max((a + b) // 2 for a, b in zip(k, kc, strict=True)),
    )


def test_a_clocks_step_and_doubt_widen_a_time_by_what_its_pieces_allow():
    # of 20,000 ns the device computes 4,000 in 2 pieces, is in collectives 3,000 (1) and in memory operations 2,000 (3);
    # 70 ns nobody knows, of 50 ns of kernels only that a graph ran
    def part(resolution: int, transfer: int | None = None):
        device = SimpleNamespace(resolution=resolution, collective_all=spans((0, 3000)), memory_all=NONE)
        return SimpleNamespace(
            device=device, kernel=4000, collective=3000, memory=2000, idle=11_000, unknown=70, graph=50, pieces=(2, 1, 3), transfer=transfer
        )

    exact, coarse = device_ranges([part(1)]), device_ranges([part(1000)])
    assert (exact.kernel, coarse.kernel) == (((3950, 4070),), ((1950, 8070),))
    assert (exact.kernel_collective, coarse.kernel_collective) == (((6950, 7070),), ((3950, 13_070),))
    assert (exact.active, coarse.active) == (((8950, 9070),), ((2950, 20_000),))
    assert (exact.least_collective, coarse.least_collective) == ((3000,), (1000,))
    assert (exact.least_memory, coarse.least_memory) == ((2000,), (0,))
    assert device_ranges([part(100)]).least_memory == (1400,)
    # a collective that was recorded at all may be longer by two steps a piece; no memory operation was
    assert (exact.most_collective, coarse.most_collective) == ((3120,), (15_120,))
    assert (exact.most_memory, coarse.most_memory) == ((2120,), (2120,))
    assert exact.kernel_transfer is None
    moving = device_ranges([part(1, transfer=0), part(1, transfer=500)]).kernel_transfer
    assert moving == ((3950, 4070), (4450, 4570)) and device_ranges([part(1, 500), part(1)]).kernel_transfer is None


def test_a_hosts_times_are_bounded_by_the_steps_of_its_pieces():
    # useful 600 and busy 800 of 1,000; 3 calls and 2 spans of MPI; 40 ns were not recorded
    part = SimpleNamespace(useful=600, busy=800, off=30, elapsed=1000, pieces=(3, 2))
    assert host_ranges([part], 1, [40]).useful == ((600, 640),) and host_ranges([part], 1).busy == ((800, 800),)
    found = host_ranges([part], 10, [40])
    # taken away are pieces that are up to a step shorter or two steps longer: 5 for useful, 2 for busy
    assert found.useful == ((500, 690),) and found.busy == ((760, 860),) and found.off == (30,)
    assert host_ranges([part], 200).useful == ((0, 1000),)


def test_more_time_than_there_was_is_all_of_it_and_no_more():
    # 2 devices of at least 90 and at most 150 in 100 to 120: at most all of the shorter time, at least 180 of 240
    found = device_bounds([(90, 150)] * 2, [(90, 150)] * 2, [(90, 150)] * 2, (100, 120))
    assert found["device_parallel_efficiency"] == (0.75, 1.0)
    assert found["orchestration_efficiency"] == (0.75, 1.0)
    assert host_bounds([(45, 60)], [(90, 90)], (100, 120))["host_parallel_efficiency"] == (0.375, 0.6)


@given(_BOXES, st.integers(160, 200), st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_no_times_within_their_bounds_give_an_efficiency_outside_its_own(boxes: list[_Box], elapsed: int, slack: tuple[int, int]):
    least = [(b.kernel, b.kernel + b.collective, b.kernel + b.collective + b.memory) for b in boxes]
    levels = [[(nest[level], nest[level] + b.unknown) for nest, b in zip(least, boxes, strict=True)] for level in range(3)]
    truth = [_true(b) for b in boxes]
    middle = [(nest[0] + nest[1]) // 2 for nest in truth]
    found = device_bounds(
        *levels,
        elapsed=(elapsed - slack[0], elapsed + slack[1]),
        least_collective=[b.collective for b in boxes],
        least_memory=[b.memory for b in boxes],
        kernel_transfer=[(max(m - 9, 0), m + 9) for m in middle],
    )
    for metric, value in _values(DEVICE_AI, _totals(truth, elapsed).sums()).items():
        if value is not None:
            low, high = found[metric]
            assert 0 <= low <= value <= high <= 1, metric


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=3))
def test_the_bounds_of_the_load_balance_are_reached(steps: list[tuple[int, int]]):
    times = [(low, low + more) for low, more in steps]
    reached = [sum(ks) / (len(ks) * max(ks)) for ks in product(*(range(low, high + 1) for low, high in times)) if max(ks)]
    assert load_balance(times) == ((min(reached), max(reached)) if reached else None)


@given(_BOXES)
def test_where_nothing_is_in_doubt_both_bounds_are_the_value(boxes: list[_Box]):
    nests = [_true(b) for b in boxes]
    levels: list[list[Interval]] = [[(nest[level], nest[level]) for nest in nests] for level in range(3)]
    found = device_bounds(*levels, elapsed=(200, 200))
    values = _values(DEVICE_TALP, _totals(nests, 200).counting_collectives().sums() | {"max_kernel_time": max(n[0] for n in nests)})
    assert found["orchestration_efficiency"] == (values["orchestration_efficiency"],) * 2
    exact = {metric: (value, value) for metric, value in _values(DEVICE_AI, _totals(nests, 200).sums()).items() if value is not None}
    assert {metric: exact[metric] for metric in found} == found


def test_unknown_time_of_two_devices_may_lie_on_either():
    # K of 40 and 40, one of them perhaps 40 more, of 100: PE (80 to 120)/200, LB from 120/160 to 1, OE 0.4 to 0.8
    times = [(40, 40), (40, 80)]
    found = device_bounds(times, times, times, (100, 100))
    assert found["device_parallel_efficiency"] == (0.4, 0.6)
    assert found["device_load_balance"] == (0.75, 1.0)
    assert found["orchestration_efficiency"] == (0.4, 0.8)


def test_collectives_that_surely_ran_keep_the_collective_efficiency_below_one():
    # K 40 to 60, C at least 20: at most 60/80, at least 40/80 (all the unknown time in collectives)
    found = device_bounds([(40, 60)], [(60, 80)], [(60, 80)], (100, 100), least_collective=[20])
    assert found["collective_efficiency"] == (0.5, 0.75)


def test_devices_that_surely_did_nothing_have_no_load_balance():
    assert set(device_bounds([(0, 0)], [(0, 0)], [(0, 0)], (100, 100))) == {"device_parallel_efficiency", "orchestration_efficiency"}
    assert device_bounds([], [], [], (100, 100)) == {}


def _api(start: int, end: int, call: str, correlation: int | None = None) -> ScenarioEvent:
    name = {"sync": "cudaDeviceSynchronize", "launch": "cudaLaunchKernel", "graph": "cudaGraphLaunch"}[call]
    return ScenarioEvent(start, end, "api", name, 0, thread=1, call=call, correlation=correlation)


def _ran(start: int, end: int, kind: str, correlation: int | None = None) -> ScenarioEvent:
    return ScenarioEvent(start, end, kind, kind, 0, device=0, stream=7, correlation=correlation)


def _run(*events: ScenarioEvent, resolution: int = 1) -> Run:
    scenario = Scenario("run", events, {0: 0}, {0: ("G", "gpu")})
    recording = scenario.recording()
    recording.resolution = resolution
    return merge([reduce(gather(scenario.batches(), recording))])


def _bounds(run: Run) -> dict[str, tuple[float, float]]:
    return device_bounds(**asdict(device_ranges(device_parts(run))), elapsed=(run.elapsed(), run.elapsed()))


def test_a_run_whose_graphs_left_no_records_is_not_said_to_idle():
    # a kernel 2–10 of 100; a graph launched at 20, waited for until 100: active 8 to 88
    run = _run(_api(0, 2, "launch", 1), _ran(2, 10, "kernel", 1), _api(20, 25, "graph", 2), _api(25, 100, "sync"))
    totals = device_totals(device_parts(run), run.elapsed())
    assert totals is not None
    tree = bounded(evaluate(DEVICE_AI, totals.sums()), _bounds(run))
    node = tree.find("orchestration_efficiency")
    assert node is not None and (node.low, node.high) == (0.08, 0.88) and not node.certain


def test_a_graph_recorded_as_a_whole_may_have_computed_or_not():
    # a graph 20–60 and a kernel 60–80 of 100: K from 20 to 60
    run = _run(_api(0, 2, "graph", 1), _ran(20, 60, "graph", 1), _ran(60, 80, "kernel"), _api(2, 100, "sync"))
    assert _bounds(run)["device_parallel_efficiency"] == (0.2, 0.6)


def test_a_clock_of_whole_steps_widens_each_piece_and_one_of_nanoseconds_none():
    # two pieces of 20 of 100, steps of 2: each up to 2 shorter or 4 longer
    events = (_api(0, 2, "launch", 1), _ran(10, 30, "kernel", 1), _ran(50, 70, "kernel"), _api(90, 100, "sync"))
    assert _bounds(_run(*events, resolution=2))["device_parallel_efficiency"] == (0.36, 0.48)
    assert _bounds(_run(*events))["device_parallel_efficiency"] == (0.4, 0.4)


def test_in_talp_mode_a_collective_counts_as_kernel_time():
    run = _run(_api(0, 2, "launch", 1), _ran(2, 32, "kernel", 1), _ran(32, 52, "collective"), _api(90, 100, "sync"))
    ranges = device_ranges(device_parts(run)).counting_collectives()
    assert device_bounds(**asdict(ranges), elapsed=(100, 100))["device_parallel_efficiency"] == (0.5, 0.5)


def test_a_hosts_bounds_come_from_its_clock():
    # U = 100 − 12 in calls; two pieces of calls, each up to 2 shorter or 4 longer: 80 to 92; nothing in communication
    run = _run(_api(0, 2, "launch", 1), _ran(2, 32, "kernel", 1), _api(90, 100, "sync"))
    ranges = host_ranges(host_parts(run), resolution=2)
    found = host_bounds(**asdict(ranges), elapsed=(100, 100))
    assert found["host_parallel_efficiency"] == (0.8, 0.92)
    assert found["mpi_parallel_efficiency"] == (1.0, 1.0)
    totals = host_totals(host_parts(run), 100)
    assert totals is not None
    sure = host_bounds(**asdict(host_ranges(host_parts(run), resolution=1)), elapsed=(100, 100))
    assert all(sure[metric] == (value, value) for metric, value in _values(HOST, totals.sums()).items())


@st.composite
def _recordings(draw: st.DrawFn) -> tuple[tuple[ScenarioEvent, ...], frozenset[int]]:
    """A run of launches, now and then a wait for all of them, and the numbers of those whose record on the device was lost."""
    events, host, device, lost = [], 0, 0, set()
    for number in range(draw(st.integers(3, 8))):
        host += draw(st.integers(0, 5))
        call = draw(st.sampled_from(["launch", "graph"]))
        events.append(_api(host, host + 2, call, number))
        start = max(host + draw(st.integers(1, 6)), device)
        for kind in draw(st.lists(st.sampled_from(["kernel", "collective", "memcpy"]), min_size=1, max_size=3 if call == "graph" else 1)):
            device = start + draw(st.integers(1, 9))
            events.append(_ran(start, device, kind, number))
            start = device + draw(st.integers(0, 2))
        if draw(st.integers(0, 2)) == 0:
            lost.add(number)
        host += 2
        if draw(st.booleans()):
            events.append(_api(host, max(host, device) + 1, "sync"))
            host = max(host, device) + 1
    return (*events, _api(host, max(host, device) + 1, "sync")), frozenset(lost)


@given(_recordings())
def test_bounds_from_a_recording_with_losses_hold_the_whole_recordings_efficiencies(
    recording: tuple[tuple[ScenarioEvent, ...], frozenset[int]],
):
    events, lost = recording
    kept = tuple(e for e in events if e.kind == "api" or e.correlation not in lost)
    single = {e.correlation for e in events if e.call == "launch"}
    assume(any(e.kind != "api" for e in kept))  # else there is no device to speak of
    assume(2 * len(single - lost) > len(single))  # else the source is taken to record no single kernels
    whole = _run(*events)
    totals = device_totals(device_parts(whole), whole.elapsed())
    assert totals is not None
    found = _bounds(_run(*kept))
    for metric, value in _values(DEVICE_AI, totals.sums()).items():
        if value is not None and metric in found:
            low, high = found[metric]
            assert low <= value <= high, metric


def test_a_device_part_keeps_its_ranges_within_the_elapsed_time():
    run = _run(_api(0, 2, "launch", 1), _ran(2, 99, "kernel", 1), _api(99, 100, "sync"))
    part = replace(device_parts(run)[0], unknown=50, graph=200)
    assert device_ranges([part]).kernel == ((0, 100),)


@pytest.mark.parametrize("elapsed", [(0, 0), (0, 10)])
def test_without_elapsed_time_there_is_no_parallel_efficiency(elapsed: Interval):
    assert "device_parallel_efficiency" not in device_bounds([(0, 0)], [(0, 0)], [(0, 0)], elapsed)
