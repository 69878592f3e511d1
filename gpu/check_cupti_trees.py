"""Do the trees of recorded programs say what the programs did, by the closed form and by PyTorch's profiler?"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu import apart
from gpu.check import Findings, check
from gpu.cupti_loads import LOADS, REGION, Load, known_device, known_host
from gpu.cupti_recording import efficiencies, followed, seen, small, totals
from gpu.cupti_tools import has_pytorch, injected, library, needs_recorder, recordings, settings
from gpu.machine import Machine
from ullage.cupti.kinds import ActivityKind

ALONE, SHARED = 0.02, 0.08  # how far an efficiency may be off: a GPU changes between two processes every few milliseconds
LONGER = 0.02  # of a kernel's time, what its begin and its end may add to what it was told
LIMIT = 25.0  # seconds for one program: it needs a second, and the GPU's waking several
KEPT = "7"  # whose recording becomes a fixture
BY_KINETO = ("7", "1 alone")


@check(
    headline="efficiencies are within {worst_alone:.4f} alone, {worst_shared:.4f} shared; kernel time is off by {kernel_error:.2%}",
    answers={
        "worst_alone": "largest difference of an efficiency from the closed form, a process alone on the GPU",
        "worst_shared": "the same of two processes on one GPU",
        "worst_followed": "largest difference between the trees of a running program and those of its recording",
        "kernel_error": "farthest that the time of kernels lies from what they were told, as a share of it",
        "kineto_difference": "largest difference of kernel time from PyTorch's profiler, as a share (–: no PyTorch)",
        "dropped": "activity records that CUPTI dropped",
    },
    columns={
        "case": "use case of the TALP paper",
        "processes": "on the one GPU",
        "devices": "that the recordings tell of",
        "elapsed": "of the region, s",
        "kernel": "time in kernels, s",
        "kernel_known": "told to them, s",
        "kernels": "recorded",
        "launched": "by the program",
        "offload": "of the hosts in calls of CUDA, s",
        "offload_known": "by their own clock, s",
        "worst": "largest difference of an efficiency",
        "which": "the efficiency that is off most",
        "parallel_efficiency": "of the device",
        "host_parallel_efficiency": "of the hosts",
    },
)
def cupti_trees(machine: Machine) -> Findings:
    """Do the trees of recorded programs say what the programs did, by the closed form and by PyTorch's profiler?

    The use cases of the TALP paper, as far as one GPU allows, from a kernel that looks at the GPU's clock until its time is over:
    host and device in turn and at once, much of either, copies, and two processes with a barrier between them. Each runs under the
    recorder; efficiencies from its recording are held against those from what the program was told and its own clock. The time that
    CUPTI gives for copies is taken as it is. The recording of the first case is kept without names, as are all trees.
    """
    findings = Findings({**settings(library(machine)), "tolerance_alone": ALONE, "tolerance_shared": SHARED})
    needs_recorder(machine)
    shown = []
    for name, load in LOADS.items():
        if machine.room is not None and not machine.room.left:
            findings.notes.append(f"there was no time for use case {name}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            shown += _case(machine, name, load, Path(folder), findings)
    findings.recordings["cupti_trees.txt"] = "\n\n".join(shown).encode()
    if not findings.rows:
        raise RuntimeError("; ".join(findings.notes) or "no program was recorded")
    differences = [_kineto(machine, name, findings) for name in BY_KINETO if machine.room is None or machine.room.left]
    findings.answers |= _answers(findings.rows, [one for one in differences if one is not None])
    findings.wrong += _wrong(findings.rows, findings.answers)
    return findings


def _case(machine: Machine, name: str, load: Load, folder: Path, findings: Findings) -> list[str]:
    """Record one use case, add its row, and return its trees as text; a program that fails is noted."""
    told, paths = _recorded(machine, load, folder, findings)
    if any(one.code is None for one in told):  # the next would hang, too, and there is other work to do
        raise RuntimeError(f"use case {name} hangs: {told[0].problem}")
    problems = [one.problem for one in told if one.problem] or (["no recording"] if len(paths) < len(load.works) else [])
    if problems:
        findings.wrong.append(f"use case {name} could not be recorded: {problems[0]}")
        return []
    findings.rows.append(_row(name, load, [one.facts for one in told], paths, findings))
    if name == KEPT:
        findings.recordings["cupti_trees.ullage.gz"] = small(paths[0], machine.uuid)
    return [f"{name}: {load.title}\n\n{followed(path, REGION)}" for path in paths]


def _recorded(machine: Machine, load: Load, folder: Path, findings: Findings) -> tuple[list[apart.Told], list[Path]]:
    """Run the processes of a use case under the recorder; return what they told and their recordings."""
    ranks, meeting = len(load.works), folder / "meeting"
    meeting.write_bytes(bytes(8 * ranks))
    notes: list[str] = []
    variables = injected(machine, folder, notes)
    findings.notes += [note for note in notes if note not in findings.notes]
    programs = []
    for rank, work in enumerate(load.works):
        words = (work.words, load.rounds, load.overlapped, rank, ranks, meeting, "")
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)} if ranks > 1 else {}
        programs.append(apart.asked("cupti_load_program", *words, environment={**variables, **place}))
    return apart.together(machine, programs, LIMIT), recordings(folder)


def _row(name: str, load: Load, told: Sequence[dict[str, Any]], paths: Sequence[Path], findings: Findings) -> dict[str, Any]:
    """Return what the recordings say of the region beside what is known."""
    recorded = [seen(path) for path in paths]
    findings.answers["dropped"] = int(findings.answers.get("dropped") or 0) + sum(one.dropped for one in recorded)
    host, device = totals(paths, REGION)
    known = known_host(told)
    expected = efficiencies(known, known_device(load, known.elapsed, device.memory_time if device else 0))
    found = efficiencies(host, device)
    apart_by = {metric: abs(found[metric] - value) if metric in found else 1.0 for metric, value in expected.items()}
    which = max(apart_by, key=lambda metric: apart_by[metric])
    if len(paths) == 1:
        _compare_followed(paths[0], found, findings)
    return {
        "case": name,
        "processes": len(paths),
        "devices": device.devices if device else 0,
        "elapsed": host.elapsed / 1e9 if host else None,
        "kernel": device.kernel_time / 1e9 if device else None,
        "kernel_known": load.rounds * max(work.kernel for work in load.works) / 1e3,
        "kernels": sum(len(one.of(ActivityKind.CONCURRENT_KERNEL)) for one in recorded),
        "launched": sum(one["kernels"] for one in told),
        "offload": host.offload_time / 1e9 if host else None,
        "offload_known": known.offload_time / 1e9,
        "worst": apart_by[which],
        "which": which,
        "parallel_efficiency": found.get("device_parallel_efficiency"),
        "host_parallel_efficiency": found.get("host_parallel_efficiency"),
    }


def _compare_followed(path: Path, found: dict[str, float], findings: Findings) -> None:
    """Keep the largest difference between the two ways to the trees."""
    live = dict(followed(path, REGION).items())
    apart_by = max((abs(value - found[metric]) for metric, value in live.items() if value is not None and metric in found), default=1.0)
    findings.answers["worst_followed"] = max(apart_by, float(findings.answers.get("worst_followed") or 0.0))


def _kineto(machine: Machine, name: str, findings: Findings) -> float | None:
    """Return how far kernel time by PyTorch's profiler is from the recording's, as a share; in a run of its own, without the recorder."""
    row = next((row for row in findings.rows if row["case"] == name), None)
    if not has_pytorch(machine) or row is None or not row["kernel"]:
        return None
    load = LOADS[name]
    words = (load.works[0].words, load.rounds, load.overlapped, 0, 1, "", "kineto")
    told = apart.told(machine, apart.asked("cupti_load_program", *words), LIMIT)
    if told.problem or not told.facts.get("kineto_time"):
        findings.notes.append(f"PyTorch's profiler did not record use case {name}: {told.problem or 'it saw no kernel'}")
        return None
    warm = 1e5  # ns of the first kernel, which lies before the region
    return abs((float(told.facts["kineto_time"]) - warm) / 1e9 / float(row["kernel"]) - 1)


def _answers(rows: list[dict[str, Any]], kineto: list[float]) -> dict[str, Any]:
    alone, shared = ([row for row in rows if (row["processes"] > 1) is which] for which in (False, True))
    return {
        "worst_alone": max((row["worst"] for row in alone), default=None),
        "worst_shared": max((row["worst"] for row in shared), default=None),
        "kernel_error": max((abs(row["kernel"] / row["kernel_known"] - 1) for row in alone if row["kernel"]), default=None),
        "kineto_difference": max(kineto, default=None),
    }


def _wrong(rows: list[dict[str, Any]], answers: dict[str, Any]) -> list[str]:
    wrong = []
    for row in rows:
        if row["worst"] > (SHARED if row["processes"] > 1 else ALONE):
            wrong.append(f"{row['which']} of use case {row['case']} is {row['worst']:.3f} off the closed form")
        if row["devices"] != 1:
            wrong.append(f"the recordings of use case {row['case']} tell of {row['devices']} devices, and it ran on one")
        if row["kernels"] != row["launched"]:
            wrong.append(f"{row['kernels']} kernels of use case {row['case']} were recorded, and {row['launched']} launched")
    if (answers["kernel_error"] or 0) > LONGER:
        wrong.append(f"kernel time is {answers['kernel_error']:.1%} off what the kernels were told")
    if (answers["kineto_difference"] or 0) > LONGER:
        wrong.append(f"kernel time is {answers['kineto_difference']:.1%} off that of PyTorch's profiler")
    if (answers["worst_followed"] or 0) > ALONE:
        wrong.append(f"the trees of a running program are {answers['worst_followed']:.3f} off those of its recording")
    return wrong
