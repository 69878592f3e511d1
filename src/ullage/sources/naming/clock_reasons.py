"""Why a GPU's clock is held back, in words, from the bit mask that NVML, DCGM and nvidia-smi give."""

from __future__ import annotations

IDLE = 0x1
# nvml.h, nvmlClocksEventReason…
REASONS = {
    IDLE: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clock",
}


def reasons(mask: int) -> tuple[str, ...]:
    """Return the names of clock event reasons, idleness among them.

    >>> reasons(0x4 | 0x20), reasons(0), reasons(0x1000)
    (('power cap', 'software thermal slowdown'), (), ('reason 0x1000',))
    """
    known = tuple(words for bit, words in REASONS.items() if mask & bit)
    other = mask & ~sum(REASONS)
    return (*known, f"reason {other:#x}") if other else known
