"""Which dashboards show a fleet in Grafana?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.asking import asked, read_positive_span
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.written_values import expanded_path

if TYPE_CHECKING:
    from ullage.render.dashboards import GrafanaDashboards


@dataclass(frozen=True, kw_only=True)
class DashboardQuestion:
    """Grafana dashboards: the fleet, a team, a job, a host, and the service.

    NAME is fleet, team, job, host or service; the dashboard is printed as JSON, as Grafana imports it. The first four show what the rules
    of `ullage rules` record, the last what `ullage serve` exports. They lead to one another.
    """

    name: str | None = asked("Which dashboard.", metavar="[NAME]", argument=True, shown="fleet; with --out all")
    interval: float = asked(
        "How often the rules are evaluated, as `ullage rules` was told.", 30.0, metavar="SPAN", read=read_positive_span, shown="30s"
    )
    out: str | None = asked("Write files of it, or of all, into this folder, for Grafana's provisioning.", metavar="FOLDER", acts=True)


def answer(question: DashboardQuestion, *_: Progress | str) -> GrafanaDashboards:
    """Return the dashboards, written where a folder is named. Raises UllageError for a name that none has."""
    from ullage.dashboards.dashboard import DASHBOARDS, in_order
    from ullage.dashboards.grafana import grafana_dashboard
    from ullage.render.dashboards import GrafanaDashboards, write_dashboards

    everything = question.name is None and question.out is not None
    chosen = in_order() if everything else [DASHBOARDS[question.name or "fleet"]]
    made = {one.name: grafana_dashboard(one, question.interval) for one in chosen}
    return GrafanaDashboards(made, write_dashboards(made, expanded_path(question.out)) if question.out is not None else ())


_EXAMPLES = """
  ullage dashboard                              the fleet's, to import in Grafana: Dashboards, New, Import
  ullage dashboard job                          one job's
  ullage dashboard service                      of what `ullage serve` exports, without rules
  ullage dashboard --out /etc/grafana/ullage    all five, in a folder that Grafana provisions
  ullage dashboard --interval 15s --out dashboards    where the rules are evaluated every 15 s
"""

QUESTION = register(
    RegisteredQuestion(
        name="dashboard",
        asked=DashboardQuestion,
        noun="a dashboard",
        answer=answer,
        shown_by=lambda question: f"ullage.render.dashboards{':files' if question.out is not None else ''}",
        examples=_EXAMPLES,
        only_reads=False,
    )
)

dashboard = python_function(QUESTION)
