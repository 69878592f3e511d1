"""Arithmetic outside the tensor cores: how many results of an instruction an SM gives in a cycle, and how long one takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ullage.benches.bench import Arrays, Case, Data, Figure, Output, TableLayout, Target, bench

GUIDE = "CUDA C++ Programming Guide, throughput of native arithmetic instructions"
STEPS = 8  # instructions one after the other, each with operands of its own
LANES = 32  # operands differ from thread to thread of a warp
TWO_LANES = ("sm_100a", "sm_103a")  # where two FP32 lanes are one instruction: FFMA2

_KERNEL = """
extern "C" __global__ void __launch_bounds__({threads}) {entry}(
    u64 *clocks, const {element} *start, const {element} *factors, const {element} *terms, {element} *found, int trips) {{
    {element} factor[{steps}], term[{steps}], x[{chains}];
    for (int i = 0; i < {steps}; i++) {{
        factor[i] = factors[i * {lanes} + threadIdx.x % {lanes}];
        term[i] = terms[i * {lanes} + threadIdx.x % {lanes}];
    }}
    for (int chain = 0; chain < {chains}; chain++) x[chain] = start[chain * {threads} + threadIdx.x];
    ULLAGE_BEGIN
    #pragma unroll 1
    for (int trip = 0; trip < trips; trip++) {{
        #pragma unroll
        for (int call = 0; call < {calls}; call++)
            #pragma unroll
            for (int chain = 0; chain < {chains}; chain++) {{ {statement} }}
    }}
    ULLAGE_END
    for (int chain = 0; chain < {chains}; chain++) found[(chain * gridDim.x + blockIdx.x) * {threads} + threadIdx.x] = x[chain];
}}
"""
_MULTIPLY_ADD = (
    'asm volatile("{ptx} %0, %0, %1, %2;" : "+{constraint}"(x[chain]) : "{constraint}"(factor[call % 8]), "{constraint}"(term[call % 8]));'
)
_SPECIAL = 'asm volatile("{ptx}" : "+f"(x[chain]));'


@dataclass(frozen=True)
class ArithmeticOperation:
    """An instruction: its labels, PTX and the opcode that it becomes; the element in C++ with its PTX constraint and its lanes in NumPy.

    `exact` is what it computes of x, factor and term, in a type that is wide enough; a result may differ from it by `tolerance` after a
    trip. `calls` are those of a chain in a trip, `trips` those of a launch on all SMs.
    """

    type: str
    name: str
    ptx: str
    opcode: str
    element: str
    constraint: str
    dtype: str
    exact: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    tolerance: float
    calls: int = 64
    trips: int = 512
    flops: int = 2
    architectures: tuple[str, ...] = ()

    @property
    def lanes(self) -> int:
        """Results that a thread gets of one instruction."""
        return {"u32": 4, "u64": 8}.get(self.element, 0) // np.dtype(self.dtype).itemsize or 1

    @property
    def special(self) -> bool:
        """Whether it has one operand."""
        return self.opcode == "MUFU"

    def entry(self, chains: int) -> str:
        """Return the name of the kernel with so many independent chains a thread.

        >>> OPERATIONS[0].entry(4)
        'fp32_multiply_add_4'
        """
        return f"{self.type}_{self.name}_{chains}".lower().replace("-", "_").replace("×", "x").replace(" ", "_")

    def kernel(self, way: CallPattern) -> str:
        """Return the source of the kernel."""
        statement = (_SPECIAL if self.special else _MULTIPLY_ADD).format(ptx=self.ptx, constraint=self.constraint)
        return _KERNEL.format(
            entry=self.entry(way.chains), element=self.element, steps=STEPS, lanes=LANES, calls=self.calls, statement=statement,
            threads=way.threads, chains=way.chains,
        )  # fmt: skip


@dataclass(frozen=True)
class CallPattern:
    """How an instruction is called: by so many threads of a block, in so many chains of each that do not depend on one another."""

    chains: int
    threads: int


# One chain waits for every result; four chains of 1,024 threads wait for none, whose latency is up to 32 cycles.
LATENCY, THROUGHPUT = CallPattern(1, 32), CallPattern(4, 1024)
LATENCY_TRIPS = 256


def _multiply_add(x: np.ndarray, factor: np.ndarray, term: np.ndarray) -> np.ndarray:
    return np.asarray(x * factor + term)


def _of_x(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    return lambda x, factor, term: function(x)  # noqa: ARG005


def _special(
    name: str, ptx: str, function: Callable[[np.ndarray], np.ndarray], tolerance: float = 1e-5, calls: int = STEPS
) -> ArithmeticOperation:
    return ArithmeticOperation("FP32", name, ptx, "MUFU", "float", "f", "float32", _of_x(function), tolerance, calls, flops=1)


# Tolerances follow from what PTX promises: multiply-adds round once (in FP64 the reference rounds twice, in FP32 seldom, in FP16 never);
# ex2, rcp and rsqrt are within 2 units in the last place, sin within 2^-20.5, tanh within 2^-11; errors do not grow along these chains.
# Minus signs cost nothing: 2^-x stays among the numbers, where 2^x would not, and -1/(-1/x) is not x to the assembler, as 1/(1/x) is.
# Of an even number of calls it would be x, as of none.
OPERATIONS = (
    ArithmeticOperation("FP32", "multiply-add", "fma.rn.f32", "FFMA", "float", "f", "float32", _multiply_add, 1e-5),
    ArithmeticOperation(
        "FP32 ×2", "multiply-add", "fma.rn.f32x2", "FFMA2", "u64", "l", "float32", _multiply_add, 1e-5, architectures=TWO_LANES
    ),
    ArithmeticOperation("FP16 ×2", "multiply-add", "fma.rn.f16x2", "HFMA2", "u32", "r", "float16", _multiply_add, 0.0),
    ArithmeticOperation("FP64", "multiply-add", "fma.rn.f64", "DFMA", "double", "d", "float64", _multiply_add, 1e-13, calls=16),
    ArithmeticOperation("INT32", "multiply-add", "mad.lo.s32", "IMAD", "int", "r", "int32", _multiply_add, 0.0),
    _special("ex2", "{ .reg .f32 t; neg.f32 t, %0; ex2.approx.ftz.f32 %0, t; }", lambda x: np.exp2(-x)),
    _special("rcp", "{ .reg .f32 t; neg.f32 t, %0; rcp.approx.ftz.f32 %0, t; }", lambda x: -1 / x, calls=STEPS - 1),
    _special("rsqrt", "rsqrt.approx.ftz.f32 %0, %0;", lambda x: 1 / np.sqrt(x)),
    _special("sin", "sin.approx.ftz.f32 %0, %0;", np.sin),
    _special("tanh", "tanh.approx.f32 %0, %0;", np.tanh, 4e-3),
)
# Results a cycle and SM that the guide gives for compute capabilities 8.0, 8.9 and 9.0; it does not name tanh.
TABLE = {
    "NVIDIA A100-PCIE-40GB": {"FP32": 64, "FP16 ×2": 256, "FP64": 32, "INT32": 64, "special": 16},
    "NVIDIA GeForce RTX 4090": {"FP32": 128, "FP16 ×2": 128, "FP64": 2, "INT32": 64, "special": 16},
    "NVIDIA H200": {"FP32": 128, "FP16 ×2": 256, "FP64": 64, "INT32": 64, "special": 16},
}


def _figures() -> Iterator[Figure]:
    for gpu, row in TABLE.items():
        for one in OPERATIONS:
            rate = row.get("special" if one.special else one.type)
            if rate is not None and one.name != "tanh":
                yield Figure(gpu, _labels(one), "results_per_cycle_sm", rate)


def _labels(operation: ArithmeticOperation) -> dict[str, str]:
    return {"type": operation.type, "operation": operation.name}


@bench(
    "arithmetic",
    title="Arithmetic outside the tensor cores",
    source=GUIDE,
    layout=TableLayout(rows=("type", "operation")),
    figures=_figures(),
    seconds=8,
)
def arithmetic(target: Target, quick: bool) -> Iterator[Case]:
    """SM cycles from an instruction to the next that needs its result; results a cycle and SM, and FLOP/s, of the whole GPU.

    Latency: one warp, each instruction needs the result before. Throughput: 1,024 threads an SM, four chains each; a multiply-add
    counts two FLOPs (of integers: operations) and one result, a special function one of each. "×2" is one instruction on two lanes,
    which are two results. All operands are registers, and numbers of multiply-adds keep changing; those of special functions settle.

    The guide's figures are of compute capabilities, not of boards: a rate below them is the board's (the H800 adds and multiplies FP64
    at the rate of a GeForce), or its clock changed during the run. Of 256 multiply-adds in a trip the loop takes three more issues, so
    one instruction a cycle and scheduler can show as 99 %. On A100 and Hopper every second multiply-add in FP16 is HFMA2.MMA, which
    another pipe executes: the guide's 256 are of both. `sin` is a multiplication by 1/2π and a MUFU: its latency is that of both.
    """
    for one in OPERATIONS:
        if (not one.architectures or target.architecture in one.architectures) and (not quick or one.name in ("multiply-add", "ex2")):
            yield case(one, LATENCY, 1)
            yield case(one, THROUGHPUT, target.sms)


SOURCE = "".join(one.kernel(way) for one in OPERATIONS if not one.architectures for way in (LATENCY, THROUGHPUT))


def case(operation: ArithmeticOperation, way: CallPattern, blocks: int) -> Case:
    """Return the case of an instruction called one way by so many blocks."""
    alone = way.chains == 1
    trips = LATENCY_TRIPS if alone else operation.trips
    elements = way.chains * blocks * way.threads
    results = trips * operation.calls * elements * operation.lanes
    both = "".join(operation.kernel(one) for one in (LATENCY, THROUGHPUT))
    return Case(
        labels=_labels(operation),
        source=both if operation.architectures else SOURCE,
        entry=operation.entry(way.chains),
        grid=blocks,
        block=way.threads,
        trips=trips,
        inputs=_inputs(operation, way),
        outputs=(Output((elements * operation.lanes,), operation.dtype),),
        reference=_reference(operation, way, blocks),
        tolerance=operation.tolerance,
        quantities=("latency",) if alone else ("results_per_cycle_sm", "throughput"),
        steps=operation.calls,
        items=0 if alone else results,
        flops=0 if alone else results * operation.flops,
        issues={operation.opcode: operation.calls * way.chains},
        architectures=operation.architectures,
    )


def _inputs(operation: ArithmeticOperation, way: CallPattern) -> Callable[[np.random.Generator, Data], Arrays]:
    def make(generator: np.random.Generator, data: Data) -> Arrays:
        sizes = [n * operation.lanes for n in (way.chains * way.threads, STEPS * LANES, STEPS * LANES)]
        if data == "zero":
            return tuple(np.zeros(size, operation.dtype) for size in sizes)
        if operation.dtype == "int32":
            return tuple(generator.integers(-(2**31), 2**31, size, np.int64).astype(np.int32) for size in sizes)
        # factors a little below 1: what came before is forgotten slowly, so that no call can go missing unseen, and nothing grows
        low, high = (0.5, 0.9, 0.5), (1.5, 1.0, 1.5)
        drawn = [generator.uniform(*ends) for ends in zip(low, high, sizes, strict=True)]
        signs = [np.ones(sizes[0]), *(generator.choice((-1.0, 1.0), size) for size in sizes[1:])]
        return tuple((value * sign).astype(operation.dtype) for value, sign in zip(drawn, signs, strict=True))

    return make


def _reference(operation: ArithmeticOperation, way: CallPattern, blocks: int) -> Callable[[Arrays, int], Arrays]:
    wide = np.int32 if operation.dtype == "int32" else np.float64

    def right(arrays: Arrays, trips: int) -> Arrays:
        start, factors, terms = (array.reshape(-1, operation.lanes).astype(wide) for array in arrays)
        lane = np.arange(way.threads) % LANES
        x = start.reshape(way.chains, way.threads, operation.lanes)
        for call in range(trips * operation.calls):
            here = call % STEPS * LANES + lane
            x = operation.exact(x, factors[here], terms[here]).astype(operation.dtype).astype(wide)
        return (np.repeat(x[:, None], blocks, axis=1).ravel().astype(operation.dtype),)

    return right
