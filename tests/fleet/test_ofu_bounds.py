"""The bounds of a fleet's sampled OFU, against a walk over its samples: counted for a part of the time, in slices, of several jobs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conftest import T0
from tests.seeds import some
from ullage.reports.fleet.fleet import fleet
from ullage.reports.fleet.request import FleetRequest

TENSOR_CLOCK, SLICES = 1830e6, {None: 1.0, "1g.10gb/7": 1 / 7, "2g.20gb/5": 2 / 7}


def drawn(seed):
    """Samples of a few whole and sliced GPUs; cycles are counted from some sample on, or until some sample."""
    draw = np.random.default_rng(seed)
    rows = []
    for gpu in range(int(draw.integers(1, 4))):
        for mig in [None] if draw.random() < 0.5 else ["1g.10gb/7", "2g.20gb/5"]:
            edge, early = int(draw.integers(0, 241)), bool(draw.random() < 0.5)
            for number in range(1, 241):
                tensor = float(np.float32(draw.uniform(0.2, 0.6)))
                row = {"gpu": f"g{gpu}", "mig": mig, "job": f"j{number > 100 + gpu}", "tensor_active": tensor}
                row |= {"sm_active": 0.8, "gr_active": 0.9, "time": T0 + 30_000 * number}
                row["sm_clock"] = float(np.float32(draw.choice([1300e6, 1600e6, 1980e6])))
                if (number <= edge) == early:
                    row |= {"tensor_cycles_delta": int(1.5e9 * 30 * tensor), "sm_cycles_delta": int(1.5e9 * 30)}
                rows.append(row)
    return rows


def walked(rows):
    """The least and the most that OFU may be: a sample's activity at the lowest and highest clock of its device at such activity."""
    seen = {}
    for row in rows:
        if "sm_cycles_delta" not in row:
            seen.setdefault((row["gpu"], row["mig"], int(row["tensor_active"] * 10)), []).append(row["sm_clock"])
    least = most = time = 0.0
    for row in rows:
        weight = SLICES[row["mig"]]
        time += weight + (4 / 7 if row["mig"] == "1g.10gb/7" else 0)  # what is not sliced does nothing
        if "sm_cycles_delta" in row:
            low = high = row["tensor_cycles_delta"] / (TENSOR_CLOCK * 30)
        else:
            clocks = seen[row["gpu"], row["mig"], int(row["tensor_active"] * 10)]
            low, high = (row["tensor_active"] * edge / TENSOR_CLOCK for edge in (min(clocks), max(clocks)))
        least, most = least + weight * low, most + weight * high
    return least / time, most / time


@pytest.mark.parametrize("seed", some(range(100), 3))
def test_bounds_are_of_what_was_sampled_and_hold_ofu(settled, seed):
    rows = drawn(seed)
    report = fleet(settled(rows), None, FleetRequest())
    assert report.ofu is not None and report.trusted_share == pytest.approx(1)
    if report.method == "exact":
        return
    assert (
        report.ofu_bounds is not None
        and report.ofu_bounds[0] <= report.ofu * (1 + 1e-12)
        and report.ofu <= report.ofu_bounds[1] * (1 + 1e-12)
    )
    assert report.ofu_bounds == pytest.approx(walked(rows), rel=1e-6)


@pytest.mark.parametrize(("model", "counted", "said"), [("H200", 0, 1), ("H200", 120, 1), ("H200", 240, 0), ("H100", 0, 0)])
def test_a_clock_that_the_driver_tells_wrong_is_said_where_ofu_rests_on_it(settled, model, counted, said):
    # cycles are counted in the first samples: in none, in half of them, in all
    cycles = {"tensor_cycles_delta": int(1.5e9 * 30 * 0.5), "sm_cycles_delta": int(1.5e9 * 30)}
    seen = {"model": model, "tensor_active": 0.5, "sm_active": 0.8, "gr_active": 0.9, "sm_clock": 1600e6}
    rows = [seen | {"time": T0 + 30_000 * number} | (cycles if number <= counted else {}) for number in range(1, 241)]
    notes = fleet(settled(rows), None, FleetRequest()).notes
    assert sum("by sampled clocks is 10 to 16 % too high" in note for note in notes) == said
