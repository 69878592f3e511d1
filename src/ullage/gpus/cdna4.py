"""AMD CDNA 4 (gfx950). An SM is a compute unit here, the tensor clock the peak engine clock."""

from __future__ import annotations

from ullage.gpus.chip import chip
from ullage.gpus.links import MIB, Link, Pcie

BOARD = {
    "vendor": "AMD", "architecture": "CDNA 4", "compute_capability": "gfx950", "sms": 256, "tensor_clock_status": "boost clock",
    "flops_per_cycle": {"fp64": 128, "bf16": 4096, "fp16": 4096, "fp8": 8192, "int8": 8192, "fp4": 16384},
    "bandwidth": 8.000e12, "memory": 288e9,
    "link": Link("Infinity Fabric", 1075.2e9), "pcie": Pcie(5, 16), "l2": 32 * MIB,
    "links_source": "AMD's product page (7 links of 153.6 GB/s); L2: ROCm GPU specifications; 256 MiB of Infinity Cache behind it",
}  # fmt: skip

chip(
    "AMD Instinct MI355X", aliases=("MI355X OAM", "MI355X VF"),
    sm_clock=2.400e9, tensor_clock=2.400e9, power=1400,
    stated={"fp64": 78.6e12, "bf16": 2516.6e12, "fp16": 2516.6e12, "fp8": 5033.2e12, "int8": 5033.2e12, "fp4": 10066e12},
    source="AMD Instinct MI355X product page; ISSCC 2026 report (8192 FP8 operations per clock and CU, 5 PFLOP/s)",
    confidence="high", checked="256 CUs: ROCm GPU specifications; 20.1 PFLOP/s sparse FP4 and 1400 W: tomshardware.com",
    note="no native TF32", **BOARD,
)  # fmt: skip
chip(
    "AMD Instinct MI350X", aliases=("MI350X OAM", "MI350X VF"),
    sm_clock=2.200e9, tensor_clock=2.200e9, power=1000,
    stated={"fp64": 72.1e12, "bf16": 2306.9e12, "fp16": 2306.9e12, "fp8": 4613.7e12, "int8": 4613.7e12, "fp4": 9227.5e12},
    source="AMD Instinct MI350X product page",
    confidence="high", checked="2.3 PFLOP/s BF16: pytorch/torchtitan#4779; 2200 MHz: hipBLASLt's listing of a device",
    note="no native TF32", **BOARD,
)  # fmt: skip
