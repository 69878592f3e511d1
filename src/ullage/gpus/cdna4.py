"""AMD CDNA 4 (gfx950). An SM is a compute unit here, the tensor clock the peak engine clock."""

from __future__ import annotations

from ullage.gpus.chip import chip

chip(
    "AMD Instinct MI355X", aliases=("MI355X OAM",),
    vendor="AMD", architecture="CDNA 4", compute_capability="gfx950", sms=256,
    sm_clock=2.400e9, tensor_clock=2.400e9, tensor_clock_status="boost clock",
    flops_per_cycle={"fp64": 128, "bf16": 4096, "fp16": 4096, "fp8": 8192, "int8": 8192, "fp4": 16384},
    bandwidth=8.000e12, memory=288e9, power=1400,
    stated={"fp64": 78.6e12, "bf16": 2516.6e12, "fp16": 2516.6e12, "fp8": 5033.2e12, "int8": 5033.2e12, "fp4": 10066e12},
    source="AMD Instinct MI355X product page; ISSCC 2026 report (8192 FP8 operations per clock and CU, 5 PFLOP/s)",
    confidence="high", checked="256 CUs: ROCm GPU specifications; 20.1 PFLOP/s sparse FP4 and 1400 W: tomshardware.com",
    note="no native TF32; the MI350X runs at 2200 MHz and is another chip",
)  # fmt: skip
