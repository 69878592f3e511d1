"""Gradients count for the module whose forward pass they are of, held against the arrows that PyTorch itself draws between the two."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.traces.kineto_events import call, kernel, on_host, written
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.traced import read_trace
from ullage.traces.kineto import kineto
from ullage.traces.kineto.gradients import gradients
from ullage.traces.trace import TraceOptions, recognised

Event = dict[str, Any]


def in_time(event: Event) -> int:
    return round(event["ts"] * 1000)


def arrows(events: list[Event]) -> dict[tuple[int, int], tuple[int, int]]:
    """Thread and start of each operator of the backward pass that PyTorch points at, with those of the forward pass."""
    ends: dict[Any, dict[str, tuple[int, int]]] = defaultdict(dict)
    for event in events:
        if event.get("cat") == "fwdbwd":
            ends[event["id"]][event["ph"]] = event["tid"], in_time(event)
    return {both["f"]: both["s"] for both in ends.values() if len(both) == 2}


def links(path: Path) -> dict[tuple[int, int], tuple[int, int]]:
    """The same as they were found by their numbers."""
    _, file = recognised(path)
    columns, _ = kineto._read(file, Recording("a.json"), TraceOptions(), Problems())
    found = {part.kind: part for part in gradients(columns.sequenced)}
    if not found:
        return {}
    places = {
        kind: list(zip(part.numbers["thread"].tolist(), part.start.tolist(), part.numbers["sequence"].tolist(), strict=True))
        for kind, part in found.items()
    }
    ahead = {number: (thread, start) for thread, start, number in places["forward"]}
    return {(thread, start): ahead[number] for thread, start, number in places["backward"]}


@pytest.mark.parametrize("name", ["hta_a100_rank0of2_nccl_data", pytest.param("hta_mtia_rank0", marks=pytest.mark.full)])
def test_the_links_of_real_profiles_are_those_that_pytorch_drew(shared_data: Path, name: str) -> None:
    path = shared_data / "kineto" / f"{name}.json.gz"
    drawn, found = arrows(json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]), links(path)
    assert drawn and {at: found.get(at) for at in drawn} == drawn


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step of two blocks, one of them computed again in the backward pass, as PyTorch profiles it on a CPU."""
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import checkpoint

    class Block(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)

        def forward(self, given: Any) -> Any:
            return self.down(torch.relu(self.up(given)))

    class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Block(), Block()

        def forward(self, given: Any) -> Any:
            return checkpoint(self.second, self.first(given), use_reentrant=False)

    net, given = Net(), torch.randn(3, 4)
    net(given).sum().backward()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True) as found:
        with torch.profiler.record_function("ahead"):
            lost = net(given).sum()
        with torch.profiler.record_function("behind"):
            lost.backward()
    path = tmp_path_factory.mktemp("gradients") / "step.json"
    found.export_chrome_trace(str(path))
    return path


@pytest.mark.full
def test_the_links_of_a_step_are_those_that_pytorch_drew(profiled: Path) -> None:
    drawn, found = arrows(json.loads(profiled.read_text(), parse_float=Decimal)["traceEvents"]), links(profiled)
    assert len(drawn) > 5 and {at: found.get(at) for at in drawn} == drawn


def launched(events: list[Event], chance: random.Random) -> tuple[list[Event], Counter[str], Counter[str]]:
    """Kernels that some operators launch, and by the slow way their time by module, and the part that is of gradients."""
    timed = [e for e in events if e.get("ph") == "X" and e.get("dur", 0) > 0]
    operators = [e for e in timed if e["cat"] == "cpu_op"]
    ranges = [e for e in timed if e["cat"] == "user_annotation" or e["name"].startswith("nn.Module: ")]
    drawn, rows = arrows(events), []
    whole, behind = Counter[str](), Counter[str]()
    begin = max(in_time(e) + round(1000 * e["dur"]) for e in timed) / 1000 + 10
    for number, event in enumerate(chance.sample(operators, min(30, len(operators))), 1):
        at, length = event["ts"] + event["dur"] / 2, chance.randrange(1, 50)
        rows.append(call(at, 0.001, correlation=number) | {"pid": event["pid"], "tid": event["tid"]})
        rows.append(kernel(begin + 100 * number, length, correlation=number))

        def around(moment: float, thread: int, among: list[Event]) -> list[Event]:
            inside = [e for e in among if e["tid"] == thread and e["ts"] <= moment < e["ts"] + e["dur"]]
            return sorted(inside, key=lambda e: (e["ts"], -e["dur"]))

        where = around(at, event["tid"], ranges)
        ends = [end for one in around(at, event["tid"], operators) if (end := pointed_at(one, operators, drawn)) is not None]
        if ends:
            thread, ahead = ends[-1]
            before = around(ahead / 1000 + 0.0004, thread, ranges)
            if any(e["name"].startswith("nn.Module: ") for e in before):
                where = before
        path = "/".join(plain(e["name"]) for e in where)
        if path:
            whole[path] += 1000 * length
            behind[path] += 1000 * length if ends else 0
    return rows, whole, behind


def pointed_at(event: Event, operators: list[Event], drawn: dict[tuple[int, int], tuple[int, int]]) -> tuple[int, int] | None:
    """Where PyTorch's arrow to an operator comes from; the engine's own operator has that of the first within it."""
    within = [event]
    if event["name"].startswith("autograd::engine::evaluate_function"):
        end = event["ts"] + event["dur"]
        within += [o for o in operators if o["tid"] == event["tid"] and event["ts"] <= o["ts"] and o["ts"] + o["dur"] <= end]
    found = sorted((o["ts"], drawn[o["tid"], in_time(o)]) for o in within if (o["tid"], in_time(o)) in drawn)
    return found[0][1] if found else None


def plain(name: str) -> str:
    return name.removeprefix("nn.Module: ").rsplit("_", 1)[0] if name.startswith("nn.Module: ") else name


@pytest.mark.full  # importing PyTorch takes seconds
@pytest.mark.parametrize("seed", range(100))
def test_kernels_of_gradients_count_for_the_module_of_their_forward_pass(profiled: Path, tmp_path: Path, seed: int) -> None:
    data = json.loads(profiled.read_text())
    rows, whole, behind = launched(data["traceEvents"], random.Random(seed))
    data["traceEvents"] += rows
    path = tmp_path / "step.json"
    path.write_text(json.dumps(data))
    report = read_trace(path).report()
    assert report.code is not None
    found = report.code.device.levels["annotation"].rows
    assert {row.name: row.time for row in found} == dict(whole)
    assert {row.name: row.backward for row in found} == {name: behind[name] for name in whole}


def operator(ts: float, dur: float, name: str, sequence: int, forward: int, tid: int = 12) -> Event:
    return on_host(ts, dur, name, "cpu_op", **{"Sequence number": sequence, "Fwd thread id": forward}) | {"tid": tid}


def module(ts: float, dur: float, name: str, tid: int = 12) -> Event:
    return on_host(ts, dur, f"nn.Module: {name}", "python_function") | {"tid": tid}


def step(*more: Event, back: int = 13) -> list[Event]:
    """Two layers ahead on thread 12, each a kernel of 3 µs; behind on `back` a kernel of 5 µs for the first, of 7 for the second."""
    events = [on_host(0, 40, "ahead"), on_host(50, 50, "behind"), module(1, 10, "Up_0"), module(20, 10, "Down_0")]
    events += [operator(2, 5, "aten::mm", 1, 0), operator(22, 5, "aten::mm", 2, 0)]
    events += [operator(52, 10, "MmBackward0", 2, 1, back), operator(72, 10, "MmBackward0", 1, 1, back)]
    for number, (at, thread, length) in enumerate(((3, 12, 3), (23, 12, 3), (53, back, 7), (73, back, 5)), 1):
        events += [call(at, 1, correlation=number) | {"tid": thread}, kernel(at + 2, length, correlation=number)]
    return [*events, *more]


def by_module(path: Path) -> dict[str, tuple[int, int]]:
    code = read_trace(path).report().code
    assert code is not None
    return {row.name: (row.time, row.backward) for row in code.device.levels["annotation"].rows}


def test_time_of_gradients_stands_beside_that_of_the_forward_pass(tmp_path: Path) -> None:
    path = written(tmp_path, *step())
    assert by_module(path) == {"ahead/Up": (8_000, 5_000), "ahead/Down": (10_000, 7_000)}
    said = str(read_trace(path).report())
    (row,) = [line.split() for line in said.splitlines() if line.startswith("ahead/Down") and "55" in line]
    assert row[1:] == ["2", "10.00", "µs", "55.6", "%", "7.000", "µs", "7.000", "µs"]


def test_ranges_without_modules_keep_their_own_kernels(tmp_path: Path) -> None:
    # nobody says that a range is a layer: it may as well be the forward pass
    path = written(tmp_path, *(e for e in step() if not e["name"].startswith("nn.Module")))
    assert by_module(path) == {"ahead": (6_000, 0), "behind": (12_000, 0)}


def test_numbers_that_two_threads_of_the_forward_pass_bear_are_not_guessed(tmp_path: Path) -> None:
    # thread 20 counts from 1 too, and nobody says which of the two is thread 1 of the backward pass
    path = written(tmp_path, *step(operator(3, 3, "aten::add", 1, 0, 20), operator(7, 3, "aten::add", 2, 0, 20)))
    assert by_module(path) == {"ahead/Up": (3_000, 0), "ahead/Down": (3_000, 0), "behind": (12_000, 0)}
