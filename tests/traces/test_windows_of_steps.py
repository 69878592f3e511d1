"""The profiler's steps as the window: of a waterfall wherever a trace has them, and in profiles that note them as operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import ask
from tests.traces.kineto_events import call, kernel, on_host, reading, written
from ullage import waterfall
from ullage.traced import read_trace

SECOND = 1e6  # us, in which Kineto counts
# Three steps of 0.8 s from 0 to 2.4 s; each launches a kernel 0.1 s after its begin, which runs 0.7 s. Before the first and after the
# last step nothing is recorded but a call, so that what is recorded lasts from 0 to 2.4 s in one case, from 0.1 to 2.4 in the other.
STEPS = [on_host(n * 0.8 * SECOND, 0.8 * SECOND, f"ProfilerStep#{n}") for n in range(3)]
WORK = [
    event
    for n in range(3)
    for event in (
        call((n * 0.8 + 0.1) * SECOND, 10, correlation=n + 1),
        kernel((n * 0.8 + 0.1) * SECOND + 10, 0.7 * SECOND - 10, correlation=n + 1),
    )
]


def of(report, name: str) -> float:
    return next(step.factor.value for step in report.chain.steps if step.names == (name,))


def test_the_steps_are_the_window_where_a_trace_has_them(tmp_path: Path) -> None:
    path = written(tmp_path, *STEPS, *WORK)
    # 3 × (0.7 s − 10 us) of 2.4 s; from the first call to the last kernel's end it is of 2.3 s
    busy = 3 * (0.7 - 1e-5)
    by_default = waterfall(trace=path, ofu=0.2)
    assert of(by_default, "orchestration") == pytest.approx(busy / 2.4, abs=1e-9)
    assert of(waterfall(trace=path, ofu=0.2, window="steps"), "orchestration") == of(by_default, "orchestration")
    edges = waterfall(trace=path, ofu=0.2, window="first-last")
    assert of(edges, "orchestration") == pytest.approx(busy / 2.3, abs=1e-9)
    assert any("over 2.4 s, from the first profiler step to the end of the last" in line for line in by_default.rests_on)
    assert any("over 2.3 s, from the first event to the last" in line for line in edges.rests_on)


def test_without_steps_it_is_all_that_was_recorded(tmp_path: Path) -> None:
    report = waterfall(trace=written(tmp_path, *WORK), ofu=0.2)
    assert any("over 2.3 s, from the first event to the last" in line for line in report.rests_on)


def test_steps_of_no_length_are_no_window(tmp_path: Path) -> None:
    report = waterfall(trace=written(tmp_path, on_host(SECOND, 0, "ProfilerStep#0"), *WORK), ofu=0.2)
    assert any("over 2.3 s, from the first event to the last" in line for line in report.rests_on)


def test_files_with_and_without_steps_say_both_rules(tmp_path: Path) -> None:
    paths = [
        written(tmp_path, *events, name=f"{n}.json", distributedInfo={"rank": n, "world_size": 2})
        for n, events in enumerate(([*STEPS, *WORK], WORK))
    ]
    assert read_trace(paths, window="auto").report().window == "first-last and steps"


@pytest.mark.parametrize("category", ["cpu_op", "Operator"])
def test_steps_noted_as_operators_are_steps(category: str, tmp_path: Path) -> None:
    old = [step | {"cat": category} for step in STEPS]
    rows, _, _ = reading(written(tmp_path, *old, *WORK))
    assert [row["name"] for row in rows if row["kind"] == "step"] == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    expected = read_trace(written(tmp_path, *STEPS, *WORK, name="new.json"), window="steps").report()
    found = read_trace(written(tmp_path, *old, *WORK), window="steps").report()
    assert (found.whole.host, found.whole.device, [s.device for s in found.steps]) == (
        expected.whole.host, expected.whole.device, [s.device for s in expected.steps],
    )  # fmt: skip


def test_steps_noted_twice_count_once(tmp_path: Path) -> None:
    rows, _, _ = reading(written(tmp_path, *STEPS, *(step | {"cat": "cpu_op"} for step in STEPS), *WORK))
    assert sum(row["kind"] == "step" for row in rows) == 3


def test_a_step_noted_as_an_operator_hides_no_collective_of_the_host(tmp_path: Path) -> None:
    # gloo runs 0.1 to 0.3 s in a step that, as an operator, would compute beside it
    gloo = on_host(0.1 * SECOND, 0.2 * SECOND, "gloo:all_reduce")
    path = written(tmp_path, *(step | {"cat": "cpu_op"} for step in STEPS), gloo, *WORK, distributedInfo={"backend": "gloo"})
    [part] = read_trace(path).report().whole.host_parts
    assert part.communication == pytest.approx(0.2e9 - 1e4, abs=1e4)


def test_the_command_says_the_rule(tmp_path: Path) -> None:
    data = ask("waterfall", "--trace", written(tmp_path, *STEPS, *WORK), "--ofu", "20%", "--json").json
    assert any("from the first profiler step" in line for line in data["rests_on"])
