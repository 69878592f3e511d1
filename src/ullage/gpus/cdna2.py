"""AMD CDNA 2 (gfx90a). An SM is a compute unit here, the tensor clock the peak engine clock.

A module of MI250 or MI250X is two dies (GCDs), and each is a device of its own for the driver, with half of the module's
compute units, memory and bandwidth; the maker's figures are the module's.
"""

from __future__ import annotations

from ullage.gpus.chip import chip
from ullage.gpus.links import MIB, Link, Pcie

BOARD = {
    "vendor": "AMD", "architecture": "CDNA 2", "compute_capability": "gfx90a",
    "sm_clock": 1.700e9, "tensor_clock": 1.700e9, "tensor_clock_status": "boost clock",
    "flops_per_cycle": {"fp64": 256, "bf16": 1024, "fp16": 1024, "int8": 1024},
}  # fmt: skip
CACHE = "ROCm GPU specifications"

chip(
    "AMD Instinct MI210", sms=104,
    bandwidth=1.638e12, memory=64e9, power=300, stated={"fp64": 45.3e12, "bf16": 181e12, "fp16": 181e12, "int8": 181e12},
    source="AMD Instinct MI210 product page",
    confidence="high", checked="AnandTech 17326: 104 CUs, 1700 MHz, 181 FP16 and INT8, 45.3 FP64 matrix",
    link=Link("Infinity Fabric", 300e9), pcie=Pcie(4, 16), l2=8 * MIB,
    links_source=f"AMD Instinct MI210 product page (3 links of 100 GB/s); L2: {CACHE}", **BOARD,
)  # fmt: skip
# model, compute units of the module, the maker's peaks of the module in TFLOP/s, other names of a die
for model, units, fp64, fp16, names in (
    ("MI250X", 220, 95.7, 383.0, ("AMD INSTINCT MI250X (MCM) OAM AC MBA MSFT", "AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2")),
    ("MI250", 208, 90.5, 362.1, ("AMD INSTINCT MI250 (MCM) OAM AC MBA",)),
):
    stated = {"fp64": fp64 * 1e12, "bf16": fp16 * 1e12, "fp16": fp16 * 1e12, "int8": fp16 * 1e12}
    source = f"AMD Instinct {model} product page"
    chip(
        f"AMD Instinct {model}", aliases=(f"{model} GCD", *names), sms=units // 2,
        bandwidth=1.638e12, memory=64e9, power=280, stated={precision: peak / 2 for precision, peak in stated.items()},
        source=f"{source}, halved",
        confidence="high", checked=f"{units // 2} compute units a device: public torch outputs; pytorch/torchtitan halves too",
        note="power is half the module's, which has one limit for both dies",
        caution=f"one of the two devices of a module: the module's peak is twice this ('{model} module')",
        l2=8 * MIB, links_source=f"L2: {CACHE}", **BOARD,
    )  # fmt: skip
    chip(
        f"AMD Instinct {model} module", aliases=(f"{model} (2 GCD)", f"{model} OAM"), sms=units,
        bandwidth=3.277e12, memory=128e9, power=560, stated=stated,
        source=source,
        confidence="high", checked=f"stas00/ml-engineering compute/accelerator; launch coverage ({units} CUs, {fp16:g}, {fp64:g})",
        caution="one module is two devices for the driver; the peak is of both, half of it of each device",
        link=Link("Infinity Fabric", 800e9), l2=16 * MIB, links_source=f"{source} (8 links of 100 GB/s); L2: {CACHE}", **BOARD,
    )  # fmt: skip
chip(
    "AMD Instinct MI250X / MI250", sms=110,
    bandwidth=1.638e12, memory=64e9, power=280, stated={"fp64": 47.9e12, "bf16": 191.5e12, "fp16": 191.5e12, "int8": 191.5e12},
    source="libdrm's table of names (device 740C); figures as a die of MI250X",
    confidence="medium", checked="both 110 and 104 compute units are seen under this name in public logs",
    caution="the driver gives this name to a die of MI250X, for which it is taken, and to one of MI250, whose peak is 5.5 % lower",
    l2=8 * MIB, links_source=f"L2: {CACHE}", **BOARD,
)  # fmt: skip
