"""What a dashboard is, before any tool's form of it: variables that choose, and rows of panels that ask a Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ullage.registry import Registry

PanelKind = Literal["figure", "course", "stack", "bars", "table"]
Unit = Literal["ratio", "GPU-hours", "GPUs", "W", "J", "s", "Hz", "count", "per second", "time"]
WIDTH = 24  # columns of a dashboard
RANGE = "$__range"  # how long the shown time is: Grafana puts a span there
INTERVAL = "${rule_interval}"  # seconds between two evaluations of the rules: what one value of a recorded series stands for
HOUR = 3600  # s of a GPU-hour


@dataclass(frozen=True)
class PanelQuery:
    """A question in PromQL: over the whole shown time as one value a series (`instant`), or as a course.

    `legend` names its series by their labels, `{{host}}`; in a table it is the heading of the query's column.
    """

    expression: str
    legend: str = ""
    instant: bool = False


@dataclass(frozen=True)
class TableColumn:
    """How a table shows a label or a query: its heading, the unit of its numbers, and where each of its names leads.

    "job?job_id" is the dashboard of a job, with the name as its `job_id`.
    """

    heading: str
    unit: Unit | None = None
    leads_to: str = ""


@dataclass(frozen=True)
class Panel:
    """What is shown of some queries: a figure, courses, courses on top of one another, bars, or a table with a row for each set of labels.

    `steps` are values from which on a colour holds, ascending; the first holds below all others. `columns` are those of a table by label,
    or by "1", "2" for the queries in their order; a table is sorted by the first query, largest first. `names` are what a person reads in
    place of a series' name.
    """

    kind: PanelKind
    title: str
    description: str
    queries: tuple[PanelQuery, ...]
    unit: Unit = "count"
    width: int = 12
    height: int = 8
    steps: tuple[tuple[float | None, str], ...] = ()
    columns: Mapping[str, TableColumn] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    highest: float | None = None


@dataclass(frozen=True)
class PanelRow:
    """Panels under a heading, laid out from left to right."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class ChosenLabel:
    """A variable: the values that a `label` has in the series of a `selector`; one is chosen, or several and all where `several` may be."""

    label: str
    heading: str
    selector: str
    several: bool = False

    @property
    def matcher(self) -> str:
        """What chooses series by the variable in PromQL.

        The value stands between backticks, in which PromQL knows no escapes: quotes, backslashes and dollars in it stay what they are,
        whatever a version of Grafana does with the value between double quotes. A value with a backtick can't be chosen.

        >>> ChosenLabel("job_id", "Job", "up").matcher, ChosenLabel("user", "User", "up", several=True).matcher
        ('job_id=`${job_id:raw}`', 'user=~`${user:regex}`')
        """
        return f"{self.label}=~`${{{self.label}:regex}}`" if self.several else f"{self.label}=`${{{self.label}:raw}}`"


@dataclass(frozen=True)
class Dashboard:
    """A dashboard: its `name` is its command's word and its address (`ullage-NAME`), and `order` its place among the others."""

    name: str
    order: int
    title: str
    description: str
    variables: tuple[ChosenLabel, ...]
    rows: tuple[PanelRow, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels."""
        return tuple(panel for row in self.rows for panel in row.panels)


DASHBOARDS: Registry[Dashboard] = Registry("dashboard", package="ullage.dashboards", command="ullage dashboard --help")


def dashboard(made: Dashboard) -> Dashboard:
    """Register a dashboard under its name."""
    DASHBOARDS.add(made.name, made)
    return made


def in_order() -> list[Dashboard]:
    """Return all dashboards, from the widest view to the narrowest."""
    return sorted(DASHBOARDS.values(), key=lambda one: one.order)
