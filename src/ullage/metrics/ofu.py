"""OFU: tensor work by hardware counters over the peak (OFU paper, section III)."""

from __future__ import annotations

import numpy as np

from ullage.field import SEVERAL_SMS
from ullage.metrics.metric import Value, metric, ratio


@metric(unit="1", source="OFU paper, eq. 1")
def sampled_ofu(tensor_active: Value, sm_clock: Value, tensor_clock: Value) -> Value:
    """How much of a GPU's peak FLOP rate its tensor pipes delivered, from one activity reading and one clock sample.

    1 is the peak of whatever precision runs: OFU does not ask which. It counts padding and recomputation as work, and
    leaves out what runs outside the tensor pipes. It may pass 1 where the SM clock passes the tensor clock (H100:
    1980 over 1830 MHz). A mean of OFU is the mean of these products, never the product of the means.

    Half of the cycles active at half of the tensor clock:

    >>> sampled_ofu(tensor_active=0.5, sm_clock=915e6, tensor_clock=1830e6)
    0.25
    """
    return tensor_active * ratio(sm_clock, tensor_clock)


@metric(unit="1", source="DCGM 4.6 fields 1084-1096 and NVML GPM 248-260 put into the OFU paper's eq. 1")
def exact_ofu(tensor_cycles: Value, seconds: Value, tensor_clock: Value, units: Value) -> Value:
    """How much of a GPU's peak FLOP rate its tensor pipes delivered, from cumulative cycle counters alone.

    `tensor_cycles` is the growth of the counter over `seconds`; `units` is 1 where cycles are counted per SM on
    average and the number of SMs where they are summed. No clock sample enters, so no sampling noise does.

    Over 10 s at 1830 MHz 18.3e9 cycles could pass; in 9.15e9 of them a tensor pipe was active:

    >>> exact_ofu(tensor_cycles=9.15e9, seconds=10, tensor_clock=1830e6, units=1)
    0.5
    """
    return ratio(tensor_cycles, tensor_clock * seconds * units)


def counted_units(cycles_per_second: Value, sms: Value) -> Value:
    """By how many SMs a counter of cycles is summed, told by how fast it grows: 1, or all `sms`. An array for arrays.

    One that counts per SM grows by the SM clock at most, and no SM's comes near `SEVERAL_SMS`; one that is summed grows many times as fast,
    also at the clock of an idle GPU.

    >>> float(counted_units(1.4e9, sms=132)), float(counted_units(132 * 0.21e9, sms=132))
    (1.0, 132.0)
    """
    with np.errstate(invalid="ignore"):
        return np.where(cycles_per_second > SEVERAL_SMS, sms, 1.0)


@metric(unit="Hz", source="DCGM 4.6 field 1084, NVML GPM 248")
def mean_sm_clock(sm_cycles: Value, seconds: Value, units: Value) -> Value:
    """The true mean SM clock of a span, from the growth of the elapsed-cycles counter.

    >>> mean_sm_clock(sm_cycles=13.5e9, seconds=10, units=1)
    1350000000.0
    """
    return ratio(sm_cycles, seconds * units)


@metric(unit="1", source="Ullage: 1 - OFU")
def ullage(ofu: Value) -> Value:
    """How far a GPU falls short of full.

    >>> ullage(ofu=0.25)
    0.75
    """
    return 1 - ofu
