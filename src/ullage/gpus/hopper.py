"""Hopper (compute capability 9.0).

The tensor clock is not the SM clock: the H100 whitepaper, table 3, gives 1830 and 1980 MHz for SXM5, 1620 and 1755 MHz for
PCIe; FP64 runs at the higher one (OFU paper, IV-D; NVIDIA developer forum, topic 244727).
"""

from __future__ import annotations

from ullage.gpus.chip import ToldClock, chip
from ullage.gpus.links import MIB, Link, Pcie

# NVIDIA/cudnn-frontend#650 confirms 4096 for BF16 and 8192 for FP8.
HOPPER = {"fp64": 256, "tf32": 2048, "bf16": 4096, "fp16": 4096, "fp8": 8192, "int8": 8192}
NO_FP64 = {precision: rate for precision, rate in HOPPER.items() if precision != "fp64"}
SXM_PEAKS = {"fp64": 66.9e12, "tf32": 494.7e12, "bf16": 989.4e12, "fp16": 989.4e12, "fp8": 1978.9e12, "int8": 1978.9e12}
GPU = {"vendor": "NVIDIA", "architecture": "Hopper", "compute_capability": "9.0", "mig_slices": 7, "pcie": Pcie(5, 16)}
SXM = {**GPU, "sms": 132, "sm_clock": 1.980e9, "tensor_clock": 1.830e9, "precision_clock": {"fp64": 1.980e9}}
PCIE = {**GPU, "sms": 114, "sm_clock": 1.755e9, "tensor_clock": 1.620e9, "precision_clock": {"fp64": 1.755e9}}
NVL = {
    **GPU, "sms": 132, "sm_clock": 1.785e9, "tensor_clock": 1.545e9, "precision_clock": {"fp64": 1.785e9},
    "tensor_clock_status": "derived from stated peak",
}  # fmt: skip
NVLINK_4, BRIDGE, CUT = Link("NVLink 4", 900e9), Link("NVLink 4 bridge", 600e9), Link("NVLink 4", 400e9)
H100_LINKS = "NVIDIA H100 datasheet; L2: NVIDIA H100 whitepaper, table 3"

chip(
    "NVIDIA H100 80GB HBM3", aliases=("H100", "H100 SXM", "H100 SXM5", "H100-SXM-80GB", "H100-SXM5-80GB"), shared_names=("H100 80GB",),
    tensor_clock_status="documented", flops_per_cycle=HOPPER, stated=SXM_PEAKS,
    bandwidth=3.350e12, memory_clock=2.619e9, memory=80e9, power=700,
    source="NVIDIA H100 whitepaper, table 3 (1830 and 1980 MHz); OFU paper, IV-D",
    confidence="high", checked="NVIDIA/cudnn-frontend#650 (132 SMs, 1.83 GHz, 4096)",
    note="the driver's bare 'NVIDIA H100' is a board of 64, 94 or 96 GB: the same peaks, other memory",
    link=NVLINK_4, l2=50 * MIB, links_source=H100_LINKS, **SXM,
)  # fmt: skip
# GB, kind of memory, TB/s, names of this board alone, names of others too, where the figures are from
for gigabytes, kind, bandwidth, aliases, shared, source in (
    (64, "HBM2e", 2.02, ("H100 SXM5 64GB", "H100 64GB", "H100 64GB HBM2"), (),
     "GPU databases; MareNostrum 5 ACC: 680,960 compute units are 80 CPU cores and 4 × 132 SMs of 1,120 nodes"),
    (94, "HBM2e", 2.396, ("H100 SXM5 94GB",), ("H100 94GB",),
     "TSUBAME 4.0's hardware table (94 GB at 2,395.87 GB/s, peaks as H100 SXM)"),
    (96, "HBM2e", 2.40, (), ("H100 96GB", "H100 SXM5 96GB"), "hardware of pytorch/torchtitan's benchmarks (96 GB of HBM2e at 2.4 TB/s)"),
    (96, "HBM3", 3.36, (), ("H100 96GB", "H100 SXM5 96GB"), "GPU databases (132 SMs, 96 GB at 3.36 TB/s)"),
):  # fmt: skip
    chip(
        f"NVIDIA H100 {gigabytes}GB {kind}", aliases=aliases, shared_names=shared,
        tensor_clock_status="same silicon", flops_per_cycle=HOPPER, stated=SXM_PEAKS,
        bandwidth=bandwidth * 1e12, memory=gigabytes * 1e9, power=700, source=source,
        confidence="medium", checked="132 SMs, 1980 MHz and 700 W: GPU databases and public nvidia-smi outputs",
        note="its driver's name is a bare 'NVIDIA H100', which is taken for the 80 GB board",
        link=NVLINK_4, links_source="NVIDIA HGX H100 datasheet", **SXM,
    )  # fmt: skip
chip(
    "NVIDIA H800", aliases=("H800 SXM", "H800 SXM5", "NVIDIA H800 80GB HBM3"), shared_names=("H800 80GB",),
    tensor_clock_status="same silicon", flops_per_cycle=NO_FP64, stated={**SXM_PEAKS, "fp64": 1e12},
    bandwidth=3.350e12, memory_clock=2.619e9, memory=80e9, power=700,
    source="tensor peaks as H100 SXM: deepseek-ai/FlashMLA#75; verl utils/flops_counter.py",
    confidence="medium", checked="BF16 only", note="FP64 is cut, and its rate per cycle is not documented",
    link=CUT, l2=50 * MIB, links_source="Insights into DeepSeek-V3, arXiv:2505.09343 (NVLink 400 GB/s); L2 as H100", **SXM,
)  # fmt: skip
chip(
    "NVIDIA H100 PCIe", aliases=("H100-PCIE-80GB",), shared_names=("H100 80GB",),
    tensor_clock_status="documented", flops_per_cycle=HOPPER,
    stated={"fp64": 51e12, "tf32": 378e12, "bf16": 756e12, "fp16": 756e12, "fp8": 1513e12, "int8": 1513e12},
    bandwidth=2.000e12, memory_clock=1.593e9, memory=80e9, power=350,
    source="NVIDIA H100 whitepaper, table 3 (1620 and 1755 MHz)",
    confidence="high", checked="NVIDIA developer forum, topic 244727: 114 SMs, 4096, 1620 MHz for tensor cores, 1755 MHz at most",
    link=BRIDGE, l2=50 * MIB, links_source=H100_LINKS, **PCIE,
)  # fmt: skip
chip(
    "NVIDIA H800 PCIe", aliases=("H800-PCIE-80GB",), shared_names=("H800 80GB",),
    tensor_clock_status="same silicon", flops_per_cycle=NO_FP64,
    stated={"tf32": 378e12, "bf16": 756.5e12, "fp16": 756.5e12, "fp8": 1513e12, "int8": 1513e12},
    bandwidth=2.039e12, memory_clock=1.593e9, memory=80e9, power=350,
    source="Hopper microbenchmark paper (arXiv:2402.13499), tables III, VII and VIII; clocks as H100 PCIe",
    confidence="medium", checked="tensor peaks in the paper's captions",
    note="the paper calls 1,755 MHz the highest clock; FP64 is cut, and its rate per cycle is not documented",
    l2=50 * MIB, links_source="Hopper microbenchmark paper, table III (PCIe 5, L2)", **PCIE,
)  # fmt: skip
chip(
    "NVIDIA H100 NVL", aliases=("H100 NVL 94GB",), shared_names=("H100 94GB",), flops_per_cycle=HOPPER,
    stated={"fp64": 60e12, "tf32": 417.5e12, "bf16": 835.5e12, "fp16": 835.5e12, "fp8": 1670.5e12, "int8": 1670.5e12},
    bandwidth=3.938e12, memory_clock=2.619e9, memory=94e9, power=400,
    source="NVIDIA H100 datasheet (per GPU, sparse figures halved); Lightning-AI/pytorch-lightning#21743",
    confidence="medium", checked="BF16 in pytorch/torchtitan tools/utils.py",
    note="the tensor clock is not published: 835.5e12 / (132 × 4096) = 1545 MHz",
    link=BRIDGE, l2=50 * MIB, links_source="NVIDIA H100 datasheet; L2: GPU databases", **NVL,
)  # fmt: skip
chip(
    "NVIDIA H800 NVL", flops_per_cycle=NO_FP64,
    stated={"tf32": 417.5e12, "bf16": 835.5e12, "fp16": 835.5e12, "fp8": 1670.5e12, "int8": 1670.5e12},
    bandwidth=3.938e12, memory=94e9, power=400,
    source="taken over from the H100 NVL: FP64 and NVLink are cut, tensor peaks are not", confidence="low",
    links_source="PCIe 5 as the H100 NVL", **NVL,
)  # fmt: skip
chip(
    "NVIDIA H200", aliases=("H200 SXM", "H200 SXM5", "H200-SXM-141GB", "H200-SXM5-141GB"),
    tensor_clock_status="same silicon", flops_per_cycle=HOPPER, stated=SXM_PEAKS,
    bandwidth=4.800e12, memory_clock=3.201e9, memory=141e9, power=700,
    source="NVIDIA H200 datasheet; stas00/ml-engineering compute/accelerator (same compute as H100 SXM)",
    confidence="high", checked="NVIDIA/cudnn-frontend#650; 1980 MHz: `nvidia-smi -q` in awslabs/amazon-eks-ami#1985",
    link=NVLINK_4, l2=60 * MIB, links_source="NVIDIA H200 datasheet; L2: its driver (public torch output)", **SXM,
    told_clock=ToldClock(1.09, 1.16, "two boards under driver 580.159: sm_clock and ofu_gemm in results/nvidia-h200"),
)  # fmt: skip
chip(
    "NVIDIA H200 NVL", aliases=("H200 NVL 141GB",), flops_per_cycle=HOPPER,
    stated={"fp64": 60e12, "tf32": 418e12, "bf16": 835.5e12, "fp16": 835.5e12, "fp8": 1671e12, "int8": 1671e12},
    bandwidth=4.800e12, memory_clock=3.201e9, memory=141e9, power=600,
    source="NVIDIA H200 datasheet (1,671 TFLOP/s sparse BF16; halved), as quoted in allenai/OLMo-core#810",
    confidence="medium", checked="allenai/OLMo-core#810",
    note="the tensor clock is not published: 835.5e12 / (132 × 4096) = 1545 MHz; a GEMM was measured at 853 (xzwgit/gpu-flops-bench), "
    "so the board runs tensor work above it and OFU may pass 1",
    link=Link("NVLink 4 bridge", 900e9), links_source="NVIDIA H200 datasheet (bridge of 2 or 4)", **NVL,
)  # fmt: skip
for memory, names, bandwidth in (
    (96e9, ("NVIDIA GH200 480GB", "NVIDIA GH200 120GB", "GH200 96GB"), 4.0e12),
    (144e9, ("NVIDIA GH200 144G HBM3e", "GH200 144GB"), 4.9e12),
):
    chip(
        names[0], aliases=names[1:], shared_names=("GH200",),
        tensor_clock_status="same silicon", flops_per_cycle=HOPPER, stated={**SXM_PEAKS, "fp64": 67e12},
        bandwidth=bandwidth, memory_clock=2.619e9 if bandwidth < 4.5e12 else 3.201e9, memory=memory, power=1000,
        source="NVIDIA GH200 datasheet; stas00/ml-engineering compute/accelerator",
        confidence="medium", checked="memory: NVIDIA MIG User Guide and NVIDIA/mig-parted#139",
        note="the driver's name holds the CPU's memory (480, 120) or the GPU's (144G); power can be set from 450 to 1000 W",
        link=NVLINK_4, host_link=Link("NVLink-C2C", 900e9), links_source="NVIDIA GH200 datasheet", **{**SXM, "pcie": None},
    )  # fmt: skip
for name, alias, memory, bandwidth, source in (
    ("NVIDIA H20", "H20 96GB", 96e9, 4.0e12,
     "press figures (148, 74, 296; 78 SMs from Geekbench); pytorch/torchtitan#2307; 500 W: nvidia-smi outputs"),
    ("NVIDIA H20-3e", "H20 141GB", 141e9, 4.8e12,
     "tensor peaks taken over from the H20; 78 SMs and 143,771 MiB: public logs of its driver"),
):  # fmt: skip
    chip(
        name, aliases=(alias,), sms=78,
        sm_clock=1.980e9, tensor_clock=148e12 / (78 * 1024), tensor_clock_status="derived from stated peak",
        flops_per_cycle={"tf32": 512, "bf16": 1024, "fp16": 1024, "fp8": 2048, "int8": 2048},
        stated={"fp64": 1e12, "tf32": 74e12, "bf16": 148e12, "fp16": 148e12, "fp8": 296e12, "int8": 296e12},
        bandwidth=bandwidth, memory_clock=2.619e9 if bandwidth < 4.5e12 else 3.201e9, memory=memory, power=500,
        source=source,
        confidence="low", checked="a GEMM was measured at 142 BF16 and 71.8 TF32: zzc0721/torch-performance-test-data#77",
        note="148 TFLOP/s on 78 SMs is about a quarter of an H100's rate per SM; a quarter exactly (1024) makes the clock 1853 MHz; "
        "the press says 400 W, the driver 500",
        caution="its tensor pipes are slowed by undocumented means: calibrate what tensor activity reads at full load before you quote OFU",
        link=NVLINK_4, links_source="press figures (NVLink 900 GB/s, PCIe 5)", **GPU,
    )  # fmt: skip
