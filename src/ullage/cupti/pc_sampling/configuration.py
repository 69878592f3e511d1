"""How program counters are sampled: the attributes of the guide's table 9, checked before CUPTI sees them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from ullage.cupti.pc_sampling.structures import Attribute
from ullage.cupti.stalls import LATENCY, short
from ullage.errors import UllageError, did_you_mean, harmless

MODES = {"continuous": 1, "serialized": 2}
PARSED = 1  # the one output format there is
PERIODS = range(5, 32)


class ConfigurationType(IntEnum):
    """CUpti_PCSamplingConfigurationAttributeType (cupti_pcsampling.h)."""

    PERIOD = 1
    REASONS = 2
    SCRATCH = 3
    HARDWARE = 4
    MODE = 5
    RANGES = 6
    FORMAT = 7
    BUFFER = 8
    SLEEP = 9


@dataclass(frozen=True)
class Configuration:
    """What is sampled. None is CUPTI's own choice.

    `mode`: "continuous" (kernels run side by side) or "serialized" (one kernel at a time, and samples know which launch they are of, from
    CUDA 12.4 on). `period`: 5 to 31, a sample every 2**period cycles; CUPTI chooses by the number of SMs. `reasons`: names of stall
    reasons, short or whole; () for all; a short name takes its latency samples along. `scratch`: bytes of CUPTI's own buffer (1 MB).
    `hardware`: bytes of the GPU's memory that samples are written to (512 MB). `ranges`: sample between `start` and `stop` alone.
    `sleep`: ms between two rounds of CUPTI's worker threads (100).

    Raises UllageError for a value that CUPTI doesn't take. Guide, 2.10.1; cupti_pcsampling.h.

    >>> Configuration(period=10).cycles
    1024
    """

    mode: str = "continuous"
    period: int | None = None
    reasons: tuple[str, ...] = ()
    scratch: int | None = None
    hardware: int | None = None
    ranges: bool = True
    sleep: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UllageError(f"'{harmless(self.mode, 40)}' is no mode of sampling", "say continuous or serialized")
        if self.period is not None and self.period not in PERIODS:
            raise UllageError(f"a sampling period of {self.period} can't be", "from 5 (a sample every 32 cycles) to 31 (every 2**31)")
        for name, value, most in (("scratch", self.scratch, 2**63), ("hardware", self.hardware, 2**63), ("sleep", self.sleep, 2**32)):
            if value is not None and not 0 < value < most:
                raise UllageError(f"{name}={value} can't be", "leave it out for CUPTI's own choice")

    @property
    def cycles(self) -> int | None:
        """The cycles from one sample to the next; None where CUPTI chooses."""
        return None if self.period is None else 1 << self.period

    def chosen(self, known: Mapping[int, str]) -> list[int]:
        """Return the indices of the reasons asked for, of those that a chip knows by index; raises UllageError for one it hasn't."""
        found: list[int] = []
        for name in self.reasons:
            wanted = short(name)[0]
            both = [index for index, one in known.items() if short(one)[0] == wanted]
            alone = [index for index in both if short(known[index])[1]]
            if not both:
                hint = did_you_mean(wanted, sorted({short(one)[0] for one in known.values()}), "ullage cupti stalls --reasons")
                raise UllageError(f"this chip has no stall reason '{harmless(wanted, 60)}'", hint)
            found += alone if name.endswith(LATENCY) else both
        return sorted(set(found))


def attributes(configuration: Configuration, indices: ctypes.Array[ctypes.c_uint32] | None, buffer: int) -> list[Attribute]:
    """Return the attributes to set: those that are given, the data format, and the address of a Data that Disable fills.

    `indices` (of the reasons asked for; None for all) must live until they are set.
    """
    made = [
        _word(ConfigurationType.MODE, MODES[configuration.mode]),
        _word(ConfigurationType.RANGES, int(configuration.ranges)),
        _word(ConfigurationType.FORMAT, PARSED),
    ]
    made.append(_number(ConfigurationType.BUFFER, buffer))
    if configuration.period is not None:
        made.append(_word(ConfigurationType.PERIOD, configuration.period))
    if configuration.sleep is not None:
        made.append(_word(ConfigurationType.SLEEP, configuration.sleep))
    if configuration.scratch is not None:
        made.append(_number(ConfigurationType.SCRATCH, configuration.scratch))
    if configuration.hardware is not None:
        made.append(_number(ConfigurationType.HARDWARE, configuration.hardware))
    if indices is not None:
        one = Attribute(type=ConfigurationType.REASONS)
        one.value.reasons.count, one.value.reasons.indices = len(indices), ctypes.addressof(indices)
        made.append(one)
    return made


def _word(kind: ConfigurationType, value: int) -> Attribute:
    made = Attribute(type=kind)
    made.value.word = value
    return made


def _number(kind: ConfigurationType, value: int) -> Attribute:
    made = Attribute(type=kind)
    made.value.number = value
    return made
