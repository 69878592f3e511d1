"""Every query of every dashboard, asked of a real Prometheus that has seen a simulated fleet and a running service."""

from __future__ import annotations

import re
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from tests.dashboards.grafana import Server, Values, links, panels, targets, variables
from tests.dashboards.watched_fleet import BACKTICK, HOSTILE, fleet_pages, watched_fleet
from ullage.questions.dashboard import dashboard

pytest.importorskip("grafana_foundation_sdk", reason="Grafana's types (pip install 'ullage[grafana]')")
EVERYTHING = "$__all"
FAULTS = ("held back", "can't be right")  # of panels that are empty where nothing is wrong
ODD = "apostrophe's"  # a job of which a GPU says what can't be


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with watched_fleet(tmp_path_factory.mktemp("watched")) as found:
        yield found


@cache
def made(name: str) -> Mapping[str, Any]:
    return dashboard(name, interval="1s").dashboards[name]


def everything_of(document: Mapping[str, Any], **chosen: str) -> dict[str, str | list[str]]:
    """Return what is chosen of a dashboard: what is named, and of the rest all, or what it has."""
    known: dict[str, str | list[str]] = {}
    for variable in variables(document):
        known[variable["name"]] = EVERYTHING if variable.get("includeAll") else variable.get("current", {}).get("value", "")
    return known | chosen


def empty(server: Server, document: Mapping[str, Any], chosen: Values) -> list[str]:
    return [f"{panel['title']} {target['refId']}" for panel, target in targets(document) if not server.asked(target, chosen)]


def figure(server: Server, document: Mapping[str, Any], title: str, chosen: Values) -> float:
    (panel,) = [one for one in panels(document) if one["type"] == "stat" and one["title"] == title]
    (series,) = server.asked(panel["targets"][0], chosen)
    return float(series["value"][1])


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("fleet", {}),
        ("fleet", {"cluster": "west"}),
        ("team", {}),
        ("job", {"job_id": ODD}),
        ("host", {"host": "node0001"}),
        ("service", {}),
    ],
    ids=str,
)
def test_every_panel_has_something_to_show(server: Server, name: str, chosen: dict[str, str]) -> None:
    document = made(name)
    assert empty(server, document, everything_of(document, **chosen)) == []


def test_every_variable_offers_what_there_is_but_for_what_cannot_be_asked(server: Server) -> None:
    offered = {}
    for name in ("fleet", "team", "job", "host"):
        document = made(name)
        for variable in variables(document):
            if variable["type"] == "query":
                offered[name, variable["name"]] = server.options(variable, everything_of(document))
    assert {tuple(values) for (_, variable), values in offered.items() if variable == "cluster"} == {("east", "west")}
    assert offered["host", "host"] == ["node0001", "node0002", "node0003", "node0004"]
    assert {*offered["team", "user"]} == {*HOSTILE} and {*offered["team", "namespace"]} <= {*HOSTILE}
    assert {job for job in offered["job", "job_id"] if not job.endswith("-0")} <= {*HOSTILE}
    assert not any("`" in value for values in offered.values() for value in values)


def gpus_by_owner() -> Counter[str]:
    """Return how many GPUs each user's jobs have, as the exporter's page says."""
    words = [line for line in fleet_pages()().splitlines() if line.startswith("DCGM_FI_DEV_SM_CLOCK{")]
    found = [re.search(r'owner="((?:[^"\\]|\\.)*)"', line) for line in words]
    return Counter(re.sub(r"\\(.)", r"\1", one[1]) for one in found if one)


def test_a_name_chooses_its_own_gpus_whatever_signs_are_in_it(server: Server) -> None:
    document, counted = made("team"), gpus_by_owner()
    assert {*counted} == {*HOSTILE, BACKTICK}
    for name in HOSTILE:
        chosen = everything_of(document, user=name)
        assert figure(server, document, "GPUs", chosen) == counted[name], name
        assert all(any(fault in one for fault in FAULTS) for one in empty(server, document, chosen)), name
    several = everything_of(document) | {"user": [*HOSTILE]}
    assert figure(server, document, "GPUs", several) == sum(counted[name] for name in HOSTILE)


def test_every_job_that_is_offered_can_be_shown(server: Server) -> None:
    document = made("job")
    (variable,) = [one for one in variables(document) if one["name"] == "job_id"]
    for job in server.options(variable, everything_of(document)):
        left = empty(server, document, everything_of(document, job_id=job))
        assert all(any(fault in one for fault in FAULTS) for one in left), (job, left)


def test_what_is_lost_and_what_is_delivered_are_what_was_observed(server: Server) -> None:
    for name, more in (("fleet", {}), ("team", {}), ("job", {"job_id": ODD}), ("host", {"host": "node0003"})):
        document = made(name)
        chosen = everything_of(document, **more)
        ofu, short, observed = (figure(server, document, title, chosen) for title in ("OFU", "Short of full", "Observed"))
        assert short == pytest.approx(observed * (1 - ofu), rel=1e-9)  # every GPU of this fleet is measured
        (bars,) = [one for one in panels(document) if one["type"] == "bargauge"]
        steps = server.asked(bars["targets"][0], chosen)
        assert sum(float(one["value"][1]) for one in steps) == pytest.approx(short, rel=1e-9)


def percent_encoded(value: str) -> str:
    """As `${…:percentencode}` has it."""
    return urllib.parse.quote(value, safe="")


def test_a_link_of_a_table_opens_the_dashboard_of_its_row(server: Server) -> None:
    fleet = made("fleet")
    for panel, address in links(fleet):
        (label,) = re.findall(r"__data\.fields\.(\w+)", address)
        for row in server.asked(panel["targets"][0], everything_of(fleet)):
            if label in row["metric"]:  # an empty cell has no link
                opened(server, address, row["metric"])


def opened(server: Server, address: str, labels: Mapping[str, str]) -> None:
    """Open the address of a row, and look whether the dashboard there shows what the row names."""
    if BACKTICK in str(labels):
        return
    fixed = address.replace("${__url_time_range}", "from=1&to=2").replace("${cluster:queryparam}", "var-cluster=$__all")

    def encoded(found: re.Match[str]) -> str:
        return percent_encoded(labels[found[1]])

    place = urllib.parse.urlsplit(re.sub(r"\$\{__data\.fields\.(\w+):percentencode\}", encoded, fixed))
    words = urllib.parse.parse_qs(place.query)
    said = {name.removeprefix("var-"): values[0] for name, values in words.items() if name.startswith("var-")}
    (name,) = said.keys() - {"datasource", "cluster"}
    assert said[name] == labels[name]
    target = made(place.path.removeprefix("/d/ullage-"))
    assert figure(server, target, "GPUs", everything_of(target, **said)) >= 1
