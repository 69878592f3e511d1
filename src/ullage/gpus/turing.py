"""Turing (compute capability 7.5)."""

from __future__ import annotations

from ullage.gpus.chip import chip
from ullage.gpus.links import MIB, Link, Pcie

TURING = {"fp16": 1024, "int8": 2048}
TU102 = {
    "vendor": "NVIDIA", "architecture": "Turing", "compute_capability": "7.5",
    "pcie": Pcie(3, 16), "link": Link("NVLink 2", 100e9),
    "links_source": "NVIDIA Turing architecture whitepaper WP-09183, appendix A",
}  # fmt: skip

chip(
    "Tesla T4", aliases=("NVIDIA T4G",),
    vendor="NVIDIA", architecture="Turing", compute_capability="7.5", sms=40,
    sm_clock=1.590e9, tensor_clock=1.590e9, tensor_clock_status="boost clock", flops_per_cycle=TURING,
    bandwidth=0.320e12, memory_clock=5.001e9, memory=16e9, power=70, stated={"fp16": 65e12, "int8": 130e12},
    source="NVIDIA T4 datasheet",
    confidence="high", checked="Lightning fabric/utilities/throughput.py",
    note="at 70 W the clock under load stays far below 1590 MHz, so OFU tops out well under 1; T4G is the same GPU at AWS",
    pcie=Pcie(3, 16), l2=4 * MIB, links_source="NVIDIA T4 datasheet; L2: NVIDIA Turing architecture whitepaper, appendix",
)  # fmt: skip
for name, memory, aliases, shared in (("Quadro RTX 8000", 48e9, ("RTX 8000",), ()), ("Quadro RTX 6000", 24e9, (), ("RTX 6000",))):
    chip(
        name, aliases=aliases, shared_names=shared, sms=72,
        sm_clock=1.770e9, tensor_clock=1.770e9, tensor_clock_status="boost clock", flops_per_cycle=TURING,
        bandwidth=0.672e12, memory=memory, power=260, stated={"fp16": 130.5e12, "int8": 261e12},
        source=f"NVIDIA {name} datasheet (130.5 TFLOP/s FP16); Turing architecture whitepaper, appendix A (72 SMs, 1770 MHz, INT8)",
        confidence="high", checked="72 SMs and 1770 MHz: GPU databases",
        note="the passive boards clock at 1620 MHz under the same name", l2=6 * MIB, **TU102,
    )  # fmt: skip
chip(
    "NVIDIA TITAN RTX", aliases=("TITAN RTX",), sms=72,
    sm_clock=1.770e9, tensor_clock=1.770e9, tensor_clock_status="boost clock", flops_per_cycle=TURING,
    bandwidth=0.672e12, memory_clock=7.001e9, memory=24e9, power=280, stated={"fp16": 130.5e12, "int8": 261e12},
    source="NVIDIA TITAN RTX product page; Turing architecture whitepaper (72 SMs, 1770 MHz)",
    confidence="high", checked="72 SMs and 1770 MHz: GPU databases", l2=6 * MIB, **TU102,
)  # fmt: skip
chip(
    "NVIDIA GeForce RTX 2080 Ti", aliases=("RTX 2080 Ti",), sms=68,
    sm_clock=1.545e9, tensor_clock=1.545e9, tensor_clock_status="boost clock", flops_per_cycle={"fp16": 512, "int8": 2048},
    bandwidth=0.616e12, memory=11e9, power=250, stated={"fp16": 53.8e12, "int8": 215.2e12},
    source="NVIDIA Turing architecture whitepaper, table 1 (reference card)",
    confidence="high", checked="68 SMs and 1545 MHz: GPU databases",
    note="with FP16 accumulation FP16 is 107.6; boards boost past 1545 MHz, so OFU may pass 1", l2=5.5 * MIB, **TU102,
)  # fmt: skip
