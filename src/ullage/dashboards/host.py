"""A host's dashboard: its GPUs side by side, and which jobs hold them."""

from __future__ import annotations

from ullage.dashboards.dashboard import RANGE, ChosenLabel, Dashboard, Panel, PanelQuery, PanelRow, TableColumn, dashboard
from ullage.dashboards.fleet import CLUSTER, JOB_COLUMNS
from ullage.dashboards.gpus import faults, gpu_rows, of_gpus
from ullage.dashboards.recorded import ShownSums, headline, roofs_and_power, where_it_goes

_HOST = ChosenLabel("host", "Host", f"host:ullage_measured_gpus:sum{{{CLUSTER.matcher}}}")
_CHOSEN = (CLUSTER, _HOST)
_SUMS = ShownSums("host", _CHOSEN)
_HELD = of_gpus("gpu:ullage_share:ratio", _CHOSEN, 'job_id!=""')

_HOLDERS = PanelRow(
    "Who holds it",
    (
        Panel(
            "table",
            "Jobs on this host",
            "The most of its GPUs that each job held at once in the shown time.",
            (PanelQuery(f"max_over_time((sum by ({', '.join(JOB_COLUMNS)}) ({_HELD}))[{RANGE}:])", instant=True),),
            width=24,
            columns={**JOB_COLUMNS, "1": TableColumn("GPUs", "GPUs")},
        ),
    ),
)

HOST = dashboard(
    Dashboard(
        "host",
        4,
        "Ullage: a host",
        "One host: how far its GPUs fall short of full, where it goes, who holds them, and which of them is unlike the others.",
        _CHOSEN,
        (headline(_SUMS), where_it_goes(_SUMS), _HOLDERS, gpu_rows(_CHOSEN), faults(_CHOSEN), roofs_and_power(_SUMS)),
    )
)
