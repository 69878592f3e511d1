"""Which code a device's idle time, its kernels and its calls belong to, worked out a second time: interval by interval, in Python integers.

Nothing of Ullage's sums is used. Rows are plain tuples; a file is read with `json` and `decimal` alone (`trace_brute_force`).
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.traces.trace_brute_force import _ns

Span = tuple[int, int]
LEVELS = ("operator", "annotation", "function")
PUTS = ("launch", "graph", "copy")


@dataclass
class Rows:
    """device: (device, stream, kind, process, correlation, start, end); calls: (process, thread, name, sort, correlation, start, end);
    talks: (process, thread, name, start, end); code: level → (process, thread, kind, name, start, end), all in the order of the file."""

    device: list[tuple[Any, ...]] = field(default_factory=list)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    talks: list[tuple[Any, ...]] = field(default_factory=list)
    code: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: {level: [] for level in LEVELS})


@dataclass
class Known:
    """What is taken as given: each process' window and host threads, when a device is looked at, and when it is in doubt that it idled."""

    windows: dict[Any, Span]
    threads: dict[Any, tuple[Any, ...]]
    main: tuple[Any, Any]
    seen: list[Span]
    doubt: list[Span]


def innermost(rows: list[tuple[int, int, Any]]) -> list[tuple[int, int, Any]]:
    """Return from when to when which value is innermost: of the open ranges that which began last, then ends first, then stands last."""
    edges = sorted({edge for start, end, _ in rows if end > start for edge in (start, end)})
    begins: dict[int, list[int]] = defaultdict(list)
    for place, (start, end, _) in enumerate(rows):
        if end > start:
            begins[start].append(place)
    found, running = [], []
    for low, high in itertools.pairwise(edges):
        running = [place for place in running if rows[place][1] > low] + begins[low]
        if running:
            found.append((low, high, rows[max(running, key=lambda n: (rows[n][0], -rows[n][1], n))][2]))
    return found


def path_names(rows: list[tuple[int, int, str]]) -> list[str]:
    """Return the path of each range: of what was innermost when it began, and its own name; eight names at most."""
    order = sorted(range(len(rows)), key=lambda n: (rows[n][0], -rows[n][1], n))
    chains: dict[int, tuple[str, ...]] = {}
    running: list[int] = []
    for place in order:
        start, end, name = rows[place]
        running = [n for n in running if rows[n][1] > start]
        outer = max(running, key=lambda n: (rows[n][0], -rows[n][1], n), default=None)
        chains[place] = (*(chains[outer] if outer is not None else ()), name)
        if end > start:
            running.append(place)
    return ["/".join(chains[n][-8:]) for n in range(len(rows))]


def lanes(rows: Rows) -> dict[str, dict[Any, dict[Any, list[tuple[int, int, str]]]]]:
    """Return what is innermost when, by level, process and thread."""
    found: dict[str, Any] = {}
    for level in LEVELS:
        threads: dict[Any, dict[Any, list[tuple[int, int, str]]]] = defaultdict(lambda: defaultdict(list))
        for process, thread, kind, name, start, end in rows.code[level]:
            label = re.sub(r"_\d+$", "", name) if kind == "module" else name
            threads[process][thread].append((start, end, label))
        for process in threads:
            for own in threads[process].values():
                if level == "annotation":
                    own[:] = [(a, b, path) for (a, b, _), path in zip(own, path_names(own), strict=True)]
        found[level] = {p: {t: (len(own), innermost(own)) for t, own in sorted(threads[p].items())} for p in threads}
    return found


def lane(found: Any, level: str, process: Any, thread: Any) -> list[tuple[int, int, str]]:
    threads = found[level].get(process, {})
    if thread in threads:
        return threads[thread][1]
    if level == "operator" or not threads:
        return []
    return max(threads.values(), key=lambda own: own[0])[1]


def cut(pieces: list[tuple[int, int, Any]], low: int, high: int) -> list[tuple[int, int, Any]]:
    """Return what of disjoint sorted pieces lies between two moments."""
    first = max(bisect_right(pieces, low, key=lambda p: p[0]) - 1, 0)
    found = []
    for a, b, what in pieces[first:]:
        if a >= high:
            break
        if min(b, high) > max(a, low):
            found.append((max(a, low), min(b, high), what))
    return found


def united(spans: list[Span]) -> list[Span]:
    found: list[list[int]] = []
    for a, b in sorted(s for s in spans if s[1] > s[0]):
        if found and a <= found[-1][1]:
            found[-1][1] = max(found[-1][1], b)
        else:
            found.append([a, b])
    return [(a, b) for a, b in found]


def without(spans: list[Span], others: list[Span]) -> list[Span]:
    found = []
    for a, b in spans:
        for c, d in others:
            if d > a and c < b:
                if c > a:
                    found.append((a, c))
                a = max(a, d)
        if b > a:
            found.append((a, b))
    return found


def launched(rows: Rows) -> dict[tuple[Any, Any], tuple[int, int, Any]]:
    """Return the call of each process and correlation: first start, last end, lowest thread."""
    found: dict[tuple[Any, Any], tuple[int, int, Any]] = {}
    for process, thread, _, _, correlation, start, end in rows.calls:
        if correlation is not None and correlation >= 0:
            a, b, t = found.get((process, correlation), (start, end, thread))
            found[process, correlation] = min(a, start), max(b, end), min(t, thread)
    return found


def gaps_of(rows: Rows, device: Any, known: Known) -> list[Span]:
    busy = united([(a, b) for d, _, kind, _, _, a, b in rows.device if d == device and kind != "lost"])
    return without(united(known.seen), busy)


def charges(rows: Rows, device: Any, known: Known) -> list[tuple[Span, Any, Any, list[Span]]]:
    """Return, of each gap, the process and the thread that answer for it and for which spans. Raises Ambiguous if that is not decided."""
    put = launched(rows)
    lowest: dict[Any, int] = {}
    for process, correlation in put:
        lowest[process] = min(lowest.get(process, correlation), correlation)
    ran = sorted((a, p, c) for d, _, kind, p, c, a, b in rows.device if d == device and kind != "lost" and b > a)
    found = []
    for gap in gaps_of(rows, device, known):
        place = bisect_left(ran, gap[1], key=lambda r: r[0])
        choices = {_whose(ran[n], put, lowest, known) for n in range(place, len(ran)) if ran[n][0] == ran[place][0]} or {
            (*known.main, None, None)
        }
        if len(choices) > 1:
            raise Ambiguous
        process, thread, called, returned = choices.pop()
        if process not in known.windows or (
            process not in {call[0] for call in rows.calls[:1]} and not any(c[0] == process for c in rows.calls)
        ):
            continue
        if thread is None:
            if len(known.threads[process]) != 1:
                continue
            thread = known.threads[process][0]
        spans = []
        for low, high in without([gap], known.doubt):
            over = high if returned is None else min(max(returned, low), high)
            begun = over if called is None else min(max(called, low), over)
            a, b = known.windows[process]
            spans += [(x, y) for x, y in ((max(low, a), min(begun, b)), (begun, over)) if y > x]
        if spans:
            found.append((gap, process, thread, spans))
    return found


class Ambiguous(Exception):
    """Two rows of different launches begin at one moment."""


def _whose(row: tuple[int, Any, Any], put: Any, lowest: dict[Any, int], known: Known) -> tuple[Any, Any, Any, Any]:
    _, process, correlation = row
    owner = known.main[0] if process is None else process
    if (process, correlation) in put:
        called, returned, thread = put[process, correlation]
        return owner, thread, called, returned
    early = correlation is not None and correlation >= 0 and process in lowest and correlation < lowest[process]
    return (owner, None, -(10**30), -(10**30)) if early else (owner, None, None, None)


def idle_by_code(
    rows: Rows, found: list[tuple[Span, Any, Any, list[Span]]], named: Any, level: str
) -> tuple[dict[str, tuple[int, int, int]], int]:
    """Return by name (gaps, ns, most ns of one gap), and the ns outside."""
    sums: dict[str, list[int]] = defaultdict(list)
    outside = 0
    for _, process, thread, spans in found:
        pieces, own = lane(named, level, process, thread), Counter[str]()
        for low, high in spans:
            inside = cut(pieces, low, high)
            outside += high - low - sum(b - a for a, b, _ in inside)
            for a, b, name in inside:
                own[name] += b - a
        for name, time in own.items():
            sums[name].append(time)
    return {name: (len(times), sum(times), max(times)) for name, times in sums.items()}, outside


def inside(start: int, end: int, seen: list[Span]) -> int | None:
    """Return how long an interval runs within disjoint spans; None where it neither runs nor begins in any."""
    if not any(start < high and (end > low or start >= low) for low, high in seen):
        return None
    return sum(max(min(end, high) - max(start, low), 0) for low, high in seen)


def device_by_code(
    rows: Rows, named: Any, level: str, seen: dict[Any, list[Span]]
) -> tuple[dict[str, tuple[int, int, int]], int, int, int]:
    """Return by name (kernels, ns, longest) while their devices are looked at, and the ns outside, not launched, and in all."""
    put, sums = launched(rows), defaultdict(list)
    outside = unlaunched = whole = 0
    for device, _, kind, process, correlation, start, end in rows.device:
        time = inside(start, end, seen[device])
        if kind not in ("kernel", "collective", "graph") or time is None:
            continue
        whole += time
        if (process, correlation) not in put:
            unlaunched += time
            continue
        called, _, thread = put[process, correlation]
        at = cut(lane(named, level, process, thread), called, called + 1)
        if at:
            sums[at[0][2]].append(time)
        else:
            outside += time
    return {name: (len(times), sum(times), max(times)) for name, times in sums.items()}, outside, unlaunched, whole


def calls_by_name(rows: Rows, by_device: list[Any], seen: dict[Any, list[Span]]) -> dict[tuple[str, str], tuple[int, int, int, int, int]]:
    """Return by name and sort (calls, ns, longest, median, ns for which devices waited)."""
    groups: dict[Any, list[tuple[int, int, str]]] = defaultdict(list)
    for process, thread, name, sort, _, start, end in rows.calls:
        groups[process, thread, name].append((start, end, sort))
    for process, thread, name, start, end in rows.talks:
        groups[process, thread, name].append((start, end, "mpi"))
    waits: dict[Any, list[list[tuple[int, int, None]]]] = defaultdict(list)
    for charged in by_device:
        for who in {(process, thread) for _, process, thread, _ in charged}:
            waits[who].append([(a, b, None) for _, process, thread, spans in charged if (process, thread) == who for a, b in spans])
    found: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for (process, thread, name), own in groups.items():
        reach = -(10**30)
        for start, end, sort in sorted(own, key=lambda c: (c[0], -c[1])):
            if end > reach:
                reach = end
                time = inside(start, end, seen.get(process, []))
                if time is not None:
                    waited = sum(b - a for own in waits[process, thread] for a, b, _ in (cut(own, start, end) if end > start else ()))
                    found[name, sort].append((time, waited))
    return {
        key: (
            len(own),
            sum(t for t, _ in own),
            max(t for t, _ in own),
            sorted(t for t, _ in own)[(len(own) - 1) // 2],
            sum(w for _, w in own),
        )
        for key, own in found.items()
    }


def queues(rows: Rows, device: Any, seen: list[Span]) -> dict[Any, tuple[int, int | None, int | None, int, int]]:
    """Return by stream (launches, median delay, 95th percentile, ns queued, most at once)."""
    put, firsts = launched(rows), defaultdict(dict)
    for d, stream, kind, process, correlation, start, end in rows.device:
        if d == device and kind != "lost" and end > start and (process, correlation) in put:
            called = put[process, correlation][0]
            firsts[stream][called] = min(firsts[stream].get(called, start), start)
    found = {}
    for stream, own in firsts.items():
        delays = sorted(begun - called for called, begun in own.items() if any(a <= begun < b for a, b in seen))
        waits = [(called, begun) for called, begun in own.items() if begun > called]
        queued = sum(max(min(begun, b) - max(called, a), 0) for called, begun in waits for a, b in seen)
        edges = sorted([(called, 1) for called, _ in waits] + [(begun, -1) for _, begun in waits])  # an end before a begin
        depth, most, before = 0, 0, None
        for moment, change in edges:
            if before is not None and moment > before and any(max(before, a) < min(moment, b) for a, b in seen):
                most = max(most, depth)
            depth, before = depth + change, moment
        at = [delays[-(-share * len(delays) // 100) - 1] if delays else None for share in (50, 95)]
        found[stream] = (len(delays), at[0], at[1], queued, most)
    return found


def kineto(path: Path, sort_of: Any, collective: Any) -> Rows:
    """Return the rows of a PyTorch profile of one process. `sort_of` and `collective` tell what a call does and whether a kernel
    communicates, by their names."""
    data = json.loads(gzip.decompress(path.read_bytes()).decode("utf-8", "replace"), strict=False, parse_float=Decimal)
    found = Rows()
    for event in data["traceEvents"]:
        if event.get("ph") == "X" and "cat" in event and "ts" in event:
            _take(found, event, sort_of, collective)
    processes = {call[0] for call in found.calls}
    if len(processes) == 1:
        only = processes.pop()
        found.device = [(d, s, kind, only, *rest) for d, s, kind, _, *rest in found.device]
    return found


def _take(found: Rows, event: dict[str, Any], sort_of: Any, collective: Any) -> None:
    category, name, args = event["cat"], event.get("name", ""), event.get("args") or {}
    start = _ns(event["ts"])
    end = start + _ns(event.get("dur") or 0)
    who = (event["pid"], event["tid"])
    if category in ("kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events"):
        kind = "memcpy" if category.startswith("gpu_mem") or "direction" in args else "kernel"
        if kind == "kernel" and (collective(name) or "Collective name" in args):
            kind = "collective"
        place = (args.get("device", event["pid"]), args.get("stream", event["tid"]))
        found.device.append((*place, kind if end > start else "lost", None, args.get("correlation"), start, max(start, end)))
    elif category.endswith(("_runtime", "_driver")):
        found.calls.append((*who, name, sort_of(name), args.get("correlation"), start, end))
    elif category == "user_annotation" and name.startswith(("gloo:", "mpi:")):
        found.talks.append((*who, name, start, end))
    elif category == "user_annotation" and not name.startswith("ProfilerStep#") and not re.match(r"(\w*ccl|ucc):", name):
        found.code["annotation"].append((*who, "region", name, start, end))
    elif category == "cpu_op":
        found.code["operator"].append((*who, "operator", name, start, end))
    elif category == "python_function" and name.startswith("nn.Module: "):
        found.code["annotation"].append((*who, "module", name.removeprefix("nn.Module: "), start, end))
    elif category == "python_function":
        found.code["function"].append((*who, "function", re.sub(" at 0x[0-9a-f]+", "", name), start, end))
