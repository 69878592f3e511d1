"""What does recording cost a training step?"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from gpu import apart
from gpu.check import Findings, NotMeasured, check
from gpu.cupti_overhead_program import PAIRS, WINDOW
from gpu.cupti_recording import seen
from gpu.cupti_tools import library, needs_recorder, refusal_words, settings
from gpu.machine import Machine
from ullage.cupti.kinds import ActivityKind

LIMIT = 45.0  # seconds for one program: 12 s of windows, and PyTorch's import
TARGET = 0.01  # what recording may cost a step of 10,000 launches a second
CASES = (
    ("launch", "activity"),
    ("launch", "every call"),
    ("launch", "callbacks"),
    ("steady", "activity"),
    ("bound", "activity"),
    ("graph", "activity"),
)
SURE = 0.95


@check(
    headline="recording costs {loss:.2%} [{loss_low:.2%}, {loss_high:.2%}] of a step, {launch_ns:.0f} ns a launch",
    answers={
        "loss": "share that recording adds to a step which keeps the GPU busy: the median of pairs of windows",
        "loss_low": "its lowest, with 95 % confidence",
        "loss_high": "its highest",
        "launches": "kernels a second in that step",
        "loss_bound": "the same share in a step so small that the host's work is all there is",
        "launch_ns": "that recording adds to a launch, ns: of the host's time where it does nothing but launch, against none attached",
        "launch_ns_stopped": "that the attached, stopped recorder adds to it, ns",
        "launch_ns_every_call": "the same with a record of every call, enquiries (cudaGetDevice, …) too, ns",
        "launch_ns_callbacks": "the same with callbacks in place of records of calls, ns",
        "loss_graph": "share that recording adds to a pass in a CUDA graph, every kernel in it recorded",
        "spread": "(highest - lowest) / median of the windows without recording: a smaller loss is noise",
        "attached_idle": "share that the attached, stopped recorder adds to a step, against none",
        "records": "activity records a second while the host launches as fast as it can",
        "bytes": "of them a second",
        "writer": "share of one core that the recorder's writer took meanwhile",
        "flush_ms": "mean time of a flush, ms",
        "dropped": "records that CUPTI dropped, in all",
    },
    columns={
        "regime": "launch: the host launches, no more; steady: the GPU is busy; bound: the host is; graph: a CUDA graph is replayed",
        "load": "what a step is",
        "mode": "how calls are recorded",
        "step_off": "median time of a step without, s",
        "step_on": "with, s",
        "step_before": "before the recorder came, s",
        "step_after": "after it went, s",
        "loss": "median of the pairs",
        "low": "of its 95 % interval",
        "high": "of its 95 % interval",
        "launches": "kernels a step",
        "launch_ns": "added to a launch by recording, against none attached, ns",
        "launch_ns_stopped": "added to it by an attached, stopped recorder, ns",
        "records": "activity records a second",
        "writer_ns": "of the recorder's writer",
        "flush_ns": "in flushes",
        "flushes": "how many",
        "callback_ns": "in CUPTI's callbacks for buffers",
        "api_callbacks": "of calls",
        "memory_peak": "of buffers, B",
        "dropped": "by CUPTI",
    },
)
def cupti_overhead(machine: Machine) -> Findings:
    """What does recording cost a training step?

    The recorder in C is attached to a program that trains in PyTorch (without it: that launches kernels of ours by the driver), and
    stopped and started in turns: a pair of windows of a third of a second each, twelve pairs, every other one in the other order.
    Once the host launches short kernels and does nothing else (that also with a record of every call, enquiries such as
    cudaGetDevice too, and with callbacks for each call), once a step keeps the GPU busy at somewhat over 10,000 launches a second,
    once it is so small that the host's work is all there is, and once a forward pass is replayed from a CUDA graph that was there
    before. Windows before the recorder is attached and after it is detached tell what it costs to have it there and stopped. Of
    what the host's time is, a window's value is the median of its steps; of what the GPU's is, the mean.
    """
    found = library(machine)
    needs_recorder(machine)
    findings = Findings({**settings(found), "pairs": PAIRS, "window": WINDOW, "target": TARGET})
    for regime, mode in CASES:
        if machine.room is not None and not machine.room.left:
            findings.notes.append(f"there was no time for '{regime}' by {mode}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            told = apart.told(machine, apart.asked("cupti_overhead_program", regime, mode, folder), LIMIT)
            if told.facts.get("refused"):
                findings.notes.append(f"'{regime}' by {mode} was refused: {refusal_words(told.facts)}")
                continue
            if told.problem or not told.facts.get("steps"):
                findings.wrong.append(f"'{regime}' by {mode} could not be measured: {told.problem or 'it told nothing'}")
                if told.code is None:  # the next would hang, too
                    break
                continue
            findings.rows.append(_row(regime, mode, told.facts))
    if not findings.rows and not findings.wrong:
        raise NotMeasured("; ".join(findings.notes))
    if not findings.rows:
        raise RuntimeError(findings.wrong[0])
    findings.answers = _answers(findings.rows)
    if float(findings.answers["loss_low"] or 0) > TARGET:
        findings.wrong.append(f"recording costs a step {float(findings.answers['loss'] or 0):.2%}, and surely more than {TARGET:.0%}")
    return findings


def _row(regime: str, mode: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Return what one program found."""
    recorded = seen(Path(facts["path"]))
    costs = recorded.end or {}
    ratios = [on / off - 1 for on, off in zip(facts["on"], facts["off"], strict=True)]
    low, high = _interval(ratios)
    launches = len(recorded.of(ActivityKind.CONCURRENT_KERNEL)) / facts["steps"]
    absent = median(facts["before"])
    return {
        "regime": regime,
        "load": facts.get("load"),
        "mode": mode,
        **{f"step_{name}": median(facts[name]) for name in ("off", "on", "before", "after")},
        "loss": median(ratios),
        "low": low,
        "high": high,
        "launches": launches,
        "launch_ns": 1e9 * (median(facts["on"]) - absent) / launches if launches else None,
        "launch_ns_stopped": 1e9 * (median(facts["off"]) - absent) / launches if launches else None,
        "records": recorded.operations / facts["seconds"],
        **{name: costs.get(name) for name in ("writer_ns", "flush_ns", "flushes", "callback_ns", "api_callbacks", "memory_peak")},
        "dropped": recorded.dropped,
        "_seconds": facts["seconds"],
        "_bytes": recorded.size,
        "_spread": (max(facts["off"]) - min(facts["off"])) / median(facts["off"]),
    }


def _interval(values: list[float]) -> tuple[float, float]:
    """Return values between which the median lies with at least 95 % confidence, whatever their distribution; the extremes if few.

    Of six, the median lies between the lowest and the highest with 1 - 2/64 = 97 %:

    >>> _interval([3, 1, 2, 6, 5, 4])
    (1, 6)
    """
    ordered, count, rank = sorted(values), len(values), 0
    beyond = 1 / 2**count  # probability that fewer than rank + 1 lie below the median
    while rank + 1 < count // 2:
        more = beyond + math.comb(count, rank + 1) / 2**count
        if 2 * more > 1 - SURE:
            break
        rank, beyond = rank + 1, more
    return ordered[rank], ordered[count - 1 - rank]


def _answers(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the answers; what belongs to them alone is taken out of the rows."""
    hidden = [{name: row.pop(name) for name in ("_seconds", "_bytes", "_spread")} for row in rows]
    one = {(row["regime"], row["mode"]): (row, more) for row, more in zip(rows, hidden, strict=True)}
    none: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    (launch, _), (every, _), (called, _), (steady, plain), (bound, busy), (graph, _) = (one.get(case, none) for case in CASES)
    return {
        "loss": steady.get("loss"),
        "loss_low": steady.get("low"),
        "loss_high": steady.get("high"),
        "launches": steady["launches"] / steady["step_on"] if steady else None,
        "loss_bound": bound.get("loss"),
        "launch_ns": launch.get("launch_ns"),
        "launch_ns_stopped": launch.get("launch_ns_stopped"),
        "launch_ns_every_call": every.get("launch_ns"),
        "loss_graph": graph.get("loss"),
        "launch_ns_callbacks": called.get("launch_ns"),
        "spread": plain.get("_spread"),
        "attached_idle": steady["step_off"] / median([steady["step_before"], steady["step_after"]]) - 1 if steady else None,
        "records": bound.get("records"),
        "bytes": busy["_bytes"] / busy["_seconds"] if busy else None,
        "writer": (bound["writer_ns"] or 0) / 1e9 / busy["_seconds"] if bound else None,
        "flush_ms": bound["flush_ns"] / 1e6 / bound["flushes"] if bound and bound.get("flushes") else None,
        "dropped": sum(row["dropped"] for row in rows),
    }
