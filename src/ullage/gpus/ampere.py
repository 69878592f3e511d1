"""Ampere (compute capability 8.0: GA100; 8.6: GA102)."""

from __future__ import annotations

from ullage.gpus.chip import chip

GA100 = {"fp64": 128, "tf32": 1024, "bf16": 2048, "fp16": 2048, "int8": 4096}
GA102 = {"tf32": 512, "bf16": 1024, "fp16": 1024, "int8": 2048}
# Boards of the GeForce kind accumulate in FP32 at half rate; integers are not slowed.
GA102_HALF = {"tf32": 256, "bf16": 512, "fp16": 512, "int8": 2048}

A100 = {
    "vendor": "NVIDIA", "architecture": "Ampere", "compute_capability": "8.0", "sms": 108, "mig_slices": 7,
    "sm_clock": 1.410e9, "tensor_clock": 1.410e9, "tensor_clock_status": "boost clock", "flops_per_cycle": GA100,
    "stated": {"fp64": 19.5e12, "tf32": 156e12, "bf16": 312e12, "fp16": 312e12, "int8": 624e12},
    "source": "NVIDIA A100 datasheet (2021) and whitepaper",
    "confidence": "high", "checked": "deviceQuery of an A100 (108 SMs, 1410 MHz), Paderborn PC2 wiki; NVIDIA developer forum, topic 244727",
    "note": "A800 has the same tensor peaks with NVLink cut",
}  # fmt: skip

chip(
    "NVIDIA A100-SXM4-80GB", aliases=("A100-SXM-80GB", "NVIDIA A800-SXM4-80GB", "A800 SXM 80GB"),
    shared_names=("A100", "A100 80GB", "A100 SXM", "A100 SXM4"),
    bandwidth=2.039e12, memory=80e9, power=400, **A100,
)  # fmt: skip
chip(
    "NVIDIA A100-SXM4-40GB", aliases=("A100-SXM-40GB", "NVIDIA A800-SXM4-40GB"),
    shared_names=("A100", "A100 40GB", "A100 SXM", "A100 SXM4"),
    bandwidth=1.555e12, memory=40e9, power=400, **A100,
)  # fmt: skip
chip(
    "NVIDIA A100 80GB PCIe", aliases=("A100-PCIE-80GB", "NVIDIA A800 80GB PCIe"), shared_names=("A100", "A100 80GB", "A100 PCIe"),
    bandwidth=1.935e12, memory=80e9, power=300, **A100,
)  # fmt: skip
chip(
    "NVIDIA A100-PCIE-40GB", aliases=("A100 40GB PCIe",), shared_names=("A100", "A100 40GB", "A100 PCIe"),
    bandwidth=1.555e12, memory=40e9, power=250, **A100,
)  # fmt: skip

chip(
    "NVIDIA A30",
    vendor="NVIDIA", architecture="Ampere", compute_capability="8.0", sms=56, mig_slices=4,
    sm_clock=1.440e9, tensor_clock=1.440e9, tensor_clock_status="boost clock", flops_per_cycle=GA100,
    bandwidth=0.933e12, memory=24e9, power=165,
    stated={"fp64": 10.3e12, "tf32": 82e12, "bf16": 165e12, "fp16": 165e12, "int8": 330e12},
    source="NVIDIA A30 datasheet, from memory; memory size and four MIG slices: NVIDIA MIG User Guide",
    confidence="low", note="no second source found; five stated peaks agree with 56 SMs at 1440 MHz and GA100's rates within 0.8 %",
)  # fmt: skip
chip(
    "NVIDIA A10",
    vendor="NVIDIA", architecture="Ampere", compute_capability="8.6", sms=72,
    sm_clock=1.695e9, tensor_clock=1.695e9, tensor_clock_status="boost clock", flops_per_cycle=GA102,
    bandwidth=0.600e12, memory=24e9, power=150,
    stated={"tf32": 62.5e12, "bf16": 125e12, "fp16": 125e12, "int8": 250e12},
    source="NVIDIA A10 datasheet",
    confidence="high", checked="NVIDIA/DCGM#144; karpathy/llm.c#621 quotes the datasheet (125 dense, 250 sparse)",
)  # fmt: skip
chip(
    "NVIDIA A10G",
    vendor="NVIDIA", architecture="Ampere", compute_capability="8.6", sms=80,
    sm_clock=1.710e9, tensor_clock=1.710e9, tensor_clock_status="derived from stated peak",
    flops_per_cycle={"tf32": 256, "bf16": 512, "fp16": 512, "int8": 1024},
    bandwidth=0.600e12, memory=24e9, power=150,
    stated={"tf32": 35e12, "bf16": 70e12, "fp16": 70e12, "int8": 140e12},
    source="figures of AWS's G5 material, from memory; measured BF16 69.5 and TF32 34.7 TFLOP/s: zzc0721/torch-performance-test-data#126",
    confidence="medium", checked="a measured GEMM reaches 99 % of this peak; INT8 is not measured",
    note="sold by AWS only, not an A10 (125): rates per cycle are inferred, half the A10's make eq. 5 give the stated peaks at 1710 MHz",
)  # fmt: skip
chip(
    "NVIDIA A40",
    vendor="NVIDIA", architecture="Ampere", compute_capability="8.6", sms=84,
    sm_clock=1.740e9, tensor_clock=1.740e9, tensor_clock_status="boost clock", flops_per_cycle=GA102,
    bandwidth=0.696e12, memory=48e9, power=300,
    stated={"tf32": 74.8e12, "bf16": 149.7e12, "fp16": 149.7e12, "int8": 299.3e12},
    source="NVIDIA A40 datasheet",
    confidence="high", checked="the datasheet's table as resellers print it (149.7 dense, 299.4 sparse)",
)  # fmt: skip
chip(
    "NVIDIA RTX A6000", aliases=("A6000",),
    vendor="NVIDIA", architecture="Ampere", compute_capability="8.6", sms=84,
    sm_clock=1.800e9, tensor_clock=1.800e9, tensor_clock_status="boost clock", flops_per_cycle=GA102,
    bandwidth=0.768e12, memory=48e9, power=300,
    stated={"tf32": 77.4e12, "bf16": 154.8e12, "fp16": 154.8e12, "int8": 309.7e12},
    source="NVIDIA RTX A6000 datasheet and GA102 whitepaper V2.0, appendix C",
    confidence="high", checked="pytorch/torchtitan#2884 (154.85 dense; 309.7 is sparse)",
    note="the driver allows 2100 MHz (mrirecon/bart#323), so OFU may pass 1",
)  # fmt: skip
chip(
    "NVIDIA GeForce RTX 3090", aliases=("RTX 3090",),
    vendor="NVIDIA", architecture="Ampere", compute_capability="8.6", sms=82,
    sm_clock=1.695e9, tensor_clock=1.695e9, tensor_clock_status="boost clock", flops_per_cycle=GA102_HALF,
    bandwidth=0.936e12, memory=24e9, power=350,
    stated={"tf32": 35.6e12, "bf16": 71e12, "fp16": 71e12, "int8": 284e12},
    source="NVIDIA GA102 whitepaper V2.0, page 44",
    confidence="high", checked="page 44 as quoted in apoorvkh/academic-pretraining#3; modula-systems/modula#1",
    note="FP16 with FP16 accumulation is 142; boards boost past 1695 MHz, so OFU may pass 1",
)  # fmt: skip
