"""Does a recording of real training hold every kernel, every launch, every region and every range?"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from gpu import apart
from gpu.check import Findings, check
from gpu.cupti_recording import Seen, followed, seen, small
from gpu.cupti_tools import injected, library, needs_pytorch, needs_recorder, recordings, settings
from gpu.cupti_training_program import COUNTED, IN_GRAPH, PHASES, WARM
from gpu.machine import Machine
from ullage.cupti.chunks import ChunkType, chunks
from ullage.cupti.decoding import decode
from ullage.cupti.kinds import ActivityKind
from ullage.cupti.layouts import Layouts, layouts
from ullage.cupti.releases import release

LIMIT = 45.0  # seconds for the program: it needs a few, and importing PyTorch some more
BUFFER = 1 << 16  # bytes of an activity buffer: small ones, so that a few are a fixture
ENOUGH = 0.2  # seconds over which the speed of decoding is measured


@check(
    headline="{kernels} kernels, {without_launch} without their launch, {dropped} records dropped",
    loaded=True,
    answers={
        "operations": "activity records in all",
        "kernels": "kernels recorded",
        "without_launch": "kernels whose launching call is not recorded",
        "without_kernel": "launching calls of which no kernel, copy or graph is recorded",
        "counted": "kernels recorded of those that the program counted, as a share",
        "graph_kernels": "kernels recorded of the graph's, as a share",
        "graph_nodes": "kernels that CUPTI says belong to a graph",
        "regions": "regions recorded",
        "badly_nested": "regions that do not lie in their step",
        "nvtx": "NVTX ranges recorded of those that the program made, as a share",
        "live_kernel_time": "kernel time in `step` by region.tree() while the program ran, s",
        "dropped": "records that CUPTI dropped",
        "unknown": "records whose kind could not be decoded",
        "disagreed": "buffers in which NVIDIA's walker found other records than the decoder (of 64 at most)",
        "decoded": "activity records decoded a second by one core",
    },
    columns={"kind": "of activity record", "records": "how many", "code": "CUPTI's answer when it was asked for (0: yes)"},
)
def cupti_training(machine: Machine) -> Findings:
    """Does a recording of real training hold every kernel, every launch, every region and every range?

    A small network trains in PyTorch under the recorder, in regions and with an NVTX range in each step; then a thousand kernels of a
    kind of their own, and a CUDA graph of ten others, replayed twenty times. Each kernel must have the call that launched it, under the
    same number. NVIDIA's own walker must find the records that the decoder finds. The recording's beginning is kept for tests.
    """
    found = library(machine)
    needs_pytorch(machine)
    needs_recorder(machine)
    findings = Findings({**settings(found), "buffer": BUFFER})
    with tempfile.TemporaryDirectory() as folder:
        variables = injected(machine, Path(folder), findings.notes, ULLAGE_BUFFER=str(BUFFER))
        told = apart.told(machine, apart.asked("cupti_training_program", environment=variables), LIMIT)
        paths = recordings(Path(folder))
        if told.problem or not paths:
            raise RuntimeError(told.problem or "the program made no recording")
        path = max(paths, key=lambda one: one.stat().st_size)
        recorded = seen(path)
        findings.answers = _answers(recorded, told.facts) | _walked(machine, str(found.path), path, findings) | {"decoded": _speed(path)}
        findings.recordings = {
            "cupti_training.ullage.gz": small(path, machine.uuid),
            "cupti_training.txt": f"{followed(path, 'step')}\n\n{followed(path)}".encode(),
        }
    findings.rows = _rows(recorded)
    findings.notes += recorded.stopped[:5]
    findings.wrong = _wrong(findings.answers)
    return findings


def _rows(recorded: Seen) -> list[dict[str, Any]]:
    codes = recorded.info.get("kinds") or {}
    kinds = sorted({*map(int, codes), *recorded.records})
    return [{"kind": _kind(kind), "records": len(recorded.records.get(kind, ())), "code": codes.get(str(kind))} for kind in kinds]


def _kind(number: int) -> str:
    return ActivityKind(number).name.lower() if number in set(ActivityKind) else str(number)


def _answers(recorded: Seen, facts: dict[str, Any]) -> dict[str, Any]:
    """Return what the recording says beside what the program did."""
    kernels, launches = recorded.of(ActivityKind.CONCURRENT_KERNEL), recorded.launches()
    correlated = set(kernels["correlationId"].tolist())
    others = {
        n
        for kind in (ActivityKind.MEMCPY, ActivityKind.MEMSET, ActivityKind.GRAPH_TRACE)
        for n in recorded.of(kind)["correlationId"].tolist()
    }
    return {
        "operations": recorded.operations,
        "kernels": len(kernels),
        "without_launch": len(correlated - launches),
        "without_kernel": len(launches - correlated - others),
        "counted": _named(recorded, COUNTED) / int(facts["counted"]),
        "graph_kernels": _named(recorded, IN_GRAPH) / int(facts["replayed"]),
        "graph_nodes": int((kernels["graphNodeId"] != 0).sum()) if "graphNodeId" in (kernels.dtype.names or ()) else None,
        "regions": len(recorded.regions()),
        "badly_nested": _badly_nested(recorded.regions()),
        "nvtx": _ranges(recorded) / (int(facts["steps"]) + WARM),
        "live_kernel_time": ((facts["tree"].get("device_totals") or {}).get("kernel_time") or 0) / 1e9,
        "dropped": recorded.dropped,
        "unknown": sum(recorded.unknown.values()),
    }


def _named(recorded: Seen, word: str) -> int:
    """Return how many kernels have a word in their name."""
    kernels = recorded.of(ActivityKind.CONCURRENT_KERNEL)
    if "name" not in (kernels.dtype.names or ()):
        return 0
    wanted = [address for address, text in recorded.texts.items() if word in text]
    return int(np.isin(kernels["name"], np.array(wanted, np.uint64)).sum())


def _badly_nested(regions: list[tuple[str, int, int, int]]) -> int:
    """Return how many phases do not lie within a step, one deeper than it.

    >>> _badly_nested([("forward", 1, 2, 4), ("step", 0, 1, 9), ("backward", 1, 8, 11)])
    1
    """
    steps = sorted((start, end, depth) for name, depth, start, end in regions if name == "step")
    phases = [(depth, start, end) for name, depth, start, end in regions if name in PHASES]
    return sum(not any(a <= start and end <= b and depth == d + 1 for a, b, d in steps) for depth, start, end in phases)


def _ranges(recorded: Seen) -> int:
    marks = recorded.of(ActivityKind.MARKER)
    if "name" not in (marks.dtype.names or ()):
        return 0
    wanted = [address for address, text in recorded.texts.items() if text == "nvtx forward"]
    return int(np.isin(marks["name"], np.array(wanted, np.uint64)).sum())


def _walked(machine: Machine, place: str, path: Path, findings: Findings) -> dict[str, Any]:
    """Return in how many buffers NVIDIA's walker found other records; None where it could not be asked."""
    told = apart.told(machine, apart.asked("cupti_walk_program", place, path), LIMIT / 3)
    if told.problem:
        findings.notes.append(f"NVIDIA's walker could not be asked: {told.problem}")
    return {"disagreed": told.facts.get("disagreed")}


def _speed(path: Path) -> float | None:
    """Return how many records are decoded a second."""
    buffers, version = [], None
    with path.open("rb") as file:
        for chunk in chunks(file, "the recording"):
            if chunk.type == ChunkType.INFO:
                version = chunk.json().get("cupti", version)
            elif chunk.type == ChunkType.BUFFER:
                buffers.append(chunk.payload[16:])
    return _rate(buffers, layouts(release(int(version)))) if version and buffers else None


def _rate(buffers: list[bytes], known: Layouts) -> float:
    """Small buffers are laid end to end, as they would lie in a large one."""
    whole, records, begin = b"".join(buffers), 0, time.perf_counter()
    while (took := time.perf_counter() - begin) < ENOUGH or not records:
        records += sum(len(some) for some in decode(whole, known).records.values())
        if not records:
            return 0.0
    return records / took


def _wrong(answers: dict[str, Any]) -> list[str]:
    """Return what contradicts what the recorder promises."""
    found = [f"{answers[name]:,} {words}" for name, words in _NONE.items() if answers[name]]
    found += [f"{answers[name]:.1%} of {words} are recorded" for name, words in _ALL.items() if answers[name] != 1]
    if not answers["live_kernel_time"]:
        found.append("region.tree() saw no kernel while the program ran")
    return found


_NONE = {
    "without_launch": "kernels have no launching call",
    "badly_nested": "regions lie outside their step",
    "unknown": "records could not be decoded",
    "disagreed": "buffers are walked otherwise by NVIDIA's library",
}
_ALL = {"counted": "the counted kernels", "graph_kernels": "the graph's kernels", "nvtx": "the NVTX ranges"}
