"""Ampere (compute capability 8.0: GA100; 8.6: GA102 and smaller; 8.7: Orin)."""

from __future__ import annotations

from ullage.gpus.chip import chip
from ullage.gpus.links import MIB, Link, Pcie

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
    "pcie": Pcie(4, 16), "l2": 40 * MIB, "l2_bandwidth": 5120 * 1.410e9,
    "links_source": "NVIDIA A100 datasheet; L2 and its reads of 5120 B per clock: NVIDIA A100 whitepaper",
}  # fmt: skip
NVLINK_3 = Link("NVLink 3", 600e9)
# NVLink is cut for export to China, and nothing else.
A800 = {**A100, "link": Link("NVLink 3", 400e9), "source": "NVIDIA A800 datasheet; tensor peaks as A100"}

chip(
    "NVIDIA A100-SXM4-80GB", aliases=("A100-SXM-80GB",), shared_names=("A100", "A100 80GB", "A100 SXM", "A100 SXM4"),
    bandwidth=2.039e12, memory_clock=1.593e9, memory=80e9, power=400, link=NVLINK_3, **A100,
)  # fmt: skip
chip(
    "NVIDIA A100-SXM4-40GB", aliases=("A100-SXM-40GB",), shared_names=("A100", "A100 40GB", "A100 SXM", "A100 SXM4"),
    bandwidth=1.555e12, memory_clock=1.215e9, memory=40e9, power=400, link=NVLINK_3, **A100,
)  # fmt: skip
chip(
    "NVIDIA A100 80GB PCIe", aliases=("A100-PCIE-80GB",), shared_names=("A100", "A100 80GB", "A100 PCIe"),
    bandwidth=1.935e12, memory_clock=1.512e9, memory=80e9, power=300, link=NVLINK_3, **A100,
)  # fmt: skip
chip(
    "NVIDIA A100-PCIE-40GB", aliases=("A100 40GB PCIe",), shared_names=("A100", "A100 40GB", "A100 PCIe"),
    bandwidth=1.555e12, memory_clock=1.215e9, memory=40e9, power=250, link=NVLINK_3, **A100,
)  # fmt: skip
chip(
    "NVIDIA A800-SXM4-80GB", aliases=("A800 SXM 80GB",), shared_names=("A800", "A800 80GB", "A800 SXM", "A800 SXM4"),
    bandwidth=2.039e12, memory_clock=1.593e9, memory=80e9, power=400, **A800,
)  # fmt: skip
chip(
    "NVIDIA A800-SXM4-40GB", shared_names=("A800", "A800 40GB", "A800 SXM", "A800 SXM4"),
    bandwidth=1.555e12, memory_clock=1.215e9, memory=40e9, power=400, **A800,
)  # fmt: skip
chip(
    "NVIDIA A800 80GB PCIe", aliases=("A800-PCIE-80GB", "NVIDIA A800 80GB PCIe LC"), shared_names=("A800", "A800 80GB", "A800 PCIe"),
    bandwidth=1.935e12, memory_clock=1.512e9, memory=80e9, power=300, **A800,
)  # fmt: skip
chip(
    "NVIDIA A800 40GB Active", shared_names=("A800", "A800 40GB", "A800 PCIe"),
    bandwidth=1.555e12, memory=40e9, power=240, **A800,
)  # fmt: skip
chip(
    "NVIDIA A100-SXM-64GB", aliases=("A100 64GB", "A100 SXM4 64GB"),
    vendor="NVIDIA", architecture="Ampere", compute_capability="8.0", sms=124, mig_slices=7,
    sm_clock=1.410e9, tensor_clock=1.410e9, tensor_clock_status="same silicon", flops_per_cycle=GA100,
    bandwidth=1.640e12, memory=64e9, power=479, stated={"fp64": 22.4e12},
    source="Turisini et al., LEONARDO (arXiv:2307.16885), from memory: 124 SMs, 22.4 TFLOP/s FP64 with tensor cores",
    confidence="medium", checked="124 SMs: TOP500 counts 1,824,768 cores of 3,456 nodes, each 32 of its CPU and 4 × 124",
    note="made for Leonardo, with 16 SMs more than the A100; limits of 467 and 479 W are seen in public nvidia-smi outputs",
    pcie=Pcie(4, 16), links_source="Leonardo's user guide (nodes of PCIe 4); NVLink is not stated per GPU",
)  # fmt: skip

chip(
    "NVIDIA A30",
    vendor="NVIDIA", architecture="Ampere", compute_capability="8.0", sms=56, mig_slices=4,
    sm_clock=1.440e9, tensor_clock=1.440e9, tensor_clock_status="boost clock", flops_per_cycle=GA100,
    bandwidth=0.933e12, memory_clock=1.215e9, memory=24e9, power=165,
    stated={"fp64": 10.3e12, "tf32": 82e12, "bf16": 165e12, "fp16": 165e12, "int8": 330e12},
    source="NVIDIA A30 datasheet; memory size and four MIG slices: NVIDIA MIG User Guide",
    confidence="high", checked="56 SMs, 1440 MHz, 933 GB/s and 24 MiB of L2: public nvbench reports of an A30",
    link=Link("NVLink 3", 200e9), pcie=Pcie(4, 16), l2=24 * MIB, links_source="NVIDIA A30 datasheet; L2: nvbench reports of an A30",
)  # fmt: skip

# Boards of GA102 and its smaller sisters.
PROFESSIONAL = {
    "vendor": "NVIDIA", "architecture": "Ampere", "compute_capability": "8.6",
    "tensor_clock_status": "boost clock", "flops_per_cycle": GA102,
}  # fmt: skip
BRIDGE = Link("NVLink 3", 112.5e9)
GA102_LINKS = {"pcie": Pcie(4, 16), "l2": 6 * MIB, "links_source": "the board's datasheet; L2: NVIDIA GA102 whitepaper V2.0, appendix"}

chip(
    "NVIDIA A10", sms=72, sm_clock=1.695e9, tensor_clock=1.695e9,
    bandwidth=0.600e12, memory_clock=6.251e9, memory=24e9, power=150,
    stated={"tf32": 62.5e12, "bf16": 125e12, "fp16": 125e12, "int8": 250e12},
    source="NVIDIA A10 datasheet",
    confidence="high", checked="NVIDIA/DCGM#144; karpathy/llm.c#621 quotes the datasheet (125 dense, 250 sparse)",
    **PROFESSIONAL, **GA102_LINKS,
)  # fmt: skip
chip(
    "NVIDIA A10G",
    vendor="NVIDIA", architecture="Ampere", compute_capability="8.6", sms=80,
    sm_clock=1.710e9, tensor_clock=1.710e9, tensor_clock_status="derived from stated peak",
    flops_per_cycle={"tf32": 256, "bf16": 512, "fp16": 512, "int8": 1024},
    bandwidth=0.600e12, memory_clock=6.251e9, memory=24e9, power=300,
    stated={"tf32": 35e12, "bf16": 70e12, "fp16": 70e12, "int8": 140e12},
    source="figures of AWS's G5 material, from memory; measured BF16 69.5 and TF32 34.7 TFLOP/s: zzc0721/torch-performance-test-data#126; "
    "80 SMs, 6 MiB of L2 and 300 W: its driver (public torch and nvidia-smi outputs)",
    confidence="medium", checked="a measured GEMM reaches 99 % of this peak; INT8 is not measured",
    note="sold by AWS only, not an A10 (125): rates per cycle are inferred, half the A10's make eq. 5 give the stated peaks at 1710 MHz",
    l2=6 * MIB, links_source="L2: its driver (public torch output)",
)  # fmt: skip
CAPPED = "the power limit keeps the clock under load far below the boost clock, so OFU tops out well under 1"
chip(
    "NVIDIA A2", sms=10, sm_clock=1.770e9, tensor_clock=1.770e9,
    bandwidth=0.200e12, memory_clock=6.251e9, memory=16e9, power=60, stated={"tf32": 9e12, "bf16": 18e12, "fp16": 18e12, "int8": 36e12},
    source="NVIDIA A2 datasheet",
    confidence="high", checked="10 SMs and 1770 MHz: GPU databases", note=CAPPED,
    pcie=Pcie(4, 8), links_source="NVIDIA A2 datasheet", **PROFESSIONAL,
)  # fmt: skip
chip(
    "NVIDIA A16", sms=10, sm_clock=1.755e9, tensor_clock=1.755e9,
    bandwidth=0.200e12, memory_clock=6.251e9, memory=16e9, power=62.5, stated={"tf32": 9e12, "fp16": 17.9e12, "int8": 35.9e12},
    source="NVIDIA A16 datasheet (prints four of each: a board of 250 W holds four GPUs)",
    confidence="high", checked="10 SMs and 1755 MHz: GPU databases", note=CAPPED, **PROFESSIONAL,
)  # fmt: skip
chip(
    "NVIDIA A40", sms=84, sm_clock=1.740e9, tensor_clock=1.740e9,
    bandwidth=0.696e12, memory_clock=7.251e9, memory=48e9, power=300,
    stated={"tf32": 74.8e12, "bf16": 149.7e12, "fp16": 149.7e12, "int8": 299.3e12},
    source="NVIDIA A40 datasheet",
    confidence="high", checked="the datasheet's table as resellers print it (149.7 dense, 299.4 sparse)",
    link=BRIDGE, **PROFESSIONAL, **GA102_LINKS,
)  # fmt: skip
chip(
    "NVIDIA RTX A6000", aliases=("A6000",), sms=84, sm_clock=1.800e9, tensor_clock=1.800e9,
    bandwidth=0.768e12, memory_clock=8.001e9, memory=48e9, power=300,
    stated={"tf32": 77.4e12, "bf16": 154.8e12, "fp16": 154.8e12, "int8": 309.7e12},
    source="NVIDIA RTX A6000 datasheet and GA102 whitepaper V2.0, appendix C",
    confidence="high", checked="pytorch/torchtitan#2884 (154.85 dense; 309.7 is sparse)",
    note="the driver allows 2100 MHz (mrirecon/bart#323), so OFU may pass 1", link=BRIDGE, **PROFESSIONAL, **GA102_LINKS,
)  # fmt: skip
# name, SMs, clock in MHz, GB, GB/s, W, the datasheet's "tensor performance" in TFLOP/s (sparse FP16, twice the dense)
for name, sms, clock, memory, bandwidth, power, tensor in (
    ("RTX A5500", 80, 1665, 24, 768, 230, 272.8),
    ("RTX A5000", 64, 1695, 24, 768, 230, 222.2),
    ("RTX A4500", 56, 1650, 20, 640, 200, 189.2),
):
    chip(
        f"NVIDIA {name}", aliases=(name.removeprefix("RTX "),), sms=sms, sm_clock=clock * 1e6, tensor_clock=clock * 1e6,
        bandwidth=bandwidth * 1e9, memory=memory * 1e9, power=power, stated={"bf16": tensor / 2 * 1e12, "fp16": tensor / 2 * 1e12},
        source=f"NVIDIA {name} datasheet ({tensor} TFLOP/s with sparsity; halved)",
        confidence="high", checked="SMs and clock: GPU databases", link=BRIDGE, **PROFESSIONAL, **GA102_LINKS,
    )  # fmt: skip
for name, sms, clock, memory, bandwidth, power, tensor in (
    ("RTX A4000", 48, 1560, 16, 448, 140, 153.4),
    ("RTX A2000 12GB", 26, 1200, 12, 288, 70, 63.9),
    ("RTX A2000", 26, 1200, 6, 288, 70, 63.9),
):
    chip(
        f"NVIDIA {name}", aliases=(name.removeprefix("RTX "),), sms=sms, sm_clock=clock * 1e6, tensor_clock=clock * 1e6,
        bandwidth=bandwidth * 1e9, memory=memory * 1e9, power=power, stated={"bf16": tensor / 2 * 1e12, "fp16": tensor / 2 * 1e12},
        source=f"NVIDIA {name} datasheet ({tensor} TFLOP/s with sparsity; halved)",
        confidence="high", checked="SMs and clock: GPU databases",
        pcie=Pcie(4, 16), links_source=f"NVIDIA {name} datasheet", **PROFESSIONAL,
    )  # fmt: skip

GEFORCE = {
    "vendor": "NVIDIA", "architecture": "Ampere", "compute_capability": "8.6",
    "tensor_clock_status": "boost clock", "flops_per_cycle": GA102_HALF,
}  # fmt: skip
BOOSTS = "boards boost past the stated clock, so OFU may pass 1"
chip(
    "NVIDIA GeForce RTX 3090", aliases=("RTX 3090",), sms=82, sm_clock=1.695e9, tensor_clock=1.695e9,
    bandwidth=0.936e12, memory_clock=9.751e9, memory=24e9, power=350,
    stated={"tf32": 35.6e12, "bf16": 71e12, "fp16": 71e12, "int8": 284e12},
    source="NVIDIA GA102 whitepaper V2.0, page 44",
    confidence="high", checked="page 44 as quoted in apoorvkh/academic-pretraining#3; modula-systems/modula#1",
    note=f"FP16 with FP16 accumulation is 142; {BOOSTS}", link=BRIDGE, **GEFORCE, **GA102_LINKS,
)  # fmt: skip
# name, SMs, clock in MHz, GB, GB/s, W, NVIDIA's "tensor cores" in TFLOP/s: FP16, FP16 accumulation, sparse; a quarter is dense with FP32
for name, sms, clock, memory, bandwidth, power, tensor in (
    ("RTX 3090 Ti", 84, 1860, 24, 1008, 450, 320),
    ("RTX 3080 Ti", 80, 1665, 12, 912, 350, 273),
    ("RTX 3080", 68, 1710, 10, 760, 320, 238),
    ("RTX 3070 Ti", 48, 1770, 8, 608, 290, 174),
    ("RTX 3070", 46, 1725, 8, 448, 220, 163),
    ("RTX 3060 Ti", 38, 1665, 8, 448, 200, 130),
    ("RTX 3060", 28, 1777, 12, 360, 170, 102),
):
    chip(
        f"NVIDIA GeForce {name}", aliases=(name,), sms=sms, sm_clock=clock * 1e6, tensor_clock=clock * 1e6,
        bandwidth=bandwidth * 1e9, memory=memory * 1e9, power=power, stated={"fp16": tensor / 4 * 1e12},
        source=f"NVIDIA GeForce 30 series comparison ({tensor} TFLOP/s sparse FP16 with FP16 accumulation; a quarter)",
        confidence="high", checked="rates: NVIDIA GA102 whitepaper V2.0; SMs and clock: GPU databases", note=BOOSTS,
        caution="its 12 GB board has the same name, 70 SMs and a peak 3 % higher" if name == "RTX 3080" else "",
        pcie=Pcie(4, 16), links_source="NVIDIA GA102 whitepaper V2.0 and product pages", **GEFORCE,
    )  # fmt: skip

# module, SMs, clock in MHz, GB, GB/s, W, the GPU's sparse INT8 in TOP/s (the module's figure may add its DLAs)
for name, sms, clock, memory, rate, power, tops in (
    ("Jetson AGX Orin 64GB", 16, 1300, 64, 204.8, 60, 170),
    ("Jetson AGX Orin 32GB", 14, 930, 32, 204.8, 40, 108),
    ("Jetson Orin Nano 8GB", 8, 1020, 8, 102.4, 25, 67),
):
    chip(
        f"NVIDIA {name}", shared_names=("Orin", "Orin (nvgpu)", "Tegra Orin (nvgpu)", name.rpartition(" ")[0]),
        vendor="NVIDIA", architecture="Ampere", compute_capability="8.7", sms=sms,
        sm_clock=clock * 1e6, tensor_clock=clock * 1e6, tensor_clock_status="boost clock", flops_per_cycle={"fp16": 2048, "int8": 4096},
        bandwidth=rate * 1e9, memory=memory * 1e9, power=power, stated={"int8": tops / 2 * 1e12},
        source=f"NVIDIA {name} specifications and technical brief ({tops} TOP/s sparse INT8 of the GPU; halved)",
        confidence="medium", checked="SMs: deviceQuery outputs; clocks: NVIDIA's comparison of Jetson modules",
        caution="the rate of FP16 is inferred: half that of INT8", note="the driver calls every module of the family 'Orin'",
        l2=4 * MIB if sms == 16 else None, links_source="L2: deviceQuery of an AGX Orin" if sms == 16 else "",
    )  # fmt: skip
