"""Volta (compute capability 7.0)."""

from __future__ import annotations

from ullage.gpus.chip import chip
from ullage.gpus.links import MIB, Link, Pcie

# Tensor cores of Volta multiply FP16 only: no BF16, no TF32, no INT8.
VOLTA = {"fp16": 1024}
V100 = {
    "vendor": "NVIDIA", "architecture": "Volta", "compute_capability": "7.0", "sms": 80, "flops_per_cycle": VOLTA,
    "pcie": Pcie(3, 16), "l2": 6 * MIB,
    "links_source": "NVIDIA V100 datasheet and whitepaper WP-08608; L2 reads of 2048 B per clock: NVIDIA A100 whitepaper",
}  # fmt: skip
NVLINK_2 = Link("NVLink 2", 300e9)
L2_BYTES_PER_CLOCK = 2048

for memory in (32, 16):
    chip(
        f"Tesla V100-SXM2-{memory}GB",
        shared_names=("V100", "V100 SXM2", "V100 SXM"),
        sm_clock=1.530e9, tensor_clock=1.530e9, tensor_clock_status="boost clock",
        bandwidth=0.900e12, memory_clock=0.877e9, memory=memory * 1e9, power=300, stated={"fp16": 125e12},
        source="NVIDIA V100 datasheet and whitepaper WP-08608",
        confidence="high", checked="rate per cycle: NVIDIA developer forum, topic 244727",
        link=NVLINK_2, l2_bandwidth=L2_BYTES_PER_CLOCK * 1.530e9, **V100,
    )  # fmt: skip
    chip(
        f"Tesla V100-PCIE-{memory}GB",
        shared_names=("V100", "V100 PCIe"),
        sm_clock=1.380e9, tensor_clock=1.380e9, tensor_clock_status="boost clock",
        bandwidth=0.900e12, memory_clock=0.877e9, memory=memory * 1e9, power=250, stated={"fp16": 112e12},
        source="NVIDIA V100 datasheet and whitepaper WP-08608",
        confidence="high", checked="rate per cycle: NVIDIA developer forum, topic 244727",
        l2_bandwidth=L2_BYTES_PER_CLOCK * 1.380e9, **V100,
    )  # fmt: skip
chip(
    "Tesla V100S-PCIE-32GB", aliases=("V100S", "V100S PCIe"),
    sm_clock=1.597e9, tensor_clock=1.597e9, tensor_clock_status="boost clock",
    bandwidth=1.134e12, memory_clock=1.107e9, memory=32e9, power=250, stated={"fp16": 130e12},
    source="NVIDIA V100 datasheet (2020), V100S column",
    confidence="high", checked="1597 MHz and 80 SMs: GPU databases",
    l2_bandwidth=L2_BYTES_PER_CLOCK * 1.597e9, **V100,
)  # fmt: skip
chip(
    "Tesla V100-SXM3-32GB", aliases=("V100 SXM3",), shared_names=("V100",),
    sm_clock=1.597e9, tensor_clock=125e12 / (80 * 1024), tensor_clock_status="derived from stated peak",
    bandwidth=0.981e12, memory_clock=0.958e9, memory=32e9, power=350, stated={"fp16": 125e12},
    source="NVIDIA DGX-2 datasheet (2 PFLOP/s of 16 GPUs; 350 W)",
    confidence="medium", checked="1597 MHz and 981 GB/s: GPU databases",
    note="at 1597 MHz eq. 5 gives 130.8, so OFU may pass 1", link=NVLINK_2, **V100,
)  # fmt: skip
