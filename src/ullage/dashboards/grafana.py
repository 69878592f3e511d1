"""Dashboards as Grafana imports them, built with Grafana's own types (grafana-foundation-sdk), for Grafana 10.1 and later.

The types are loaded when a dashboard is asked for: they are an extra.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from ullage.dashboards.dashboard import INTERVAL, ChosenLabel, Dashboard, Panel, PanelQuery, TableColumn, Unit
from ullage.errors import missing_extra

RULE_INTERVAL = INTERVAL[2:-1]
SOURCE = "datasource"  # the variable that chooses the Prometheus
TAG = "ullage"
UID = "ullage-{}"
# Grafana's names of units; what it does not know is written behind the number
UNITS: dict[Unit, str] = {
    "ratio": "percentunit",
    "GPU-hours": "suffix: GPU-hours",
    "GPUs": "suffix: GPUs",
    "W": "watt",
    "J": "joule",
    "s": "s",
    "Hz": "hertz",
    "count": "short",
    "per second": "reqps",
    "time": "dateTimeAsIso",
}
DECIMALS: dict[Unit, int] = {"ratio": 1, "GPU-hours": 1, "GPUs": 0}
NO_BACKTICK = "/^[^`]*$/"  # what stands between backticks in PromQL can hold none


def grafana_dashboard(dashboard: Dashboard, interval: float) -> dict[str, Any]:
    """Return a dashboard as plain data, as it is imported; `interval` is that of the rules (s).

    Raises UllageError where Grafana's types are not installed.
    """
    try:
        from grafana_foundation_sdk.builders import dashboard as built
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.models import dashboard as models
    except ImportError as error:
        raise missing_extra("grafana-foundation-sdk", "grafana", "`ullage dashboard`") from error
    made = (
        built.Dashboard(dashboard.title)
        .uid(UID.format(dashboard.name))
        .description(dashboard.description)
        .tags([TAG])
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time("now-24h", "now")
        .refresh("1m")
        .link(built.DashboardLink("Ullage").type(models.DashboardLinkType.DASHBOARDS).tags([TAG]).as_dropdown(True).keep_time(True))
        .with_variable(built.DatasourceVariable(SOURCE).label("Data source").type("prometheus"))
    )
    if any(INTERVAL in query.expression for panel in dashboard.panels for query in panel.queries):
        seconds = models.VariableOption(selected=True, text=f"{interval:g}", value=f"{interval:g}")
        constant = built.CustomVariable(RULE_INTERVAL).values(f"{interval:g}").current(seconds).options([seconds])
        constant = constant.hide(models.VariableHide.HIDE_VARIABLE).multi(False).include_all(False)
        made = made.with_variable(constant.description("Seconds between two evaluations of the rules."))
    for variable in dashboard.variables:
        made = made.with_variable(_variable(variable))
    number = count(1)
    for row in dashboard.rows:
        made = made.with_row(built.Row(row.title).id(next(number)))
        for panel in row.panels:
            made = made.with_panel(_panel(panel).id(next(number)))
    return _without_old_defaults(json.loads(json.dumps(made.build(), cls=JSONEncoder)))


def _without_old_defaults(found: dict[str, Any]) -> dict[str, Any]:
    """Return a dashboard without defaults that the types write and that Grafana no longer has: 13 says that they are not its own."""
    found.pop("style", None)
    for variable in found["templating"]["list"]:
        for name in ("id", "auto", "auto_min", "auto_count"):
            variable.pop(name, None)
    for panel in found["panels"]:
        panel.get("options", {}).pop("footer", None)
    return found


def _source() -> Any:
    from grafana_foundation_sdk.models.dashboard import DataSourceRef

    return DataSourceRef("prometheus", f"${{{SOURCE}}}")


def _variable(variable: ChosenLabel) -> Any:
    from grafana_foundation_sdk.builders import dashboard as built
    from grafana_foundation_sdk.models import dashboard as models

    made = (
        built.QueryVariable(variable.label)
        .label(variable.heading)
        .datasource(_source())
        .query({"query": f"label_values({variable.selector}, {variable.label})", "refId": variable.label})
        .regex(NO_BACKTICK)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
    )
    if variable.several:
        everything = models.VariableOption(selected=True, text="All", value="$__all")
        return made.multi(True).include_all(True).all_value(".*").current(everything)
    return made.multi(False).include_all(False)


def _panel(panel: Panel) -> Any:
    made = _KINDS[panel.kind](panel)
    made = made.title(panel.title).description(panel.description).datasource(_source()).span(panel.width).height(panel.height)
    for name, words in panel.names.items():
        made = made.override_by_name(name, [_property("displayName", words)])
    for place, query in enumerate(panel.queries):
        made = made.with_target(_target(query, chr(ord("A") + place), table=panel.kind == "table"))
    return _with_scale(made, panel)


def _target(query: PanelQuery, name: str, *, table: bool) -> Any:
    from grafana_foundation_sdk.builders.prometheus import Dataquery
    from grafana_foundation_sdk.models.prometheus import PromQueryFormat, QueryEditorMode

    made = Dataquery().expr(query.expression).ref_id(name).editor_mode(QueryEditorMode.CODE)
    made = made.instant() if query.instant else made.range()
    return made.format(PromQueryFormat.TABLE) if table else made.legend_format(query.legend or "__auto")


def _with_scale(made: Any, panel: Panel) -> Any:
    """Return a panel with the unit of its numbers, their range and their colours."""
    made = made.unit(UNITS[panel.unit])
    if panel.unit in DECIMALS:
        made = made.decimals(DECIMALS[panel.unit])
    if panel.unit == "ratio" and panel.kind != "table":
        made = made.min(0)
    if panel.highest is not None:
        made = made.max(panel.highest)
    return _with_colours(made, panel) if panel.steps else made


def _with_colours(made: Any, panel: Panel) -> Any:
    from grafana_foundation_sdk.builders.dashboard import FieldColor, ThresholdsConfig
    from grafana_foundation_sdk.models import dashboard as models

    steps = [models.Threshold(value, colour) for value, colour in panel.steps]
    made = made.thresholds(ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
    return made if panel.kind in ("course", "stack") else made.color_scheme(FieldColor().mode(models.FieldColorModeId.THRESHOLDS))


def _figure(_: Panel) -> Any:
    from grafana_foundation_sdk.builders import common, stat
    from grafana_foundation_sdk.models.common import BigValueColorMode, BigValueGraphMode

    made = stat.Panel().reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"])).graph_mode(BigValueGraphMode.NONE)
    return made.color_mode(BigValueColorMode.VALUE)


def _course(panel: Panel) -> Any:
    from grafana_foundation_sdk.builders import common, timeseries
    from grafana_foundation_sdk.models import common as models

    legend = common.VizLegendOptions().display_mode(models.LegendDisplayMode.TABLE).placement(models.LegendPlacement.BOTTOM)
    made = timeseries.Panel().legend(legend.show_legend(True).calcs(["mean", "lastNotNull"])).show_points(models.VisibilityMode.NEVER)
    made = made.tooltip(common.VizTooltipOptions().mode(models.TooltipDisplayMode.MULTI).sort(models.SortOrder.DESCENDING))
    if panel.kind == "stack":
        return made.stacking(common.StackingConfig().mode(models.StackingMode.NORMAL)).fill_opacity(60).line_width(0)
    return made.line_width(1).fill_opacity(0)


def _bars(_: Panel) -> Any:
    from grafana_foundation_sdk.builders import bargauge, common
    from grafana_foundation_sdk.models.common import BarGaugeDisplayMode, VizOrientation

    made = bargauge.Panel().orientation(VizOrientation.HORIZONTAL).display_mode(BarGaugeDisplayMode.BASIC).show_unfilled(True)
    return made.min(0).reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))


def _table(panel: Panel) -> Any:
    from grafana_foundation_sdk.builders import common, table
    from grafana_foundation_sdk.models import common as common_models
    from grafana_foundation_sdk.models.dashboard import DataTransformerConfig

    headings = {_field(name, panel): column for name, column in panel.columns.items()}
    order = {name: place for place, name in enumerate(headings)}
    renamed = {name: column.heading for name, column in headings.items()}
    made = table.Panel().cell_height(common_models.TableCellHeight.SM)
    made = made.with_transformation(DataTransformerConfig("merge", options={}))
    kept = {"include": {"names": [*headings]}}
    made = made.with_transformation(DataTransformerConfig("filterFieldsByName", options=kept))
    arranged = {"excludeByName": {}, "indexByName": order, "renameByName": renamed}
    made = made.with_transformation(DataTransformerConfig("organize", options=arranged))
    first = panel.columns["1"].heading
    made = made.sort_by([common.TableSortByFieldState().display_name(first).desc(True)])
    for column in headings.values():
        properties = [*_column_properties(column)]
        if properties:
            made = made.override_by_name(column.heading, properties)
    return made


def _field(name: str, panel: Panel) -> str:
    """Return what Grafana calls a column of a table before it is renamed: a label's own name, or the value of a query."""
    if not name.isdigit():
        return name
    return f"Value #{chr(ord('A') + int(name) - 1)}" if len(panel.queries) > 1 else "Value"


def _column_properties(column: TableColumn) -> Iterator[Any]:
    if column.unit is not None:
        yield _property("unit", UNITS[column.unit])
        if column.unit in DECIMALS:
            yield _property("decimals", DECIMALS[column.unit])
    if column.leads_to:
        yield _property("links", [{"title": f"Open {column.heading.lower()}", "url": _address(column.leads_to)}])


def _property(name: str, value: Any) -> Any:
    from grafana_foundation_sdk.models.dashboard import DynamicConfigValue

    return DynamicConfigValue(name, value)


def _address(leads_to: str) -> str:
    """Return where a name leads: to a dashboard that shows the same time, data source and clusters, with the name chosen.

    The row's own cluster is not named: a fleet without that label has no such column, and the address would be wrong.

    >>> _address("job?job_id")
    '/d/ullage-job?${__url_time_range}&var-datasource=${datasource}&${cluster:queryparam}&var-job_id=${__data.fields.job_id:percentencode}'
    """
    name, _, label = leads_to.partition("?")
    kept = f"${{__url_time_range}}&var-{SOURCE}=${{{SOURCE}}}&${{cluster:queryparam}}"
    return f"/d/{UID.format(name)}?{kept}&var-{label}=${{__data.fields.{label}:percentencode}}"


_KINDS: dict[str, Callable[[Panel], Any]] = {"figure": _figure, "course": _course, "stack": _course, "bars": _bars, "table": _table}
