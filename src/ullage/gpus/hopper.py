"""Hopper (compute capability 9.0).

The tensor clock is not the SM clock: the H100 whitepaper, table 3, gives 1830 and 1980 MHz for SXM5, 1620 and 1755 MHz for
PCIe; FP64 runs at the higher one (OFU paper, IV-D; NVIDIA developer forum, topic 244727).
"""

from __future__ import annotations

from ullage.gpus.chip import chip

# NVIDIA/cudnn-frontend#650 confirms 4096 for BF16 and 8192 for FP8.
HOPPER = {"fp64": 256, "tf32": 2048, "bf16": 4096, "fp16": 4096, "fp8": 8192, "int8": 8192}
SXM_PEAKS = {"fp64": 66.9e12, "tf32": 494.7e12, "bf16": 989.4e12, "fp16": 989.4e12, "fp8": 1978.9e12, "int8": 1978.9e12}
SXM = {
    "vendor": "NVIDIA", "architecture": "Hopper", "compute_capability": "9.0", "sms": 132, "mig_slices": 7,
    "sm_clock": 1.980e9, "tensor_clock": 1.830e9, "precision_clock": {"fp64": 1.980e9},
}  # fmt: skip
NVL = {
    "vendor": "NVIDIA", "architecture": "Hopper", "compute_capability": "9.0", "sms": 132, "mig_slices": 7,
    "sm_clock": 1.785e9, "tensor_clock": 1.545e9, "precision_clock": {"fp64": 1.785e9},
    "tensor_clock_status": "derived from stated peak", "flops_per_cycle": HOPPER,
}  # fmt: skip

chip(
    "NVIDIA H100 80GB HBM3", aliases=("H100", "H100 SXM", "H100 SXM5", "H100-SXM-80GB", "H100-SXM5-80GB"), shared_names=("H100 80GB",),
    tensor_clock_status="documented", flops_per_cycle=HOPPER, stated=SXM_PEAKS,
    bandwidth=3.350e12, memory=80e9, power=700,
    source="NVIDIA H100 whitepaper, table 3 (1830 and 1980 MHz); OFU paper, IV-D",
    confidence="high", checked="NVIDIA/cudnn-frontend#650 (132 SMs, 1.83 GHz, 4096)", **SXM,
)  # fmt: skip
chip(
    "NVIDIA H800", aliases=("H800 SXM", "H800 SXM5"),
    tensor_clock_status="same silicon", flops_per_cycle={p: rate for p, rate in HOPPER.items() if p != "fp64"},
    stated={**SXM_PEAKS, "fp64": 1e12},
    bandwidth=3.350e12, memory=80e9, power=700,
    source="tensor peaks as H100 SXM: deepseek-ai/FlashMLA#75; verl utils/flops_counter.py",
    confidence="medium", checked="BF16 only", note="NVLink 400 GB/s; FP64 is cut, and its rate per cycle is not documented", **SXM,
)  # fmt: skip
chip(
    "NVIDIA H100 PCIe", aliases=("H100-PCIE-80GB",), shared_names=("H100 80GB",),
    vendor="NVIDIA", architecture="Hopper", compute_capability="9.0", sms=114, mig_slices=7,
    sm_clock=1.755e9, tensor_clock=1.620e9, precision_clock={"fp64": 1.755e9}, tensor_clock_status="documented", flops_per_cycle=HOPPER,
    stated={"fp64": 51e12, "tf32": 378e12, "bf16": 756e12, "fp16": 756e12, "fp8": 1513e12, "int8": 1513e12},
    bandwidth=2.000e12, memory=80e9, power=350,
    source="NVIDIA H100 whitepaper, table 3 (1620 and 1755 MHz)",
    confidence="high", checked="NVIDIA developer forum, topic 244727: 114 SMs, 4096, 1620 MHz for tensor cores, 1755 MHz at most",
)  # fmt: skip
chip(
    "NVIDIA H800 PCIe", aliases=("H800-PCIE-80GB",),
    vendor="NVIDIA", architecture="Hopper", compute_capability="9.0", sms=114, mig_slices=7,
    sm_clock=1.755e9, tensor_clock=1.620e9, tensor_clock_status="same silicon",
    flops_per_cycle={p: rate for p, rate in HOPPER.items() if p != "fp64"},
    stated={"tf32": 378e12, "bf16": 756.5e12, "fp16": 756.5e12, "fp8": 1513e12, "int8": 1513e12},
    bandwidth=2.039e12, memory=80e9, power=350,
    source="Hopper microbenchmark paper (arXiv:2402.13499), tables III, VII and VIII; clocks as H100 PCIe",
    confidence="medium", checked="tensor peaks in the paper's captions",
    note="the paper calls 1,755 MHz the highest clock; FP64 is cut, and its rate per cycle is not documented",
)  # fmt: skip
chip(
    "NVIDIA H100 NVL", aliases=("H100 NVL 94GB",),
    stated={"fp64": 60e12, "tf32": 417.5e12, "bf16": 835.5e12, "fp16": 835.5e12, "fp8": 1670.5e12, "int8": 1670.5e12},
    bandwidth=3.938e12, memory=94e9, power=400,
    source="NVIDIA H100 datasheet (per GPU, sparse figures halved); Lightning-AI/pytorch-lightning#21743",
    confidence="medium", checked="BF16 in pytorch/torchtitan tools/utils.py",
    note="the tensor clock is not published: 835.5e12 / (132 × 4096) = 1545 MHz", **NVL,
)  # fmt: skip
chip(
    "NVIDIA H200", aliases=("H200 SXM", "H200 SXM5", "H200-SXM-141GB", "H200-SXM5-141GB"),
    tensor_clock_status="same silicon", flops_per_cycle=HOPPER, stated=SXM_PEAKS,
    bandwidth=4.800e12, memory=141e9, power=700,
    source="NVIDIA H200 datasheet; stas00/ml-engineering compute/accelerator (same compute as H100 SXM)",
    confidence="high", checked="NVIDIA/cudnn-frontend#650; 1980 MHz: `nvidia-smi -q` in awslabs/amazon-eks-ami#1985", **SXM,
)  # fmt: skip
chip(
    "NVIDIA H200 NVL", aliases=("H200 NVL 141GB",),
    stated={"fp64": 60e12, "tf32": 418e12, "bf16": 835.5e12, "fp16": 835.5e12, "fp8": 1671e12, "int8": 1671e12},
    bandwidth=4.800e12, memory=141e9, power=600,
    source="NVIDIA H200 datasheet (1,671 TFLOP/s sparse BF16; halved), as quoted in allenai/OLMo-core#810",
    confidence="medium", checked="allenai/OLMo-core#810",
    note="the tensor clock is not published: 835.5e12 / (132 × 4096) = 1545 MHz; a GEMM was measured at 853 (xzwgit/gpu-flops-bench), "
    "so the board runs tensor work above it and OFU may pass 1", **NVL,
)  # fmt: skip
for memory, names, bandwidth in (
    (96e9, ("NVIDIA GH200 480GB", "NVIDIA GH200 120GB", "GH200 96GB"), 4.0e12),
    (144e9, ("NVIDIA GH200 144G HBM3e", "GH200 144GB"), 4.9e12),
):
    chip(
        names[0], aliases=names[1:], shared_names=("GH200",),
        tensor_clock_status="same silicon", flops_per_cycle=HOPPER, stated={**SXM_PEAKS, "fp64": 67e12},
        bandwidth=bandwidth, memory=memory, power=1000,
        source="NVIDIA GH200 datasheet; stas00/ml-engineering compute/accelerator",
        confidence="medium", checked="memory: NVIDIA MIG User Guide and NVIDIA/mig-parted#139",
        note="the driver's name holds the CPU's memory (480, 120) or the GPU's (144G); power can be set from 450 to 1000 W", **SXM,
    )  # fmt: skip
chip(
    "NVIDIA H20",
    vendor="NVIDIA", architecture="Hopper", compute_capability="9.0", sms=78, mig_slices=7,
    sm_clock=1.980e9, tensor_clock=148e12 / (78 * 1024), tensor_clock_status="derived from stated peak",
    flops_per_cycle={"tf32": 512, "bf16": 1024, "fp16": 1024, "fp8": 2048, "int8": 2048},
    stated={"fp64": 1e12, "tf32": 74e12, "bf16": 148e12, "fp16": 148e12, "fp8": 296e12, "int8": 296e12},
    bandwidth=4.000e12, memory=96e9, power=400,
    source="press figures (148, 74, 296; 78 SMs from Geekbench); pytorch/torchtitan#2307",
    confidence="low", checked="a GEMM was measured at 142 BF16 and 71.8 TF32: zzc0721/torch-performance-test-data#77",
    note="148 TFLOP/s on 78 SMs is about a quarter of an H100's rate per SM; a quarter exactly (1024) makes the clock 1853 MHz",
    caution="its tensor pipes are slowed by undocumented means: calibrate what tensor activity reads at full load before you quote OFU",
)  # fmt: skip
