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


def changing(seed):
    """Samples of GPUs that several jobs hold in turn, which rest, work and change their clock in time; some cycles are counted."""
    draw = np.random.default_rng(seed)
    rows = []
    for gpu in range(int(draw.integers(1, 4))):
        job, tensor, clock = 0, 0.4, 1500e6
        for number in range(1, int(draw.integers(20, 200))):
            if draw.random() < 0.1:
                job = int(draw.integers(0, 4))
            if draw.random() < 0.2:
                tensor, clock = (
                    float(draw.choice([0.0, 0.05, 0.1, draw.uniform(0, 1), 0.95, 1.0])),
                    draw.choice([345e6, 1200e6, 1755e6, 1980e6]),
                )
            row = {"gpu": f"g{gpu}", "mig": None, "job": f"j{job}" if job else None, "sm_active": 1.0, "gr_active": 1.0}
            row |= {"time": T0 + 30_000 * number, "tensor_active": float(np.float32(tensor)), "sm_clock": float(np.float32(clock))}
            if draw.random() < 0.05:
                row |= {"tensor_cycles_delta": int(1.5e9 * 30 * tensor), "sm_cycles_delta": int(1.5e9 * 30)}
            rows.append(row)
    return rows


def level_of(row):
    return int(np.float32(row["tensor_active"]) * 10)


def parts(rows, job):
    """The least and the most that a job's OFU may be, in ms of OFU 1: level by level where it has all of a device's samples, else the
    best mixture of two corners of levels that has the mean activity of its samples."""
    edges = [0.0, 0.0]
    for gpu in {row["gpu"] for row in rows}:
        sampled = [row for row in rows if row["gpu"] == gpu and "sm_cycles_delta" not in row]
        seen = {}
        for row in sampled:
            seen.setdefault(level_of(row), []).append(row["sm_clock"])
        own = [row for row in sampled if row["job"] == job]
        if not own:
            continue
        for edge, extreme in enumerate((min, max)):
            if sum(row["tensor_active"] for row in own) >= sum(row["tensor_active"] for row in sampled) * (1 - 1e-9):
                edges[edge] += sum(row["tensor_active"] * extreme(seen[level_of(row)]) for row in own)
                continue
            mean = sum(row["tensor_active"] for row in own) / len(own)
            corners = [(x, x * extreme(clocks)) for level, clocks in seen.items() for x in (level / 10, min(level + 1, 10) / 10)]
            chords = [
                b[1] if a[0] == b[0] else a[1] + (b[1] - a[1]) * (mean - a[0]) / (b[0] - a[0])
                for a in corners
                for b in corners
                if a[0] <= mean + 1e-12 and mean <= b[0] + 1e-12
            ]
            edges[edge] += len(own) * extreme(chords)
    return [edge / TENSOR_CLOCK * 30_000 for edge in edges]


@pytest.mark.parametrize("seed", some(range(3000), 8))
def test_a_rows_bounds_hold_all_that_its_samples_can_be_and_are_those_of_the_best_mixture(settled, seed):
    rows = changing(seed)
    report = fleet(settled(rows), None, FleetRequest(by="job"))
    assert report.trusted_share == pytest.approx(1)
    for group in report.groups:
        if group.ofu is None or group.ofu_bounds is None:
            continue
        job = None if group.key.startswith("no ") else group.key
        own = [row for row in rows if row["job"] == job]
        counted = sum(row["tensor_cycles_delta"] / (TENSOR_CLOCK * 30) * 30_000 for row in own if "sm_cycles_delta" in row)
        told = [bound * len(own) * 30_000 for bound in group.ofu_bounds]
        least, most = parts(rows, job)
        ofu = group.ofu * len(own) * 30_000
        assert told == pytest.approx([min(least + counted, ofu), max(most + counted, ofu)], rel=1e-6, abs=1e-3)
        # whatever clock each sample really had, of those that its device shows at its level
        for _ in range(5):
            any_of_it = (
                sum(clock_of(rows, row) * row["tensor_active"] for row in own if "sm_cycles_delta" not in row) / TENSOR_CLOCK * 30_000
            )
            assert told[0] <= (any_of_it + counted) * (1 + 1e-6) and any_of_it + counted <= told[1] * (1 + 1e-6)


def clock_of(rows, row, draw=np.random.default_rng(7)):  # noqa: B008 - one stream of chance
    alike = [
        one["sm_clock"] for one in rows if one["gpu"] == row["gpu"] and "sm_cycles_delta" not in one and level_of(one) == level_of(row)
    ]
    return float(draw.choice(alike))


@pytest.mark.parametrize(("model", "counted", "said"), [("H200", 0, 1), ("H200", 120, 1), ("H200", 240, 0), ("H100", 0, 0)])
def test_a_clock_that_the_driver_tells_wrong_is_said_where_ofu_rests_on_it(settled, model, counted, said):
    # cycles are counted in the first samples: in none, in half of them, in all
    cycles = {"tensor_cycles_delta": int(1.5e9 * 30 * 0.5), "sm_cycles_delta": int(1.5e9 * 30)}
    seen = {"model": model, "tensor_active": 0.5, "sm_active": 0.8, "gr_active": 0.9, "sm_clock": 1600e6}
    rows = [seen | {"time": T0 + 30_000 * number} | (cycles if number <= counted else {}) for number in range(1, 241)]
    notes = fleet(settled(rows), None, FleetRequest()).notes
    assert sum("by sampled clocks is 9 to 16 % too high" in note for note in notes) == said
