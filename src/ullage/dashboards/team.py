"""A team's dashboard: the jobs of some users and namespaces."""

from __future__ import annotations

from ullage.dashboards.dashboard import ChosenLabel, Dashboard, dashboard
from ullage.dashboards.fleet import CLUSTER, jobs
from ullage.dashboards.recorded import ShownSums, headline, roofs_and_power, where_it_goes

_NAMESPACE = ChosenLabel("namespace", "Namespace", f"job:ullage_measured_gpus:sum{{{CLUSTER.matcher}}}", several=True)
_USER = ChosenLabel("user", "User", f"job:ullage_measured_gpus:sum{{{CLUSTER.matcher}, {_NAMESPACE.matcher}}}", several=True)
_CHOSEN = (CLUSTER, _NAMESPACE, _USER)
_JOBS = ShownSums("job", _CHOSEN)

TEAM = dashboard(
    Dashboard(
        "team",
        2,
        "Ullage: a team",
        "The GPUs of some users and namespaces: how far they fall short of full, where it goes, and in which jobs.",
        _CHOSEN,
        (headline(_JOBS), where_it_goes(_JOBS), jobs(_CHOSEN), roofs_and_power(_JOBS)),
    )
)
