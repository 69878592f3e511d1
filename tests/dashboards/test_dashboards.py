"""`ullage dashboard`: what it writes fits Grafana's own types of an old and a new version, and names only what is recorded or exported."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft7Validator

from tests.dashboards.grafana import links, panels, targets, variables
from ullage.cli import cli
from ullage.dashboards.dashboard import in_order
from ullage.errors import UllageError
from ullage.questions.dashboard import dashboard
from ullage.rules.series import RecordingPlan, recorded_series

pytest.importorskip("grafana_foundation_sdk", reason="Grafana's types (pip install 'ullage[grafana]')")
SCHEMAS = sorted((Path(__file__).parent / "schemas").glob("*.json"))
NAMES = ["fleet", "team", "job", "host", "service"]
PANEL_OPTIONS = {"stat": "StatOptions", "timeseries": "TimeseriesOptions", "bargauge": "BargaugeOptions", "table": "TableOptions"}


@pytest.fixture(scope="module")
def made() -> dict[str, dict[str, Any]]:
    return {name: dict(dashboard(name).dashboards[name]) for name in NAMES}


def test_the_dashboards_go_from_wide_to_narrow() -> None:
    assert [one.name for one in in_order()] == NAMES


def problems(schema: dict[str, Any], value: Any) -> list[str]:
    """Return what a value has that a type does not allow. What it has not, Grafana fills in: its types require what has a default."""
    found = Draft7Validator(schema).iter_errors(value)
    flat = [inner for error in found for inner in (error.context or [error])]
    return [f"{error.json_path}: {error.message}" for error in flat if error.validator != "required"]


@pytest.mark.parametrize("file", SCHEMAS, ids=lambda file: file.stem)
@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_fits_the_types_of_grafana(made: dict[str, dict[str, Any]], name: str, file: Path) -> None:
    schema = json.loads(file.read_text())
    document = made[name]
    assert problems(schema["Dashboard"], document) == []
    for panel in panels(document):
        assert problems(schema[PANEL_OPTIONS[panel["type"]]], panel["options"]) == [], panel["title"]
        if panel["type"] == "timeseries":
            assert problems(schema["TimeseriesFieldConfig"], panel["fieldConfig"]["defaults"]["custom"]) == []


def test_what_does_not_fit_the_types_is_noticed(made: dict[str, dict[str, Any]]) -> None:
    for file in SCHEMAS:
        schema = json.loads(file.read_text())["Dashboard"]
        assert problems(schema, {**made["fleet"], "pannels": []}) and problems(schema, {**made["fleet"], "tags": "ullage"})


@pytest.mark.parametrize("name", NAMES)
def test_grafanas_library_reads_what_it_wrote(made: dict[str, dict[str, Any]], name: str) -> None:
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    again = json.loads(json.dumps(Dashboard.from_json(made[name]), cls=JSONEncoder))
    assert [panel["targets"] for panel in panels(again)] == [panel["targets"] for panel in panels(made[name])]


@pytest.mark.parametrize("name", NAMES)
def test_panels_have_names_of_their_own_and_do_not_lie_on_one_another(made: dict[str, dict[str, Any]], name: str) -> None:
    every = made[name]["panels"]
    assert [count for count in Counter(panel["id"] for panel in every).values() if count > 1] == []
    places = [panel["gridPos"] for panel in every]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    assert all(panel["description"] and panel["title"] for panel in panels(made[name]))


@pytest.mark.parametrize("name", NAMES[:-1])
def test_a_query_names_only_what_the_rules_record(made: dict[str, dict[str, Any]], name: str) -> None:
    known = {one.name for one in recorded_series(RecordingPlan())}
    texts = [target["expr"] for _, target in targets(made[name])]
    texts += [variable["query"]["query"] for variable in variables(made[name]) if variable["type"] == "query"]
    named = {word for text in texts for word in re.findall(r"[a-z]+:[a-z_]+:[a-z]+", text)}
    assert named and named <= known
    assert all("ullage" not in re.sub(r"[a-z]+:[a-z_]+:[a-z]+", "", text) for text in texts)


@pytest.mark.parametrize("name", NAMES)
def test_a_link_leads_to_a_dashboard_and_sets_variables_that_it_has(made: dict[str, dict[str, Any]], name: str) -> None:
    by_uid = {one["uid"]: {variable["name"] for variable in variables(one)} for one in made.values()}
    kept = r"\$\{__url_time_range\}&var-datasource=\$\{datasource\}&\$\{cluster:queryparam\}"
    for panel, address in links(made[name]):
        found = re.fullmatch(rf"/d/([\w-]+)\?{kept}&var-(\w+)=\$\{{__data\.fields\.(\w+):percentencode\}}", address)
        assert found is not None, address
        (fields,) = [one["options"]["include"]["names"] for one in panel["transformations"] if one["id"] == "filterFieldsByName"]
        assert found[3] in fields and {found[2], "cluster"} <= by_uid[found[1]]


def test_the_command_prints_the_dashboard_and_nothing_else(made: dict[str, dict[str, Any]]) -> None:
    assert json.loads(CliRunner().invoke(cli, ["dashboard"], catch_exceptions=False).stdout) == made["fleet"]
    assert json.loads(CliRunner().invoke(cli, ["dashboard", "job"], catch_exceptions=False).stdout) == made["job"]


def test_the_interval_of_the_rules_is_a_constant_of_the_dashboard() -> None:
    (said,) = [one for one in variables(dashboard("job", interval="15s").dashboards["job"]) if one["name"] == "rule_interval"]
    assert (said["current"]["value"], said["hide"]) == ("15", 2)


def test_files_are_written_for_provisioning_and_nobody_elses_is_replaced(tmp_path: Path, made: dict[str, dict[str, Any]]) -> None:
    folder = tmp_path / "new" / "dashboards"
    for _ in range(2):  # the second time they are there
        assert [file.name for file in dashboard(out=str(folder)).files] == [f"ullage-{name}.json" for name in NAMES]
    assert {json.loads(file.read_text())["uid"]: json.loads(file.read_text()) for file in folder.iterdir()} == {
        one["uid"]: one for one in made.values()
    }
    (folder / "ullage-job.json").write_text('{"uid": "mine"}')
    (folder / "ullage-team.json").unlink()
    with pytest.raises(UllageError, match="is there already, and is another file than this dashboard"):
        dashboard(out=str(folder))
    assert not (folder / "ullage-team.json").exists()


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UllageError, match="no dashboard is called 'jobs'") as refused:
        dashboard("jobs")
    assert "'job'" in refused.value.hint


def test_without_grafanas_types_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("grafana_foundation_sdk")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "grafana_foundation_sdk", None)
    said = CliRunner().invoke(cli, ["dashboard"])
    assert isinstance(said.exception, UllageError) and "pip install 'ullage[grafana]'" in said.exception.hint
