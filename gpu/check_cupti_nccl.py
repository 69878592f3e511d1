"""Does NCCL tell the recorder of its collectives, and of their times on the GPU?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from gpu import apart
from gpu.check import Findings, NotMeasured, check
from gpu.cupti_tools import injected, library, needs_pytorch, needs_recorder, recordings, settings, understood
from gpu.machine import Machine
from ullage.cupti.chunks import chunks
from ullage.live.launch import NCCL
from ullage.problems import Problems
from ullage.recording import NcclCollectives
from ullage.traces.recorded.facts import RecordingFacts
from ullage.traces.recorded.nccl import nccl_collectives

LIMIT = 60.0  # seconds: importing PyTorch and beginning NCCL take most of it
FIRST = (2, 27)  # NCCL with version 4 of the profiler's interface


@check(
    headline="NCCL began {communicators} communicators with the recorder; {collectives} of {expected} collectives told, {timed:.0%} of "
    "them with times of the GPU",
    answers={
        "communicators": "for which NCCL asked the recorder what it wants",
        "expected": "collectives on all GPUs; 0 with one GPU, on which NCCL only copies",
        "collectives": "that NCCL told",
        "timed": "of these with times of the GPU on all channels, as a share",
        "numbered": "whether the sequence numbers of each rank are 0, 1, …",
        "lost": "collectives for which there was no room",
        "astray": "calls about what was no longer known",
    },
)
def cupti_nccl(machine: Machine) -> Findings:
    """Does NCCL tell the recorder of its collectives, and of their times on the GPU?

    PyTorch sums a tensor over all GPUs of the machine by NCCL, which `NCCL_PROFILER_PLUGIN` gives the recorder as its profiler plugin, as
    `ullage run` does. Each collective of each rank must be told once, in its order. With one GPU NCCL runs no collective: then only that it
    found the plugin and began a communicator is measured.
    """
    found = library(machine)
    needs_recorder(machine)
    needs_pytorch(machine)
    findings = Findings(settings(found))
    with tempfile.TemporaryDirectory() as folder:
        variables = (injected(machine, Path(folder), findings.notes) or {}) | {"ULLAGE_NCCL": str(NCCL.index("gpu"))}
        told = apart.told(machine, apart.asked("cupti_nccl_program", environment=variables), LIMIT)
        facts = understood("the program", told, findings)
        if told.problem:
            raise NotMeasured(told.problem)
        if tuple(facts["nccl"][:2]) < FIRST:
            raise NotMeasured(f"NCCL {'.'.join(map(str, facts['nccl']))} has no version 4 of the profiler's interface")
        findings.answers = _answers(_told(recordings(Path(folder))), facts)
    findings.wrong = _wrong(findings.answers)
    return findings


def _told(paths: list[Path]) -> RecordingFacts:
    """Return what the recordings say, as one."""
    told = RecordingFacts()
    for path in paths:
        with path.open("rb") as file:
            for chunk in chunks(file, "the recording"):
                told.add(chunk)
    return told


def _answers(told: RecordingFacts, facts: dict[str, Any]) -> dict[str, Any]:
    said, found = told.info.get("nccl") or {}, nccl_collectives(told, Problems(), "the recording")
    rows = found.rows if isinstance(found, NcclCollectives) else None
    count = 0 if rows is None else len(rows)
    return {
        "communicators": said.get("communicators", 0),
        "expected": facts["rounds"] * facts["gpus"] if facts["gpus"] > 1 else 0,
        "collectives": count,
        "timed": None if rows is None or not count else float(np.mean((rows["gpu_end"] > rows["gpu_start"]) & (rows["ended"] > 0))),
        "numbered": rows is None or all(np.array_equal(mine, np.arange(len(mine))) for mine in _numbers(rows)),
        "lost": said.get("lost", 0),
        "astray": said.get("astray", 0),
    }


def _numbers(rows: Any) -> list[Any]:
    """Return the sequence numbers of each rank."""
    return [rows["sequence"][rows["rank"] == rank] for rank in np.unique(rows["rank"])]


def _wrong(answers: dict[str, Any]) -> list[str]:
    """Return what contradicts what the recorder promises."""
    found = [
        f"{answers[name]:,} {words}"
        for name, words in (("lost", "collectives were lost"), ("astray", "calls went astray"))
        if answers[name]
    ]
    if not answers["communicators"]:
        found.append("NCCL began no communicator with the recorder as its plugin")
    if answers["collectives"] != answers["expected"]:
        found.append(f"{answers['collectives']:,} collectives were told, and {answers['expected']:,} made")
    if answers["expected"] and (answers["timed"] or 0.0) < 1:
        found.append(f"only {answers['timed'] or 0.0:.0%} of the collectives have times of the GPU")
    return found + ([] if answers["numbered"] else ["the collectives are not numbered 0, 1, … on each rank"])
