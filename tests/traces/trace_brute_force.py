"""PyTorch and Nsight Systems files worked out a second time: slowly, event by event, with none of Ullage's readers or sums.

Only `ullage.traces.calls`, which says what a call or kernel is by its name, is shared. Times are Python integers of ns, read through
`decimal`; all sums come from one sweep over the sorted edges of all intervals, that keeps count of what is open.
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from ullage.traces.calls import call, is_collective

Span = tuple[int, int]
Device = tuple[int, int, int]  # of a device: kernels, collectives alone, memory operations alone, ns
Lane = tuple[int, int, int]  # of a process: elapsed, in the GPU's interface, in communication, ns


@dataclass
class Happened:
    """The events of a file. Device: (device, kind, process, correlation, start, end); calls: (process, thread, name, correlation, start,
    end); talks, alive, traced: (process, start, end); regions, steps: (process, name, start, end). `alive` only shows that a process
    lived (operators), and so does `traced` (Python functions) where there is none of these."""

    device: list[tuple[Any, str, Any, Any, int, int]] = field(default_factory=list)
    calls: list[tuple[Any, Any, str, Any, int, int]] = field(default_factory=list)
    talks: list[tuple[Any, int, int]] = field(default_factory=list)
    regions: list[tuple[Any, str, int, int]] = field(default_factory=list)
    steps: list[tuple[Any, str, int, int]] = field(default_factory=list)
    alive: list[tuple[Any, int, int]] = field(default_factory=list)
    traced: list[tuple[Any, int, int]] = field(default_factory=list)
    timeless: int = 0  # device events without a duration


@dataclass
class Part:
    """What a run, a region or a step comes to: elapsed ns, each device's and each process' times in order of size."""

    elapsed: int
    devices: list[Device]
    lanes: list[Lane]


@dataclass
class Answer:
    """A file's sums: of the whole, of each region by name, of each profiler step in order."""

    whole: Part
    regions: dict[str, Part]
    steps: list[tuple[str, Part]]
    kernels: int
    kernel_time: int  # summed over streams, whole kernels
    timeless: int


def worked_out(path: Path) -> Answer:
    """Return the sums of a file of PyTorch's or Nsight Systems'."""
    return summed(kineto(path) if path.name.endswith(".json.gz") else nsys(path))


def summed(happened: Happened) -> Answer:
    """Return the sums of events."""
    run = _Run(happened)
    names = sorted({name for _, name, *_ in happened.regions})
    found = {name: part for name in names if (part := run.part({p: run.occurrences(name, p) for p in run.windows})) is not None}
    steps = sorted({(start, end, name) for _, name, start, end in happened.steps})
    long = [(start, end) for _, kind, _, _, start, end in happened.device if kind in ("kernel", "collective")]
    return Answer(
        whole=run.whole(),
        regions=found,
        steps=[(name, part) for start, end, name in steps if (part := run.part({p: run.inside(p, start, end) for p in run.windows}))],
        kernels=len(long),
        kernel_time=sum(end - start for start, end in long),
        timeless=happened.timeless,
    )


def sweep(sets: Mapping[Any, Iterable[Span]]) -> Counter[frozenset[Any]]:
    """Return how long each combination of sets was open together, in ns."""
    edges = []
    for name, spans in sets.items():
        for start, end in spans:
            if end > start:
                edges += [(start, 1, name), (end, -1, name)]
    edges.sort(key=lambda edge: edge[0])
    found: Counter[frozenset[Any]] = Counter()
    running: Counter[Any] = Counter()
    before = 0
    for edge, change, name in edges:
        if edge > before:
            found[frozenset(n for n, count in running.items() if count)] += edge - before
        running[name] += change
        before = edge
    return found


def _time(found: Counter[frozenset[Any]], *wanted: Any, without: tuple[Any, ...] = ()) -> int:
    return sum(ns for names, ns in found.items() if set(wanted) <= names and not names & set(without))


class _Run:
    """Who lived when, who owns which device, and the sums of any part."""

    def __init__(self, happened: Happened) -> None:
        self.happened = happened
        callers = {p for p, *_ in happened.calls} | {p for p, *_ in happened.talks}
        frames = [*happened.regions, *happened.steps]
        everyone = callers or {p for p, *_ in [*frames, *happened.alive, *happened.traced]}
        self._own(callers)
        did = [*happened.calls, *happened.talks, *(happened.alive or happened.traced)]
        did += [(p, a, b) for _, kind, p, _, a, b in happened.device if kind != "lost"]
        self.windows = {p: _hull(did, p) or _hull(frames, p) or (0, 0) for p in sorted(everyone)}
        self.owners: dict[Any, set[Any]] = {}
        for device, _, process, *_ in happened.device:
            self.owners.setdefault(device, set()).add(process)
        self.calls = {p: self._busiest(p) for p in self.windows}
        self.talks = {p: [(a, b) for who, a, b in happened.talks if who == p] for p in self.windows}

    def _busiest(self, process: Any) -> list[Span]:
        """Return the calls of the thread that is longest in the GPU's interface, of those that put work on a device if any do."""
        threads: dict[Any, list[Span]] = {}
        puts = set()
        for p, thread, name, _, start, end in self.happened.calls:
            if p == process:
                threads.setdefault(thread, []).append((start, end))
                if call(name) in ("launch", "graph", "copy"):
                    puts.add(thread)
        chosen = puts or set(threads)
        return max((threads[t] for t in chosen), key=lambda spans: (_time(sweep({"call": spans}), "call"), len(spans)), default=[])

    def _own(self, callers: set[Any]) -> None:
        """Find the owners of what ran on devices: the only process, or who called with its correlation."""
        by_number = {number: p for p, _, _, number, *_ in self.happened.calls}
        only = next(iter(callers)) if len(callers) == 1 else None
        rows = self.happened.device
        rows[:] = [(d, kind, (only or by_number.get(n)) if p is None else p, n, a, b) for d, kind, p, n, a, b in rows]

    def occurrences(self, name: str, process: Any) -> list[Span]:
        return [span for p, word, a, b in self.happened.regions if p == process and word == name for span in self.inside(p, a, b)]

    def inside(self, process: Any, start: int, end: int) -> list[Span]:
        """Return what of a span a process is looked at; nothing where that is nothing."""
        low, high = max(start, self.windows[process][0]), min(end, self.windows[process][1])
        return [(low, high)] if low < high else []

    def whole(self) -> Part:
        found = self.part({p: [window] for p, window in self.windows.items()})
        assert found is not None
        return found

    def part(self, looked: dict[Any, list[Span]]) -> Part | None:
        """Return the sums of what processes did while they are looked at, None where that is no time at all."""
        looked = {p: spans for p, spans in looked.items() if any(b > a for a, b in spans)}
        if not looked:
            return None
        lanes = [self._lane(p, spans) for p, spans in looked.items()]
        times = [(owners, *self._device(d, [s for p in owners for s in looked.get(p, [])])) for d, owners in self.owners.items()]
        shared = [seen for owners, seen, _ in times if len(owners) != 1]
        elapsed = max([lane[0] for lane in lanes] + shared)
        return Part(elapsed, sorted(device for _, seen, device in times if seen), sorted(lanes))

    def _lane(self, process: Any, seen: list[Span]) -> Lane:
        low, high = min(a for a, _ in seen), max(b for _, b in seen)
        found = sweep({"seen": seen, "call": _near(self.calls[process], low, high), "talk": _near(self.talks[process], low, high)})
        return _time(found, "seen"), _time(found, "seen", "call", without=("talk",)), _time(found, "seen", "talk")

    def _device(self, device: Any, seen: list[Span]) -> tuple[int, Device]:
        if not any(b > a for a, b in seen):
            return 0, (0, 0, 0)
        low, high = min(a for a, _ in seen), max(b for _, b in seen)
        sets: dict[str, list[Span]] = {"seen": seen, "kernel": [], "collective": [], "memory": []}
        for where, kind, _, _, a, b in self.happened.device:
            if where == device and a < high and b > low and kind != "lost":
                sets[kind].append((a, b))
        found = sweep(sets)
        work = ("kernel", "collective")
        return _time(found, "seen"), (
            _time(found, "seen", "kernel"),
            _time(found, "seen", "collective", without=("kernel",)),
            _time(found, "seen", "memory", without=work),
        )


def _hull(rows: Iterable[tuple[Any, ...]], process: Any) -> Span | None:
    """Return the first and last moment of a process' rows."""
    own = [row[-2:] for row in rows if row[0] == process]
    return (min(a for a, _ in own), max(b for _, b in own)) if own else None


def _near(spans: list[Span], low: int, high: int) -> list[Span]:
    return [(a, b) for a, b in spans if a < high and b > low]


# PyTorch


def _ns(value: Any) -> int:
    """Return microseconds, written in decimals, as ns."""
    return int((Decimal(value) * 1000).to_integral_value())


def kineto(path: Path) -> Happened:
    """Return what a PyTorch profile holds."""
    text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
    data = json.loads(text, strict=False, parse_float=Decimal)
    happened = Happened()
    for event in data["traceEvents"]:
        if event.get("ph") == "X" and "cat" in event and "ts" in event:
            _take(happened, event, data.get("distributedInfo") or {})
    return happened


def _take(happened: Happened, event: dict[str, Any], run: dict[str, Any]) -> None:
    category, name, args = event["cat"], event.get("name", ""), event.get("args") or {}
    start = _ns(event["ts"])
    end = start + _ns(event.get("dur") or 0)
    if category in ("kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events"):
        kind = "memory" if category.startswith("gpu_mem") or "direction" in args else "kernel"
        if kind == "kernel" and (is_collective(name) or "Collective name" in args):
            kind = "collective"
        happened.timeless += end <= start
        device = args.get("device", event["pid"])
        happened.device.append((device, kind if end > start else "lost", None, args.get("correlation"), start, max(start, end)))
    elif category.endswith(("_runtime", "_driver")):
        happened.calls.append((event["pid"], event["tid"], name, args.get("correlation"), start, end))
    elif category == "user_annotation":
        _annotation(happened, event["pid"], name, start, end)
    elif category == "cpu_op":
        happened.alive.append((event["pid"], start, end))
        if name == "record_param_comms" and _hosted(run, args.get("Process Group Name")):
            happened.talks.append((event["pid"], start, end))
    elif category == "python_function":
        happened.traced.append((event["pid"], start, end))


def _annotation(happened: Happened, process: Any, name: str, start: int, end: int) -> None:
    if name.startswith("ProfilerStep#"):
        happened.steps.append((process, name, start, end))
    elif name.startswith(("gloo:", "mpi:")):
        happened.talks.append((process, start, end))
    elif not re.match(r"(\w*ccl|ucc):", name):
        happened.regions.append((process, name, start, end))


def _hosted(run: dict[str, Any], group: Any) -> bool:
    """Return whether a process group's collectives run on the host."""
    listed = [g.get("backend_config", "") for g in run.get("pg_config") or [] if isinstance(g, dict) and g.get("pg_name") == group]
    backends = (listed[0] if listed else run.get("backend", "")).split(",")
    return all(b.split(":")[-1] in ("gloo", "mpi") for b in backends)


# Nsight Systems


def nsys(path: Path) -> Happened:
    """Return what an Nsight Systems database holds."""
    database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    database.row_factory = sqlite3.Row
    tables = {name for (name,) in map(tuple, database.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))}
    words = {row["id"]: row["value"] for row in database.execute("SELECT id, value FROM StringIds")}

    def rows(table: str) -> Iterator[dict[str, Any]]:
        if table in tables:
            yield from (dict(row) for row in database.execute(f"SELECT * FROM {table}"))

    seen_as = {(row["pid"], row["cudaId"]): row["uuid"] for row in rows("TARGET_INFO_CUDA_DEVICE")}
    happened = Happened()
    for table, kind in (("KERNEL", "kernel"), ("MEMCPY", "memory"), ("MEMSET", "memory"), ("GRAPH_TRACE", "kernel")):
        for row in rows(f"CUPTI_ACTIVITY_KIND_{table}"):
            what = "collective" if table == "KERNEL" and is_collective(words[row["demangledName"]]) else kind
            process = _process(row["globalPid"]) if row.get("globalPid") is not None else None
            device = seen_as.get((process, row["deviceId"]), row["deviceId"])
            happened.device.append((device, what, process, row["correlationId"], row["start"], row["end"]))
    for row in rows("CUPTI_ACTIVITY_KIND_RUNTIME"):
        who = row["globalTid"]
        happened.calls.append((_process(who), who, words[row["nameId"]], row["correlationId"], row["start"], row["end"]))
    _nvtx(happened, list(rows("NVTX_EVENTS")), words)
    return happened


def _process(number: int) -> int:
    return number // 2**24 % 2**24


def _nvtx(happened: Happened, rows: list[dict[str, Any]], words: dict[int, str]) -> None:
    mpi = {(_process(r["globalTid"]), r["domainId"]) for r in rows if r["eventType"] == 75 and _text(r, words) == "MPI"}
    ranges = [row for row in rows if row["eventType"] in (59, 60, 70, 71)]
    last = max((max(r["start"], r["end"] or 0) for r in ranges), default=0)
    for row in ranges:
        process, start, end = _process(row["globalTid"]), row["start"], last if row["end"] is None else row["end"]
        name = _text(row, words)
        if (process, row["domainId"]) in mpi:
            happened.talks.append((process, start, end))
        elif _of_user(name):
            happened.regions.append((process, re.sub(r"(?s), (op_id|sizes|input_op_ids) = .*", "", name), start, end))
        else:
            happened.alive.append((process, start, end))


def _text(row: dict[str, Any], words: dict[int, str]) -> str:
    return str(row["text"] or words.get(row["textId"], ""))


def _of_user(name: str) -> bool:
    """Return whether a range is the user's: neither an operator, as PyTorch numbers them, nor NCCL's own."""
    numbered = re.search(r", (seq|op_id|sizes|input_op_ids) = ", name)
    plain = name[: numbered.start()] if numbered else name
    operator = numbered and (numbered[1] == "seq" or re.match(r"[a-z_0-9]+::", plain) or plain == "record_param_comms")
    return not operator and not re.match(r"p?nccl[A-Z:]\w+$", plain)
