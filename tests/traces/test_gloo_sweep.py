"""Runs of several ranks whose hosts run collectives by gloo, drawn so that it is known when each computes and when it waits.

A rank computes, starts a collective in one microsecond, goes on computing (in operators, which alone tell) or not, and waits until the
collective ends: on all ranks at once, after the last of them started it. Ranks are recorded from and until different moments.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.seeds import some
from tests.traces.kineto_events import call
from tests.traces.test_kineto_gloo import GLOO, OTHER, POOL, gloo, operator
from ullage import read_trace
from ullage.sums.lanes.run import host_parts

BASE = 1_767_189_312_000_000_000
ABOUT = ("before", "after", "nowhere")  # where a file says which backend its process groups have
STARTERS = ("c10d::allreduce_", "record_param_comms", "")  # how the thread that starts a collective says so; "": not at all


@dataclass
class Rank:
    """One rank as it runs, in microseconds: its events, and in which of them it waits for others or is in the GPU's interface."""

    now: int
    events: list[dict[str, Any]] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    offload: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.begun = self.now

    def compute(self, chance: random.Random, length: int) -> None:
        """Compute in operators: whole, nested in one of ATen's or in autograd's, or in one that is nobody's and encloses nothing."""
        form = chance.choice(("whole", "nested", "within", "fused"))
        name = {"within": "autograd::engine::evaluate_function: AddmmBackward0", "fused": "mylib::fused"}.get(form, "aten::linear")
        self.events.append(operator(self.now, length, name))
        if form == "within":
            self.events.append(operator(self.now, length, "aten::mm"))
        elif form == "nested" and length > 1:
            self.events.append(operator(self.now, length // 2, "aten::addmm"))
        self.now += length

    def launch(self, length: int) -> None:
        """Spend time in a call of the GPU's interface."""
        self.events.append(call(self.now, length, correlation=self.now))
        self.offload.update(range(self.now, self.now + length))
        self.now += length

    def start(self, name: str, pool: int, end: int) -> None:
        """Start a collective that runs on a thread of gloo's until `end`. To note it down is part of communicating."""
        self.events += [operator(self.now, 1, name)] if name else []
        self.waiting.update({self.now} if name == "record_param_comms" else ())
        self.now += 1
        self.events.append(gloo(self.now, end - self.now, tid=pool))

    def wait(self, end: int) -> None:
        """Wait until a moment, if it has not come yet."""
        self.waiting.update(range(self.now, end))
        self.now = max(self.now, end)


def drawn(chance: random.Random, starter: str) -> list[Rank]:
    """Return the ranks of a run."""
    ranks = [Rank(chance.randrange(25)) for _ in range(chance.choice((1, 2, 2, 3, 4)))]
    for rank in ranks:
        rank.compute(chance, 26 - rank.begun + chance.randrange(10))
    for _ in range(chance.randrange(1, 6)):
        begins = []
        for rank in ranks:
            rank.now += chance.randrange(6)  # in Python, of which the file says nothing
            if chance.random() < 0.4:
                rank.launch(chance.randrange(1, 6))
            begins.append(rank.now + 1)
        end = max(begins) + chance.randrange(1, 30)
        for rank in ranks:
            rank.start(starter, POOL + chance.randrange(2) * 100, end)
            if chance.random() < 0.7:
                rank.compute(chance, chance.randrange(1, 40))
            rank.wait(end)
    for rank in ranks:
        rank.compute(chance, 1 + chance.randrange(30))
        if starter and chance.random() < 0.5:  # another thread computes all along, and hides nothing: it starts no collective
            rank.events.append({**operator(rank.begun, rank.now - rank.begun, "aten::mm"), "tid": OTHER})
    return ranks


def written(folder: Path, ranks: list[Rank], about: str, chance: random.Random) -> None:
    """Write a file for each rank; events stand in any order."""
    for number, rank in enumerate(ranks):
        said = {"distributedInfo": {**GLOO, "rank": number, "world_size": len(ranks)}}
        chance.shuffle(rank.events)
        before, after = (said if about == place else {} for place in ("before", "after"))
        text = json.dumps({"baseTimeNanoseconds": BASE, **before, "traceEvents": rank.events, **after})
        (folder / f"rank{number}.json").write_text(text)


@pytest.mark.parametrize("seed", some(range(600), 12))
def test_hosts_that_communicate_by_gloo_come_to_what_was_drawn(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    about = ABOUT[seed % 3]
    starter = chance.choice(STARTERS[::2] if about == "nowhere" else STARTERS)  # notes are gloo's only where the file says so
    ranks = drawn(chance, starter)
    written(tmp_path, ranks, about, chance)
    found = read_trace(tmp_path)
    low, high = max(rank.begun for rank in ranks), min(rank.now for rank in ranks)
    spent = [(len({t for t in rank.offload if low <= t < high}), len({t for t in rank.waiting if low <= t < high})) for rank in ranks]
    expected = [(high - low - offload - waiting, offload, waiting) for offload, waiting in spent]
    run = found.profile.run
    assert run is not None and found.report().whole.elapsed == 1000 * (high - low)
    parts = sorted(host_parts(found.report().run), key=lambda part: part.process.key)
    assert [(p.useful // 1000, p.offload // 1000, p.communication // 1000) for p in parts] == expected
    busy = [useful + offload for useful, offload, _ in expected]
    efficiencies = {
        "host_parallel_efficiency": sum(useful for useful, _, _ in expected) / (len(ranks) * (high - low)),
        "host_communication_efficiency": max(busy) / (high - low),
        "host_load_balance": sum(busy) / (len(busy) * max(busy)),
    }
    told = dict(found.tree("talp").items())  # a factor that the run can't have is not told: it would be 1
    assert {name: told.get(name, 1.0) for name in efficiencies} == pytest.approx(efficiencies, abs=1e-12)
