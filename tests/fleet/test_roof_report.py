"""Roofs and energy as a fleet's report shows them: columns, sections, JSON, and what it says where a gauge is not exported."""

from __future__ import annotations

import ibis
import numpy as np
import pyarrow as pa
import pytest

from ullage.render.fleet import view
from ullage.render.fleet_document import record
from ullage.render.roofs import by_which_meter
from ullage.render.svg.roofs import roofs as picture
from ullage.reports.fleet.fleet import fleet
from ullage.reports.fleet.request import FleetRequest
from ullage.sums.windows import settle
from ullage.tables import samples as as_samples
from ullage.views.text import text

STEPS = 120  # samples of 30 s: an hour
JOBS = {"decode": (0.05, 0.8, "ann"), "train": (0.6, 0.3, "bob"), "wait": (0.1, 0.1, "bob")}  # tensor and memory activity, user


@pytest.fixture(autouse=True)
def no_ceilings(monkeypatch, tmp_path):
    monkeypatch.setenv("ULLAGE_CEILINGS", str(tmp_path))


def report(without=(), **asked):
    """Three jobs on an H100 each for an hour at full clocks and 360 W, and a GPU that a fourth holds idle at 72 W.

    The energy counter says the same: 0.36 kWh a job, 0.072 kWh idle, but for each GPU's first 30 s.
    """
    columns = {name: [] for name in ("time", "gpu", "job", "user", "gr_active", "tensor_active", "dram_active", "power", "energy")}
    for number, (job, (tensor, memory, user)) in enumerate((JOBS | {"idle": (0.0, 0.0, "eve")}).items()):
        for step in range(STEPS):
            drawn = 72 if job == "idle" else 360
            row = {"time": 30_000 * (step + 1), "gpu": f"GPU-{number}", "job": job, "user": user, "power": drawn}
            row |= {"gr_active": 0.0 if job == "idle" else 0.9, "tensor_active": tensor, "dram_active": memory}
            for name, value in (row | {"energy": drawn * 30 * (step + 1)}).items():
                columns[name].append(value)
    words = {name: columns[name] for name in ("time", "gpu", "job", "user")} | {"model": ["H100"] * len(columns["time"])}
    read = {name: np.array(columns[name], float) for name in ("gr_active", "tensor_active", "dram_active", "power")}
    read |= {"sm_clock": np.full(len(columns["time"]), 1.83e9), "memory_clock": np.full(len(columns["time"]), 2.619e9)}
    read |= {"energy": pa.array(columns["energy"], pa.int64())}
    kept = {name: value for name, value in read.items() if name not in without}
    samples = settle(pa.Table.from_batches([as_samples(words | kept)]))
    return fleet(ibis.memtable(samples), None, FleetRequest(**asked))


def row_of(table, key):
    columns = [column.heading for column in table.columns]
    return dict(zip(columns, next(row for row in table.rows if row[0] == key), strict=True))


def test_each_job_has_its_nearest_roof_and_its_energy_in_the_table():
    table = view(report(by="job")).tables["groups"]
    assert row_of(table, "decode")["nearest roof"] == "memory 80 %"
    assert row_of(table, "train")["nearest roof"] == "tensor pipes 60 %"
    assert row_of(table, "decode")["kWh"] == pytest.approx(0.36)
    assert row_of(table, "idle")["kWh"] == pytest.approx(0.072)


def test_jobs_are_counted_by_the_roof_that_binds_them():
    rows = [[row[0], row[1]] for row in view(report(by="job")).tables["roofs"].rows]
    assert rows == [["bound by tensor pipes", 1], ["bound by memory", 1], ["far from every roof", 1], ["nothing ran", 1]]


def test_energy_adds_up_over_its_owners_and_the_idle_part_stands_out():
    # 3 jobs of 0.36 kWh and 0.072 held idle; 380 g and 0.25 a kWh
    found = report(by="user", carbon=380, kwh_price=0.25)
    assert found.energy.kwh == pytest.approx(1.152) and found.energy.error == pytest.approx(0.05 * 1.152 * 3.6e6)
    assert sum(own.joules or 0.0 for own in found.energy_ledger.values()) == pytest.approx(found.energy.joules)
    assert found.energy_ledger["held_idle"].kwh == pytest.approx(0.072) and found.energy.idle_power == pytest.approx(72)
    table = view(found).tables["energy"]
    assert row_of(table, "held idle")["kg CO₂"] == pytest.approx(0.072 * 0.38)
    assert table.last[0][0] == "= all meters" and table.last[0][-1] == pytest.approx(1.152 * 0.25)
    account = record(found)["energy_account"]
    assert account["co2_kg"] == pytest.approx(1.152 * 0.38) and account["boundary"] == "accelerator"
    assert account["cost"] == pytest.approx(1.152 * 0.25)
    assert {group["key"]: group["energy"]["kwh"] for group in record(found)["groups"]}["bob"] == pytest.approx(0.72)


@pytest.mark.parametrize("missing", ["dram_active", "memory_clock"])
def test_where_memory_is_not_exported_no_roof_is_named_and_the_report_says_why(missing):
    found = report(by="job", without={missing})
    assert "nearest roof" not in [column.heading for column in view(found).tables["groups"].columns]
    assert any("which jobs memory bounds" in note for note in found.notes)
    group = record(found)["groups"][0]["roofs"]
    assert group["nearest"] is None and "memory" in group["unknown"] and "memory" not in [level["name"] for level in group["levels"]]


def test_where_it_is_exported_nothing_is_missing_but_other_pipes_and_links():
    found = report(by="job")
    assert not any("which jobs memory bounds" in note for note in found.notes)
    assert record(found)["roofs"]["unknown"] == ["fp64", "fp32", "fp16", "nvlink", "pcie"]
    assert "Not known, since no gauge tells: FP64 pipe, FP32 pipe, FP16 pipe, NVLink, PCIe." in text(view(found))


def test_without_a_meter_no_energy_is_shown():
    found = report(by="job", without={"power", "energy"})
    assert found.energy.joules is None and "energy" not in view(found).tables
    assert "kWh" not in [column.heading for column in view(found).tables["groups"].columns]
    assert record(found)["energy"]["kwh"] is None


def test_power_alone_is_a_meter():
    found = report(by="job", without={"energy"})
    assert found.energy.kwh == pytest.approx(1.152) and found.energy.counted == 0 and found.energy.sampled == found.energy.joules


def test_a_job_that_memory_binds_is_found_so_and_not_by_its_low_ofu():
    found = [(one.kind, one.where.job, one.gpu_hours) for one in report(by="job").findings]
    assert found == [("held_idle", "idle", 1.0), ("memory_bound", "decode", pytest.approx(0.2))]
    assert [one.kind for one in report(by="job", without={"memory_clock"}).findings] == ["held_idle"]


def test_the_picture_has_a_circle_for_every_job_that_did_anything_and_the_name_of_those_that_a_roof_binds():
    drawn = str(picture(report(by="job").groups, "job"))
    assert all(f"<title>{job}: " in drawn for job in JOBS) and "<title>idle: " not in drawn
    assert [f">{job}</text>" in drawn for job in JOBS] == [True, True, False]
    assert "3 of 4 are drawn" in drawn
    assert "decode: tensor pipes 5.0 %, memory 80.0 %, 1.00 GPU-hours" in drawn


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        (1.0, "All of it by the energy counter."),
        (0.9999, "Nearly all of it by the energy counter, the rest by samples of power."),
        (0.9951, "Nearly all of it by the energy counter, the rest by samples of power."),
        (0.9949, "99 % by the energy counter, the rest by samples of power."),
        (0.0001, "0.01 % by the energy counter, the rest by samples of power."),
        (0.0, "All of it by samples of power."),
    ],
)
def test_a_meter_that_told_all_is_named_alone(counted: float, words: str) -> None:
    assert by_which_meter(counted) == words
