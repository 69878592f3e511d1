"""Money of a fleet's rows: what all hours cost, and the part of it that falls short, which never look alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import ask

T = 1_786_320_000
HEAD = "timestamp,gpu,model,host,job,user,tensor_active,sm_clock,sm_active\n"
# job, user, model, tensor activity, clock in MHz (that of its tensor peak), price per GPU-hour
ROWS = [("a", "ann", "H100 SXM", 0.8, 1830, 2.5), ("a", "ann", "H100 SXM", 0.8, 1830, 2.5), ("b", "ann", "A100", 0.25, 1410, 1.0)]


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """An hour of three GPUs, a reading a minute."""
    lines = [
        f"{T + 60 * minute},GPU-{number},{model},n1,{job},{user},{active},{clock},0.9\n"
        for minute in range(61)
        for number, (job, user, model, active, clock, _) in enumerate(ROWS)
    ]
    file = tmp_path / "samples.csv"
    file.write_text(HEAD + "".join(lines))
    return file


def test_each_row_has_the_cost_of_all_its_hours_and_of_those_that_fall_short(samples: Path) -> None:
    report = ask("fleet", samples, "--price", "H100=2.5,A100=1", "--json").json
    hours = report["gpu_hours"] / 3  # of a GPU: the first reading stands for the time before it, too
    for job in report["groups"]:
        own = [row for row in ROWS if row[0] == job["key"]]
        assert job["cost"] == pytest.approx(sum(price * hours for *_, price in own), rel=1e-9)
        assert job["ullage_cost"] == pytest.approx(sum(price * hours * (1 - active) for _, _, _, active, _, price in own), rel=1e-6)
    by_user = ask("fleet", samples, "--price", "H100=2.5,A100=1", "--by", "user", "--json").json["groups"]
    for groups in (report["groups"], by_user):
        assert sum(one["ullage_cost"] for one in groups) == pytest.approx(report["ullage"]["cost"], rel=1e-9)
        assert sum(one["cost"] for one in groups) == pytest.approx(report["ullage"]["fleet_cost"], rel=1e-9)


def test_total_and_part_have_names_of_their_own(samples: Path) -> None:
    said = ask("fleet", samples, "--price", "2").out
    (head,) = [line for line in said.split("\n") if line.startswith("job ") and "GPU-hours" in line]
    assert head.index("cost of all hours") < head.index("of it ullage")
    assert "cost" not in ask("fleet", samples).out.split("What to do first")[0]


def test_without_a_price_of_every_gpu_a_row_has_neither(samples: Path) -> None:
    groups = {one["key"]: one for one in ask("fleet", samples, "--price", "H100=2.5", "--json").json["groups"]}
    assert groups["b"]["cost"] is None and groups["b"]["ullage_cost"] is None
    assert groups["a"]["ullage_cost"] < groups["a"]["cost"]
