"""From events to totals: any small run gives what the walk over its moments gives, whichever way its rows arrive."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.seeds import examples
from ullage.metrics.host import HOST
from ullage.metrics.tree import DEVICE_AI, DEVICE_TALP, Node, evaluate
from ullage.simulate.traces.answers import TreeAnswer, answer
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent
from ullage.sums.lanes.gather import LaneRows, gather, one_view
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.run import Run, Windows, device_parts, device_totals, host_parts, host_totals, merge
from ullage.totals import DeviceTotals

CALLS = ("launch", "graph", "copy", "sync", "other")
DEVICE_KINDS = ("kernel", "collective", "collective", "memcpy", "memset", "graph", "lost")
UUIDS = ("GPU-a", "GPU-b", "GPU-c")


@st.composite
def events(draw: st.DrawFn) -> ScenarioEvent:
    """An event of up to three processes on up to three devices within 40 ns; many overlap, nest, are equal or empty."""
    start = draw(st.integers(0, 20))
    end = start + draw(st.sampled_from((0, 1, 2, 3, 5, 8, 20)))
    process = draw(st.sampled_from((11, 11, 12, 13)))
    sort = draw(st.sampled_from(("device", "device", "device", "api", "api", "mpi", "region", "host", "off", "overhead")))
    if sort == "device":
        kind = draw(st.sampled_from(DEVICE_KINDS))
        end = start if kind == "lost" else end
        return ScenarioEvent(
            start,
            end,
            kind,
            kind,
            process,
            device=draw(st.sampled_from((0, 0, 0, 1, 2))),
            stream=draw(st.integers(0, 2)),
            bytes=end - start,
        )
    thread = draw(st.sampled_from((1, 2, 3)))
    if sort == "api":
        return ScenarioEvent(start, end, "api", "call", process, thread=thread, call=draw(st.sampled_from((*CALLS, None))))
    return ScenarioEvent(start, end, sort, draw(st.sampled_from("ab")), process, thread=thread)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    begin = draw(st.integers(0, 20))
    region = ScenarioEvent(begin, begin + draw(st.integers(1, 20)), "region", "a", 11, thread=1)
    call = ScenarioEvent(begin, begin + 2, "api", "call", 11, thread=1, call=draw(st.sampled_from(CALLS)))
    found = (region, *draw(st.sampled_from(((call,), (call,), ()))), *draw(st.lists(events(), max_size=20)))
    ranks = {process: rank for rank, process in enumerate(sorted({e.process for e in found}))}
    return Scenario("random", found, ranks, {number: ("H100", key) for number, key in enumerate(UUIDS)})


def read(scenario: Scenario, batches: Iterable[pa.RecordBatch] | None = None) -> Run:
    return merge([reduce(gather(scenario.batches() if batches is None else batches, scenario.recording()))])


def totals(run: Run, windows: Windows | None = None) -> TreeAnswer:
    windows = run.whole() if windows is None else windows
    elapsed = run.elapsed(windows)
    host = host_totals(host_parts(run, windows), elapsed)
    assert host is not None
    return TreeAnswer(host, plain(device_totals(device_parts(run, windows), elapsed)))


def plain(device: DeviceTotals | None) -> DeviceTotals | None:
    """Without what is only known when collectives are matched across ranks."""
    return device and replace(device, max_kernel_transfer_time=None)


def known(scenario: Scenario, region: str | None = None) -> TreeAnswer:
    try:
        return answer(scenario, region)
    except ValueError:
        assume(False)
        raise


def trees(found: TreeAnswer) -> list[Node]:
    device = [] if found.device is None else [evaluate(DEVICE_AI, found.device.sums())]
    talp = [] if found.device is None else [evaluate(DEVICE_TALP, found.device.counting_collectives().sums())]
    return [evaluate(HOST, found.host.sums()), *device, *talp]


@settings(max_examples=examples(60, 200))
@given(scenarios())
def test_the_totals_of_any_run_are_those_of_the_walk(scenario: Scenario) -> None:
    expected = known(scenario)
    assert totals(read(scenario)) == expected


@settings(max_examples=examples(60, 200))
@given(scenarios(), st.sampled_from("aab"))
def test_the_totals_of_any_region_are_those_of_the_walk(scenario: Scenario, region: str) -> None:
    # a region's time within a process' window is all of it: its rows are the process' own
    expected = known(scenario, region)
    run = read(scenario)
    found = totals(run, run.region(region))
    # where the region happens to be all of the run, the run can count what the walk leaves open
    host = replace(found.host, calls=None)
    device = found.device and replace(found.device, launches=None, bytes=None)
    assert TreeAnswer(host, device) == expected


@given(scenarios())
def test_each_devices_states_add_up_to_the_elapsed_time(scenario: Scenario) -> None:
    known(scenario)
    run = read(scenario)
    for part in device_parts(run):
        assert part.kernel + part.collective + part.memory + part.idle == run.elapsed()
        assert min(part.kernel, part.collective, part.memory, part.idle, part.unknown) >= 0
        assert part.unknown <= part.idle
    for process in host_parts(run):
        assert process.useful + process.offload + process.communication == process.elapsed <= run.elapsed()
        assert min(process.useful, process.offload, process.communication) >= 0


@given(scenarios())
def test_parents_are_the_products_of_their_children(scenario: Scenario) -> None:
    for tree in trees(known(scenario)):
        for _, node in tree.walk():
            values = [child.value for child in node.children]
            if node.value is not None and values and None not in values:
                product = 1.0
                for value in values:
                    product *= value or 0.0
                assert node.value == pytest.approx(product, rel=1e-12)
                assert 0 <= node.value <= 1


@given(scenarios(), st.randoms(use_true_random=False))
def test_neither_order_nor_batches_nor_repeated_calls_change_a_tree(scenario: Scenario, chance: random.Random) -> None:
    expected = trees(known(scenario))
    rows = [*scenario.events, *chance.choices([e for e in scenario.events if e.kind == "api"] or [scenario.events[0]], k=2)]
    rows = rows if rows[-1].kind == "api" else list(scenario.events)
    chance.shuffle(rows)
    cuts = sorted(chance.randrange(len(rows) + 1) for _ in range(3))
    parts = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    batches = [batch for part in parts for batch in replace(scenario, events=tuple(part)).batches()]
    assert trees(totals(read(scenario, batches))) == expected


@given(scenarios())
def test_a_capture_for_each_process_gives_the_same_run(scenario: Scenario) -> None:
    # every process counts, or a file of its own would make one count that the common file leaves aside
    assume({e.process for e in scenario.events if e.kind in ("api", "mpi")} == set(scenario.ranks))
    expected = known(scenario)
    alone = [replace(scenario, name=f"rank {p}", events=scenario.of(p), ranks={p: rank}) for p, rank in scenario.ranks.items()]
    did = ("api", "mpi", "host", "kernel", "collective", "memcpy", "memset", "graph")
    lasts = [[moment for e in s.events if e.kind in did for moment in (e.start, e.end)] for s in alone]
    assume(all(min(moments) < max(moments) for moments in lasts))  # a process of one moment counts nowhere
    run = merge(reduce(gather(s.batches(), s.recording())) for s in alone)
    found = totals(run)
    # UUIDs make the device that two captures saw one device; its times are united
    assert trees(found) == trees(expected)


def test_a_kernel_across_a_regions_edge_is_cut_there_not_lost() -> None:
    # the region is 10–20, the kernel 5–14: 4 ns of it count, and the region's elapsed time is 10
    scenario = Scenario(
        "edge",
        (
            ScenarioEvent(0, 2, "api", "cudaLaunchKernel", 1, thread=1, call="launch"),
            ScenarioEvent(5, 14, "kernel", "k", 1, device=0),
            ScenarioEvent(10, 20, "region", "solve", 1, thread=1),
            ScenarioEvent(14, 20, "host", "work", 1, thread=1),
        ),
        {1: 0},
    )
    run = read(scenario)
    (part,) = device_parts(run, run.region("solve"))
    assert (part.kernel, part.idle, run.elapsed(run.region("solve"))) == (4, 6, 10)


def test_a_device_that_two_processes_share_is_united_not_added() -> None:
    # kernels 0–10 and 5–15 of two processes on one GPU: busy 15 of 20, not 20
    rows = [
        (ScenarioEvent(0, 20, "api", "cudaDeviceSynchronize", p, thread=p, call="sync"), ScenarioEvent(a, b, "kernel", "k", p, device=0))
        for p, a, b in ((1, 0, 10), (2, 5, 15))
    ]
    run = read(Scenario("shared", tuple(e for pair in rows for e in pair), {1: 0, 2: 1}))
    (part,) = device_parts(run)
    assert (part.kernel, part.idle) == (15, 5)


def test_two_devices_of_one_process_are_two() -> None:
    # both run 10 of 10 ns: load balance 1, orchestration 1 (summed over the process they would be 0.5 and 2)
    rows = (
        ScenarioEvent(0, 10, "api", "cudaDeviceSynchronize", 1, thread=1, call="sync"),
        *(ScenarioEvent(0, 10, "kernel", "k", 1, device=d) for d in (0, 1)),
    )
    device = totals(read(Scenario("two", rows, {1: 0}))).device
    assert device is not None
    tree = evaluate(DEVICE_TALP, device.sums())
    assert {node.metric: node.value for _, node in tree.walk()} == {
        "device_parallel_efficiency": 1,
        "device_load_balance": 1,
        "device_communication_efficiency": 1,
        "orchestration_efficiency": 1,
    }


def test_a_thread_that_only_asks_does_not_make_its_process_wait() -> None:
    # thread 1 launches for 2 of 10 ns; thread 2, a watchdog, waits all the time
    rows = (
        ScenarioEvent(0, 2, "api", "cudaLaunchKernel", 1, thread=1, call="launch"),
        ScenarioEvent(0, 10, "api", "cudaEventSynchronize", 1, thread=2, call="sync"),
    )
    host = totals(read(Scenario("watched", rows, {1: 0}))).host
    assert (host.useful_time, host.offload_time) == (8, 2)


def test_time_after_the_last_event_with_a_duration_counts_when_something_happened_then() -> None:
    # a kernel's launch is all that is known of 30: the run lasts 30, not 20
    rows = (
        ScenarioEvent(0, 20, "api", "cudaMalloc", 1, thread=1, call="other"),
        ScenarioEvent(30, 30, "api", "cudaLaunchKernel", 1, thread=1, call="launch"),
    )
    assert read(Scenario("late", rows, {1: 0})).elapsed() == 30


def test_device_work_of_nobody_that_is_known_is_in_the_elapsed_time() -> None:
    # process 2 shows kernels and no call: it is no host of this run, and process 1 is observed as long as they run (0-40)
    rows = (ScenarioEvent(0, 10, "api", "cudaMalloc", 1, thread=1, call="other"), ScenarioEvent(5, 40, "kernel", "k", 2, device=0))
    run = read(Scenario("stray", rows, {1: 0}))
    (part,) = device_parts(run)
    assert (run.elapsed(), part.kernel, part.idle) == (40, 35, 5)


def test_a_collective_of_one_capture_under_a_kernel_of_another_is_computing() -> None:
    # one GPU, a file for each of its two processes: a collective 0–10 and a copy 8–14 in one, a kernel 4–12 in the other
    rows = {
        1: [ScenarioEvent(0, 10, "collective", "ncclDevKernel", 1, device=0), ScenarioEvent(8, 14, "memcpy", "Memcpy HtoD", 1, device=0)],
        2: [ScenarioEvent(4, 12, "kernel", "k", 2, device=0)],
    }
    alone = [
        Scenario(
            f"rank {p}",
            (ScenarioEvent(0, 20, "api", "cudaMalloc", p, thread=1, call="other"), *on_device),
            {p: p - 1},
            {0: ("H100", "GPU-a")},
        )
        for p, on_device in rows.items()
    ]
    (part,) = device_parts(merge(reduce(gather(s.batches(), s.recording())) for s in alone))
    assert (part.kernel, part.collective, part.memory, part.idle) == (8, 4, 2, 6)


@pytest.mark.parametrize("seed", range(20))
def test_a_column_of_one_value_costs_no_memory_and_is_chosen_from_as_any_other(seed: int) -> None:
    draw = np.random.default_rng(seed)
    count = int(draw.integers(0, 6))
    same, other = np.full(count, 7), draw.integers(0, 9, count)
    rows = LaneRows(np.arange(count), np.arange(count), process=one_view(same), thread=one_view(other))
    assert count == 0 or rows.process.strides == (0,)
    for chosen in (draw.random(count) < 0.5, np.ones(count, bool), np.flatnonzero(draw.random(count) < 0.5)):
        found = rows.where(chosen)
        assert found.process.tolist() == same[chosen].tolist() and found.thread.tolist() == other[chosen].tolist()
        assert found.start.tolist() == np.arange(count)[chosen].tolist()
