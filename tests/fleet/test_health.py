"""What GPUs say of their health: against a walk over their readings, and in a report."""

from __future__ import annotations

import random

import ibis
import numpy as np
import pyarrow as pa
import pytest

from tests.seeds import some
from ullage.field import HEALTH
from ullage.reports.fleet.fleet import fleet
from ullage.reports.fleet.health import sick_gpus
from ullage.reports.fleet.request import FleetRequest
from ullage.sums.windows import settle
from ullage.tables import samples as as_samples

SPAN = 30_000


def settled(readings):
    """Readings by GPU, each a row of health every 30 s, held by a job."""
    rows = [(gpu, step, row) for gpu, course in readings.items() for step, row in enumerate(course)]
    columns = {"time": [SPAN * (step + 1) for _, step, _ in rows], "gpu": [gpu for gpu, _, _ in rows], "host": ["n1"] * len(rows)}
    columns |= {"index": [int(gpu[-1]) for gpu, _, _ in rows], "job": ["7"] * len(rows), "model": ["H100"] * len(rows)}
    floats = {name: np.array([np.nan if row.get(name) is None else row[name] for _, _, row in rows], float) for name in HEALTH}
    floats |= {name: np.full(len(rows), value) for name, value in (("tensor_active", 0.4), ("gr_active", 0.9), ("sm_clock", 1.4e9))}
    return settle(pa.Table.from_batches([as_samples(columns | floats)]), gap_ms=60_000)


def walk(course, span):
    """Go through a GPU's readings one by one: the codes that were told anew, the errors that came to be, the hours since the first."""
    last, codes, errors, hours, begun = {}, set(), {}, 0.0, False
    for row, ms in zip(course, span, strict=True):
        for name in HEALTH:
            value = row.get(name)
            if value is None:
                continue
            if name == "remap_failed":
                more = value
            elif name not in last:
                more = 0
            else:
                more = value if value < last[name] else value - last[name]
            last[name] = value
            if more > 0:
                begun = True
                if name == "xid":
                    codes.add(int(value))
                else:
                    errors[name] = errors.get(name, 0) + more
        hours += ms / 3_600_000 if begun else 0.0
    return (tuple(sorted(codes)), errors, hours) if begun else None


def random_course(rng):
    counts, rows = {name: rng.choice([0, 0, 3, 1000]) for name in HEALTH[1:3] + HEALTH[4:]} | {"xid": rng.choice([0, 0, 31])}, []
    failed = 0
    for _ in range(rng.randint(1, 30)):
        for name in counts:
            if rng.random() < 0.05:
                counts[name] = rng.choice([0, counts[name] + rng.randint(1, 5)]) if name != "xid" else rng.choice([0, 13, 48, 79])
        failed = failed or int(rng.random() < 0.01)
        row = counts | {"remap_failed": failed}
        rows.append({name: value for name, value in row.items() if rng.random() > 0.1})
    return rows


@pytest.mark.parametrize("block", some(range(20), 1))
def test_what_came_to_be_is_what_a_walk_over_the_readings_finds(block):
    rng = random.Random(block)
    for _ in range(40):
        readings = {f"GPU-{number}": random_course(rng) for number in range(4)}
        table = settled(readings)
        spans = {gpu: [] for gpu in readings}
        for gpu, ms in zip(table["gpu"].to_pylist(), table["span_ms"].to_pylist(), strict=True):
            spans[gpu].append(ms)
        expected = {gpu: found for gpu, course in readings.items() if (found := walk(course, spans[gpu])) is not None}
        ours = {one.gpu: (one.xids, dict(one.errors), pytest.approx(one.hours)) for one in sick_gpus(ibis.memtable(table))}
        assert ours == expected


def test_a_report_names_the_sick_gpu_and_not_the_one_whose_program_was_at_fault():
    well = [{"xid": 0, "ecc_uncorrected": 0, "remapped_rows": 2}] * 240
    sick = well[:120] + [{"xid": 94, "ecc_uncorrected": 1, "remapped_rows": 3}] * 120
    faulty_program = well[:120] + [{"xid": 31, "ecc_uncorrected": 0, "remapped_rows": 2}] * 120
    table = settled({"GPU-0": well, "GPU-1": sick, "GPU-2": faulty_program})
    (found,) = fleet(ibis.memtable(table), None, FleetRequest()).findings
    assert (found.kind, str(found.where), found.gpu_hours, found.confidence) == ("sick_gpu", "n1 GPU 1", pytest.approx(1.0), "high")
    told = [(fact.name, fact.value) for fact in found.evidence]
    assert told == [("Xid", "94"), ("ECC errors not corrected", 1), ("memory rows remapped", 1), ("jobs on it since", 1)]


def test_where_nobody_exports_health_nothing_is_found():
    assert sick_gpus(ibis.memtable(settled({"GPU-0": [{}] * 10}))) == ()
