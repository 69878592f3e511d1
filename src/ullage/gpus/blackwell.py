"""Blackwell: data-centre chips (compute capability 10.0, Ultra 10.3) and GB202 (12.0)."""

from __future__ import annotations

from ullage.gpus.chip import chip

# NVIDIA/cudnn-frontend (benchmarks) confirms BF16: 8192 for compute capability 10.x and 1024 for 12.x.
BLACKWELL = {"tf32": 4096, "bf16": 8192, "fp16": 8192, "fp8": 16384, "int8": 16384, "fp4": 32768}
ULTRA = {"tf32": 4096, "bf16": 8192, "fp16": 8192, "fp8": 16384, "fp4": 49152}

chip(
    "NVIDIA B100",
    vendor="NVIDIA", architecture="Blackwell", compute_capability="10.0", sms=148,
    sm_clock=None, tensor_clock=1750e12 / (148 * 8192), tensor_clock_status="derived from stated peak", flops_per_cycle=BLACKWELL,
    bandwidth=8.0e12, memory=192e9, power=700,
    stated={"fp64": 30e12, "tf32": 875e12, "bf16": 1750e12, "fp16": 1750e12, "fp8": 3500e12, "int8": 3500e12, "fp4": 7000e12},
    source="NVIDIA Blackwell architecture technical brief (preliminary); stas00/ml-engineering compute/accelerator",
    confidence="low", checked="stas00/ml-engineering prints the same peaks, from the same brief",
    note="the SM count is the B200's and the maximum clock is not published; some tables round 1750 to 1800",
)  # fmt: skip
chip(
    "NVIDIA B200", aliases=("B200 SXM", "B200 SXM6"),
    vendor="NVIDIA", architecture="Blackwell", compute_capability="10.0", sms=148, mig_slices=7,
    sm_clock=1.965e9, tensor_clock=1.856e9, tensor_clock_status="derived from stated peak", flops_per_cycle=BLACKWELL,
    bandwidth=8.0e12, memory=180e9, power=1000,
    stated={"fp64": 37e12, "tf32": 1125e12, "bf16": 2250e12, "fp16": 2250e12, "fp8": 4500e12, "int8": 4500e12, "fp4": 9000e12},
    source="NVIDIA DGX B200 and HGX B200 datasheets (72 PFLOP/s dense FP4 / 8); stas00/ml-engineering (1965 MHz at most)",
    confidence="medium", checked="148 SMs: chipsandcheese.com on B200; BF16: marin-community/marin#7334; 180 GB: NVIDIA MIG User Guide",
    note="at 1965 MHz eq. 5 gives 2382: clock and peak are chosen as a pair, so OFU may pass 1; FP64 is the stated figure",
)  # fmt: skip
chip(
    "NVIDIA GB200",
    vendor="NVIDIA", architecture="Blackwell", compute_capability="10.0", sms=148, mig_slices=7,
    sm_clock=2.062e9, tensor_clock=2.062e9, tensor_clock_status="boost clock", flops_per_cycle=BLACKWELL,
    bandwidth=8.0e12, memory=186e9, power=1200,
    stated={"fp64": 40e12, "tf32": 1250e12, "bf16": 2500e12, "fp16": 2500e12, "fp8": 5000e12, "int8": 5000e12, "fp4": 10000e12},
    source="OFU paper, IV-D, eq. 7 (148 SMs, 2062 MHz); NVIDIA GB200 NVL72 page, divided by 72",
    confidence="medium", checked="BF16: marin-community/marin#7334; 186 GB: NVIDIA MIG User Guide",
    note="one of a superchip's GPUs. FastVideo's tests count 152 SMs, and its MIG slices hold 38 SMs where B200's hold 36 "
    "(NVIDIA/mig-parted#227, #166); with 152 SMs 2500 is reached at 2008 MHz, and OFU on 2062 MHz reads 2.7 % low",
)  # fmt: skip
chip(
    "NVIDIA B300 SXM6 AC", aliases=("B300", "B300 SXM", "B300 SXM6"),
    vendor="NVIDIA", architecture="Blackwell Ultra", compute_capability="10.3", sms=148, mig_slices=7,
    sm_clock=None, tensor_clock=1.856e9, tensor_clock_status="derived from stated peak", flops_per_cycle=ULTRA,
    bandwidth=8.0e12, memory=288e9, power=1100,
    stated={"fp64": 1.2e12, "tf32": 1125e12, "bf16": 2250e12, "fp16": 2250e12, "fp8": 4500e12, "int8": 150e12, "fp4": 13500e12},
    source="NVIDIA DGX B300 datasheet (108 PFLOP/s dense FP4 / 8); INT8: verda.com, GB300 NVL72 architecture (0.15 POP/s dense)",
    confidence="medium", checked="name and BF16 (36 PFLOP/s sparse / 2 / 8): NVIDIA/cosmos-framework#114",
    note="tables disagree on FP4: 13,500 (DGX), 13,125 (HGX: 105 / 8), 12,600; INT8 and FP64 are cut hard (4500 for INT8 is "
    "the B200's); the SM count is taken over from the B200",
)  # fmt: skip
chip(
    "NVIDIA GB300",
    vendor="NVIDIA", architecture="Blackwell Ultra", compute_capability="10.3", sms=148, mig_slices=7,
    sm_clock=2.070e9, tensor_clock=2.062e9, tensor_clock_status="assumed", flops_per_cycle=ULTRA,
    bandwidth=8.0e12, memory=288e9, power=1400,
    stated={"fp64": 1.3e12, "tf32": 1250e12, "bf16": 2500e12, "fp16": 2500e12, "fp8": 5000e12, "int8": 165e12, "fp4": 15000e12},
    source="NVIDIA GB300 NVL72 page, divided by 72; INT8: verda.com, GB300 NVL72 architecture (0.165 POP/s dense)",
    confidence="medium", checked="2070 MHz and 1400 W: facebookexperimental/triton#2023; 15 PFLOP/s FP4 and 2.5 BF16: verda.com",
    note="SM count and tensor clock are taken over from GB200, for which 152 SMs have been seen too",
)  # fmt: skip
chip(
    "NVIDIA GeForce RTX 5090", aliases=("RTX 5090",),
    vendor="NVIDIA", architecture="Blackwell", compute_capability="12.0", sms=170,
    sm_clock=2.407e9, tensor_clock=2.407e9, tensor_clock_status="boost clock",
    flops_per_cycle={"tf32": 256, "bf16": 512, "fp16": 512, "fp8": 1024, "int8": 2048, "fp4": 4096},
    bandwidth=1.792e12, memory=32e9, power=575,
    stated={"tf32": 104.8e12, "bf16": 209.5e12, "fp16": 209.5e12, "fp8": 419e12, "int8": 838e12, "fp4": 1676e12},
    source="NVIDIA RTX Blackwell GPU architecture whitepaper",
    confidence="medium", checked="a third-party table prints the same; FP4 measured at 1617: xzwgit/gpu-flops-bench",
    note="with FP16 accumulation FP16 is 419 and FP8 838; boards boost far past 2407 MHz (254 BF16 measured), so OFU may pass 1",
)  # fmt: skip
chip(
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    aliases=("RTX PRO 6000 Blackwell WS", "RTX PRO 6000 Blackwell Workstation"), shared_names=("RTX 6000",),
    vendor="NVIDIA", architecture="Blackwell", compute_capability="12.0", sms=188, mig_slices=4,
    sm_clock=2.617e9, tensor_clock=2.617e9, tensor_clock_status="boost clock",
    flops_per_cycle={"tf32": 512, "bf16": 1024, "fp16": 1024, "fp8": 2048, "int8": 2048, "fp4": 4096},
    bandwidth=1.792e12, memory=96e9, power=600,
    stated={"tf32": 251.9e12, "bf16": 503.8e12, "fp16": 503.8e12, "fp8": 1007.6e12, "int8": 1007.6e12, "fp4": 2015e12},
    source="NVIDIA RTX PRO Blackwell whitepaper (188 SMs; 4000 AI TOPS are sparse FP4: 2000 dense)",
    confidence="medium", checked="188 SMs: whitepaper in NVIDIA/cudnn-frontend#1164; measured 458 BF16, 1608 FP4: xzwgit/gpu-flops-bench",
    note="the Server and Max-Q editions clock lower and are other chips; 2617 MHz is a GPU database's figure",
)  # fmt: skip
