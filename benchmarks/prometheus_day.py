"""The same question asked of Prometheus: a day of tensor activity and SM clock, as its own storage holds them.

The fleet is smaller than 10,000 GPUs: this query counts three samples for every 30 s of a GPU (both series and their
product), and Prometheus refuses one that counts more than 50 million (the default of `--query.max-samples`), which is
5,787 GPUs for a day. Both are measured at the same small size, and nothing is extrapolated.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from day import at_rest, simulation
from measure import Figure, fresh, seconds
from ullage.gpus.chip import find
from ullage.simulate.specification import host_name, uuid

NAMES = {"tensor_active": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "sm_clock": "DCGM_FI_DEV_SM_CLOCK"}
EVERY = 30  # s


def prometheus_figures(gpus: int, hours: float, *, quick: bool) -> list[Figure]:
    """Fill a real Prometheus with a simulated fleet and ask it for OFU; return that beside ours on the same fleet."""
    if not (shutil.which("prometheus") and shutil.which("promtool")):
        print("prometheus and promtool are not installed: no comparison with Prometheus")
        return []
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.fleet.servers import prometheus  # starts the installed one, on a free port of this machine

    ours = fresh(str(Path(__file__).parent / "asked.py"), "ofu-ullage", str(at_rest(gpus, hours)), quick=quick)
    with tempfile.TemporaryDirectory() as folder, prometheus(Path(folder), history=openmetrics(gpus, hours)) as url:
        theirs = _ofu(url, gpus, hours)
        taken = seconds(lambda: _ofu(url, gpus, hours), 1 if quick else 5)
    if not math.isclose(theirs, ours.answer, rel_tol=0.02):
        sys.exit(f"Prometheus says {theirs}, we say {ours.answer}")
    used = 2 * gpus * hours * 3600 / EVERY
    return [
        Figure(f"fleet OFU, {gpus:,} GPUs", ours.seconds, "s", {"Prometheus": taken}),
        Figure(f"fleet OFU, {gpus:,} GPUs, readings used", used / ours.seconds, "/s", {"Prometheus": used / taken}),
    ]


def _ofu(url: str, gpus: int, hours: float) -> float:
    """Ask for tensor activity × clock, averaged over the time of each GPU and added up by model; divide by the tensor clocks."""
    drawn = simulation(gpus, hours).specification
    product = " * ".join(NAMES.values())
    query = f"sum by (modelName) (avg_over_time(({product})[{hours * 3600:.0f}s:{EVERY}s]))"
    models = _instant(url, query, drawn.window[1] / 1000)
    return sum(float(model["value"][1]) * 1e6 / find(model["metric"]["modelName"]).tensor_clock for model in models) / gpus


def _instant(url: str, query: str, moment: float) -> list[dict[str, Any]]:
    words = urllib.parse.urlencode({"query": query, "time": moment})
    with urllib.request.urlopen(f"{url}/api/v1/query?{words}", timeout=600) as answer:
        return list(json.load(answer)["data"]["result"])


def openmetrics(gpus: int, hours: float) -> str:
    """Return the two fields of a fleet as OpenMetrics text with times, with dcgm-exporter's names, units and labels."""
    drawn = simulation(gpus, hours)
    lines: dict[str, list[str]] = {name: [f"# TYPE {name} gauge"] for name in NAMES.values()}
    for host in range(drawn.specification.hosts):
        given = drawn.host(host)
        for row, gpu in enumerate(drawn.specification.gpus_of(host)):
            labels = f'gpu="{row}",UUID="{uuid(drawn.specification, gpu)}",modelName="{drawn.models[host]}",Hostname="{host_name(host)}"'
            for field, name in NAMES.items():
                scale = 1e-6 if field == "sm_clock" else 1.0
                rows = zip(given.stamps[row], given.values[field][row] * scale, given.present[row], strict=True)
                lines[name] += [
                    f"{name}{{{labels}}} {value:.6g} {stamp / 1000:.3f}" for stamp, value, there in rows if there and value == value
                ]
    return "\n".join(line for several in lines.values() for line in several) + "\n"
