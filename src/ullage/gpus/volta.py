"""Volta (compute capability 7.0)."""

from __future__ import annotations

from ullage.gpus.chip import chip

# Tensor cores of Volta multiply FP16 only: no BF16, no TF32, no INT8.
VOLTA = {"fp16": 1024}

for memory in (32, 16):
    chip(
        f"Tesla V100-SXM2-{memory}GB",
        shared_names=("V100", "V100 SXM2", "V100 SXM"),
        vendor="NVIDIA", architecture="Volta", compute_capability="7.0", sms=80,
        sm_clock=1.530e9, tensor_clock=1.530e9, tensor_clock_status="boost clock", flops_per_cycle=VOLTA,
        bandwidth=0.900e12, memory=memory * 1e9, power=300, stated={"fp16": 125e12},
        source="NVIDIA V100 datasheet and whitepaper WP-08608",
        confidence="high", checked="rate per cycle: NVIDIA developer forum, topic 244727",
    )  # fmt: skip
    chip(
        f"Tesla V100-PCIE-{memory}GB",
        shared_names=("V100", "V100 PCIe"),
        vendor="NVIDIA", architecture="Volta", compute_capability="7.0", sms=80,
        sm_clock=1.380e9, tensor_clock=1.380e9, tensor_clock_status="boost clock", flops_per_cycle=VOLTA,
        bandwidth=0.900e12, memory=memory * 1e9, power=250, stated={"fp16": 112e12},
        source="NVIDIA V100 datasheet and whitepaper WP-08608",
        confidence="high", checked="rate per cycle: NVIDIA developer forum, topic 244727",
    )  # fmt: skip
