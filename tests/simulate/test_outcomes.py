"""How simulated runs end and wait: the goodput of the answer key is what a report over the fleet finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import ask
from ullage.simulate.fleet import Specification, fleet
from ullage.simulate.outcomes import LOST, STATES, outcomes


@pytest.mark.parametrize("seed", [5, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(20))])
def test_the_goodput_of_a_report_is_that_of_the_answer_key(tmp_path: Path, seed: int) -> None:
    words = ["--gpus", 24, "--hours", 4, "--interval", 60, "--seed", seed, "--faults", "none", "--outcomes"]
    made = ask("simulate", *words, "--out", tmp_path / "fleet", "--json")
    assert made.code == 0
    key = json.loads((tmp_path / "fleet" / "answers.json").read_text())["goodput"]
    found = ask("fleet", tmp_path / "fleet" / "samples", "--jobs", tmp_path / "fleet" / "jobs.csv", "--json").json
    for name in ("scheduling", "runtime", "program", "goodput"):
        assert found["goodput"][name] == pytest.approx(key[name], rel=2e-3), name
    waits = key["waits"]
    assert (found["queue"]["runs"] if found["queue"] else 0) == waits["runs"]
    if waits["runs"]:
        assert found["queue"]["gpu_hours"] == pytest.approx(waits["gpu_hours"], rel=1e-9)
        assert found["queue"]["longest_seconds"] == waits["longest_seconds"]


def test_a_run_that_goes_on_runs_and_the_others_end_in_the_shares_that_are_said() -> None:
    specification = Specification(gpus=4096, hours=48, seed=1, outcomes=True)
    jobs = fleet(specification).records
    found = outcomes(specification, jobs)
    assert found == outcomes(specification, jobs)
    assert all((found[job.name].state == "RUNNING") == (job.end > specification.window[1]) for job in jobs)
    assert all(found[job.name].queue_start <= job.start for job in jobs)
    ended = [found[job.name].state for job in jobs if job.end <= specification.window[1]]
    for state, share in STATES:  # of some hundred runs: five standard deviations
        assert ended.count(state) / len(ended) == pytest.approx(share, abs=5 * (share * (1 - share) / len(ended)) ** 0.5)
    assert set(LOST) < {state for state, _ in STATES}


def test_without_being_asked_records_say_nothing_of_it() -> None:
    jobs = fleet(Specification(gpus=8, hours=1)).jobs()
    assert jobs["state"].null_count == jobs["queue_start"].null_count == len(jobs)
