"""AMD CDNA 2 (gfx90a). An SM is a compute unit here, the tensor clock the peak engine clock."""

from __future__ import annotations

from ullage.gpus.chip import chip

CDNA2 = {"fp64": 256, "bf16": 1024, "fp16": 1024, "int8": 1024}

chip(
    "AMD Instinct MI210",
    vendor="AMD", architecture="CDNA 2", compute_capability="gfx90a", sms=104,
    sm_clock=1.700e9, tensor_clock=1.700e9, tensor_clock_status="boost clock", flops_per_cycle=CDNA2,
    bandwidth=1.638e12, memory=64e9, power=300, stated={"fp64": 45.3e12, "bf16": 181e12, "fp16": 181e12, "int8": 181e12},
    source="AMD Instinct MI210 product page",
    confidence="high", checked="AnandTech 17326: 104 CUs, 1700 MHz, 181 FP16 and INT8, 45.3 FP64 matrix",
)  # fmt: skip
chip(
    "AMD Instinct MI250X",
    vendor="AMD", architecture="CDNA 2", compute_capability="gfx90a", sms=220,
    sm_clock=1.700e9, tensor_clock=1.700e9, tensor_clock_status="boost clock", flops_per_cycle=CDNA2,
    bandwidth=3.277e12, memory=128e9, power=560, stated={"fp64": 95.7e12, "bf16": 383e12, "fp16": 383e12, "int8": 383e12},
    source="AMD Instinct MI250X product page",
    confidence="high", checked="stas00/ml-engineering compute/accelerator; launch coverage (220 CUs, 383, 95.7)",
    caution="one module is two devices for the driver; the peak is of both, half of it of each device",
)  # fmt: skip
