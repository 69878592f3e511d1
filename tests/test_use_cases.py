"""The TALP paper's seven use cases (section 5.1), from events to trees; and what else is known of the benchmark behind them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ullage.metrics.host import HOST
from ullage.metrics.tree import DEVICE_TALP, evaluate
from ullage.simulate.traces.answers import TreeAnswer, answer
from ullage.simulate.traces.pils import USE_CASES, Load, closed_form, load, pils
from ullage.simulate.traces.scenario import Scenario
from ullage.simulate.traces.training import TrainingPlan, sized, tiled, training
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.run import device_parts, device_totals, host_parts, host_totals, merge
from ullage.traces.calls import call, is_collective, operation

LOADS = {
    **{f"use case {number}": case.load for number, case in USE_CASES.items()},
    "many rounds on four ranks": load("rounds", cpu="300,250.5,10", gpu="500,20", memcpy="0,250000,120000.001", rounds=5),
    "overlapped, some kernels longer and some shorter": load("overlap", "400,10,900", "1000,300", "5", rounds=3, asynchronous=True),
    "one rank that only copies": load("copies", cpu="0", gpu="1", memcpy="1000000"),
}
PLANS = {
    "plain": TrainingPlan(),
    "straggler": TrainingPlan(ranks=3, straggler=1),
    "host-bound": TrainingPlan(host_bound=True, driver=False),
    "graph with kernels": TrainingPlan(graph="kernels"),
    "graph as a whole": TrainingPlan(graph="whole"),
    "graph without a trace": TrainingPlan(graph="hidden"),
}


def measured(scenario: Scenario, region: str | None = None) -> TreeAnswer:
    """The totals as the code under test finds them."""
    run = merge([reduce(gather(scenario.batches(), scenario.recording()))])
    windows = run.whole() if region is None else run.region(region)
    elapsed = run.elapsed(windows)
    host = host_totals(host_parts(run, windows), elapsed)
    device = device_totals(device_parts(run, windows), elapsed)
    assert host is not None
    return TreeAnswer(host, device and replace(device, max_kernel_transfer_time=None))


def tree(found: TreeAnswer) -> dict[str, float]:
    assert found.device is not None
    nodes = [*evaluate(HOST, found.host.sums()).walk(), *evaluate(DEVICE_TALP, found.device.counting_collectives().sums()).walk()]
    return {node.metric: node.value for _, node in nodes if node.value is not None}


@pytest.mark.parametrize("number", USE_CASES)
def test_a_use_case_gives_the_papers_numbers(number: str) -> None:
    case = USE_CASES[number]
    found = tree(measured(pils(case.load)))
    assert {metric: round(found[metric], 2) for metric in case.printed} == case.printed


def test_overlap_improves_offload_by_a_third_and_halves_the_devices_idling_and_changes_nothing_else() -> None:
    # "Device Offload Efficiency improves by 33%, reaching near-optimal levels"; "Orchestration Efficiency … nearly 50%"
    without, overlapped = (tree(measured(pils(USE_CASES[number].load))) for number in ("7", "7 overlapped"))
    assert round(overlapped["device_offload_efficiency"] - without["device_offload_efficiency"], 2) == 0.33
    assert round(overlapped["device_offload_efficiency"], 2) == 0.99
    assert 0.49 < overlapped["orchestration_efficiency"] < 0.5
    follow = {"device_offload_efficiency", "orchestration_efficiency", "host_parallel_efficiency", "device_parallel_efficiency"}
    assert {m for m in without if round(without[m], 2) != round(overlapped[m], 2)} == follow


def test_imbalance_of_the_devices_shows_as_imbalance_of_the_hosts_that_wait_for_them() -> None:
    # use case 3: both CPUs compute 1 s, rank 0 waits 5.05 s for its kernel and rank 1 0.505 s; with 0.125 s of set-up each,
    # (6.175 + 1.63) / (2 × 6.175) = 0.63
    found = tree(measured(pils(USE_CASES["3"].load)))
    assert round(found["mpi_parallel_efficiency"], 2) == round(found["host_load_balance"], 2) == 0.63


@pytest.mark.parametrize("name", LOADS)
def test_closed_form_walk_and_chain_agree_to_the_nanosecond(name: str) -> None:
    told: Load = LOADS[name]
    assert closed_form(told) == answer(pils(told)) == measured(pils(told))


@pytest.mark.parametrize("region", ["setup", "cpu", "gpu", "memcpy"])
def test_regions_of_the_benchmark_agree_with_the_walk(region: str) -> None:
    scenario = pils(USE_CASES["6"].load)
    assert measured(scenario, region) == answer(scenario, region)


def test_the_region_of_the_cpus_loop_is_useful_through_and_through() -> None:
    # use case 4: the loops take 10 s and 1 s; nothing else happens in them
    found = answer(pils(USE_CASES["4"].load), "cpu")
    assert (found.host.elapsed, found.host.useful_time, found.host.offload_time) == (10_000_000_000, 11_000_000_000, 0)
    assert found.device is not None
    assert found.device.max_active_time == 0


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("region", [None, "forward", "backward", "optimizer"])
def test_a_training_run_agrees_with_the_walk(name: str, region: str | None) -> None:
    scenario = training(PLANS[name])
    assert measured(scenario, region) == answer(scenario, region)


def test_a_graph_without_a_trace_hides_the_kernels_that_a_graph_with_kernels_shows() -> None:
    whole, kernels, hidden = (answer(training(TrainingPlan(graph=graph))).device for graph in ("whole", "kernels", "hidden"))
    assert whole and kernels and hidden
    assert whole.kernel_time == kernels.kernel_time > hidden.kernel_time


def test_a_straggler_makes_the_others_wait_in_collectives() -> None:
    even, uneven = (answer(training(TrainingPlan(straggler=rank))).device for rank in (None, 1))
    assert even and uneven
    assert tree(answer(training(TrainingPlan(straggler=1))))["device_load_balance"] < 1
    assert uneven.collective_time > even.collective_time


def test_a_training_run_is_the_same_every_time_and_as_long_as_asked() -> None:
    assert training(TrainingPlan(seed=9)) == training(TrainingPlan(seed=9)) != training(TrainingPlan(seed=10))
    assert len(training(sized(5_000)).events) == pytest.approx(5_000, rel=0.05)


def test_a_tiled_run_is_one_run_after_another() -> None:
    # the host never communicates on its own, so U and W, K, C and M each come twice
    scenario = training(TrainingPlan())
    once = measured(scenario)
    run = merge([reduce(gather(tiled(scenario, 2), scenario.recording()))])
    twice = device_totals(device_parts(run), run.elapsed())
    assert once.device is not None
    assert twice is not None
    assert (twice.kernel_time, twice.collective_time, twice.memory_time) == tuple(
        2 * time for time in (once.device.kernel_time, once.device.collective_time, once.device.memory_time)
    )


@pytest.mark.parametrize(
    "scenario", [pils(LOADS["many rounds on four ranks"]), training(TrainingPlan(graph="kernels"))], ids=lambda s: s.name
)
def test_a_scenarios_names_say_what_its_events_are(scenario: Scenario) -> None:
    # a trace file holds names, not kinds: the readers must find the same
    for event in scenario.events:
        if event.kind == "api":
            assert call(event.name) == event.call
        if event.kind in ("kernel", "collective"):
            assert is_collective(event.name) == (event.kind == "collective")
        if event.kind == "collective":
            assert operation(event.name) == event.operation
