"""What a problem tells, and that its thresholds are those of the findings."""

from __future__ import annotations

import pytest

from ullage.alerts.problem import problems_of, problems_of_fleet


def test_a_finding_names_its_own_next_command_and_else_that_of_the_report() -> None:
    finding = {"kind": "held_idle", "where": {"job": "7"}, "owner": "ann", "gpu_hours": 2.0, "confidence": "high"}
    finding |= {"evidence": [{"name": "idle share", "value": 1.0}], "advice": "ask ann"}
    document = {"findings": [finding | {"next": "ullage job 7 store"}, finding | {"next": None}]}
    assert [one.command for one in problems_of_fleet(document, "ullage fleet store")] == ["ullage job 7 store", "ullage fleet store"]


def straggler(until: str = "the last sample", **where: str) -> dict[str, object]:
    """A finding about a GPU of job 7, or a host, as a document has it."""
    place = {"cluster": "east", "job": "7", "host": "n1", "gpu": "GPU-1"} | where
    finding = {"kind": "straggler", "where": {name: value for name, value in place.items() if value}, "owner": "ann", "gpu_hours": 12.0}
    return finding | {"confidence": "high", "evidence": [{"name": "until", "value": until}], "advice": "drain it", "next": "ullage job 7"}


def seen_now(gpus: tuple[str, ...] = ("GPU-1",), end: str | None = None) -> dict[str, object]:
    """The same as a document of `ullage watch` has it."""
    where = {"cluster": "east", "job": "7", "host": "n1", "gpus": list(gpus)}
    return where | {"start": "2026-08-10T00:00:00Z", "end": end, "sign": "clock", "longer": 1.5}


def told(findings: list[dict[str, object]], seen: list[dict[str, object]]) -> list[tuple[str, float, str]]:
    problems = problems_of({"findings": findings}, {"changes": [], "stragglers": seen})
    return [(one.kind, one.gpu_hours, one.command) for one in problems]


def test_a_straggler_that_both_find_is_one_problem_with_what_it_has_cost() -> None:
    assert told([straggler()], [seen_now()]) == [("straggler_now", 12.0, "ullage job 7")]


@pytest.mark.parametrize(("where", "gpus"), [({"gpu": ""}, ("GPU-1",)), ({}, ("GPU-1", "GPU-2")), ({"gpu": ""}, ("GPU-1", "GPU-2"))])
def test_a_host_and_a_gpu_of_it_are_one_problem(where: dict[str, str], gpus: tuple[str, ...]) -> None:
    assert told([straggler(**where)], [seen_now(gpus)]) == [("straggler_now", 12.0, "ullage job 7")]


@pytest.mark.parametrize("where", [{"gpu": "GPU-3"}, {"job": "8"}, {"cluster": "west"}])
def test_another_device_or_job_is_another_problem(where: dict[str, str]) -> None:
    assert [kind for kind, _, _ in told([straggler(**where)], [seen_now()])] == ["straggler", "straggler_now"]


def test_a_straggler_that_is_over_is_no_problem_and_one_that_only_the_report_finds_is() -> None:
    assert told([straggler(until="2026-08-10 02:00 UTC")], [seen_now(end="2026-08-10T02:00:00Z")]) == []
    assert told([straggler()], []) == [("straggler", 12.0, "ullage job 7")]
