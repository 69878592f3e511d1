"""What recordings come to, from their rows alone: one sweep over sorted edges, and TALP's equations (TALP paper, eq. 1 to 12)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.recorder.recording_brute_force import RECORDER, Recording, Span, covered, sweep


@dataclass(frozen=True)
class Sums:
    """What a run or a region comes to, in ns: E; of each device (K, C, M), process (elapsed, U, W, communication)."""

    elapsed: int
    devices: list[tuple[int, int, int]]
    processes: list[tuple[int, int, int, int]]

    def trees(self, mode: str) -> dict[str, float]:
        """Return TALP's efficiencies (TALP paper, eq. 4 to 12); `ai`: collectives apart. Those that are nothing by nothing are left out."""
        n, m, total = len(self.processes), len(self.devices), self.elapsed
        useful, busy = [u for _, u, _, _ in self.processes], [u + w for _, u, w, _ in self.processes]
        kernels = [k + (c if mode == "talp" else 0) for k, c, _ in self.devices]
        both, active = [k + c for k, c, _ in self.devices], [k + c + m for k, c, m in self.devices]
        pairs = {
            "host_parallel_efficiency": (sum(useful), n * total),
            "mpi_parallel_efficiency": (sum(busy), n * total),
            "host_load_balance": (sum(busy), n * max(busy, default=0)),
            "host_communication_efficiency": (max(busy, default=0), total),
            "device_offload_efficiency": (sum(useful), sum(busy)),
            "device_parallel_efficiency": (sum(kernels), m * total),
            "device_load_balance": (sum(kernels), m * max(kernels, default=0)),
            "device_communication_efficiency": (max(kernels, default=0), max(active, default=0)),
            "orchestration_efficiency": (max(active, default=0), total),
            "collective_efficiency": (max(kernels, default=0), max(both, default=0)),
            "copy_efficiency": (max(both, default=0), max(active, default=0)),
        }
        return {name: part / whole for name, (part, whole) in pairs.items() if whole}


def worked_out(recordings: list[Recording], region: str | None = None) -> Sums | None:
    """Return the sums of a run, or of a region of it (each process' union of its occurrences); None where nobody is ever in it."""
    looked = {r.path: _looked_at(r, region) for r in recordings}
    looked = {path: spans for path, spans in looked.items() if covered(spans)}
    if not looked:
        return None
    lanes = [_lane(r, looked[r.path]) for r in recordings if r.path in looked]
    counted = {r.path for r in recordings if (w := r.window) and w[0] < w[1]}
    used: dict[str, list[Recording]] = {}
    for one in recordings:
        for number in sorted({r.device for r in one.rows if r.device is not None}):
            used.setdefault(_gpu(one, number), []).append(one)
    devices, elapsed = [], max(lane[0] for lane in lanes)
    for gpu, users in used.items():
        owners = [one for one in users if one.path in counted]
        seen = [span for one in owners for span in looked.get(one.path, [])]
        if covered(seen):
            devices.append(_device(gpu, owners, seen))
            elapsed = max(elapsed, covered(seen) if len(owners) > 1 else 0)
    return Sums(elapsed, sorted(devices), sorted(lanes))


def regions(recordings: list[Recording]) -> set[str]:
    return {r.name or "(unnamed)" for one in recordings for r in one.rows if r.kind == "region"}


def _gpu(one: Recording, number: int) -> str:
    return one.uuids.get(number, f"{one.path} {number}").replace("-", "").lower()


def _looked_at(one: Recording, region: str | None) -> list[Span]:
    window = one.window
    if window is None:
        return []
    named = [window] if region is None else [(r.start, r.end) for r in one.rows if r.kind == "region" and (r.name or "(unnamed)") == region]
    return [(max(a, window[0]), min(b, window[1])) for a, b in named if max(a, window[0]) < min(b, window[1])]


def _lane(one: Recording, seen: list[Span]) -> tuple[int, int, int, int]:
    spans = [(a, b, "seen") for a, b in seen] + [(r.start, r.end, "call") for r in one.calls]
    lanes = {one.info.get("pid", 0)} | {r.thread for r in one.rows if r.kind == "mpi"}
    spans += [(r.start, r.end, "held") for r in one.rows if r.kind == "overhead" and r.name == RECORDER and r.thread in lanes]
    found = sweep([*spans, *((r.start, r.end, "talk") for r in one.rows if r.kind == "mpi")])
    times: Counter[str] = Counter()
    for words, length in found.items():
        if "seen" in words:
            times[next((word for word in ("talk", "held", "call") if word in words), "useful")] += length
    return sum(times.values()), times["useful"], times["call"], times["talk"]


def threads(one: Recording, region: str | None = None) -> tuple[int, ...]:
    """Return a process' times with its threads of OpenMP, in a region or in all: elapsed, useful, offload, communication, how many threads,
    and what they lose by uneven work, by its handing out, and while nothing is parallel. Waits while the process communicates are that."""
    seen = _looked_at(one, region)
    common = [(a, b, "seen") for a, b in seen] + [(r.start, r.end, "talk") for r in one.rows if r.kind == "mpi"]
    lanes = {one.info.get("pid", 0)} | {r.thread for r in one.rows if r.kind == "mpi"}
    held = [(r.start, r.end, "held") for r in one.rows if r.kind == "overhead" and r.name == RECORDER and r.thread in lanes]
    main = [*held, *((r.start, r.end, "call") for r in one.calls)]
    waits = [r for r in one.rows if r.kind == "parallel"]
    numbers = sorted({0} | {r.thread for r in waits if r.thread is not None})
    times: Counter[str] = Counter()
    for number in numbers:
        mine = [(r.start, r.end, _why(r.name or "")) for r in waits if r.thread == number]
        for words, length in sweep([*common, *mine, *(main if number == 0 else [])]).items():
            if "seen" in words:
                times[_state(words, main=number == 0)] += length
    said = ("useful", "call", "talk"), ("imbalance", "scheduling", "serialisation")
    return covered(seen), *(times[word] for word in said[0]), len(numbers), *(times[word] for word in said[1])


def _why(name: str) -> str:
    return {"OpenMP idle": "serialisation", "OpenMP thread not created": "serialisation", "OpenMP fork and join": "scheduling"}.get(
        name, "imbalance"
    )


def _state(words: frozenset[str], *, main: bool) -> str:
    why = next((word for word in ("serialisation", "scheduling", "imbalance") if word in words), "")
    if main:
        return next((word for word in ("talk", "held", "call") if word in words), why or "useful")
    return "talk" if why and "talk" in words else why or "useful"


def _device(gpu: str, owners: list[Recording], seen: list[Span]) -> tuple[int, int, int]:
    states = {"kernel": "K", "graph": "K", "collective": "C", "memcpy": "M", "memset": "M"}
    rows = [r for one in owners for r in one.rows if r.device is not None and _gpu(one, r.device) == gpu and r.kind in states]
    found = sweep([(a, b, "seen") for a, b in seen] + [(r.start, r.end, states[r.kind]) for r in rows])
    times: Counter[str] = Counter()
    for words, length in found.items():
        if "seen" in words:
            times[next((state for state in "KCM" if state in words), "idle")] += length
    return times["K"], times["C"], times["M"]
