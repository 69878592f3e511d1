"""Does the model of PTX see what a kernel leaves unordered? Kernels with a statement left out, changed, or written for one rule alone."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from tests.benches.emulated_gpu import Statement, emulated, ordering_statements
from ullage.benches import ptx_mma, ptx_tcgen05, ptx_wgmma, tcgen05_pair, tcgen05_scaled
from ullage.benches.bench import BENCHES, Case, Output, Target, cases_for
from ullage.benches.operands import BF16, FP16, FP16_SUM, FP32, TF32
from ullage.benches.ptx_mma import Mma
from ullage.benches.ptx_tcgen05 import Tcgen05
from ullage.benches.ptx_wgmma import Wgmma

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which builds the model")
TARGET = Target("sm_90a", sms=1, l2=2**16, memory=2**30)


def bench_case(bench: str, entry: str, **labels: object) -> Case:
    every = (case for case in cases_for(BENCHES[bench], replace(TARGET, sms=2)) if isinstance(case, Case))
    return next(case for case in every if case.entry == entry and labels.items() <= case.labels.items())


def wgmma_case(instruction: Wgmma) -> Case:
    return ptx_wgmma.throughput(instruction, {}, TARGET, "random")


# --- each ordering statement of a kernel, left out ---


@dataclass(frozen=True)
class Kernel:
    """A kernel and its statements that may be left out, by where they stand and how they begin, each with the reason."""

    case: Case
    harmless: dict[tuple[str, str], str] = field(default_factory=dict)

    def reason(self, statement: Statement) -> str:
        """Why a statement may be left out; nothing where it may not."""
        found = [why for (place, part), why in self.harmless.items() if statement.place == place and part in statement.text]
        return found[0] if found else ""


BARRIER = "__syncthreads"
BEGIN, END = ("ULLAGE_BEGIN", BARRIER), ("ULLAGE_END", BARRIER)
TIMING = "it only makes the threads of a block begin or end together, for the time that is noted"
THROTTLE = (
    "it bounds how many groups are in flight: products of one shape follow one another on their accumulators by themselves, and the wait "
    "behind the loop is for all of them. It stays, because PTX does not say how many groups the hardware can have pending"
)
CLUSTER = "a barrier of the cluster is one of the block too, and stands between it and what other threads wrote or will read"
ALONE = "one thread makes the barriers and asks for the copies"
MADE = ("prepare_products", "fence.mbarrier_init")
KNOWN = "the proxy fence behind it makes the barriers known too. It stays, because PTX names it as the fence that other blocks need"
BLOCK = ("prepare_products", BARRIER)
BLACKWELL = Tcgen05(BF16, FP32, 64)

KERNELS = {
    "wgmma-SS": Kernel(wgmma_case(Wgmma(FP16, FP32, 64)), {END: TIMING, ("wgmma", "wait_group.sync.aligned 1"): THROTTLE}),
    "wgmma-RS-sparse": Kernel(
        wgmma_case(Wgmma(TF32, FP32, 16, "RS", sparse=True)), {END: TIMING, ("wgmma", "wait_group.sync.aligned 1"): THROTTLE}
    ),
    "mma": Kernel(ptx_mma.latency(Mma(FP16, FP32, 16), {}), {BEGIN: TIMING, END: TIMING}),
    "bulk_load": Kernel(bench_case("bulk-copy", "bulk_load"), {BEGIN: ALONE}),
    "bulk_copy": Kernel(bench_case("bulk-copy", "bulk_copy"), {BEGIN: ALONE, END: TIMING}),
    "tensor_load": Kernel(bench_case("tensor-copy", "tensor_load_2"), {BEGIN: ALONE}),
    "tensor_multicast": Kernel(bench_case("tensor-copy", "tensor_multicast", blocks=2), {BEGIN: ALONE}),
    "tcgen05": Kernel(ptx_tcgen05.latency(BLACKWELL, {}), {BEGIN: TIMING, MADE: KNOWN}),
    "tcgen05_pair": Kernel(tcgen05_pair.latency(BLACKWELL, {}), {BEGIN: TIMING, END: CLUSTER, MADE: KNOWN, BLOCK: CLUSTER}),
    "tcgen05_scaled": Kernel(tcgen05_scaled.latency(tcgen05_scaled.NVFP4, {}), {BEGIN: TIMING, MADE: KNOWN}),
    "pipelined": Kernel(bench_case("async-copy", "pipelined_8"), {BEGIN: TIMING, END: TIMING}),
    "waiting": Kernel(bench_case("async-copy", "waiting_8"), {BEGIN: TIMING, END: TIMING}),
    "cluster-chase": Kernel(bench_case("cluster-latency", "chase"), {BEGIN: CLUSTER, END: CLUSTER}),
    "cluster-ring": Kernel(bench_case("cluster-ring", "ring_1"), {BEGIN: CLUSTER, END: CLUSTER}),
    "cluster-histogram": Kernel(
        replace(bench_case("cluster-histogram", "histogram_2", block=512), check_trips=1), {BEGIN: CLUSTER, END: CLUSTER}
    ),
    "chase-shared": Kernel(bench_case("memory-latency", "chase_shared"), {END: TIMING}),
    "read-shared": Kernel(bench_case("memory-throughput", "read_shared_fp32_v4"), {END: TIMING}),
}
SLOW = ("tcgen05_pair", "tcgen05_scaled")
LEFT_OUT = [
    pytest.param(kernel, statement, id=f"{name}-{statement.place}-{statement.number}", marks=[pytest.mark.full] * (name in SLOW))
    for name, kernel in KERNELS.items()
    for statement in ordering_statements(kernel.case.source, kernel.case.entry)
]


@pytest.mark.parametrize(("kernel", "statement"), LEFT_OUT)
def test_a_kernel_without_one_of_its_ordering_statements_is_wrong_unless_there_is_a_reason(
    kernel: Kernel, statement: Statement, emulation_folder: Path
) -> None:
    problem = emulated(kernel.case, emulation_folder, left_out=statement.number)
    assert (problem is None) == bool(kernel.reason(statement)), statement.text


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_kernel_with_all_of_them_is_right_and_every_reason_is_for_one_of_them(kernel: Kernel, emulation_folder: Path) -> None:
    assert emulated(kernel.case, emulation_folder) is None
    statements = ordering_statements(kernel.case.source, kernel.case.entry)
    used = [why for (place, part), why in kernel.harmless.items() for one in statements if one.place == place and part in one.text]
    assert len(used) == len(kernel.harmless)


def test_the_statements_of_a_kernel_are_those_that_its_source_names() -> None:
    def texts(name: str) -> list[str]:
        return [statement.text.split(";")[0] for statement in ordering_statements(KERNELS[name].case.source, KERNELS[name].case.entry)]

    assert texts("waiting") == [BARRIER + "()"] * 4  # the macros', its own two; nothing of the kernel beside it
    assert texts("wgmma-SS") == [
        BARRIER + "()", BARRIER + "()", 'asm volatile("fence.proxy.async', 'asm volatile("wgmma.fence.sync.aligned',
        'asm volatile("wgmma.commit_group.sync.aligned', 'asm volatile("wgmma.wait_group.sync.aligned 1',
        'asm volatile("wgmma.wait_group.sync.aligned 0',
    ]  # fmt: skip


# --- wgmma, changed ---

COMMIT = 'asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");'
FENCE = 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");'
LAST = 'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");'
PROXY = 'asm volatile("fence.proxy.async;" ::: "memory");'
LAY_OUT = "lay_out(tile_a,"
SS, RS = Wgmma(FP16, FP32, 16), Wgmma(FP16, FP16_SUM, 8, "RS")


@pytest.mark.parametrize(
    ("instruction", "given", "instead", "why"),
    [
        (SS, "aligned 0;", "aligned 1;", "a register that wgmma still holds"),  # the last group is not waited for
        (SS, COMMIT, COMMIT + "sum[3] = 0;", "a register that wgmma still holds"),
        (RS, COMMIT, COMMIT + "fa[1][2] = 0;", "a register that wgmma still holds"),
        (SS, FENCE, FENCE + "sum[3] = 0;", "accessed behind the last wgmma.fence"),
        (RS, FENCE, FENCE + "fa[1][2] = 0;", "accessed behind the last wgmma.fence"),
        (SS, LAST, "tile[0] = 0;" + LAST, "writes shared memory at which an asynchronous operation still is"),
        (SS, LAY_OUT, PROXY + LAY_OUT, None),  # one more does no harm
    ],
)
def test_what_wgmma_holds_must_be_left_alone(instruction: Wgmma, given: str, instead: str, why: str | None, emulation_folder: Path) -> None:
    case = wgmma_case(instruction)
    problem = emulated(replace(case, source=case.source.replace(given, instead)), emulation_folder)
    assert problem is None if why is None else why in str(problem)


def test_a_proxy_fence_before_the_writes_is_none(emulation_folder: Path) -> None:
    case = wgmma_case(SS)
    early = case.source.replace(PROXY, "").replace(LAY_OUT, PROXY + LAY_OUT)
    assert "unordered: an asynchronous operation reads" in str(emulated(replace(case, source=early), emulation_folder))


# --- rules, each by a kernel of its own ---

SYNC = "__syncthreads();"
WRITE = "mine[threadIdx.x] = threadIdx.x;"
READ = "found = mine[63 - threadIdx.x];"
STORE = """if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" :: "l"(out + 64), "r"(ullage_shared(mine)) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    WAIT
}"""
STORED = STORE.replace("WAIT", 'asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");')
COPY = """asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
        :: "r"(ullage_shared(mine + threadIdx.x)), "l"(in + threadIdx.x) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");"""
ARRIVE = 'asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");'
WAIT = 'asm volatile("barrier.cluster.wait.aligned;" ::: "memory");'
UNORDERED, NEVER = "unordered", "never written"


def rule(body: str) -> Case:
    """A kernel of two warps that has 64 words of shared memory: `found` of each thread, and what a store makes of 64 words, leave it."""
    source = f"""
extern "C" __global__ void rule(u64 *clocks, const int *in, int *out, int trips) {{
    __shared__ __align__(128) int mine[64];
    int found = 0;
    ULLAGE_BEGIN
    {body}
    ULLAGE_END
    out[threadIdx.x] = found;
}}
"""
    numbers = np.arange(64, dtype=np.int32)
    loads, stores = "found =" in body, "bulk_group [" in body
    if "mine[63 - threadIdx.x]" in body:
        wanted = numbers[::-1]
    else:
        wanted = numbers if loads else numbers * 0
    return Case(
        labels={}, source=source, entry="rule", grid=1, block=64, trips=1, outputs=(Output((128,), "int32"),), quantities=("time",),
        inputs=lambda generator, data: (numbers,),
        reference=lambda arrays, trips: (np.concatenate([wanted, numbers if stores else numbers * 0 - 1]),),
    )  # fmt: skip


RULES = {
    "written, barrier, read": (WRITE + SYNC + READ, None),
    "written, read by another": (WRITE + READ, UNORDERED),
    "written, read by itself": (WRITE + "found = mine[threadIdx.x];", None),
    "read, then overwritten by another": (WRITE + SYNC + READ + "mine[threadIdx.x] = 0;", UNORDERED),
    "read, barrier, overwritten": (WRITE + SYNC + READ + SYNC + "mine[threadIdx.x] = 0;", None),
    "never written": (READ, UNORDERED),
    "the fence of the writer, then a barrier": (WRITE + PROXY + SYNC + STORED, None),
    "a barrier, then the fence of the one who stores": (WRITE + SYNC + PROXY + STORED, None),
    "a fence, no barrier": (WRITE + PROXY + STORED, UNORDERED),
    "a barrier, no fence": (WRITE + SYNC + STORED, UNORDERED),
    "the fence before the write": (PROXY + WRITE + SYNC + STORED, UNORDERED),
    "overwritten while a store may read": (WRITE + PROXY + SYNC + STORE.replace("WAIT", "mine[0] = 7;"), UNORDERED),
    "overwritten when it has read": (
        WRITE + PROXY + SYNC + STORE.replace("WAIT", 'asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); mine[0] = 7;'), None,
    ),
    "a store that nobody waits for": (WRITE + PROXY + SYNC + STORE.replace("WAIT", ""), NEVER),
    "copied, waited for, read by itself": (COPY + "found = mine[threadIdx.x];", None),
    "copied, waited for, read by another": (COPY + READ, UNORDERED),
    "copied, waited for, barrier, read": (COPY + SYNC + READ, None),
    "written between arrival and wait": (ARRIVE + WRITE + WAIT + READ, UNORDERED),
    "written before the arrival": (WRITE + ARRIVE + WAIT + READ, None),
    "a wait without an arrival": (WAIT, "has not arrived"),
    "one thread waits for the others": ("if (threadIdx.x == 0) " + SYNC, "wait for one another forever"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "why"), RULES.values(), ids=RULES)
def test_shared_memory_is_ordered_as_ptx_says(body: str, why: str | None, emulation_folder: Path) -> None:
    problem = emulated(rule(body), emulation_folder)
    assert problem is None if why is None else why in str(problem)
