"""AMD CDNA 3 (gfx942). An SM is a compute unit here, the tensor clock the peak engine clock."""

from __future__ import annotations

from ullage.gpus.chip import chip

MI300 = {
    "vendor": "AMD", "architecture": "CDNA 3", "compute_capability": "gfx942", "sms": 304,
    "sm_clock": 2.100e9, "tensor_clock": 2.100e9, "tensor_clock_status": "boost clock",
    "flops_per_cycle": {"fp64": 256, "tf32": 1024, "bf16": 2048, "fp16": 2048, "fp8": 4096, "int8": 4096},
    "stated": {"fp64": 163.4e12, "tf32": 653.7e12, "bf16": 1307.4e12, "fp16": 1307.4e12, "fp8": 2614.9e12, "int8": 2614.9e12},
}  # fmt: skip

chip(
    "AMD Instinct MI300X", aliases=("MI300X OAM", "MI300X-O", "MI300X VF"),
    bandwidth=5.300e12, memory=192e9, power=750,
    source="AMD Instinct MI300X product page",
    confidence="high", checked="2100 MHz: rocminfo in ROCm/legacy-rocm-build#4414",
    note="tables round to 1300, and one prints 1336", **MI300,
)  # fmt: skip
chip(
    "AMD Instinct MI325X", aliases=("MI325X OAM",),
    bandwidth=6.000e12, memory=256e9, power=1000,
    source="AMD Instinct MI325X product page",
    confidence="high", checked="304 CUs: ROCm GPU specifications", **MI300,
)  # fmt: skip
