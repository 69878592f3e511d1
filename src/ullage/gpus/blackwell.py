"""Blackwell: data-centre chips (compute capability 10.0, Ultra 10.3), Thor (11.0), GB202 and smaller (12.0), GB10 (12.1)."""

from __future__ import annotations

from ullage.gpus.chip import chip
from ullage.gpus.links import MIB, Link, Pcie

# NVIDIA/cudnn-frontend (benchmarks) confirms BF16: 8192 for compute capability 10.x and 1024 for 12.x.
BLACKWELL = {"tf32": 4096, "bf16": 8192, "fp16": 8192, "fp8": 16384, "int8": 16384, "fp4": 32768}
ULTRA = {"tf32": 4096, "bf16": 8192, "fp16": 8192, "fp8": 16384, "fp4": 49152}
GB202 = {"tf32": 512, "bf16": 1024, "fp16": 1024, "fp8": 2048, "int8": 2048, "fp4": 4096}
# GeForce boards accumulate in FP32 at half rate; integers and FP4 are not slowed.
GEFORCE = {"tf32": 256, "bf16": 512, "fp16": 512, "fp8": 1024, "int8": 2048, "fp4": 4096}
NVLINK_5 = Link("NVLink 5", 1800e9)
# Of GB200 and GB300. NVIDIA's peak of 2500 is 148 × 8192 × 2062 MHz, the highest clock; yet their drivers count 152 SMs: public
# sources that name the GPU (mscclpp, FastVideo and FlashInfer among them), and MIG slices of 38 SMs (NVIDIA/mig-parted#227, #166).
SUPERCHIP_SMS = 152
SUPERCHIP_CLOCK = 2500e12 / (SUPERCHIP_SMS * 8192)
SMS_DISPUTED = (
    "its driver counts 152 SMs, where NVIDIA's 2,500 TFLOP/s and the OFU paper (eq. 7) count 148 at 2,062 MHz: "
    "OFU is 2.7 % higher here than on the paper's clock"
)

chip(
    "NVIDIA B100",
    vendor="NVIDIA", architecture="Blackwell", compute_capability="10.0", sms=148,
    sm_clock=None, tensor_clock=1750e12 / (148 * 8192), tensor_clock_status="derived from stated peak", flops_per_cycle=BLACKWELL,
    bandwidth=8.0e12, memory=192e9, power=700,
    stated={"fp64": 30e12, "tf32": 875e12, "bf16": 1750e12, "fp16": 1750e12, "fp8": 3500e12, "int8": 3500e12, "fp4": 7000e12},
    source="NVIDIA Blackwell architecture technical brief (preliminary); stas00/ml-engineering compute/accelerator",
    confidence="low", checked="stas00/ml-engineering prints the same peaks, from the same brief",
    note="the SM count is the B200's and the maximum clock is not published; some tables round 1750 to 1800",
    link=NVLINK_5, links_source="NVIDIA Blackwell architecture technical brief",
)  # fmt: skip
chip(
    "NVIDIA B200", aliases=("B200 SXM", "B200 SXM6"),
    vendor="NVIDIA", architecture="Blackwell", compute_capability="10.0", sms=148, mig_slices=7,
    sm_clock=1.965e9, tensor_clock=1.856e9, tensor_clock_status="derived from stated peak", flops_per_cycle=BLACKWELL,
    bandwidth=8.0e12, memory_clock=3.996e9, memory=180e9, power=1000,
    stated={"fp64": 37e12, "tf32": 1125e12, "bf16": 2250e12, "fp16": 2250e12, "fp8": 4500e12, "int8": 4500e12, "fp4": 9000e12},
    source="NVIDIA DGX B200 and HGX B200 datasheets (72 PFLOP/s dense FP4 / 8); stas00/ml-engineering (1965 MHz at most)",
    confidence="medium",
    checked="148 SMs: its driver (public torch outputs) and chipsandcheese.com on B200; BF16: marin-community/marin#7334; "
    "180 GB: NVIDIA MIG User Guide",
    note="at 1965 MHz eq. 5 gives 2382: clock and peak are chosen as a pair, so OFU may pass 1; FP64 is the stated figure",
    link=NVLINK_5, l2=126 * MIB, links_source="NVIDIA HGX B200 datasheet; L2: its driver (public torch outputs, whole MiB)",
)  # fmt: skip
chip(
    "NVIDIA GB200",
    vendor="NVIDIA", architecture="Blackwell", compute_capability="10.0", sms=SUPERCHIP_SMS, mig_slices=7,
    sm_clock=2.062e9, tensor_clock=SUPERCHIP_CLOCK, tensor_clock_status="derived from stated peak", flops_per_cycle=BLACKWELL,
    bandwidth=8.0e12, memory_clock=3.996e9, memory=186e9, power=1200,
    stated={"fp64": 40e12, "tf32": 1250e12, "bf16": 2500e12, "fp16": 2500e12, "fp8": 5000e12, "int8": 5000e12, "fp4": 10000e12},
    source="NVIDIA GB200 NVL72 page, divided by 72; 152 SMs: its driver, in mscclpp, FastVideo and FlashInfer",
    confidence="medium", checked="BF16: marin-community/marin#7334; 186 GB: NVIDIA MIG User Guide; 2062 MHz: OFU paper, IV-D",
    note="one of a superchip's GPUs; a few public logs count 148 SMs; at 2062 MHz eq. 5 gives 2568: clock and peak are chosen as a pair, "
    "so OFU may pass 1; FP64 is the stated figure",
    caution=SMS_DISPUTED,
    link=NVLINK_5, links_source="NVIDIA GB200 NVL72 page, divided by 72; NVLink-C2C is stated per superchip, not per GPU",
)  # fmt: skip
chip(
    "NVIDIA B300 SXM6 AC", aliases=("B300", "B300 SXM", "B300 SXM6"),
    vendor="NVIDIA", architecture="Blackwell Ultra", compute_capability="10.3", sms=148, mig_slices=7,
    sm_clock=None, tensor_clock=1.856e9, tensor_clock_status="derived from stated peak", flops_per_cycle=ULTRA,
    bandwidth=8.0e12, memory=288e9, power=1100,
    stated={"fp64": 1.2e12, "tf32": 1125e12, "bf16": 2250e12, "fp16": 2250e12, "fp8": 4500e12, "int8": 150e12, "fp4": 13500e12},
    source="NVIDIA DGX B300 datasheet (108 PFLOP/s dense FP4 / 8); INT8: verda.com, GB300 NVL72 architecture (0.15 POP/s dense)",
    confidence="medium", checked="name and BF16 (36 PFLOP/s sparse / 2 / 8): NVIDIA/cosmos-framework#114; 148 SMs: docs of kernels",
    note="tables disagree on FP4: 13,500 (DGX), 13,125 (HGX: 105 / 8), 12,600; INT8 and FP64 are cut hard (4500 for INT8 is the B200's)",
    link=NVLINK_5, links_source="NVIDIA DGX B300 datasheet",
)  # fmt: skip
chip(
    "NVIDIA GB300",
    vendor="NVIDIA", architecture="Blackwell Ultra", compute_capability="10.3", sms=SUPERCHIP_SMS, mig_slices=7,
    sm_clock=2.070e9, tensor_clock=SUPERCHIP_CLOCK, tensor_clock_status="derived from stated peak", flops_per_cycle=ULTRA,
    bandwidth=8.0e12, memory=288e9, power=1400,
    stated={"fp64": 1.3e12, "tf32": 1250e12, "bf16": 2500e12, "fp16": 2500e12, "fp8": 5000e12, "int8": 165e12, "fp4": 15000e12},
    source="NVIDIA GB300 NVL72 page, divided by 72; INT8: verda.com, GB300 NVL72 architecture (0.165 POP/s dense); "
    "152 SMs: its driver, in public measurements that name the GPU",
    confidence="medium", checked="2070 MHz and 1400 W: facebookexperimental/triton#2023; 15 PFLOP/s FP4 and 2.5 BF16: verda.com",
    note="a DGX Station's GB300 has the same name, 252 GB and 7.1 TB/s",
    caution=SMS_DISPUTED,
    link=NVLINK_5, links_source="NVIDIA GB300 NVL72 page, divided by 72; NVLink-C2C is stated per superchip, not per GPU",
)  # fmt: skip
chip(
    "NVIDIA Thor", aliases=("Jetson Thor", "Jetson AGX Thor", "Jetson T5000"),
    vendor="NVIDIA", architecture="Blackwell", compute_capability="11.0", sms=20, mig_slices=2,
    sm_clock=1.575e9, tensor_clock=1.575e9, tensor_clock_status="boost clock",
    flops_per_cycle={"bf16": 8192, "fp16": 8192, "fp8": 16384, "fp4": 32768},
    bandwidth=0.273e12, memory=128e9, power=130, stated={"bf16": 258.5e12, "fp16": 258.5e12, "fp8": 517.5e12, "fp4": 1035e12},
    source="NVIDIA Jetson T5000 module datasheet (2070 FP4, 1035 FP8, 517 FP16, all sparse; halved; 1.57 GHz)",
    confidence="medium", checked="20 SMs and 32 MiB of L2: deviceQuery in NVIDIA/cutlass#2784; rates as B200: torring.dev on RTX Spark",
    note="T4000 modules have 12 SMs, and are another chip; deviceQuery shows 1049 MHz in the usual power mode",
    l2=32 * MIB, links_source="L2: deviceQuery in NVIDIA/cutlass#2784",
)  # fmt: skip
chip(
    "NVIDIA GB10", aliases=("DGX Spark", "NVIDIA DGX Spark"),
    vendor="NVIDIA", architecture="Blackwell", compute_capability="12.1", sms=48,
    sm_clock=3.003e9, tensor_clock=500e12 / (48 * 4096), tensor_clock_status="derived from stated peak", flops_per_cycle=GB202,
    bandwidth=0.273e12, memory=128e9, power=140, stated={"fp4": 500e12},
    source="NVIDIA DGX Spark page (1 PFLOP/s sparse FP4, no more digits; 273 GB/s); 48 SMs and 24 MiB of L2: deviceQuery outputs",
    confidence="medium", checked="a GEMM was measured at 92.3 BF16: huggingface/kernels#283",
    note="the driver tells 3003 MHz at most, and runs work at 2418, at which eq. 5 gives 475 FP4 and 119 BF16; OFU tops out under 1",
    l2=24 * MIB, links_source="L2: deviceQuery outputs",
)  # fmt: skip

WHITEPAPER = "NVIDIA RTX Blackwell GPU architecture whitepaper"
BOOSTS = "boards boost past the stated clock, so OFU may pass 1"
chip(
    "NVIDIA GeForce RTX 5090", aliases=("RTX 5090",),
    vendor="NVIDIA", architecture="Blackwell", compute_capability="12.0", sms=170,
    sm_clock=2.407e9, tensor_clock=2.407e9, tensor_clock_status="boost clock", flops_per_cycle=GEFORCE,
    bandwidth=1.792e12, memory_clock=14.001e9, memory=32e9, power=575,
    stated={"tf32": 104.8e12, "bf16": 209.5e12, "fp16": 209.5e12, "fp8": 419e12, "int8": 838e12, "fp4": 1676e12},
    source=WHITEPAPER,
    confidence="medium", checked="a third-party table prints the same; FP4 measured at 1617: xzwgit/gpu-flops-bench",
    note="with FP16 accumulation FP16 is 419 and FP8 838; boards boost far past 2407 MHz (254 BF16 measured), so OFU may pass 1",
    pcie=Pcie(5, 16), l2=96 * MIB, links_source=f"{WHITEPAPER}, appendix",
)  # fmt: skip
# name, SMs, boost clock in MHz, GB, GB/s, W, NVIDIA's "AI TOPS" (sparse FP4, twice the dense), PCIe lanes
for name, sms, clock, memory, bandwidth, power, tops, lanes in (
    ("RTX 5080", 84, 2617, 16, 960, 360, 1801, 16),
    ("RTX 5070 Ti", 70, 2452, 16, 896, 300, 1406, 16),
    ("RTX 5070", 48, 2512, 12, 672, 250, 988, 16),
    ("RTX 5060 Ti", 36, 2572, 16, 448, 180, 759, 8),
    ("RTX 5060", 30, 2497, 8, 448, 145, 614, 8),
):
    chip(
        f"NVIDIA GeForce {name}", aliases=(name,),
        vendor="NVIDIA", architecture="Blackwell", compute_capability="12.0", sms=sms,
        sm_clock=clock * 1e6, tensor_clock=clock * 1e6, tensor_clock_status="boost clock", flops_per_cycle=GEFORCE,
        bandwidth=bandwidth * 1e9, memory=memory * 1e9, power=power, stated={"fp4": tops / 2 * 1e12},
        source=f"NVIDIA GeForce 50 series comparison ({tops} AI TOPS are sparse FP4; halved)",
        confidence="high", checked=f"rates: {WHITEPAPER}; SMs and clock: GPU databases",
        note=f"{BOOSTS}; the 8 GB board has the same name" if name == "RTX 5060 Ti" else BOOSTS,
        pcie=Pcie(5, lanes), links_source=f"{WHITEPAPER} and product pages",
    )  # fmt: skip

RTX_PRO_6000 = {
    "vendor": "NVIDIA", "architecture": "Blackwell", "compute_capability": "12.0", "sms": 188, "mig_slices": 4,
    "flops_per_cycle": GB202, "memory": 96e9, "pcie": Pcie(5, 16), "l2": 128 * MIB,
}  # fmt: skip
chip(
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    aliases=("RTX PRO 6000 Blackwell WS", "RTX PRO 6000 Blackwell Workstation"),
    shared_names=("RTX 6000", "RTX PRO 6000", "RTX PRO 6000 Blackwell"),
    sm_clock=2.617e9, tensor_clock=2.617e9, tensor_clock_status="boost clock",
    bandwidth=1.792e12, memory_clock=14.001e9, power=600,
    stated={"tf32": 251.9e12, "bf16": 503.8e12, "fp16": 503.8e12, "fp8": 1007.6e12, "int8": 1007.6e12, "fp4": 2015e12},
    source="NVIDIA RTX PRO Blackwell whitepaper (188 SMs; 4000 AI TOPS are sparse FP4: 2000 dense)",
    confidence="medium", checked="188 SMs: whitepaper in NVIDIA/cudnn-frontend#1164; measured 458 BF16, 1608 FP4: xzwgit/gpu-flops-bench",
    note="2617 MHz is a GPU database's figure; the driver allows 3090 MHz, so OFU may pass 1",
    l2_bandwidth=8.7e12, links_source="NVIDIA RTX PRO Blackwell whitepaper; L2's rate was measured: chipsandcheese.com on this board",
    **RTX_PRO_6000,
)  # fmt: skip
chip(
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    aliases=("RTX PRO 6000 Blackwell Max-Q",), shared_names=("RTX PRO 6000", "RTX PRO 6000 Blackwell"),
    sm_clock=2.288e9, tensor_clock=2.288e9, tensor_clock_status="boost clock",
    bandwidth=1.792e12, memory_clock=14.001e9, power=300, stated={"fp4": 3511e12 / 2},
    source="NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition datasheet (3511 AI TOPS are sparse FP4; 110 TFLOP/s FP32)",
    confidence="high", checked="188 SMs and 2288 MHz: GPU databases",
    links_source="the board's datasheet; L2: NVIDIA RTX PRO Blackwell whitepaper", **RTX_PRO_6000,
)  # fmt: skip
chip(
    "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    aliases=("RTX PRO 6000 Blackwell Server",), shared_names=("RTX PRO 6000", "RTX PRO 6000 Blackwell"),
    sm_clock=2.430e9, tensor_clock=2.430e9, tensor_clock_status="boost clock",
    bandwidth=1.597e12, memory_clock=12.481e9, power=600, stated={"fp4": 3753e12 / 2},
    source="NVIDIA RTX PRO 6000 Blackwell Server Edition datasheet (3753 AI TOPS are sparse FP4; 1597 GB/s)",
    confidence="medium", checked="188 SMs and 128 MiB of L2: its driver (public torch output); light work was seen at 2415 MHz",
    note="datasheets disagree: a later one prints 120 TFLOP/s FP32 and 4 PFLOP/s FP4, 2.6 % more than 2430 MHz gives",
    links_source="the board's datasheet; L2: its driver (public torch output)", **RTX_PRO_6000,
)  # fmt: skip
