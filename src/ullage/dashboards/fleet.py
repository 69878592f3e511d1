"""The fleet's dashboard: all clusters or some, and which teams, jobs, hosts and models to look at."""

from __future__ import annotations

from dataclasses import replace

from ullage.dashboards.dashboard import ChosenLabel, Dashboard, PanelRow, TableColumn, dashboard
from ullage.dashboards.recorded import ShownSums, headline, ranked, roofs_and_power, where_it_goes

CLUSTER = ChosenLabel("cluster", "Cluster", "cluster:ullage_measured_gpus:sum", several=True)
_CLUSTERS = ShownSums("cluster", (CLUSTER,))

JOB_COLUMNS = {
    "job_id": TableColumn("Job", leads_to="job?job_id"),
    "user": TableColumn("User", leads_to="team?user"),
    "namespace": TableColumn("Namespace", leads_to="team?namespace"),
    "cluster": TableColumn("Cluster"),
}


def jobs(chosen: tuple[ChosenLabel, ...]) -> PanelRow:
    """Return the jobs of which what is chosen is true, each leading to its own dashboard."""
    named = ShownSums("job", chosen, ('job_id!=""',))
    return PanelRow("Jobs", (ranked("Jobs", named, JOB_COLUMNS),))


_TABLES = PanelRow(
    "Who and where",
    (
        replace(
            ranked(
                "Users",
                ShownSums("user", (CLUSTER,), ('user!=""',)),
                {"user": TableColumn("User", leads_to="team?user"), "cluster": TableColumn("Cluster")},
            ),
            width=12,
        ),
        replace(
            ranked(
                "Namespaces",
                ShownSums("namespace", (CLUSTER,), ('namespace!=""',)),
                {"namespace": TableColumn("Namespace", leads_to="team?namespace"), "cluster": TableColumn("Cluster")},
            ),
            width=12,
        ),
        replace(
            ranked(
                "Hosts",
                ShownSums("host", (CLUSTER,)),
                {"host": TableColumn("Host", leads_to="host?host"), "cluster": TableColumn("Cluster")},
            ),
            width=12,
        ),
        replace(
            ranked("GPU models", ShownSums("model", ()), {"model": TableColumn("Model")}, matching="Of all clusters."),
            width=12,
        ),
    ),
)

FLEET = dashboard(
    Dashboard(
        "fleet",
        1,
        "Ullage: the fleet",
        "How far every GPU falls short of full, and where the shortfall goes, from what the rules of `ullage rules` record.",
        (CLUSTER,),
        (headline(_CLUSTERS), where_it_goes(_CLUSTERS), jobs((CLUSTER,)), _TABLES, roofs_and_power(_CLUSTERS)),
    )
)
