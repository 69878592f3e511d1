"""Several processes in one file: whose the work on devices is, where each numbers its calls from 1."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.seeds import some
from tests.traces.trace_command import ask
from ullage import read_trace
from ullage.recording import Recording
from ullage.simulate.traces import kineto
from ullage.simulate.traces.training import TrainingPlan, training
from ullage.sums.lanes.gather import NOT_KNOWN, Capture, gather
from ullage.sums.lanes.owners import find_owners
from ullage.tables import intervals

SEEDS = some(range(1200), 30)


def drawn(seed: int) -> tuple[list[dict[str, Any]], list[int]]:
    """Rows of up to four processes that number their calls from 1, and whose each device row truly is.

    They do about the same, shifted against each other; each on a device of its own, some on a neighbour's as well.
    """
    chance = random.Random(seed)
    rows, truth = [], []
    for process in range(1, chance.choice((2, 3, 4)) + 1):
        now, unrecorded = chance.randrange(60), chance.choice((0, 0, 1, 4))
        devices = [process, process, process, 1] if chance.random() < 0.3 else [process]
        for number in range(1, chance.randrange(3, 30)):
            now += chance.randrange(1, 9)
            sort = chance.choice(("launch", "launch", "copy", "sync"))
            call = {"start": now, "end": now + 2, "kind": "api", "call": sort, "process": process, "thread": 1, "correlation": number}
            rows += [call] if number > unrecorded else []  # a profiler that began late
            if sort != "sync" and chance.random() < 0.9:
                begin = now + chance.randrange(20)
                kind = "memcpy" if sort == "copy" else chance.choice(("kernel", "collective"))
                rows.append({"start": begin, "end": begin + 3, "kind": kind, "device": chance.choice(devices), "correlation": number})
                truth.append(process)
    return rows, truth


def owned(rows: list[dict[str, Any]]) -> tuple[Capture, tuple[str, ...]]:
    names = {name: [row.get(name) for row in rows] for name in intervals({"start": [], "end": [], "kind": []}).schema.names}
    capture = gather([intervals(names)], Recording("merged.json"))
    return capture, find_owners(capture)


def launched(rows: list[dict[str, Any]], work: dict[str, Any]) -> set[int]:
    """Of whom a call with a row's number, of its sort, had begun by then."""
    sort = "copy" if work["kind"] == "memcpy" else "launch"
    return {
        row["process"]
        for row in rows
        if row["kind"] == "api" and row["correlation"] == work["correlation"] and row["call"] == sort and row["start"] <= work["start"]
    }


def bearers(rows: list[dict[str, Any]], work: dict[str, Any]) -> set[int]:
    return {r["process"] for r in rows if r["kind"] == "api" and r["correlation"] == work["correlation"]}


def early(rows: list[dict[str, Any]], work: dict[str, Any]) -> set[int]:
    """Whose it can be of a call that was not recorded: below all recorded numbers, and before the first sure work of recorded calls."""
    found = set()
    for process in {r["process"] for r in rows if r["kind"] == "api"}:
        calls = [r for r in rows if r["kind"] == "api" and r["process"] == process]
        here = [r for r in rows if r.get("device") == work["device"] and bearers(rows, r) == launched(rows, r) == {process}]
        first = min(r["start"] for r in here or calls)
        if work["correlation"] < min(r["correlation"] for r in calls) and work["start"] <= first:
            found.add(process)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_work_is_whose_alone_it_can_be_and_nobodys_where_several_can(seed: int) -> None:
    rows, truth = drawn(seed)
    capture, notes = owned(rows)
    work = [row for row in rows if row["kind"] != "api"]
    fit = [launched(rows, row) for row in work]
    alone = [one if len(one := bearers(rows, row)) == 1 else set[int]() for row in work]
    can = [one | early(rows, row) or only for one, row, only in zip(fit, work, alone, strict=True)]
    expected = [next(iter(one)) if len(one) == 1 else NOT_KNOWN for one in can]
    for device in {row["device"] for row in work}:
        here = [n for n, row in enumerate(work) if row["device"] == device and can[n]]
        for sets in (fit, can):
            able = set.intersection(*(sets[n] for n in here)) if here else set()
            if len(able) == 1:  # one alone can have put there all that ran on this device
                for n in here:
                    expected[n] = next(iter(able))
                break
        users = {expected[n] for n, row in enumerate(work) if row["device"] == device} - {NOT_KNOWN}
        for n, row in enumerate(work):
            if row["device"] == device and expected[n] == NOT_KNOWN and len(users) == 1:
                expected[n] = next(iter(users))  # one alone is known to use this device
    callers = {row["process"] for row in rows if row["kind"] == "api"}
    assert capture.device.process.tolist() == (expected if len(callers) > 1 else [*callers] * len(work))
    assert any("can't be told" in note for note in notes) or not any(can[n] and p == NOT_KNOWN for n, p in enumerate(expected))
    assert len(truth) == len(work)


def merged(folder: Path, ranks: int) -> Path:
    """The ranks of a training run in one file, as scripts merge them: all events in one list."""
    whole: dict[str, Any] = {}
    for rank, path in enumerate(kineto.write(training(TrainingPlan(ranks=ranks, steps=2, host_bound=True)), folder / "ranks")):
        one = json.loads(path.read_text())
        started = min(e["ts"] for e in one["traceEvents"] if e.get("ph") == "X") + 60 * rank  # us: profilers begin one after another
        one["traceEvents"] = [e for e in one["traceEvents"] if e.get("ph") == "X" and e["ts"] >= started]
        path.write_text(json.dumps(one))
        events = whole.get("traceEvents", []) + one["traceEvents"]
        whole = one | {"traceEvents": events}
    path = folder / "merged.json"
    path.write_text(json.dumps(whole))
    return path


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_merged_into_one_file_come_to_what_their_own_files_come_to(ranks: int, tmp_path: Path) -> None:
    path = merged(tmp_path, ranks)
    one, several = read_trace(str(path)).report("talp"), read_trace(str(tmp_path / "ranks")).report("talp")
    for found, expected in ((one.whole.host, several.whole.host), (one.whole.device, several.whole.device)):
        assert found is not None and expected is not None
        assert {n.metric: n.value for _, n in found.walk()} == {n.metric: n.value for _, n in expected.walk()}
    assert [(p.useful, p.offload) for p in one.whole.host_parts] == [(p.useful, p.offload) for p in several.whole.host_parts]
    assert any(note.startswith("processes number their calls alike: whose") for note in one.notes)
    assert all(len(part.device.owners) == 1 for part in one.whole.device_parts)  # by number alone, all devices were several ranks'
    assert len({p.process.label for p in one.whole.host_parts}) == ranks


def test_work_of_nobody_outside_both_lifetimes_is_not_lost(tmp_path: Path) -> None:
    # two processes call the GPU for 1,020 us; a kernel on GPU 2, whose launch was not recorded, runs from 10,020 to 50,020 us
    def row(cat: str, name: str, pid: int, ts: int, dur: int, **args: object) -> dict[str, Any]:
        return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": pid, "ts": ts, "dur": dur, "args": args}

    events = [row("cuda_runtime", "cudaLaunchKernel", pid, ts, 20, correlation=pid * 10 + n)
              for pid in (11, 12) for n, ts in enumerate((0, 1000))]  # fmt: skip
    events += [row("kernel", "gemm", 0, 30, 100, device=pid - 11, stream=7, correlation=pid * 10) for pid in (11, 12)]
    events.append(row("kernel", "early", 2, 10_020, 40_000, device=2, stream=7, correlation=9999))
    path = tmp_path / "unmatched.json"
    path.write_text(json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": 10**18, "traceEvents": events}))
    data = ask(path, "--json").json
    assert [round(1e9 * device["kernel_s"]) for device in data["devices"]] == [100_000, 100_000, 40_000_000]
    assert data["elapsed_ns"] == data["window"]["end_ns"] - data["window"]["start_ns"] == 50_020_000
