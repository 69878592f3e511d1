"""Ada Lovelace (compute capability 8.9)."""

from __future__ import annotations

from ullage.gpus.chip import chip

ADA = {"tf32": 512, "bf16": 1024, "fp16": 1024, "fp8": 2048, "int8": 2048}

chip(
    "NVIDIA L4",
    vendor="NVIDIA", architecture="Ada", compute_capability="8.9", sms=58,
    sm_clock=2.040e9, tensor_clock=2.040e9, tensor_clock_status="boost clock", flops_per_cycle=ADA,
    bandwidth=0.300e12, memory=24e9, power=72,
    stated={"tf32": 60e12, "bf16": 121e12, "fp16": 121e12, "fp8": 242.5e12, "int8": 242.5e12},
    source="NVIDIA L4 datasheet (prints sparse figures: 120, 242, 485, 485; halved)",
    confidence="high", checked="sparse figures and 2040 MHz as resellers and GPU databases print them; 7,424 CUDA cores are 58 SMs",
    note="at 72 W the clock under load stays far below 2040 MHz (71 TFLOP/s measured), so OFU tops out well under 1",
)  # fmt: skip
chip(
    "NVIDIA L40",
    vendor="NVIDIA", architecture="Ada", compute_capability="8.9", sms=142,
    sm_clock=2.490e9, tensor_clock=2.490e9, tensor_clock_status="boost clock",
    flops_per_cycle={"tf32": 256, "bf16": 512, "fp16": 512, "fp8": 1024, "int8": 1024},
    bandwidth=0.864e12, memory=48e9, power=300,
    stated={"tf32": 90.5e12, "bf16": 181.05e12, "fp16": 181.05e12, "fp8": 362e12, "int8": 362e12},
    source="NVIDIA L40 datasheet",
    confidence="high", checked="verl utils/flops_counter.py",
    note="half the L40S's rate per cycle on the same die",
)  # fmt: skip
chip(
    "NVIDIA L40S",
    vendor="NVIDIA", architecture="Ada", compute_capability="8.9", sms=142,
    sm_clock=2.520e9, tensor_clock=2.520e9, tensor_clock_status="boost clock", flops_per_cycle=ADA,
    bandwidth=0.864e12, memory=48e9, power=350,
    stated={"tf32": 183e12, "bf16": 362.05e12, "fp16": 362.05e12, "fp8": 733e12, "int8": 733e12},
    source="NVIDIA L40S datasheet",
    confidence="medium", checked="stas00/ml-engineering compute/accelerator; inference-sim/inference-sim#1738",
    note="the datasheet disagrees with itself by 1.2 %: 362.05 dense, but 733 sparse is 366.5 dense; eq. 5 at 2520 MHz gives 366.4",
)  # fmt: skip
chip(
    "NVIDIA RTX 6000 Ada Generation", aliases=("RTX 6000 Ada",), shared_names=("RTX 6000",),
    vendor="NVIDIA", architecture="Ada", compute_capability="8.9", sms=142,
    sm_clock=2.505e9, tensor_clock=2.505e9, tensor_clock_status="boost clock", flops_per_cycle=ADA,
    bandwidth=0.960e12, memory=48e9, power=300,
    stated={"tf32": 182.1e12, "bf16": 364.2e12, "fp16": 364.2e12, "fp8": 728.5e12, "int8": 728.5e12},
    source="NVIDIA RTX 6000 Ada datasheet (1457 TFLOP/s sparse FP8; halved)",
    confidence="medium", checked="142 SMs and 2505 MHz: GPU databases (one news article says 2535); 364.25: modula-systems/modula#1",
)  # fmt: skip
chip(
    "NVIDIA GeForce RTX 4090", aliases=("RTX 4090",),
    vendor="NVIDIA", architecture="Ada", compute_capability="8.9", sms=128,
    sm_clock=2.520e9, tensor_clock=2.520e9, tensor_clock_status="boost clock",
    flops_per_cycle={"tf32": 256, "bf16": 512, "fp16": 512, "fp8": 1024, "int8": 2048},
    bandwidth=1.008e12, memory=24e9, power=450,
    stated={"tf32": 82.6e12, "bf16": 165.2e12, "fp16": 165.2e12, "fp8": 330.3e12, "int8": 660.6e12},
    source="NVIDIA Ada GPU architecture whitepaper V2.1",
    confidence="high", checked="modula-systems/modula#1",
    note="with FP16 accumulation FP16 is 330.3 and FP8 660.6; boards boost past 2520 MHz, so OFU may pass 1",
)  # fmt: skip
