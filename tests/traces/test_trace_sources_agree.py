"""One run, written as every tool writes it and read back, gives one tree: the same to the nanosecond, whatever the source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ullage.metrics.host import HOST
from ullage.metrics.tree import DEVICE_AI, DEVICE_TALP, evaluate
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.simulate.traces import kineto, nsys, talp
from ullage.simulate.traces.answers import TreeAnswer, answer
from ullage.simulate.traces.pils import USE_CASES, load, pils
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent
from ullage.simulate.traces.training import TrainingPlan, training
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.reduce import Reduced, reduce
from ullage.sums.lanes.run import Run, device_parts, device_totals, host_parts, host_totals, merge
from ullage.totals import DeviceTotals
from ullage.traces.trace import TraceOptions, recognised


def several(owners: dict[int, tuple[int, ...]]) -> Scenario:
    """Processes that each use several devices (device numbers by process): on each a kernel and a copy, as long as its number says."""
    events: list[ScenarioEvent] = []
    for process, devices in owners.items():
        events.append(ScenarioEvent(2_000, 60_000, "region", "solve", process, thread=process))
        for at, device in enumerate(devices):
            call, start = at + 1, 1_003 * (process % 10 + 1) + 7_000 * at
            events.append(
                ScenarioEvent(start, start + 901, "api", "cudaLaunchKernel", process, thread=process, call="launch", correlation=call)
            )
            kernel = ScenarioEvent(start + 2_000, start + 21_007 + 5_000 * device, "kernel", "gemm", process, device=device)
            events.append(replace(kernel, stream=7, correlation=call, blocks=8, threads=128))
            events.append(
                ScenarioEvent(
                    start + 950, start + 2_950, "api", "cudaMemcpyAsync", process, thread=process, call="copy", correlation=call + 50
                )
            )
            copy = ScenarioEvent(start + 15_000, start + 40_001, "memcpy", "Memcpy HtoD", process, device=device, bytes=4096)
            events.append(replace(copy, stream=8, correlation=call + 50))
        events.append(
            ScenarioEvent(50_000, 70_000 + process, "api", "cudaDeviceSynchronize", process, thread=process, call="sync", correlation=99)
        )
    used = sorted({device for devices in owners.values() for device in devices})
    return Scenario(
        "several",
        tuple(events),
        {process: rank for rank, process in enumerate(owners)},
        {n: ("NVIDIA A100", f"GPU-{n:08x}-7365-7665-7261-{n:012x}") for n in used},
    )


SCENARIOS: dict[str, Scenario] = {
    **{f"use case {number}": pils(case.load) for number, case in USE_CASES.items()},
    "rounds": pils(load("rounds", cpu="300,250.5,10", gpu="500,20", memcpy="0,250,120.001", rounds=4)),
    "two devices a process": several({11: (0, 1), 12: (2, 3)}),
    "devices of unequal number": several({11: (0, 1, 2), 12: (3,)}),
    "training": training(TrainingPlan()),
    "training, straggler": training(TrainingPlan(ranks=3, straggler=1, seed=5)),
    "training, host-bound": training(TrainingPlan(host_bound=True)),
    "training, graph with kernels": training(TrainingPlan(graph="kernels")),
    "training, graph without a trace": training(TrainingPlan(graph="hidden")),
}
# what PyTorch's profiler can't tell: it writes down no graph's execution as one, and not which GPU of the machine a device is
BESIDE_KINETO: dict[str, Scenario] = {
    "whole graphs": training(TrainingPlan(graph="whole")),
    "one device of two processes": several({11: (0,), 12: (0,)}),
    "devices in common": several({11: (0, 1), 12: (1, 2), 13: (2,)}),
}

Written = Callable[[Scenario, Path], list[Path]]
KINETO: dict[str, Written] = {
    "native": lambda scenario, folder: kineto.write(scenario, folder, compact=False, gzip=False),
    "compact": lambda scenario, folder: kineto.write(scenario, folder, compact=True, gzip=False),
    "gzip": lambda scenario, folder: kineto.write(scenario, folder, compact=False, gzip=True),
}
NSYS: dict[str, Written] = {
    generation: lambda scenario, folder, generation=generation: [nsys.write(scenario, folder / "run.sqlite", generation=generation)]
    for generation in ("2020", "2022", "2024", "2026", "newest")
}
TALP_VERSIONS = ("3.6", "3.7", "3.8")  # 3.5 knew no devices


def run_of(paths: list[Path]) -> tuple[Run, Problems]:
    """What the files hold, read one by one as the product does."""
    problems, kept = Problems(), list[Reduced]()
    for path in paths:
        trace, file = recognised(path)
        assert trace.read is not None
        recording = Recording(file.name)
        kept.append(reduce(gather(trace.read(file, recording, TraceOptions(), problems), recording)))
    return merge(kept), problems


def totals(run: Run, region: str | None) -> TreeAnswer:
    windows = run.whole() if region is None else run.region(region)
    elapsed = run.elapsed(windows)
    host = host_totals(host_parts(run, windows), elapsed)
    assert host is not None
    return TreeAnswer(host, device_totals(device_parts(run, windows), elapsed))


def comparable(found: TreeAnswer) -> TreeAnswer:
    """Without how many calls there were, of which some recorders write two rows for one, and without what matching collectives adds."""
    device = found.device and replace(found.device, max_kernel_transfer_time=None)
    return TreeAnswer(replace(found.host, calls=None), device)


def regions(scenario: Scenario) -> list[str | None]:
    return [None, *dict.fromkeys(e.name for e in scenario.events if e.kind == "region")]


def assert_agrees(scenario: Scenario, paths: list[Path]) -> None:
    run, problems = run_of(paths)
    assert not problems.dropped
    for region in regions(scenario):
        assert comparable(totals(run, region)) == comparable(answer(scenario, region)), region


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("form", KINETO)
def test_kineto_gives_the_answer_to_the_nanosecond(name: str, form: str, tmp_path: Path) -> None:
    paths = KINETO[form](SCENARIOS[name], tmp_path)
    assert len(paths) == len(SCENARIOS[name].ranks)
    assert_agrees(SCENARIOS[name], paths)


@pytest.mark.parametrize("name", [*SCENARIOS, *BESIDE_KINETO])
@pytest.mark.parametrize("generation", NSYS)
def test_every_generation_of_nsight_systems_gives_the_answer_to_the_nanosecond(name: str, generation: str, tmp_path: Path) -> None:
    scenario = (SCENARIOS | BESIDE_KINETO)[name]
    assert_agrees(scenario, NSYS[generation](scenario, tmp_path))


@pytest.mark.parametrize("name", [*SCENARIOS, *BESIDE_KINETO])
@pytest.mark.parametrize("version", TALP_VERSIONS)
def test_talp_gives_the_answer_to_the_nanosecond(name: str, version: str, tmp_path: Path) -> None:
    scenario = (SCENARIOS | BESIDE_KINETO)[name]
    trace, file = recognised(talp.write(scenario, tmp_path / "talp.json", version=version))
    assert trace.sums is not None
    found = {r.name: r for r in trace.sums(file, Recording(file.name), TraceOptions(), Problems())}
    for region in regions(scenario):
        expected = answer(scenario, region)
        read = found[region or "Global"]
        assert read.host is not None
        assert (read.host.processes, read.host.elapsed) == (expected.host.processes, expected.host.elapsed)
        assert (read.host.useful_time, read.host.offload_time) == (expected.host.useful_time, expected.host.offload_time)
        assert read.host.max_busy_time == expected.host.max_busy_time
        assert in_talp_mode(read.device) == in_talp_mode(expected.device)


def in_talp_mode(device: DeviceTotals | None) -> DeviceTotals | None:
    """Without the counts, of which TALP has none."""
    return device and replace(device.counting_collectives(), launches=None, bytes=None)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_trees_of_all_sources_are_one_tree(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    expected = answer(scenario)
    assert expected.device is not None
    known = [evaluate(HOST, expected.host.sums()), evaluate(DEVICE_AI, expected.device.sums())]
    known.append(evaluate(DEVICE_TALP, expected.device.counting_collectives().sums()))
    for form, write in (KINETO | NSYS).items():
        (tmp_path / form).mkdir()
        found = comparable(totals(run_of(write(scenario, tmp_path / form))[0], None))
        assert found.device is not None
        assert evaluate(HOST, found.host.sums()) == known[0]
        assert evaluate(DEVICE_AI, found.device.sums()) == known[1]
        assert evaluate(DEVICE_TALP, found.device.counting_collectives().sums()) == known[2]


def test_graphs_traced_as_one_have_the_time_of_their_kernels(tmp_path: Path) -> None:
    # the kernels of a replay follow one another without a gap, so the graph runs as long as they do; only their number is lost
    scenario = training(TrainingPlan(graph="kernels"))
    expected = comparable(answer(scenario))
    found = comparable(totals(run_of([nsys.write(scenario, tmp_path / "run.sqlite", graphs="graph")])[0], None))
    assert found.device is not None
    assert expected.device is not None
    assert found.host == expected.host
    assert replace(found.device, launches=None) == replace(expected.device, launches=None)
    assert found.device.launches == expected.device.launches - 2 * 3 * 16  # two ranks, three steps, two kernels a layer
