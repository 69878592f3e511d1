"""Does the recorder come and go at run time, survive forks, keep its place, and do permissions predict what happens?"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from gpu import apart
from gpu.check import Findings, check
from gpu.cupti_attach_program import FEW, FIRST, FRESH, PAUSED_GRAPHS, RESUMED, SECOND, STAGES
from gpu.cupti_recording import seen
from gpu.cupti_tools import has_pytorch, library, needs_recorder, refusal_words, settings, simulated
from gpu.machine import Machine
from ullage.cupti.kinds import ActivityKind
from ullage.cupti.native.build import recorder

LIMIT = 12.0  # seconds for one stage: it needs two, with PyTorch some more
PARTS = {"first": FIRST + RESUMED, "second": SECOND, "fresh": FRESH}  # kernels that each recording of "attach" should have
YES, NEW_CONTEXT, NO = "yes", "only before a new context", "no"  # how often the recorder comes in
EXPECTED = {"attach": sum(PARTS.values()), "subscribers": FEW, "fork": 3 * FEW, "profiler": 2 * FEW, "plain": FEW}
WITH_PYTORCH = ("profiler", "graphs", *(f"graphs_{first}" for first in PAUSED_GRAPHS))
GRAPH_PARTS = ("before", "recorded", "stopped", "resumed", "after")
ANYBODY = 0o755
NOT_SAID = ("report", "holders", "hint", "findings", "taken")  # of what a program tells, what a row has no room for


@check(
    headline="{attached:.1%} of kernels recorded while attached; counters: {counters_said} said, worked: {counters}",
    answers={
        "attached": "kernels recorded of those launched while the recorder was attached and not stopped, as a share",
        "again": "whether it came in a second time after it was detached: yes, only before a new context, no",
        "second_subscriber": "what CUPTI answered to a second subscriber",
        "forked": "kernels recorded of a parent that forked, as a share",
        "children": "recordings that children left which did nothing with CUDA",
        "kineto_kernels": "kernels that PyTorch's profiler saw while the recorder was attached, of 5",
        "beside_kineto": "kernels recorded beside PyTorch's profiler, of 10",
        "graphs": "until when a program that replays CUDA graphs lived: before, recorded, stopped, after (the recorder left: as it should)",
        "graphs_again": "after a pause, of graphs launched before it, made before it and made in it: until when the first program that did "
        "not live to its end did (after: all did)",
        "graphs_forced": "until when a program lived that made a graph in a pause and for which whole graphs were asked for nonetheless",
        "tracing_said": "what permissions say of tracing: yes, no, perhaps",
        "tracing_plain": "kernels recorded for a user without privileges, as a share (–: the stage could not run)",
        "counters_said": "what permissions say of counters",
        "counters": "whether counting worked (–: another profiler has the counters)",
        "counters_plain": "whether counting worked for a user without privileges",
        "admin_only": "whether the driver keeps counters for the administrator, as permissions find it",
    },
    columns={
        "stage": "what was tried",
        "launched": "kernels that are to be recorded",
        "recorded": "kernels",
        "graphs": "CUDA graphs recorded as a whole",
        "recordings": "files",
        "ended": "of them, with an END",
        "said": "what the program told",
        "problem": "why it did not end well",
    },
)
def cupti_attach(machine: Machine) -> Findings:
    """Does the recorder come and go at run time, survive forks, keep its place, and do permissions predict what happens?

    A program works without the recorder, attached, stopped, resumed, detached, and attached again; only what was launched while it
    recorded may be in its recordings. A recorder that records again only what runs in a context that is made afterwards is an answer, no
    failure. Then: a second subscriber of CUPTI, forks, PyTorch's profiler at the same time; CUDA graphs from before it came and from
    while it was there, replayed all along and after it left; counting, and
    both for a user without privileges, beside what `permissions` says of the machine. Each in a process of its own.
    """
    findings = Findings(settings(library(machine)))
    needs_recorder(machine)
    told: dict[str, dict[str, Any]] = {}
    for stage in STAGES:
        if stage in WITH_PYTORCH and not has_pytorch(machine):
            continue
        with tempfile.TemporaryDirectory() as folder:
            told[stage] = _stage(machine, stage, Path(folder), findings)
    findings.answers = _answers({str(row["stage"]): row for row in findings.rows}, told)
    if told["counters"].get("refused"):
        findings.notes.append(f"counting was refused: {refusal_words(told['counters'])}")
    findings.notes += [f"permissions: {one['what']}: {one['do']}" for one in told["counters"].get("report", {}).get("findings", [])]
    findings.wrong += _wrong(findings.answers)
    return findings


def _stage(machine: Machine, stage: str, folder: Path, findings: Findings) -> dict[str, Any]:
    """Run a stage, add its row, and return what it told."""
    folder.chmod(0o777)  # for the stage without privileges
    one = apart.told(machine, apart.asked("cupti_attach_program", stage, folder, environment=_recorder(machine, folder)), LIMIT)
    found = [seen(path) for path in sorted(folder.rglob("*.ullage"))]
    facts = {name: value for name, value in one.facts.items() if name not in NOT_SAID}
    findings.rows.append(
        {
            "stage": stage,
            "launched": EXPECTED.get(stage, 0),
            "recorded": sum(len(recording.of(ActivityKind.CONCURRENT_KERNEL)) for recording in found),
            "graphs": sum(len(recording.of(ActivityKind.GRAPH_TRACE)) for recording in found),
            "recordings": len(found),
            "ended": sum(recording.end is not None for recording in found),
            "said": ", ".join(f"{name}: {value}" for name, value in facts.items()),
            "problem": one.problem or str(facts.get("refused", "")),
        }
    )
    return one.facts | {"parts": {part: _kernels(folder / part) for part in PARTS}}


def _kernels(folder: Path) -> int:
    return sum(len(seen(path).of(ActivityKind.CONCURRENT_KERNEL)) for path in sorted(folder.glob("*.ullage")))


def _recorder(machine: Machine, folder: Path) -> dict[str, str]:
    """Put the recorder where a user without privileges can read it, and return the variable that names it."""
    if simulated(machine):
        return {}
    place = folder / "recorder.so"
    shutil.copyfile(recorder(), place)
    place.chmod(ANYBODY)
    return {"ULLAGE_RECORDER": str(place)}


def _answers(rows: dict[str, dict[str, Any]], told: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the answers from the stages' rows and what they told."""
    said = told["counters"].get("report", {})
    plain = rows.get("plain", {})
    parts = told["attach"]["parts"]
    return {
        "attached": parts["first"] / PARTS["first"],
        "again": YES if parts["second"] == SECOND else NEW_CONTEXT if parts["fresh"] == FRESH else NO,
        "second_subscriber": told["subscribers"].get("second_subscriber"),
        "forked": _share(rows["fork"]),
        "children": rows["fork"]["recordings"] - 1,
        "kineto_kernels": told.get("profiler", {}).get("kineto_kernels"),
        "beside_kineto": rows["profiler"]["recorded"] if "profiler" in rows else None,
        "graphs": _lived(told, "graphs"),
        "graphs_again": min((_lived(told, f"graphs_{first}") for first in PAUSED_GRAPHS[:-1]), key=(None, NO, *GRAPH_PARTS).index),
        "graphs_forced": _lived(told, f"graphs_{PAUSED_GRAPHS[-1]}"),
        "tracing_said": said.get("tracing"),
        "tracing_plain": _share(plain) if told["plain"].get("traced") else None,
        "counters_said": said.get("counters"),
        "counters": None if told["counters"].get("taken") else told["counters"].get("counted") is not None,
        "counters_plain": told["plain"].get("counted") is not None if told["plain"].get("traced") else None,
        "admin_only": any("RmProfilingAdminOnly" in one["what"] for one in told["plain"].get("report", said).get("findings", [])),
    }


def _lived(told: dict[str, dict[str, Any]], stage: str) -> str | None:
    """Return the last part of a stage with graphs that its program lived to see; None: the stage was not tried."""
    return next((part for part in reversed(GRAPH_PARTS) if told[stage].get(part)), NO) if stage in told else None


def _share(row: dict[str, Any]) -> float:
    return float(row["recorded"] / row["launched"])


def _wrong(found: dict[str, Any]) -> list[str]:
    """Return what contradicts what the recorder and `permissions` promise."""
    said = [f"{found[name]:.0%} of the kernels of {words} are recorded" for name, words in _ALL.items() if found[name] != 1]
    if found["again"] == NO:
        said.append("the recorder did not come in a second time")
    if found["children"]:
        said.append(f"children that did nothing with CUDA left {found['children']} recordings")
    for name in ("graphs", "graphs_again"):
        if found[name] not in (None, GRAPH_PARTS[-1]):
            said.append(f"a program that replays CUDA graphs lived until '{found[name]}'")
    if found["counters_said"] == "no" and found["counters"]:
        said.append("permissions say that counting is forbidden, and it works")
    if found["counters_said"] == "yes" and found["counters"] is False:
        said.append("permissions say that counting is allowed, and it does not work")
    if found["tracing_plain"] not in (None, 1.0):
        said.append(f"for a user without privileges {found['tracing_plain']:.0%} of the kernels are recorded")
    return said


_ALL = {"attached": "an attached recorder", "forked": "a program that forked"}
