"""`wgmma` over N."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.benches.bench import Case, Figure, Plain, TableLayout, Target, bench
from ullage.benches.mma import H800, KINDS
from ullage.benches.operands import FP16, FP32
from ullage.benches.ptx_wgmma import Wgmma, latency, throughput

Four = tuple[tuple[float, float], tuple[float, float], float, float]

# By n, dense and sparse: cycles and TFLOP/s with A and B in shared memory and zeros, with A in registers; TFLOP/s of both on random data
TABLE_10: dict[int, tuple[Four, Four]] = {
    256: (((128.0, 728.5), (128.0, 731.9), 665.4, 667.5), ((144.0, 1312.3), (128.0, 1476.2), 1194.3, 1277.5)),
    128: (((64.0, 728.5), (64.0, 725.4), 659.8, 661.7), ((80.0, 1176.4), (64.0, 1463.3), 1109.6, 1270.5)),
    64: (((32.0, 719.6), (32.0, 719.7), 648.3, 649.9), ((48.0, 977.4), (32.0, 1450.1), 969.9, 1263.4)),
    32: (((24.0, 477.3), (16.0, 710.3), 471.5, 634.4), ((32.0, 727.1), (18.0, 1272.4), 723.4, 1135.7)),
    16: (((20.0, 287.0), (13.0, 434.2), 283.5, 426.2), ((24.0, 482.3), (18.0, 638.6), 479.8, 636.3)),
    8: (((18.0, 158.2), (13.0, 216.7), 157.6, 215.2), ((20.0, 289.0), (16.0, 359.4), 286.1, 356.7)),
}


def _figures() -> Iterator[Figure]:
    for n, both in TABLE_10.items():
        for kind, (shared, registers, *random) in zip(KINDS, both, strict=True):
            for mode, (cycles, tera), drawn in zip(("SS", "RS"), (shared, registers), random, strict=True):
                names: dict[str, Plain] = {"N": n, "kind": kind, "A from": mode}
                yield Figure(H800, {**names, "data": "zero"}, "latency", cycles)
                yield Figure(H800, {**names, "data": "zero"}, "throughput", tera * 1e12)
                yield Figure(H800, {**names, "data": "random"}, "throughput", drawn * 1e12)


@bench(
    "wgmma-sizes",
    title="wgmma FP16 to FP32 over N",
    source="Hopper paper, table X",
    layout=TableLayout(rows=("N",), across=("kind", "A from", "data"), plot=("N", "throughput", ("kind", "A from", "data"))),
    architectures=("sm_90a",),
    figures=_figures(),
    seconds=45,
    drift=True,
)
def wgmma_sizes(target: Target, quick: bool) -> Iterator[Case]:
    """How wide an instruction must be: m64nNk16 (sparse: k32) from N = 256 down to 8.

    An instruction takes N / 2 cycles of the tensor cores, and reads 2 KiB of A (unless it is in registers) and 32 B (sparse: 64 B)
    a column of B at 128 B a cycle. The longer of the two is its pace: 24 cycles, not 16, for a dense N = 32 with A in shared memory.
    """
    for n in (128,) if quick else TABLE_10:
        for kind in KINDS[:1] if quick else KINDS:
            for mode in ("SS", "RS"):
                instruction = Wgmma(FP16, FP32, n, mode, kind == "sparse")
                names: dict[str, Plain] = {"N": n, "kind": kind, "A from": mode}
                yield latency(instruction, {**names, "data": "zero"})
                if not quick:
                    yield throughput(instruction, {**names, "data": "zero"}, target, "zero")
                    yield throughput(instruction, {**names, "data": "random"}, target, "random")
