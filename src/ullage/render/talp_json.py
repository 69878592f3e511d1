"""The report on a run in TALP's own form, so that whatever reads DLB's results reads ours: JSON of DLB 3.7.

Raw times are exact to the ns; efficiencies are rounded to two decimals, as TALP prints them. Collectives count as useful work.
"""

from __future__ import annotations

import json
import time
from typing import Any

from ullage.errors import UllageError
from ullage.reports.trace.part import RunPart
from ullage.reports.trace.trace import TraceReport
from ullage.traces.talp.values import values

VERSION = "3.7"
WHOLE = "Global"  # what TALP calls the whole run


def talp_json(report: TraceReport, now: float | None = None) -> str:
    """Return a report as TALP writes a run: the whole under "Global", then each region. `now` is seconds since 1970.

    A region that is called "Global" itself is left out, as TALP has no other name for the run. Raises UllageError for a run of which no
    host is known: TALP's times are those of its processes.
    """
    whole = _region(report.whole)
    if whole is None:
        raise UllageError("no host thread was recorded: TALP's form has nothing to say of devices alone", "write --json or --out instead")
    regions = {view.name: found for view in report.regions if view.name != WHOLE and (found := _region(view)) is not None}
    record = {
        "dlbVersion": f"{VERSION}.0",
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)),
        "resources": {key: whole[key] for key in ("numCpus", "numNodes", "numMpiRanks", "numGpus")},
        "Application": {WHOLE: whole} | regions,
    }
    return json.dumps(record, indent=2) + "\n"


def _region(view: RunPart) -> dict[str, Any] | None:
    if view.host_totals is None:
        return None
    nodes = len({part.process.host for part in view.host_parts}) or 1
    ranks = len(view.host_parts) or view.host_totals.processes
    calls = {} if view.factors.mpi else {"numMpiCalls": 0}
    return values(view.host_totals, view.device_totals, VERSION) | {"numNodes": nodes, "numMpiRanks": ranks} | calls
