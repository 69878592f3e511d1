"""Every benchmark, one after the other, each in a process of its own; prints ratios. `make bench` runs it.

    python benchmarks/run.py [--quick] [--json FILE] [NAME …]

NAME is one or more of: exposition, prometheus_json, store, flops_call, intervals, trace_kineto,
trace_resources, trace_nsys, cupti_decode, recorder_cost, serve, fleet_day. What the numbers mean: docs/benchmarks.md.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from measure import amount, parser, table

BENCHMARKS = {
    "exposition": "text exposition beside prometheus_client",
    "prometheus_json": "API JSON beside json.loads",
    "store": "the store: ingest and size, beside pandas",
    "flops_call": "FLOPs of a step, per call, beside verl",
    "intervals": "unions of intervals beside NumPy by hand and pandas",
    "trace_kineto": "a PyTorch profile to trees, beside HolisticTraceAnalysis and traceinsight",
    "trace_resources": "memory and CPU time of whole reports on long traces",
    "trace_nsys": "an Nsight Systems export to columns, beside sqlite3 and pandas",
    "cupti_decode": "CUPTI's records to arrays, beside an object per record and NVIDIA's walker",
    "recorder_cost": "what the recorder costs the program that it runs in",
    "serve": "the service: first page, 50 browsers, memory, beside Prometheus",
    "fleet_day": "a fleet day beside pandas, Polars, SQL by hand and Prometheus",
}
LIBRARIES = ("duckdb", "ibis-framework", "numpy", "pandas", "polars", "prometheus-client", "pyarrow")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("names", nargs="*", metavar="NAME", help="which; default: all")
    asked = options.parse_args()
    unknown = set(asked.names) - set(BENCHMARKS)
    if unknown:
        options.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    print(machine())
    found = {name: ran(name, asked.quick) for name in asked.names or BENCHMARKS}
    print(f"\n== promises\n\n{promises(found)}\n\n{machine()}")
    if asked.json is not None:
        asked.json.write_text(json.dumps({"machine": machine(), "figures": found}, indent=1))


def ran(name: str, quick: bool) -> list[dict[str, Any]]:
    """Run a benchmark and return its figures; a benchmark that fails ends everything."""
    print(f"\n== {BENCHMARKS[name]}\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        numbers = Path(folder) / "numbers.json"
        words = [sys.executable, str(Path(__file__).with_name(f"{name}.py")), "--json", str(numbers), *(["--quick"] if quick else [])]
        if subprocess.run(words, check=False).returncode:
            sys.exit(f"the benchmark {name} failed")
        return list(json.loads(numbers.read_text()))


def promises(found: dict[str, list[dict[str, Any]]]) -> str:
    """Return a table of the figures for which there is a target; the quick form has none."""
    rows = [
        [figure["what"], f"{amount(figure['ours'])} {figure['unit']}", amount(figure["target"]), "yes" if figure["met"] else "NO"]
        for figures in found.values()
        for figure in figures
        if figure["target"] is not None
    ]
    return table(["", "measured", "promised", "kept"], rows) if rows else "the quick form is too small to hold anything against it"


def machine() -> str:
    """Return one line about this machine, its load now, and the libraries."""
    load = os.getloadavg()
    libraries = ", ".join(filter(None, map(installed, LIBRARIES)))
    return f"{processor()}, {os.cpu_count()} cores, load {load[0]:.1f}; Python {platform.python_version()}, {libraries}"


def installed(name: str) -> str:
    """Return the name and version of a library, nothing when it is not installed."""
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return ""


def processor() -> str:
    """Return the processor's name as the system tells it."""
    told = Path("/proc/cpuinfo")
    names = (
        [line.split(":", 1)[1].strip() for line in told.read_text().splitlines() if line.startswith("model name")] if told.exists() else []
    )
    return names[0] if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
