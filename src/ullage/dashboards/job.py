"""A job's dashboard: `seff` for GPUs as courses, with every GPU of it beside the others."""

from __future__ import annotations

from ullage.dashboards.dashboard import ChosenLabel, Dashboard, dashboard
from ullage.dashboards.fleet import CLUSTER
from ullage.dashboards.gpus import faults, gpu_rows
from ullage.dashboards.recorded import ShownSums, headline, roofs_and_power, where_it_goes

_JOB = ChosenLabel("job_id", "Job", f'job:ullage_measured_gpus:sum{{{CLUSTER.matcher}, job_id!=""}}')
_CHOSEN = (CLUSTER, _JOB)
_SUMS = ShownSums("job", _CHOSEN)

JOB = dashboard(
    Dashboard(
        "job",
        3,
        "Ullage: a job",
        "One job: how far its GPUs fall short of full, where it goes, and which of them is unlike the others.",
        _CHOSEN,
        (headline(_SUMS), where_it_goes(_SUMS), gpu_rows(_CHOSEN), faults(_CHOSEN), roofs_and_power(_SUMS)),
    )
)
