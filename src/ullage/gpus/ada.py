"""Ada Lovelace (compute capability 8.9)."""

from __future__ import annotations

from ullage.gpus.chip import chip
from ullage.gpus.links import MIB, Pcie

ADA = {"tf32": 512, "bf16": 1024, "fp16": 1024, "fp8": 2048, "int8": 2048}
ADA_HALF = {"tf32": 256, "bf16": 512, "fp16": 512, "fp8": 1024, "int8": 1024}
# GeForce boards accumulate in FP32 at half rate; integers are not slowed.
ADA_GEFORCE = {"tf32": 256, "bf16": 512, "fp16": 512, "fp8": 1024, "int8": 2048}
BOARD = {"vendor": "NVIDIA", "architecture": "Ada", "compute_capability": "8.9"}
BOOSTS = "boards boost past the stated clock, so OFU may pass 1"
WHITEPAPER = "NVIDIA Ada GPU architecture whitepaper V2.1"

chip(
    "NVIDIA L4", sms=58,
    sm_clock=2.040e9, tensor_clock=2.040e9, tensor_clock_status="boost clock", flops_per_cycle=ADA,
    bandwidth=0.300e12, memory_clock=6.251e9, memory=24e9, power=72,
    stated={"tf32": 60e12, "bf16": 121e12, "fp16": 121e12, "fp8": 242.5e12, "int8": 242.5e12},
    source="NVIDIA L4 datasheet (prints sparse figures: 120, 242, 485, 485; halved)",
    confidence="high", checked="sparse figures and 2040 MHz as resellers and GPU databases print them; 7,424 CUDA cores are 58 SMs",
    note="at 72 W the clock under load stays far below 2040 MHz (71 TFLOP/s measured), so OFU tops out well under 1",
    pcie=Pcie(4, 16), l2=48 * MIB, links_source=f"NVIDIA L4 datasheet; L2: {WHITEPAPER}, appendix", **BOARD,
)  # fmt: skip
chip(
    "NVIDIA L40", sms=142,
    sm_clock=2.490e9, tensor_clock=2.490e9, tensor_clock_status="boost clock", flops_per_cycle=ADA_HALF,
    bandwidth=0.864e12, memory_clock=9.001e9, memory=48e9, power=300,
    stated={"tf32": 90.5e12, "bf16": 181.05e12, "fp16": 181.05e12, "fp8": 362e12, "int8": 362e12},
    source="NVIDIA L40 datasheet",
    confidence="high", checked="verl utils/flops_counter.py",
    note="half the L40S's rate per cycle on the same die",
    pcie=Pcie(4, 16), l2=96 * MIB, links_source=f"NVIDIA L40 datasheet; L2: {WHITEPAPER}, appendix", **BOARD,
)  # fmt: skip
chip(
    "NVIDIA L40S", sms=142,
    sm_clock=2.520e9, tensor_clock=2.520e9, tensor_clock_status="boost clock", flops_per_cycle=ADA,
    bandwidth=0.864e12, memory_clock=9.001e9, memory=48e9, power=350,
    stated={"tf32": 183e12, "bf16": 362.05e12, "fp16": 362.05e12, "fp8": 733e12, "int8": 733e12},
    source="NVIDIA L40S datasheet",
    confidence="medium", checked="stas00/ml-engineering compute/accelerator; inference-sim/inference-sim#1738",
    note="the datasheet disagrees with itself by 1.2 %: 362.05 dense, but 733 sparse is 366.5 dense; eq. 5 at 2520 MHz gives 366.4",
    pcie=Pcie(4, 16), links_source="NVIDIA L40S datasheet", **BOARD,
)  # fmt: skip
chip(
    "NVIDIA L20", sms=92,
    sm_clock=2.520e9, tensor_clock=2.520e9, tensor_clock_status="boost clock", flops_per_cycle=ADA_HALF,
    bandwidth=0.864e12, memory_clock=9.001e9, memory=48e9, power=275,
    stated={"tf32": 59.8e12, "bf16": 119.5e12, "fp16": 119.5e12, "fp8": 239e12, "int8": 239e12},
    source="NVIDIA L20's figures as verl utils/flops_counter.py and resellers print them (119.5 BF16)",
    confidence="medium", checked="a GEMM was measured at 115 FP16 (xlite-dev/LeetCUDA); 92 SMs and 2520 MHz: GPU databases",
    pcie=Pcie(4, 16), links_source="GPU databases", **BOARD,
)  # fmt: skip
chip(
    "NVIDIA L2", sms=58,
    sm_clock=None, tensor_clock=96.5e12 / (58 * 1024), tensor_clock_status="derived from stated peak", flops_per_cycle=ADA,
    bandwidth=0.300e12, memory=24e9, power=72,
    stated={"tf32": 48.3e12, "bf16": 96.5e12, "fp16": 96.5e12, "fp8": 193e12, "int8": 193e12},
    source="press figures of 2023, from memory (96.5, 193; 24 GB at 300 GB/s); the SM count and power are taken over from the L4",
    confidence="low", **BOARD,
)  # fmt: skip
chip(
    "NVIDIA RTX 6000 Ada Generation", aliases=("RTX 6000 Ada",), shared_names=("RTX 6000",), sms=142,
    sm_clock=2.505e9, tensor_clock=2.505e9, tensor_clock_status="boost clock", flops_per_cycle=ADA,
    bandwidth=0.960e12, memory_clock=10.001e9, memory=48e9, power=300,
    stated={"tf32": 182.1e12, "bf16": 364.2e12, "fp16": 364.2e12, "fp8": 728.5e12, "int8": 728.5e12},
    source="NVIDIA RTX 6000 Ada datasheet (1457 TFLOP/s sparse FP8; halved)",
    confidence="medium", checked="142 SMs and 2505 MHz: GPU databases (one news article says 2535); 364.25: modula-systems/modula#1",
    pcie=Pcie(4, 16), l2=96 * MIB, links_source=f"the board's datasheet; L2: {WHITEPAPER}, appendix", **BOARD,
)  # fmt: skip
# name, SMs, boost clock in MHz, GB, GB/s, W, the datasheet's "tensor performance" in TFLOP/s (sparse FP8, twice the dense)
for name, sms, clock, memory, bandwidth, power, tensor in (
    ("RTX 5880 Ada", 110, 2460, 48, 960, 285, 1108.4),
    ("RTX 5000 Ada", 100, 2550, 32, 576, 250, 1044.4),
    ("RTX 4500 Ada", 60, 2580, 24, 432, 210, 634.0),
    ("RTX 4000 SFF Ada", 48, 1560, 20, 280, 70, 306.8),
    ("RTX 2000 Ada", 22, 2130, 16, 224, 70, 191.9),
):
    chip(
        f"NVIDIA {name} Generation", aliases=(name,), sms=sms,
        sm_clock=clock * 1e6, tensor_clock=clock * 1e6, tensor_clock_status="boost clock", flops_per_cycle=ADA,
        bandwidth=bandwidth * 1e9, memory=memory * 1e9, power=power, stated={"fp8": tensor / 2 * 1e12},
        source=f"NVIDIA {name} Generation datasheet ({tensor} TFLOP/s sparse FP8; halved)",
        confidence="medium", checked="SMs and boost clock: GPU databases",
        pcie=Pcie(4, 8 if sms == 22 else 16), links_source=f"NVIDIA {name} Generation datasheet", **BOARD,
    )  # fmt: skip
chip(
    "NVIDIA RTX 4000 Ada Generation", aliases=("RTX 4000 Ada",), sms=48,
    sm_clock=2.175e9, tensor_clock=163.8e12 / (48 * 2048), tensor_clock_status="derived from stated peak", flops_per_cycle=ADA,
    bandwidth=0.360e12, memory=20e9, power=130, stated={"fp8": 163.8e12},
    source="NVIDIA RTX 4000 Ada Generation datasheet (327.6 TFLOP/s sparse FP8; halved)",
    confidence="medium", checked="48 SMs and 2175 MHz: GPU databases",
    note="its 26.7 TFLOP/s of FP32 are at 2175 MHz, its tensor performance is not (213.8 FP8), so OFU may pass 1",
    pcie=Pcie(4, 16), links_source="NVIDIA RTX 4000 Ada Generation datasheet", **BOARD,
)  # fmt: skip
chip(
    "NVIDIA GeForce RTX 4090", aliases=("RTX 4090",), sms=128,
    sm_clock=2.520e9, tensor_clock=2.520e9, tensor_clock_status="boost clock", flops_per_cycle=ADA_GEFORCE,
    bandwidth=1.008e12, memory_clock=10.501e9, memory=24e9, power=450,
    stated={"tf32": 82.6e12, "bf16": 165.2e12, "fp16": 165.2e12, "fp8": 330.3e12, "int8": 660.6e12},
    source=WHITEPAPER,
    confidence="high", checked="modula-systems/modula#1",
    note=f"with FP16 accumulation FP16 is 330.3 and FP8 660.6; {BOOSTS}",
    pcie=Pcie(4, 16), l2=72 * MIB, links_source=f"{WHITEPAPER}, appendix A", **BOARD,
)  # fmt: skip
# name, SMs, boost clock in MHz, GB, GB/s, W, NVIDIA's "AI TOPS" (sparse INT8, twice the dense), PCIe lanes
for name, sms, clock, memory, bandwidth, power, tops, lanes in (
    ("RTX 4090 D", 114, 2520, 24, 1008, 425, 1177, 16),
    ("RTX 4080 SUPER", 80, 2550, 16, 736, 320, 836, 16),
    ("RTX 4080", 76, 2505, 16, 717, 320, 780, 16),
    ("RTX 4070 Ti SUPER", 66, 2610, 16, 672, 285, 706, 16),
    ("RTX 4070 Ti", 60, 2610, 12, 504, 285, 641, 16),
    ("RTX 4070 SUPER", 56, 2475, 12, 504, 220, 568, 16),
    ("RTX 4070", 46, 2475, 12, 504, 200, 466, 16),
    ("RTX 4060 Ti", 34, 2535, 8, 288, 160, 353, 8),
    ("RTX 4060", 24, 2460, 8, 272, 115, 242, 8),
):
    chip(
        f"NVIDIA GeForce {name}", aliases=(name,), sms=sms,
        sm_clock=clock * 1e6, tensor_clock=clock * 1e6, tensor_clock_status="boost clock", flops_per_cycle=ADA_GEFORCE,
        bandwidth=bandwidth * 1e9, memory=memory * 1e9, power=power, stated={"int8": tops / 2 * 1e12},
        source=f"NVIDIA GeForce 40 series comparison ({tops} AI TOPS are sparse INT8; halved)",
        confidence="high", checked=f"rates: {WHITEPAPER}, appendix A; SMs and clock: GPU databases",
        note=f"{BOOSTS}; the 16 GB board has the same name" if name == "RTX 4060 Ti" else BOOSTS,
        pcie=Pcie(4, lanes), links_source=f"{WHITEPAPER} and product pages", **BOARD,
    )  # fmt: skip
