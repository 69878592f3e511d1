"""Files of JAX, rocprofv3 and OTF2 read a second time: slowly, row by row, with none of Ullage's readers; see `trace_brute_force`."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from decimal import Decimal
from pathlib import Path

from tests.traces.trace_brute_force import Happened
from ullage.traces.calls import is_collective


def _sort(name: str) -> str:
    if re.match(r"(?i)mem(cpy|set)", name):
        return "memory"
    return "collective" if is_collective(name) else "kernel"


def jax(path: Path) -> Happened:
    """Return what a trace viewer's JSON holds."""
    raw = path.read_bytes()
    events = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw, parse_float=Decimal)["traceEvents"]
    planes = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    lines = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    happened = Happened()
    for event in events:
        if event.get("ph") != "X":
            continue
        start = int((Decimal(event["ts"]) * 1000).to_integral_value())
        end = int(((Decimal(event["ts"]) + Decimal(event["dur"])) * 1000).to_integral_value())
        where, name, args = planes[event["pid"]], event["name"], event.get("args", {})
        if where.startswith("/device:GPU:"):
            if lines[event["pid"], event["tid"]].startswith("Stream #"):
                number = int(where.split(":")[2].split(" ")[0])
                happened.device.append((number, _sort(name), None, args.get("correlation_id"), start, end))
        elif re.match(r"(cuda|cu|hip)[A-Z]", name):
            happened.calls.append((event["pid"], event["tid"], name, args.get("correlation_id"), start, end))
        elif "step_num" in args:
            happened.steps.append((event["pid"], f"{name} {args['step_num']}", start, end))
        else:
            (happened.traced if name.startswith("$") else happened.alive).append((event["pid"], start, end))
    return happened


def rocprof_json(path: Path) -> Happened:
    """Return what a JSON of rocprofv3 holds."""
    happened = Happened()
    for process in json.loads(path.read_text())["rocprofiler-sdk-tool"]:
        pid, records = process["metadata"]["pid"], process["buffer_records"]
        gpus = {agent["id"]["handle"] for agent in process["agents"] if agent["type"] == 2}
        names = {symbol["kernel_id"]: symbol["formatted_kernel_name"] for symbol in process["kernel_symbols"]}
        words = [kind["operations"] for kind in process["strings"]["buffer_records"]]
        said = {message["key"]: message["value"] for message in process["strings"]["marker_api"]}
        for r in records["kernel_dispatch"]:
            agent, sort = r["dispatch_info"]["agent_id"]["handle"], _sort(names[r["dispatch_info"]["kernel_id"]])
            happened.device.append((agent, sort, pid, r["correlation_id"]["internal"], r["start_timestamp"], r["end_timestamp"]))
        for r in records["memory_copy"]:
            agent = next(h for h in (r["dst_agent_id"]["handle"], r["src_agent_id"]["handle"]) if h in gpus)
            happened.device.append((agent, "memory", pid, r["correlation_id"]["internal"], r["start_timestamp"], r["end_timestamp"]))
        for r in records["hip_api"]:
            name = words[r["kind"]][r["operation"]]
            row = (pid, r["thread_id"], name, r["correlation_id"]["internal"], r["start_timestamp"], r["end_timestamp"])
            happened.calls.append(row)
        for r in records["marker_api"]:
            happened.regions.append((pid, said[r["correlation_id"]["internal"]], r["start_timestamp"], r["end_timestamp"]))
    return happened


def rocpd(path: Path) -> Happened:
    """Return what a database of rocprofv3 holds, row by row, whichever layout it has."""
    database = sqlite3.connect(path)
    database.row_factory = sqlite3.Row
    tables = {
        name.split("_0000")[0]: name for (name,) in map(tuple, database.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
    }

    def rows(table: str) -> list[dict]:
        if f"rocpd_{table}" not in tables:
            return []
        return [dict(row) for row in database.execute(f'SELECT * FROM "{tables[f"rocpd_{table}"]}"')]

    by_id = {t: {r["id"]: r for r in rows(t)} for t in ("string", "event", "track", "timestamp", "info_agent", "info_kernel_symbol")}
    [process], threads = rows("info_process"), {r["id"]: r["tid"] for r in rows("info_thread")}
    happened = Happened()
    for table in ("kernel_dispatch", "memory_copy", "region"):
        for row in rows(table):
            event = by_id["event"][row["event_id"]]
            if "track_id" in row:
                row |= {k: v for k, v in by_id["track"][row["track_id"]].items() if k != "id"}
                row |= {edge: by_id["timestamp"][row[f"{edge}_id"]]["value"] for edge in ("start", "end")}
            times = (event["stack_id"], row["start"], row["end"])
            if table == "kernel_dispatch":
                name = by_id["info_kernel_symbol"][row["kernel_id"]]["display_name"]
                happened.device.append((row["agent_id"], _sort(name), process["pid"], *times))
            elif table == "memory_copy":
                ends = [row["dst_agent_id"], row["src_agent_id"]]
                gpu = next(agent for agent in ends if by_id["info_agent"][agent]["type"] == "GPU")
                happened.device.append((gpu, "memory", process["pid"], *times))
            elif by_id["string"][event["category_id"]]["string"].startswith("HIP"):
                happened.calls.append((process["pid"], threads[row["tid"]], by_id["string"][row["name_id"]]["string"], *times))
            else:
                happened.regions.append((process["pid"], json.loads(event["extdata"])["message"], row["start"], row["end"]))
    return happened


def otf2(path: Path) -> Happened:
    """Return what an archive of OTF2 holds: regions paired by their location's stack, copies by their number."""
    import otf2 as library

    happened = Happened()
    opened, copies = {}, {}
    with library.reader.open(str(path)) as archive:
        clock = archive.definitions.clock_properties
        for where, event in archive.events:
            now = (event.time - clock.global_offset) * 10**9 // clock.timer_resolution
            on_device = where.name.startswith("CUDA[")
            process = (where.group.creating_location_group if on_device else where.group).name
            device, word = (process, where.name.split(":")[0]), type(event).__name__
            if word == "Enter":
                opened.setdefault(where.name + process, []).append((event.region, now))
            elif word == "RmaPut":
                copies[where.name, process, event.matching_id] = now
            elif word == "RmaOpCompleteBlocking":
                happened.device.append((device, "memory", process, None, copies[where.name, process, event.matching_id], now))
            elif word == "Leave":
                stack = opened[where.name + process]
                at = max(n for n, (region, _) in enumerate(stack) if region == event.region)
                region, start = stack.pop(at)
                if on_device:
                    happened.device.append((device, _sort(region.name), process, None, start, now))
                elif str(region.paradigm) == "Paradigm.MPI":
                    happened.talks.append((process, start, now))
                elif str(region.paradigm) == "Paradigm.CUDA":
                    happened.calls.append((process, where.name, region.name, None, start, now))
                elif str(region.paradigm) == "Paradigm.USER":
                    happened.regions.append((process, region.name, start, now))
                else:
                    happened.alive.append((process, start, now))
    return happened
