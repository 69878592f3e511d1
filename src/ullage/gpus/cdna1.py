"""AMD CDNA (gfx908). An SM is a compute unit here, the tensor clock the peak engine clock."""

from __future__ import annotations

from ullage.gpus.chip import chip
from ullage.gpus.links import MIB, Link, Pcie

chip(
    "AMD Instinct MI100",
    vendor="AMD", architecture="CDNA", compute_capability="gfx908", sms=120,
    sm_clock=1.502e9, tensor_clock=1.502e9, tensor_clock_status="boost clock",
    flops_per_cycle={"bf16": 512, "fp16": 1024, "int8": 1024},
    bandwidth=1.229e12, memory=32e9, power=300, stated={"bf16": 92.3e12, "fp16": 184.6e12, "int8": 184.6e12},
    source="AMD Instinct MI100 product page",
    confidence="high", checked="120 CUs and 8 MiB of L2: ROCm GPU specifications; 1502 MHz: GPU databases",
    note="FP64 is not multiplied by matrix cores",
    link=Link("Infinity Fabric", 276e9), pcie=Pcie(4, 16), l2=8 * MIB,
    links_source="AMD Instinct MI100 product page (3 links of 92 GB/s); L2: ROCm GPU specifications",
)  # fmt: skip
