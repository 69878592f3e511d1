"""What a device can report: the fields, each declared once, and what may happen to a sample on its way in. NumPy is enough for these."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import Literal

Kind = Literal["ratio", "level", "rate", "counter", "mask"]


@dataclass(frozen=True)
class Field:
    """What a device can report: its name, SI unit, kind, plausible range and meaning.

    `kind`: `ratio` in [0, 1]; `level` a reading at an instant (clock, power); `rate` an average per second;
    `counter` a cumulative count; `mask` a set of bits.
    """

    name: str
    unit: str
    kind: Kind
    lowest: float
    highest: float
    meaning: str

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers: counters and masks are."""
        return self.kind in ("counter", "mask")


# A ratio may pass 1 a little by the vendor's own rounding; above 1.1 it is impossible and becomes missing.
_R = 1.1
FIELDS: dict[str, Field] = {
    field.name: field
    for field in (
        Field("tensor_active", "1", "ratio", 0, _R, "share of cycles in which any tensor pipe is active (TPA)"),
        Field("hmma_active", "1", "ratio", 0, _R, "share of cycles in which the FP16/BF16/FP8 tensor pipe is active"),
        Field("imma_active", "1", "ratio", 0, _R, "share of cycles in which the integer tensor pipe is active"),
        Field("dfma_active", "1", "ratio", 0, _R, "share of cycles in which the FP64 tensor pipe is active"),
        Field("sm_active", "1", "ratio", 0, _R, "share of cycles in which an SM has a resident warp, averaged over SMs"),
        Field("sm_occupancy", "1", "ratio", 0, _R, "resident warps over the most that fit"),
        Field("gr_active", "1", "ratio", 0, _R, "share of time in which the graphics or compute engine is busy"),
        Field("dram_active", "1", "ratio", 0, _R, "share of cycles in which the memory interface moves data"),
        Field("fp64_active", "1", "ratio", 0, _R, "share of cycles in which the FP64 pipe is active"),
        Field("fp32_active", "1", "ratio", 0, _R, "share of cycles in which the FP32 pipe is active"),
        Field("fp16_active", "1", "ratio", 0, _R, "share of cycles in which the FP16 pipe (not tensor) is active"),
        Field("gpu_util", "1", "ratio", 0, _R, "share of time in which at least one kernel ran ('GPU utilization')"),
        Field("sm_clock", "Hz", "level", 0, 5e9, "SM clock at the instant of reading"),
        Field("memory_clock", "Hz", "level", 0, 20e9, "memory clock at the instant of reading"),
        Field("power", "W", "level", 0, 5e3, "board power"),
        Field("temperature", "C", "level", -50, 200, "GPU temperature"),
        Field("memory_used", "B", "level", 0, 1e13, "device memory in use"),
        Field("pcie_tx", "B/s", "rate", 0, 1e13, "PCIe bytes sent per second"),
        Field("pcie_rx", "B/s", "rate", 0, 1e13, "PCIe bytes received per second"),
        Field("nvlink_tx", "B/s", "rate", 0, 1e14, "NVLink bytes sent per second"),
        Field("nvlink_rx", "B/s", "rate", 0, 1e14, "NVLink bytes received per second"),
        Field("throttle", "mask", "mask", 0, 2.0**62, "clock event reasons, as NVML's bit mask"),
        Field("energy", "J", "counter", 0, 2.0**62, "energy since the driver was loaded, in whole joules"),
        Field("tensor_cycles", "cycles", "counter", 0, 2.0**63, "cycles in which any tensor pipe was active, cumulative"),
        Field("sm_cycles", "cycles", "counter", 0, 2.0**63, "SM cycles elapsed, cumulative"),
        Field("sm_active_cycles", "cycles", "counter", 0, 2.0**63, "SM cycles with a resident warp, cumulative"),
        Field("xid", "1", "level", 0, 1e5, "code of the last Xid error that the driver told, 0 for none"),
        Field("ecc_uncorrected", "1", "level", 0, 1e12, "ECC errors that were not corrected, since the driver was loaded"),
        Field("remapped_rows", "1", "level", 0, 1e6, "memory rows that were remapped after errors that ECC did not correct"),
        Field("remap_failed", "1", "level", 0, 1, "1 where a memory row could not be remapped"),
        Field("nvlink_replays", "1", "level", 0, 1e12, "NVLink packets that were sent again, since the driver was loaded"),
        Field("nvlink_recoveries", "1", "level", 0, 1e12, "NVLinks that had to recover, since the driver was loaded"),
    )
}

RATIOS = tuple(f.name for f in FIELDS.values() if f.kind == "ratio")
HEALTH = ("xid", "ecc_uncorrected", "remapped_rows", "remap_failed", "nvlink_replays", "nvlink_recoveries")
COUNTERS = tuple(f.name for f in FIELDS.values() if f.kind == "counter")


class Flag(IntFlag):
    """What happened to a sample on the way in; a bit each in the `flags` column. Trust reads them."""

    SENTINEL = 1  # the exporter wrote a "no value" number; it became missing
    IMPOSSIBLE = 2  # a value outside the field's range; it became missing
    UNIT_GUESSED = 4  # the unit was settled by magnitude against the name
    COPIED = 8  # several copies of this sample came in (jobs, pods, scrapes) and were counted once
    REPEATED = 16  # every activity field reads exactly as in the sample before, and one of them is no whole percentage
    RESET = 32  # a cumulative counter went backwards before this sample
    REORDERED = 64  # the sample came in after a later one
    GAP = 128  # the time before this sample was longer than the gap limit; the excess is unknown
    CONFLICT = 256  # copies of this sample disagreed
    FROZEN = 512  # the fifth or later sample in a row that is REPEATED
    GAUGE_FROZEN = 1024  # tensor, SM or engine activity repeats to the last digit for the fifth or later time in a row, whatever others do
    NAMED_RATIO = 2048  # its activities came under the names of ratios, in whatever unit
    UTILIZATION_NAMED_RATIO = 4096  # the same of its "GPU utilization", as long as the sample is not stored
    PERCENT = 8192  # activities under the names of ratios were percent, and were divided


# A device is idle in a sample when no engine is busier than this (DCGM rounds to 1e-6; a display costs about 0.1 %).
IDLE = 0.005
SEVERAL_SMS = 4e9  # Hz; no SM has such a clock: cycles that pass faster are those of several SMs, added up
ACTIVITY = ("gr_active", "sm_active", "tensor_active", "gpu_util")  # the gauges that say whether anything ran

# Why a clock was lower than it could be, from the bits of `throttle` (nvml.h, nvmlClocksEventReason…). Of several the first counts:
# a GPU that is too hot says that its power is capped, too.
CLOCK_LIMITS = {
    "thermal": 0x20 | 0x40,  # SwThermalSlowdown, HwThermalSlowdown
    "slowdown": 0x8 | 0x80,  # HwSlowdown that is no thermal one, HwPowerBrakeSlowdown
    "application": 0x2 | 0x10 | 0x100,  # ApplicationsClocksSetting, SyncBoost, DisplayClockSetting
    "power_cap": 0x4,  # SwPowerCap
}
