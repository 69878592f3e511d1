"""AMD CDNA 3 (gfx942). An SM is a compute unit here, the tensor clock the peak engine clock."""

from __future__ import annotations

from ullage.gpus.chip import chip
from ullage.gpus.links import MIB, Link, Pcie

CDNA3 = {"fp64": 256, "tf32": 1024, "bf16": 2048, "fp16": 2048, "fp8": 4096, "int8": 4096}
BOARD = {"vendor": "AMD", "architecture": "CDNA 3", "compute_capability": "gfx942", "flops_per_cycle": CDNA3}
CACHE = "L2: ROCm GPU specifications (4 MiB a die), AMD CDNA 3 white paper (2 KiB per clock and die); 256 MiB of Infinity Cache behind it"
L2_PER_DIE = 2048 * 2.100e9
MI300X = {
    **BOARD, "sms": 304,
    "sm_clock": 2.100e9, "tensor_clock": 2.100e9, "tensor_clock_status": "boost clock",
    "stated": {"fp64": 163.4e12, "tf32": 653.7e12, "bf16": 1307.4e12, "fp16": 1307.4e12, "fp8": 2614.9e12, "int8": 2614.9e12},
    "link": Link("Infinity Fabric", 896e9), "pcie": Pcie(5, 16), "l2": 32 * MIB, "l2_bandwidth": 8 * L2_PER_DIE,
    "links_source": f"AMD's product page (7 links of 128 GB/s); {CACHE}",
}  # fmt: skip

chip(
    "AMD Instinct MI300X", aliases=("MI300X OAM", "MI300X-O", "MI300X VF", "MI300X HF"),
    bandwidth=5.300e12, memory=192e9, power=750,
    source="AMD Instinct MI300X product page",
    confidence="high", checked="2100 MHz: rocminfo in ROCm/legacy-rocm-build#4414",
    note="tables round to 1300, and one prints 1336", **MI300X,
)  # fmt: skip
chip(
    "AMD Instinct MI325X", aliases=("MI325X OAM", "MI325X VF"),
    bandwidth=6.000e12, memory=256e9, power=1000,
    source="AMD Instinct MI325X product page",
    confidence="high", checked="304 CUs: ROCm GPU specifications", **MI300X,
)  # fmt: skip
chip(
    "AMD Instinct MI300A", sms=228,
    sm_clock=2.100e9, tensor_clock=2.100e9, tensor_clock_status="boost clock",
    bandwidth=5.300e12, memory=128e9, power=550,
    stated={"fp64": 122.6e12, "tf32": 490.3e12, "bf16": 980.6e12, "fp16": 980.6e12, "fp8": 1961.2e12, "int8": 1961.2e12},
    source="AMD Instinct MI300A product page",
    confidence="high", checked="228 CUs, 2100 MHz, 980.6: launch coverage; anthonix/llm.c#3",
    note="CPU and GPU share the memory and the power limit (550 W, at most 760)",
    l2=24 * MIB, l2_bandwidth=6 * L2_PER_DIE, links_source=CACHE, **BOARD,
)  # fmt: skip
chip(
    "AMD Instinct MI308X", aliases=("MI308X OAM", "MI308X VF", "MI308X HF", "MI308X HF VF"), sms=80,
    sm_clock=2.100e9, tensor_clock=2.100e9, tensor_clock_status="assumed",
    bandwidth=5.300e12, memory=192e9, power=650, stated={},
    source="AMD publishes no peaks; 80 CUs at MI300X's rates, 192 GB and 650 W: public logs of its driver; the clock is the MI300X's",
    confidence="low", note="one public benchmark runs at 1800 MHz, and takes 589.8 FP8 for its peak",
    caution="its driver holds a limiter of matrix work (PTL), so that this peak may never be reached", **BOARD,
)  # fmt: skip
