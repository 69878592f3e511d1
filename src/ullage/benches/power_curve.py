"""Watts, clock and throughput of this very GPU under loads of different weight, from idle to every SM on random data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ullage.benches.bench import AnyCase, Arrays, Case, Data, IdleCase, Output, TableLayout, Target, bench
from ullage.benches.memory_bandwidth import stream
from ullage.benches.operands import BF16
from ullage.benches.ptx_mma import CYCLES
from ullage.benches.reading import THREADS, blocks
from ullage.benches.sustained_ceilings import fastest_product, instruction

SECONDS, SETTLE = 3.0, 1.0
EIGHTHS = (1, 2, 4, 6, 8)  # of the SMs
PAIRS, STEPS = 4, 8  # independent pairs of numbers of a thread, and how often a trip turns each
FFMA = 2 * PAIRS * STEPS  # a thread issues in a trip

# Each pair (x, y) goes round on an ellipse, two multiply-adds a step: numbers of full length that neither grow nor come to rest, so that
# bits go on flipping.
_FP32 = f"""
extern "C" __global__ void __launch_bounds__({THREADS}, 2) turn(u64 *clocks, const float *values, float *found, int trips) {{
    const float *mine = values + threadIdx.x * {2 * PAIRS + 1};
    const float angle = mine[0];
    float x[{PAIRS}], y[{PAIRS}];
    #pragma unroll
    for (int i = 0; i < {PAIRS}; i++) {{ x[i] = mine[1 + 2 * i]; y[i] = mine[2 + 2 * i]; }}
    ULLAGE_BEGIN
    #pragma unroll 1
    for (int trip = 0; trip < trips; trip++) {{
        #pragma unroll
        for (int step = 0; step < {STEPS}; step++)
            #pragma unroll
            for (int i = 0; i < {PAIRS}; i++) {{ x[i] = x[i] + angle * y[i]; y[i] = y[i] - angle * x[i]; }}
    }}
    ULLAGE_END
    float sum = 0;
    #pragma unroll
    for (int i = 0; i < {PAIRS}; i++) sum += x[i] + y[i];
    found[blockIdx.x * {THREADS} + threadIdx.x] = sum;
}}
"""


@bench(
    "power-curve",
    title="Power, clock and throughput under loads of different weight",
    source="not in the Hopper paper; NVML's energy counter, clock and clock event reasons",
    layout=TableLayout(rows=("load", "data", "SMs"), plot=("power", "throughput", ("load", "data")), conditions=True),
    seconds=60,
)
def power_curve(target: Target, quick: bool) -> Iterator[AnyCase]:
    """Watts, SM clock and FLOP/s of each load over three seconds, after a second that does not count; FLOP/J; what held the clock back.

    Idle (nothing runs, and this process holds the GPU), reads of memory, FP32 multiply-adds, and BF16 products on zeros and on random
    data, on one, two, four, six and eight eighths of the SMs. A load goes to as many SMs as it has blocks, one each; the others stay idle.

    Read along a load's rows: as long as nothing holds the clock back, throughput and the watts above idle grow with the SMs; from the power
    limit on, watts stand still and the clock falls. What the limit costs is told below the tables: random data on all SMs beside what they
    would do at the clock that the chip holds while nothing holds it back.

    Voltage is missing: NVML tells none on data-centre GPUs. Clock and power are only read; no clock, limit or mode is changed.
    """
    yield IdleCase({"load": "idle", "data": None, "SMs": 0}, seconds=SECONDS, settle=SETTLE)
    memory = replace(stream(target, "read"), quantities=("bandwidth", "power"))
    yield _lasting(memory, "memory reads", "random", target.sms)
    yield _lasting(fp32(target), "FP32 multiply-add", "random", target.sms)
    kinds: tuple[Data, ...] = ("zero", "random")
    for data in kinds:
        for eighths in (2, 8) if quick else EIGHTHS:
            sms = max(1, target.sms * eighths // 8)
            case = fastest_product(BF16, replace(target, sms=sms), data)
            if case is not None:
                yield _lasting(case, f"BF16 {instruction(BF16, target)}", data, sms)


def _lasting(case: Case, load: str, data: Data, sms: int) -> Case:
    """Return a case that runs for so long and tells its power, labelled with what it is."""
    told = case.quantities if "power" in case.quantities else ("throughput", "power", "efficiency")
    return replace(case, labels={"load": load, "data": data, "SMs": sms}, quantities=told, seconds=SECONDS, settle=SETTLE)


def fp32(target: Target) -> Case:
    """Return the case of FP32 multiply-adds on all SMs, operands in registers."""
    grid = blocks(target)
    trips = CYCLES * 128 * target.sms // (FFMA * grid * THREADS)  # at 128 multiply-adds a cycle and SM, the most that there are

    def inputs(generator: np.random.Generator, data: Data) -> Arrays:
        if data == "zero":
            return (np.zeros((THREADS, 2 * PAIRS + 1), np.float32),)
        values = generator.uniform(-1, 1, (THREADS, 2 * PAIRS + 1)).astype(np.float32)
        values[:, 0] = generator.uniform(0.1, 0.5, THREADS)
        return (values,)

    def reference(arrays: Arrays, trips: int) -> Arrays:
        angle, x, y = arrays[0][:, :1], arrays[0][:, 1::2], arrays[0][:, 2::2]
        for _ in range(trips * STEPS):
            x = x + angle * y
            y = y - angle * x
        return (np.tile((x + y).sum(axis=1, dtype=np.float32), grid),)

    return Case(
        {}, _FP32, "turn", grid, THREADS, trips, (Output((grid * THREADS,), "float32"),), reference,
        ("throughput", "power", "efficiency"), inputs, check_trips=2, tolerance=1e-5, flops=2 * FFMA * grid * THREADS * trips,
        issues={"FFMA": FFMA},
    )  # fmt: skip
