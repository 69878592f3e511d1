"""VictoriaMetrics takes the rules too, and gives the same: its query language is another one that is nearly PromQL."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fleet.servers import get, program, victoria_metrics
from tests.rules.drawn_fleet import A100, H100, SCRAPE, STEP, DrawnFleet, FleetTraits, drawn_fleet
from tests.rules.evaluation import Labels
from tests.rules.reference import expected
from tests.rules.test_recorded_values import LEVELS, START, SUMS
from ullage.questions.rules import rules


def steady_fleet(seed: int) -> DrawnFleet:
    """A fleet in which nobody changes: what is imported has no marks of an end, so that a series of before would still count."""
    fleet = drawn_fleet(seed, FleetTraits(gaps=False, phases=False, sentinels=False, missing=False))
    return replace(fleet, devices=[replace(one, holders=[one.holders[0]] * fleet.scrapes) for one in fleet.devices])


def history(fleet: DrawnFleet) -> str:
    lines = []
    for series in fleet.series():
        for at, value in enumerate(series.values):
            if value != "_":
                lines.append(f"{series.selector} {value} {1000 * (START + at * STEP)}")
    return "\n".join(lines) + "\n"


def values(url: str, expression: str, at: int) -> dict[Labels, float]:
    query = urllib.parse.urlencode({"query": expression, "time": at, "nocache": 1})
    answer = json.loads(get(f"{url}/api/v1/query?{query}", timeout=30) or b"{}")
    assert answer.get("status") == "success", (expression, answer)
    return {
        frozenset((label, text) for label, text in one["metric"].items() if label != "__name__"): float(one["value"][1])
        for one in answer["data"]["result"]
    }


def test_vmalert_reads_the_file(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(str(rules()))
    done = subprocess.run([program("vmalert"), "-dryRun", f"-rule={tmp_path / 'rules.yml'}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
def test_victoria_metrics_records_what_a_slow_walk_over_devices_gives(seed: int, tmp_path: Path) -> None:
    # each rule is asked at one moment and its answer written back before the next, as a group of rules is evaluated
    fleet, file = steady_fleet(seed), rules(gpus=(H100, A100))
    at = START + (fleet.scrapes - 1) * SCRAPE
    with victoria_metrics(tmp_path, history=history(fleet)) as url:
        for rule in (one for one in file.rules if not one.alert):
            lines = []
            for labels, value in values(url, rule.expr, at).items():
                metric = {"__name__": rule.name, **dict(labels), **rule.labels}
                lines.append(json.dumps({"metric": metric, "values": [value], "timestamps": [1000 * at]}))
            if lines:
                request = urllib.request.Request(f"{url}/api/v1/import", data="\n".join(lines).encode(), method="POST")
                urllib.request.urlopen(request, timeout=30).close()
                get(f"{url}/internal/force_flush", timeout=30)
        answer = expected(fleet, at - START)
        for name in (f"{level}:ullage_{what}:sum" for level in LEVELS for what in SUMS):
            assert values(url, name, at) == pytest.approx(answer.get(name, {}), rel=1e-9, abs=1e-9), name
