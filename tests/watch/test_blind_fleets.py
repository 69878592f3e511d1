"""The fleets by which the straggler detector is judged: what is planted in them is physically there, and seeds draw the same again."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from blind_fleets import EPOCH_MS, LATE, THROTTLING, blind_fleet


def _of_fault(fleet, fault, name):
    """Return a field's mean of the struck GPUs and of the others of their job while the fault is there."""
    column = {one: fleet.samples[one].to_numpy(zero_copy_only=False) for one in ("job", "gpu", name)}
    times = (fleet.samples["time"].cast("int64").to_numpy() - EPOCH_MS) / 1000
    inside = (column["job"] == fault.job) & (times > fault.onset + 60) & (times < fault.end - 30)
    struck, values = np.isin(column["gpu"].astype(str), fault.gpus), column[name]
    return np.mean(values[inside & struck]), np.mean(values[inside & ~struck])


def test_a_late_rank_is_idle_and_a_throttled_one_is_busy_at_a_low_clock_with_the_same_work():
    seen = set()
    for seed in range(40):
        if seen & set(LATE) and seen & set(THROTTLING):
            return
        fleet = blind_fleet(seed, seconds=3_600)
        for fault in fleet.faults:
            if (
                {"mixed models", "stages", "experts", "unequal pair"} & set(fleet.look_alikes[fault.job])
                or fault.course != "abrupt"
                or not fault.visible
            ):
                continue
            if fault.kind in LATE:
                struck, others = _of_fault(fleet, fault, "gr_active")
                assert struck < others
            elif fault.kind in THROTTLING:
                clock, clock_of_others = _of_fault(fleet, fault, "sm_clock")
                tensor, tensor_of_others = _of_fault(fleet, fault, "tensor_active")
                assert clock < clock_of_others
                assert tensor > tensor_of_others
                assert (
                    abs(tensor * clock / (tensor_of_others * clock_of_others) - 1) < 0.15
                )  # as many cycles in the same time; waiting clocks higher
            seen.add(fault.kind)
    raise AssertionError("no such fault in forty fleets")


def test_a_seed_draws_the_same_fleet_again():
    one, again = blind_fleet(3, 30, 16, 1_800), blind_fleet(3, 30, 16, 1_800)
    assert one.samples.equals(again.samples)
    assert one.faults == again.faults
