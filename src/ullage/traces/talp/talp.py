"""TALP's own results: JSON (or CSV) of sums by region, as DLB 3.5 to 3.8 writes it (`--talp-output-file`).

The files differ by version in what they hold, and version strings are dirty, so a file is read by what is in it:

- `Application`: sums over all processes by region. The whole run is `Global`, in 3.5 alpha `Application`.
- `Process` (3.6 on) or `region` (3.5): the same for each process, when asked for (`--talp-summary=process`).
- `processInfo`: the file holds one process' share (`--talp-partial-output`); several such files are one run.

Only raw times are used; the efficiencies that TALP printed are kept beside them, to be compared (`ullage.reports.trace.restated`).
Source of all fields: github.com/bsc-pm/dlb, src/talp/talp_types.h, talp_output.c and perf_metrics.c.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from typing import Any

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.recording import Process, Recording
from ullage.totals import Region
from ullage.traces.talp.processes import ProcessTimes, by_region, summed
from ullage.traces.talp.region import read_region
from ullage.traces.trace import File, TraceOptions, sums

WHOLE = ("Global", "Application")  # what TALP calls the whole run
MOST_BYTES = 1 << 30
_CSV = re.compile(rb"^name,(\w+,)*elapsedTime,")
_NO_NUMBER = re.compile(r"(:\s*)-?(?:nan|inf)\b")  # printf's words for what JSON can't say


def _recognise(file: File) -> int:
    if _CSV.match(file.head):
        return 2
    times = b'"usefulTime"' in file.head and b'"elapsedTime"' in file.head
    return 2 if file.head.lstrip().startswith(b"{") and (b'"dlbVersion"' in file.head or times) else 0


@sums("talp", recognise=_recognise, reads="TALP JSON (DLB 3.5 to 3.8)")
def read(file: File, recording: Recording, options: TraceOptions, problems: Problems) -> list[Region]:
    """Return the regions, the whole run first. Raises UllageError for a file that is damaged or holds no sums by region."""
    whole = _loaded(file, min(options.limit, MOST_BYTES), problems)
    processes = by_region(whole.get("Process", whole.get("region")), problems)
    application = whole.get("Application")
    if not isinstance(application, Mapping):
        application = {name: summed(of) for name, of in processes.items()}
    share = _describe(whole, recording)
    regions = [
        region
        for name, values in application.items()
        if isinstance(values, Mapping)
        and (region := read_region(str(name), dict(values), processes.get(name, []), _resources(whole), share, problems))
    ]
    if not regions:
        raise UllageError(
            f"{file.name} has no region with any time in it",
            "run with DLB_ARGS='--talp --talp-summary=pop-metrics', and let the program end",
        )
    _name_processes(recording, next(iter(processes.values()), []))
    return sorted(regions, key=lambda region: region.name != _global(regions))


def _global(regions: list[Region]) -> str:
    names = [region.name for region in regions]
    return next((name for name in WHOLE if name in names), names[0])


def _loaded(file: File, limit: int, problems: Problems) -> dict[str, Any]:
    with file.open() as stream:
        raw = stream.read(limit + 1)
    if len(raw) > limit:
        raise UllageError(f"{file.name} is longer than {limit:,} bytes, far too long for TALP's results", "give the file that TALP wrote")
    text = raw.decode("utf-8", "replace")
    if _CSV.match(raw):
        return {"Application": _rows(text)}
    text, repaired = _NO_NUMBER.subn(r"\1null", text)
    problems.repair("values that are not numbers (nan, inf), taken as not known", repaired, where=file.name)
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        at = f" at line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise UllageError(
            f"{file.name} is no whole JSON{at} ({harmless(str(error))})",
            "TALP writes it when the program ends: was it killed, or the file cut off?",
        ) from error
    return whole if isinstance(whole, dict) else {}


def _rows(text: str) -> dict[str, dict[str, Any]]:
    """Return a CSV's rows by region; TALP appends each run to the file, so the last row of a name is the newest."""
    return {row.pop("name", ""): {key: _number(value) for key, value in row.items() if key} for row in csv.DictReader(io.StringIO(text))}


def _number(value: Any) -> float | int | None:
    try:
        return int(value) if re.fullmatch(r"-?\d+", value) else float(value)
    except (TypeError, ValueError):
        return None


def _resources(whole: Mapping[str, Any]) -> dict[str, Any]:
    resources = whole.get("resources")
    return dict(resources) if isinstance(resources, Mapping) else {}


def _describe(whole: Mapping[str, Any], recording: Recording) -> str:
    """Fill in what the file says of itself; return whose share of a run it is, or nothing."""
    version = whole.get("dlbVersion")
    recording.source = f"TALP {harmless(version, 40)}" if isinstance(version, str) else "TALP"
    recording.prefers = "talp"
    ranks = _resources(whole).get("numMpiRanks")
    recording.ranks = ranks if isinstance(ranks, int) and ranks > 0 else None
    info = whole.get("processInfo")
    if not isinstance(info, Mapping):
        return ""
    host, pid = str(info.get("hostname", "")), info.get("pid")
    recording.host = host
    recording.processes[pid if isinstance(pid, int) else 0] = Process(host=host)
    return f"{host}:{pid}"


def _name_processes(recording: Recording, processes: list[ProcessTimes]) -> None:
    for number, process in enumerate(processes):
        recording.processes[number] = Process(rank=process.rank, host=process.host)
