"""What lowers a clock: sums by cause against a walk over samples in fractions, from samples and from roll-ups' steps alike."""

from __future__ import annotations

import random
from collections import defaultdict
from fractions import Fraction

import ibis
import numpy as np
import pyarrow as pa
import pytest

from tests.seeds import some
from ullage.field import CLOCK_LIMITS
from ullage.reports.fleet.fleet import fleet
from ullage.reports.fleet.request import FleetRequest
from ullage.sums.devices import device_sums
from ullage.sums.gauges import device_and_gauge_sums
from ullage.sums.windows import settle
from ullage.tables import samples as as_samples

SPAN = 30_000
BITS = (0x0, 0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x40, 0x80, 0x100, 0x4 | 0x20, 0x4 | 0x2, 0x8 | 0x40, 0x8 | 0x2, 0x1 | 0x200)


def cause_of(mask):
    """As nvml.h has the bits: heat, then a slowdown by hardware, then what somebody set, then the power cap."""
    order = (("thermal", (5, 6)), ("slowdown", (3, 7)), ("application", (1, 4, 8)), ("power_cap", (2,)))
    return next((name for name, bits in order if mask is not None and any(mask >> bit & 1 for bit in bits)), None)


def random_samples(seed):
    """Some GPUs with jobs, whose reasons, clocks and counters change and go missing."""
    rng = random.Random(seed)
    missing, counts = {name for name in ("throttle", "sm_clock", "tensor_active") if rng.random() < 0.08}, rng.random() < 0.4
    rows = []
    for gpu in range(rng.randint(1, 4)):
        elapsed = active = rng.randint(0, 10**12)
        for step in range(rng.randint(3, 20)):
            elapsed, active = elapsed + rng.randint(30_000_000_000, 60_000_000_000), active + rng.randint(0, 30_000_000_000)
            row = {"time": SPAN * (step + 1), "gpu": f"{seed}/{gpu}", "job": rng.choice(["1", "2"]), "throttle": rng.choice(BITS)}
            row |= {"tensor_active": float(np.float32(rng.random())), "sm_clock": float(np.float32(rng.randint(300, 1980) * 1e6))}
            row |= {"tensor_cycles": active if counts else None, "sm_cycles": elapsed if counts else None}
            for name in ("throttle", "sm_clock", "tensor_active", "sm_cycles"):
                if name in missing or rng.random() < 0.1:
                    row[name] = None
            rows.append(row)
    return rows


def settled(rows):
    columns = {name: [row[name] for row in rows] for name in ("time", "gpu", "job")} | {"model": ["H100"] * len(rows)}
    columns |= {name: pa.array([row[name] for row in rows], pa.int64()) for name in ("throttle", "tensor_cycles", "sm_cycles")}
    floats = {name: np.array([np.nan if row[name] is None else row[name] for row in rows]) for name in ("tensor_active", "sm_clock")}
    return settle(pa.Table.from_batches([as_samples(columns | floats | {"gr_active": np.full(len(rows), 0.9)})]), gap_ms=60_000)


def walk(table):
    """Add up, sample by sample: time, tensor activity, tensor x clock or tensor cycles, by job and cause."""
    found = defaultdict(lambda: defaultdict(Fraction))
    for row in table.to_pylist():
        cause = cause_of(row["throttle"])
        if cause is None:
            continue
        here, span = found[row["gpu"], row["job"]], row["span_ms"]
        here[f"{cause}_ms"] += span
        tensor, elapsed = row["tensor_cycles_delta"], row["sm_cycles_delta"]
        if tensor is not None and elapsed is not None:
            here[f"{cause}_cycles"] += tensor
            here[f"{cause}_tensor_sum"] += Fraction(tensor, elapsed) * span if elapsed else 0
        elif row["tensor_active"] is not None and row["sm_clock"] is not None:
            here[f"{cause}_tensor_sum"] += Fraction(row["tensor_active"]) * span
            here[f"{cause}_ofu_sum"] += Fraction(row["tensor_active"]) * span * Fraction(row["sm_clock"])
    return found


NAMES = [f"{limit}_{what}" for limit in CLOCK_LIMITS for what in ("ms", "tensor_sum", "ofu_sum", "cycles")]


def compare(seeds):
    rows = [row for seed in seeds for row in random_samples(seed)]
    table = settled(rows)
    expected = walk(table)
    for sums in (device_sums(ibis.memtable(table)).to_pyarrow(), device_and_gauge_sums(ibis.memtable(table))[0]):
        ours = defaultdict(lambda: defaultdict(float))
        for row in sums.to_pylist():
            for name in NAMES:
                ours[row["gpu"], row["job"]][name] += float(row[name] or 0)
        for key in ours:
            for name in NAMES:
                assert ours[key][name] == pytest.approx(float(expected[key][name]), rel=1e-6, abs=1e-3), (key, name)


@pytest.mark.parametrize("block", some(range(20), 1))
def test_the_time_under_each_cause_is_what_a_walk_over_the_samples_finds(block):
    compare(range(50 * block, 50 * block + 50))


def test_a_report_names_the_gpu_that_heat_slows_with_the_hours_that_it_loses_to_its_likes():
    # 4 GPUs for 10 hours at tensor 0.5 and 1.464 GHz, 0.8 of the tensor clock; one of them hot for the last 5 at 0.732, 0.4 of it
    rows = []
    for gpu in range(4):
        for step in range(1200):
            hot = gpu == 3 and step >= 600
            row = {"time": SPAN * (step + 1), "gpu": f"GPU-{gpu}", "job": "1", "throttle": 0x64 if hot else 0x4}
            rows.append(row | {"tensor_active": 0.5, "sm_clock": 0.732e9 if hot else 1.464e9, "tensor_cycles": None, "sm_cycles": None})
    (found,) = [one for one in fleet(ibis.memtable(settled(rows)), None, FleetRequest()).findings if one.kind == "throttled"]
    assert (found.where.gpu, found.owner, found.confidence) == ("GPU-3", "the operators of the hosts", "high")
    assert found.gpu_hours == pytest.approx(5 * 0.5 * (0.8 - 0.4), rel=1e-3)
    assert [(fact.name, fact.value) for fact in found.evidence[:2]] == [
        ("cause", "heat"),
        ("of the time at work", pytest.approx(0.5, rel=1e-3)),
    ]
