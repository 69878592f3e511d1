"""What a problem tells, and that its thresholds are those of the findings."""

from __future__ import annotations

from ullage.alerts.problem import problems_of_fleet


def test_a_finding_names_its_own_next_command_and_else_that_of_the_report() -> None:
    finding = {"kind": "held_idle", "where": {"job": "7"}, "owner": "ann", "gpu_hours": 2.0, "confidence": "high"}
    finding |= {"evidence": [{"name": "idle share", "value": 1.0}], "advice": "ask ann"}
    document = {"findings": [finding | {"next": "ullage job 7 store"}, finding | {"next": None}]}
    assert [one.command for one in problems_of_fleet(document, "ullage fleet store")] == ["ullage job 7 store", "ullage fleet store"]
