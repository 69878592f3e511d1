"""Files of JAX, rocprofv3 and OTF2 read a second time: slowly, row by row, with none of Ullage's readers; see `trace_brute_force`."""

from __future__ import annotations

import gzip
import json
import re
from decimal import Decimal
from pathlib import Path

from tests.trace_brute_force import Happened
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
