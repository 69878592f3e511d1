"""A training run as a scenario: ranks in step, forward and backward on two threads, collectives under way beside computing.

Nothing is measured: the times are drawn by a seeded generator, so that the same plan is the same run everywhere. Each rank is one
process with one device: kernels on one stream, collectives on a second, copies on a third. A collective ends on all ranks at once,
its transfer after the last of them began; who began early waits in it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from ullage.simulate.traces.scenario import ProcessScenario, Scenario

PROCESS = 7001  # the first rank's process and main thread
TOKENS, SPREAD = 4096, 2.0  # of the shortest batch, and how many times as long the longest is
COMPUTE, COPY, NETWORK = 7, 13, 20  # streams
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>(int)"
FUSED = "triton_poi_fused_add_mul_0"
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True)
class TrainingPlan:
    """What a training run is like.

    `straggler` is a rank whose kernels take `slowness` times as long. `host_bound`: kernels so small that the device waits for
    launches. `graph`: the forward pass is one graph launch, of which `kernels` are recorded, only the `whole` execution, or
    nothing (`hidden`). `driver`: every third kernel is launched by the driver's call, as Triton does. `stack`: Python functions, modules
    and the operators within a layer are recorded too, and every second batch takes `decoding` ns to decode. `lengths`: sequences are of
    equal length, or each rank (`ranks`) or step (`steps`) has its own; kernels take in proportion, and the embedding says how many tokens.
    """

    ranks: int = 2
    steps: int = 3
    layers: int = 8
    bucket: int = 3  # layers whose gradients are reduced together
    straggler: int | None = None
    slowness: float = 1.5
    host_bound: bool = False
    graph: Literal["", "kernels", "whole", "hidden"] = ""
    driver: bool = True
    stack: bool = False
    decoding: int = 2_000_000
    lengths: Literal["equal", "ranks", "steps"] = "equal"
    seed: int = 4

    @property
    def kernels(self) -> int:
        """How many kernels one rank runs in one step, collectives left out."""
        return 4 * self.layers + 1


def sized(events: int, plan: TrainingPlan | None = None) -> TrainingPlan:
    """Return a plan with as many steps as about that many events take.

    >>> sized(100_000).steps
    490
    """
    plan = plan or TrainingPlan()
    a_step = training(replace(plan, steps=2)), training(replace(plan, steps=1))
    return replace(plan, steps=max(1, round(events / (len(a_step[0].events) - len(a_step[1].events)))))


def training(plan: TrainingPlan | None = None) -> Scenario:
    """Return the scenario of a plan; its answer is that of `answers.answer`."""
    plan = plan or TrainingPlan()
    ranks = [_Rank(plan, number) for number in range(plan.ranks)]
    for step in range(plan.steps):
        for rank in ranks:
            rank.forward()
            rank.backward()
        _reduce(ranks, plan, step)
        for rank in ranks:
            rank.finish(step)
    for rank in ranks:
        rank.watch()
    return Scenario(
        "training",
        tuple(event for rank in ranks for event in rank.to.events),
        {rank.to.process: number for number, rank in enumerate(ranks)},
        {n: ("NVIDIA H100 80GB HBM3", f"GPU-{n:08x}-7472-6169-6e00-{n:012x}") for n in range(plan.ranks)},
        prefers="ai",
    )


def tiled(scenario: Scenario, times: int) -> Iterator[pa.RecordBatch]:
    """Yield a scenario's batches many times over, each time later by its whole length: millions of events at memory's speed."""
    batches = list(scenario.batches())
    length = max(e.end for e in scenario.events) - min(e.start for e in scenario.events)
    calls = max(e.correlation or 0 for e in scenario.events)
    collectives = 1 + max(e.sequence or 0 for e in scenario.events)
    a_turn = {"start": length, "end": length, "correlation": calls, "sequence": collectives}
    for turn in range(times):
        for batch in batches:
            yield _shifted(batch, {name: turn * change for name, change in a_turn.items()})


def _shifted(batch: pa.RecordBatch, later: dict[str, int]) -> pa.RecordBatch:
    arrays = list(batch.columns)
    for name, change in later.items():
        at, missing = batch.schema.get_field_index(name), batch[name].is_null().to_numpy(zero_copy_only=False)
        values = batch[name].fill_null(0).to_numpy(zero_copy_only=False) + np.int64(change)
        arrays[at] = pa.array(values, mask=missing)
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


class _Rank:
    """One rank as it runs: where its two threads and its streams have got to, in ns."""

    def __init__(self, plan: TrainingPlan, number: int) -> None:
        self.plan, self.to = plan, ProcessScenario(PROCESS + number * 100, number)
        self.main, self.autograd, self.watchdog = self.to.process, self.to.process + 1, self.to.process + 2
        self.chance = random.Random(plan.seed * 1_000_003 + number)
        self.slowness = plan.slowness if number == plan.straggler else 1.0
        self.number, self.tokens = number, TOKENS
        self.now = 1_000 * number  # the ranks don't start at the same moment
        self.begun = self.now
        self.free = {COMPUTE: 0, COPY: 0, NETWORK: 0}
        self.ready: list[int] = []  # when each bucket of gradients may be reduced
        self.launched: list[int] = []  # the correlation numbers of the calls that do it
        self.count = self.decoded = self.batches = 0

    def pause(self, low: int, high: int) -> int:
        """Let some host time go by and return what time it is."""
        self.now += self.chance.randrange(low, high)
        return self.now

    def kernel_time(self) -> int:
        low, high = (2_000, 5_000) if self.plan.host_bound else (40_000, 160_000)
        return int(self.chance.randrange(low, high) * self.slowness * self.tokens / TOKENS)

    def launch(self, name: str, thread: int) -> int:
        """Launch one kernel and return its call's correlation number."""
        self.count += 1
        by_driver = self.plan.driver and self.count % 3 == 0
        start = self.now
        call = "cuLaunchKernelEx" if by_driver else "cudaLaunchKernel"
        number = self.to.call(start, self.pause(3_000, 6_000), call, "launch", thread)
        self.run(FUSED if by_driver else name, number)
        return number

    def run(self, name: str, correlation: int) -> None:
        """Queue a kernel on the computing stream: it begins when it is launched and what is before it is done."""
        begin = max(self.now + 1_500, self.free[COMPUTE])
        self.free[COMPUTE] = begin + self.kernel_time()
        self.to.work(begin, self.free[COMPUTE], "kernel", name, COMPUTE, correlation, blocks=264, threads=256)

    def note(self, start: int, kind: str, name: str, thread: int | None = None) -> None:
        """Write down the code that ran from `start` until now, where that is recorded."""
        if self.plan.stack:
            self.to.host(start, self.now, kind, name, thread or self.main)

    def forward(self) -> None:
        self.step_begun = begun = self.now
        self._copy_in()
        model = self.now
        self._embed()
        if self.plan.graph:
            self._replay()
        else:
            for layer in range(self.plan.layers):
                operator = self.now
                self.pause(1_000, 3_000)
                begun_gemm = self.now
                self.launch(GEMM, self.main)
                self.note(begun_gemm, "host", "aten::addmm")
                self.pause(1_000, 2_000)
                begun_gelu = self.now
                self.launch(POINTWISE, self.main)
                self.note(begun_gelu, "host", "aten::gelu")
                self.to.host(operator, self.pause(500, 1_500), "host", "aten::linear", self.main)
                self.note(operator, "function", "model.py(57): forward")
                self.note(operator, "module", f"Block_{layer}")
        self.note(model, "module", "Model_0")
        self.to.host(begun, self.now, "region", "forward", self.main)

    def _embed(self) -> None:
        """Look up the tokens of a batch, of its own length."""
        which = {"ranks": self.number, "steps": self.batches}.get(self.plan.lengths)
        self.batches += 1
        if which is not None:
            self.tokens = int(TOKENS * random.Random(self.plan.seed * 7919 + which).uniform(1, SPREAD))
            self.to.host(self.now, self.pause(1_000, 2_000), "host", "aten::embedding", self.main, tokens=self.tokens)

    def _copy_in(self) -> None:
        loading = self.now
        start = self.pause(5_000, 20_000)  # the loader's part
        if self.plan.stack:
            self.decoded += 1
            start = self.now = start + (self.decoded % 2) * self.plan.decoding
        self.note(loading, "function", "data.py(31): decode")
        call = self.to.call(start, self.pause(4_000, 8_000), "cudaMemcpyAsync", "copy", self.main)
        self.note(loading, "function", "data.py(12): __next__")
        self._move("Memcpy HtoD (Pinned -> Device)", call, 1 << 20, 50_000)

    def _move(self, name: str, call: int, size: int, length: int) -> None:
        begin = max(self.now, self.free[COPY])
        self.free[COPY] = begin + length
        self.to.work(begin, self.free[COPY], "memcpy", name, COPY, call, bytes=size)

    def _replay(self) -> None:
        start = self.now
        call = self.to.call(start, self.pause(8_000, 15_000), "cudaGraphLaunch", "graph", self.main)
        if self.plan.graph == "kernels":
            for number in range(2 * self.plan.layers):
                self.run(POINTWISE if number % 2 else GEMM, call)
            return
        begin = max(self.now + 1_500, self.free[COMPUTE])
        self.free[COMPUTE] = begin + sum(self.kernel_time() for _ in range(2 * self.plan.layers))
        if self.plan.graph == "whole":
            self.to.work(begin, self.free[COMPUTE], "graph", "graph 1", COMPUTE, call)

    def backward(self) -> None:
        begun = self.now
        self.ready, self.launched = [], []
        for layer in range(self.plan.layers):
            operator = self.now
            for _ in range(2):
                self.pause(1_000, 3_000)
                self.launch(GEMM, self.autograd)
            self.to.host(operator, self.pause(500, 1_500), "host", "autograd::engine::evaluate_function: MmBackward0", self.autograd)
            if (layer + 1) % self.plan.bucket == 0 or layer + 1 == self.plan.layers:
                start = self.now
                self.launched.append(self.to.call(start, self.pause(5_000, 9_000), "cudaLaunchKernelExC", "launch", self.autograd))
                self.ready.append(max(self.now + 1_500, self.free[COMPUTE]))
        self.to.host(begun, self.now, "region", "backward", self.autograd)
        self.note(begun, "function", "train.py(52): backward")

    def finish(self, step: int) -> None:
        """Take the optimiser's step when all gradients are there, and fetch the loss."""
        begun = self.now
        self.free[COMPUTE] = max(self.free[COMPUTE], self.free[NETWORK])
        self.launch(POINTWISE, self.main)
        self.note(begun, "function", "optim.py(88): step")
        fetch = start = self.now
        call = self.to.call(start, self.pause(4_000, 8_000), "cudaMemsetAsync", "copy", self.main)
        self.free[COMPUTE] = max(self.free[COMPUTE], self.now) + 1_200
        self.to.work(self.free[COMPUTE] - 1_200, self.free[COMPUTE], "memset", "Memset (Device)", COMPUTE, call, bytes=4096)
        start = self.now
        call = self.to.call(start, self.pause(4_000, 8_000), "cudaMemcpyAsync", "copy", self.main)
        self.free[COPY] = max(self.free[COPY], self.free[COMPUTE])
        self._move("Memcpy DtoH (Device -> Pageable)", call, 4, 1_800)
        start, self.now = self.now, max(self.now, self.free[COPY]) + 2_500
        self.to.call(start, self.now, "cudaStreamSynchronize", "sync", self.main)
        self.note(fetch, "function", "train.py(61): log_loss")
        self.note(self.step_begun, "function", "train.py(40): train_step")
        self.to.host(begun, self.now, "region", "optimizer", self.main)
        self.to.host(self.step_begun, self.now, "step", f"ProfilerStep#{step}", self.main)

    def watch(self) -> None:
        """Write down what the collectives' watchdog asked meanwhile: calls of a thread that launches nothing."""
        for moment in range(self.begun + 100_000, self.now - 2_000, 1_000_000):
            self.to.call(moment, moment + 1_500, "cudaEventQuery", "other", self.watchdog)


def _reduce(ranks: list[_Rank], plan: TrainingPlan, step: int) -> None:
    """Run the collectives of a step: each begins on a rank when its gradients are ready, and ends on all ranks at once."""
    buckets = len(ranks[0].ready)
    for number in range(buckets):
        begins = [max(rank.ready[number], rank.free[NETWORK]) for rank in ranks]
        end = max(begins) + (10_000 if plan.host_bound else 120_000)
        for rank, begin in zip(ranks, begins, strict=True):
            rank.free[NETWORK] = end
            rank.to.work(
                begin,
                end,
                "collective",
                ALLREDUCE,
                NETWORK,
                rank.launched[number],
                bytes=plan.bucket * (8 << 20),
                operation="allreduce",
                group="default_pg",
                sequence=step * buckets + number,
                members=plan.ranks,
                blocks=24,
                threads=544,
            )
