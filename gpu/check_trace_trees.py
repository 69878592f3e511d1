"""Do the trees of a trace say what a program with known loads did?"""

from __future__ import annotations

import gzip
import importlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu.check import Findings, NotMeasured, check
from gpu.evidence import MOST
from gpu.machine import Machine
from gpu.trace_program import BURST, HOST, ROUNDS, SIZE, VARIANTS, Recorded, Recorder, recorder

WORST = 0.02  # of kernel time against CUDA events
APART = 0.10  # of idle time against the host's own clock: launching and waking come on top of what it computes
WITH_NSYS = ("synchronous", "graph")


@check(
    headline="kernel time is off by {kernel_error:.2%}, copies by {memory_error:.2%}, idle time by {idle_error:.2%}",
    loaded=True,
    answers={
        "kernel_error": "farthest that kernel time lies from that by CUDA events, as a share of it",
        "memory_error": "farthest that copying time does",
        "idle_error": "farthest that idle time charged to a computing host lies from its own clock",
        "hidden": "idle time charged to a host that computes while the GPU does, as a share of what it computes",
        "graph_kernels": "kernels recorded of graph replays over those of the same products launched one by one",
        "source_difference": "largest difference in device parallel efficiency of Nsight Systems and PyTorch (–: no Nsight Systems)",
    },
    columns={
        "variant": "of the program",
        "source": "kineto or nsys",
        "elapsed": "of the trace, s",
        "kernel": "time in kernels by the trace, s",
        "kernel_known": "by CUDA events, s",
        "memory": "time in copies by the trace, s",
        "memory_known": "by CUDA events, s",
        "idle_useful": "idle time charged to a computing host, s",
        "host_known": "what the host computed by its clock, s",
        "cause": "what most idle time is charged to",
        "kernels": "recorded",
        "products": "launched",
        "parallel_efficiency": "of the device",
        "orchestration_efficiency": "of the device",
    },
)
def trace_trees(machine: Machine) -> Findings:
    """Do the trees of a trace say what a program with known loads did?

    Ten rounds, each of 20 ms of BF16 products and a host that computes for 10 ms: one after the other, both at once, with a copy
    of 256 MiB after them, and with the products in a CUDA graph. CUDA events and the host's clock say what was done; PyTorch's
    profiler records it, and the trace's trees are held against that. These traces and all trees are kept. Where `nsys` is
    installed it records the program too, and must agree; its databases, which name the machine, are not kept.
    """
    _libraries()
    with_what = recorder(machine)
    findings = Findings({"rounds": ROUNDS, "burst": BURST, "host": HOST, "size": SIZE, "dtype": "bfloat16"})
    shown = []
    for source, variant, found in _recorded(with_what, findings.notes):
        row, text = _read(found)
        findings.rows.append({"variant": variant, "source": source, **row})
        shown.append(f"{variant}, {source}\n\n{text}")
        if source == "kineto":
            _keep(findings, found)
    findings.recordings["trace_trees.txt"] = "\n\n".join(shown).encode()
    findings.answers = _answers(findings.rows)
    findings.wrong = _wrong(findings.rows, findings.answers)
    return findings


def _libraries() -> None:
    try:
        importlib.import_module("msgspec")
    except ImportError:
        raise NotMeasured("no msgspec, which reading traces needs") from None


def _recorded(with_what: Recorder, notes: list[str]) -> Iterator[tuple[str, str, Recorded]]:
    for variant in VARIANTS:
        yield "kineto", variant, with_what.kineto(variant)
    for variant in WITH_NSYS:
        try:
            found = with_what.nsys(variant)
        except (OSError, subprocess.SubprocessError, StopIteration) as error:
            notes.append(f"Nsight Systems could not record '{variant}' ({type(error).__name__})")
            continue
        if found is None:
            notes.append("Nsight Systems is not installed")
            return
        yield "nsys", variant, found


def _read(found: Recorded) -> tuple[dict[str, Any], str]:
    """Return what the trace says beside what is known, and its report as text."""
    from ullage.profiles import profile
    from ullage.reports.trace.trace import trace

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / found.name
        path.write_bytes(found.trace)
        report = trace(profile(str(path)), "first-last")
        said = str(report).replace(f"{folder}/", "")
    parts, causes, known = report.whole.device_parts, report.idle.causes if report.idle else {}, found.known
    tree = report.whole.device
    return {
        "elapsed": report.whole.elapsed / 1e9,
        "kernel": sum(p.kernel for p in parts) / 1e9,
        "kernel_known": known.kernel,
        "memory": sum(p.memory for p in parts) / 1e9,
        "memory_known": known.memory,
        "idle_useful": causes.get("useful", 0) / 1e9,
        "host_known": known.host,
        "cause": max(causes, key=lambda cause: causes[cause], default=None),
        "kernels": sum(p.device.launches for p in parts),
        "products": known.products,
        **{
            name: _value(tree, f"{prefix}{name}") for name, prefix in (("parallel_efficiency", "device_"), ("orchestration_efficiency", ""))
        },
    }, said


def _value(tree: Any, metric: str) -> float | None:
    node = tree.find(metric) if tree is not None else None
    return node.value if node is not None else None


def _keep(findings: Findings, found: Recorded) -> None:
    name, data = f"trace_trees.{found.name}.gz", gzip.compress(found.trace, mtime=0)
    if len(data) <= MOST:
        findings.recordings[name] = data
    else:
        findings.notes.append(f"{name} is not kept, it has {len(data):,} bytes")


def _answers(rows: list[dict[str, Any]]) -> dict[str, Any]:
    one = {(row["source"], row["variant"]): row for row in rows}
    serial = [row for row in rows if row["variant"] != "asynchronous"]
    hidden, graph, plain = (one["kineto", variant] for variant in ("asynchronous", "graph", "synchronous"))
    pairs = [(row, one["kineto", row["variant"]]) for row in rows if row["source"] == "nsys"]
    apart = [abs(a["parallel_efficiency"] - b["parallel_efficiency"]) for a, b in pairs if a["parallel_efficiency"] is not None]
    return {
        "kernel_error": _farthest(rows, "kernel", "kernel_known"),
        "memory_error": _farthest([row for row in rows if row["memory_known"]], "memory", "memory_known"),
        "idle_error": _farthest(serial, "idle_useful", "host_known"),
        "hidden": hidden["idle_useful"] / hidden["host_known"],
        "graph_kernels": graph["kernels"] / plain["kernels"] * plain["products"] / graph["products"] if plain["kernels"] else 0.0,
        "source_difference": max(apart, default=None),
    }


def _farthest(rows: list[dict[str, Any]], said: str, known: str) -> float:
    return max(abs(float(row[said]) / float(row[known]) - 1) for row in rows)


def _wrong(rows: list[dict[str, Any]], answers: dict[str, Any]) -> list[str]:
    wrong = []
    for row in rows:
        whose = f"'{row['variant']}' by {row['source']}"
        for sort, most in (("kernel", WORST), ("memory", WORST)):
            if row[f"{sort}_known"] and abs(row[sort] / row[f"{sort}_known"] - 1) > most:
                wrong.append(f"{sort} time of {whose} is {row[sort]:.4f} s where CUDA events say {row[f'{sort}_known']:.4f} s")
        if row["variant"] != "asynchronous" and abs(row["idle_useful"] / row["host_known"] - 1) > APART:
            wrong.append(f"{whose} idles {row['idle_useful']:.4f} s for a host that computes {row['host_known']:.4f} s")
        if row["variant"] == "synchronous" and row["cause"] != "useful":
            wrong.append(f"most idle time of {whose} is charged to '{row['cause']}', and it was the computing host's")
    if answers["hidden"] > APART:
        wrong.append(f"{answers['hidden']:.0%} of what a host computes beside a busy GPU is charged to it as idle time")
    if abs(answers["graph_kernels"] - 1) > WORST:
        wrong.append(f"of graph replays {answers['graph_kernels']:.0%} of the kernels are recorded, and the report doesn't doubt it")
    return wrong
