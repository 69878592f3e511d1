"""A training job with pipeline stages and replicas, as the operations of its ranks: what each did in every step, and who was slow.

One forward, one backward (1F1B), one chunk of layers a stage. Times come from walking through each replica's passes in their order, ready
pass by ready pass, in whole nanoseconds: never from the code under test.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from ullage.checked_parquet import write_table

Lengths = Literal["equal", "steps", "microbatches"]
FORWARD, TRANSFER, GATHER, NORMS, EMBEDDING, REDUCE, CLIP, OPTIMIZER = (ms * 1_000_000 for ms in (60, 1, 20, 2, 8, 50, 5, 30))  # ns
SPREAD = 3.0  # how many times as long the longest sequence is as the shortest


@dataclass(frozen=True)
class PipelinePlan:
    """What the job does. Rank r is in replica r // stages, stage r % stages; `straggler` takes `slowdown` times as long for its passes, as
    does the last stage with `long_stage`. Sequences are of equal length, or each step has its own (`steps`), or each microbatch."""

    replicas: int = 2
    stages: int = 4
    microbatches: int = 8
    steps: int = 4
    straggler: int | None = None
    long_stage: bool = False
    slowdown: float = 2.0
    lengths: Lengths = "equal"
    noise: float = 0.02
    seed: int = 0


def write(plan: PipelinePlan, path: Path) -> Path:
    """Write the job's operations as Parquet, in the columns that `ullage.traces.operations` reads, and return where they are."""
    rows = list(operations(plan))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    seconds = {name: [ns / 1e9 for ns in columns[name]] for name in ("start_ts", "duration")}
    write_table(pa.table({**columns, **seconds}), path)
    return path


def operations(plan: PipelinePlan) -> Iterator[dict[str, Any]]:
    """Yield an operation a row; `start_ts` and `duration` are whole ns, each step from 0."""
    chance = random.Random(plan.seed)
    for step in range(plan.steps):
        of_step = chance.uniform(1, SPREAD) if plan.lengths == "steps" else 1.0
        replicas = [_Replica(plan, step, number, of_step, chance) for number in range(plan.replicas)]
        for replica in replicas:
            replica.pass_all()
        _end_step(plan, replicas)
        for replica in replicas:
            yield from replica.rows


class _Replica:
    """One replica in one step: its passes, and when each stage is free."""

    def __init__(self, plan: PipelinePlan, step: int, number: int, length: float, chance: random.Random) -> None:
        self.plan, self.step, self.number, self.chance = plan, step, number, chance
        each = plan.lengths == "microbatches"
        self.lengths = [length * (chance.uniform(1, SPREAD) if each else 1.0) for _ in range(plan.microbatches)]
        self.rows: list[dict[str, Any]] = []
        self.free = [0] * plan.stages
        self.ends: dict[tuple[str, int, int], int] = {}
        self.lines: dict[tuple[str, int], int] = {}

    def add(self, stage: int, word: str, start: int, end: int, number: int = 0, **where: int) -> int:
        """Write down an operation and return its end."""
        rank = self.number * self.plan.stages + stage
        place = {"dp_rank": self.number, "stage": stage, "rank": rank, "step": self.step, "optype": word}
        known = {"seq_id": number, "mc": where.get("mc", -1), "mb_id": where.get("mb_id", -1), "gmc": where.get("gmc", -1)}
        self.rows.append({**place, "start_ts": start, "duration": end - start, **known})
        return end

    def order(self, stage: int) -> list[tuple[str, int]]:
        """Return a stage's passes in the order of 1F1B: some forward, then one of each, then the rest backward."""
        many = self.plan.microbatches
        ahead = min(self.plan.stages - stage - 1, many)
        steady = [(word, k) for k in range(many - ahead) for word, k in (("forward", k + ahead), ("backward", k))]
        return [*(("forward", k) for k in range(ahead)), *steady, *(("backward", k) for k in range(many - ahead, many))]

    def pass_all(self) -> None:
        """Go through all passes; a stage goes on as soon as the pass that it waits for is over."""
        todo = [self.order(stage) for stage in range(self.plan.stages)]
        for stage in range(self.plan.stages):
            self.free[stage] = GATHER
        while any(todo):
            for stage, passes in enumerate(todo):
                while passes and self.ready(stage, *passes[0]):
                    self.run(stage, *passes.pop(0))

    def source(self, stage: int, word: str) -> int | None:
        """Return the stage from which a pass has its input; None for the first forward and the last backward stage."""
        other = stage - 1 if word == "forward" else stage + 1
        return other if 0 <= other < self.plan.stages else None

    def ready(self, stage: int, word: str, k: int) -> bool:
        source = self.source(stage, word)
        return (word == "forward" or ("forward", stage, k) in self.ends) and (source is None or (word, source, k) in self.ends)

    def run(self, stage: int, word: str, k: int) -> None:
        source = self.source(stage, word)
        start = self.free[stage]
        if source is not None:
            start = max(start, self.transfer(source, stage, word, k))
        base = FORWARD * (1 if word == "forward" else 2) * self.lengths[k] * (1 + self.plan.noise * self.chance.uniform(-1, 1))
        slow = self.plan.long_stage and stage == self.plan.stages - 1
        slow = slow or self.plan.straggler == self.number * self.plan.stages + stage
        end = start + round(base * (self.plan.slowdown if slow else 1))
        self.free[stage] = self.ends[word, stage, k] = end
        self.add(stage, f"{word}-compute", start, end, k, mc=0, mb_id=k, gmc=stage)

    def transfer(self, source: int, stage: int, word: str, k: int) -> int:
        """Write down a send and its receive and return when both end."""
        sent = max(self.ends[word, source, k], self.lines.get((f"{word}-send", source), 0), self.posted(source, word, k))
        posted = self.ends[word, stage, k - 1] if k else self.posted(stage, word, k)
        received = max(posted, self.lines.get((f"{word}-recv", stage), 0))
        end = max(sent, received) + TRANSFER
        self.lines[f"{word}-send", source] = self.lines[f"{word}-recv", stage] = end
        self.add(source, f"{word}-send", sent, end, k)
        return self.add(stage, f"{word}-recv", received, end, k)

    def posted(self, stage: int, word: str, k: int) -> int:
        """Return when a stage posts its first backward transfer: after the last but one pass before its first backward pass."""
        before = self.order(stage).index(("backward", 0)) - 2
        if word == "forward" or k or before < 0:
            return 0
        kind, number = self.order(stage)[before]
        return self.ends[kind, stage, number]


def _end_step(plan: PipelinePlan, replicas: list[_Replica]) -> None:
    """Let all ranks gather parameters at the start, and reduce, clip and optimize at the end."""
    arrived: dict[tuple[int, int], int] = {}
    for replica in replicas:
        ready = [replica.add(s, "layernorm-grads-all-reduce", at, at + NORMS) for s, at in enumerate(replica.free)]
        ends = sorted({0, plan.stages - 1})
        embedded = max(ready[s] for s in ends) + EMBEDDING
        for stage in range(plan.stages):
            replica.add(stage, "params-all-gather", 0, GATHER, mc=0)
            replica.add(stage, "gc", replica.free[stage], replica.free[stage])
            arrived[replica.number, stage] = ready[stage]
            if stage in ends:
                arrived[replica.number, stage] = replica.add(stage, "embedding-grads-all-reduce", ready[stage], embedded)
    reduced = [max(arrived[r.number, stage] for r in replicas) + REDUCE for stage in range(plan.stages)]
    clipped = max(reduced) + CLIP
    for replica in replicas:
        for stage in range(plan.stages):
            replica.add(stage, "grads-reduce-scatter", arrived[replica.number, stage], reduced[stage], mc=0)
            replica.add(stage, "optimizer-clip-main-grad", reduced[stage], clipped)
            replica.add(stage, "optimizer", clipped, clipped + OPTIMIZER)
