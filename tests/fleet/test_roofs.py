"""Roofs and energy of fleets whose state changes in time: our sums against a reference that walks second by second."""

from __future__ import annotations

import random
from collections import defaultdict

import ibis
import numpy as np
import pyarrow as pa
import pytest

from tests.fleet.roof_reference import reference
from tests.seeds import some
from ullage.field import CLOCK_LIMITS
from ullage.gpus.chip import find
from ullage.gpus.measured import Ceilings, MeasuredCeiling, save
from ullage.reports.fleet.energy import energies_of, energy_ledger
from ullage.reports.fleet.fleet import fleet as fleet_report
from ullage.reports.fleet.groups import state_sums
from ullage.reports.fleet.rated import rate
from ullage.reports.fleet.request import FleetRequest
from ullage.reports.fleet.roofs import ROOFS, RoofHeights, RoofLevel, roofs_of
from ullage.store.store import Store
from ullage.sums.devices import STEPS, _sums
from ullage.sums.exact import Steps
from ullage.sums.ledger import CODES
from ullage.sums.windows import settle
from ullage.tables import samples as as_samples

SCRAPE, GAP = 10, 30
CHIPS = {  # NVIDIA's datasheets, worked out by hand: NVLink and PCIe in one direction (PCIe 4 and 5 x16, less the line code)
    "NVIDIA A100-SXM4-80GB": (1.410e9, 1.410e9, 1.593e9, 300e9, 16e9 * 128 / 130 / 8 * 16),
    "NVIDIA H100 80GB HBM3": (1.980e9, 1.830e9, 2.619e9, 450e9, 32e9 * 128 / 130 / 8 * 16),
    "AMD Instinct MI300X": (2.100e9, 2.100e9, None, 448e9, 32e9 * 128 / 130 / 8 * 16),  # nobody states the clock of its memory
}
GAUGES = ("tensor_active", "dram_active", "fp64_active", "fp32_active", "fp16_active", "sm_clock", "memory_clock", "power")
LINKS = ("nvlink_tx", "nvlink_rx", "pcie_tx", "pcie_rx")
OWNERS = {CODES["job"]: "job", CODES["held_idle"]: "held idle", CODES["free"]: "free", CODES["unknown"]: "unknown"}
IDLE = ("held idle", "free")


def random_fleet(seed):
    """Devices whose holder, clocks, load and meters change from scrape to scrape, and whose counters reset, wrap and go missing."""
    rng = random.Random(seed)
    devices = []
    missing = {name for name in (*GAUGES, *LINKS, "energy") if rng.random() < 0.15}  # nobody in this fleet exports it
    for _ in range(rng.randint(1, 4)):
        name = rng.choice(list(CHIPS))
        chip = dict(zip(("sm_clock", "tensor_clock", "memory_clock", "nvlink", "pcie"), CHIPS[name], strict=True))
        time, energy, scrapes, state = 1_786_000_000, rng.choice([0, 2**31, 2**32 - 3000]), [], {}
        for _ in range(rng.randint(2, 25)):
            time += rng.choice([SCRAPE] * 8 + [2 * SCRAPE, 17, 100])
            state = changed(rng, state) if not state or rng.random() < 0.3 else state
            energy += rng.randint(0, 7000)
            if rng.random() < 0.08:
                energy = rng.choice([0, energy % 2**32, rng.randint(0, 1000)])
            scrapes.append(row_of(rng, time, state, energy, missing))
        devices.append({"model": name, "chip": chip, "scrapes": scrapes})
    return {"devices": devices, "gap": GAP, "first": SCRAPE}


def changed(rng, state):
    """A new state of a device: who holds it, how busy it is, at which clocks, and what its exporter leaves out for a while."""
    owner = rng.choice(["job 1", "job 2", "held idle", "free", "unknown"])
    return {
        "owner": owner,
        "level": rng.choice([0.2, 0.6, 1.0]),
        "memory_clock": rng.choice([1.593e9, 2.619e9, 0.405e9]),
        "out": {name for name in (*GAUGES, *LINKS, "energy") if rng.random() < 0.1},
    }


def row_of(rng, time, state, energy, missing):
    row = {name: float(np.float32(rng.random() * state["level"])) for name in GAUGES[:5]}
    row |= {"sm_clock": rng.randrange(1000, 1980) * 1e6, "memory_clock": state["memory_clock"]}
    row |= {"power": float(np.float32(rng.uniform(60, 700)))} | {name: float(np.float32(rng.uniform(0, 4e11))) for name in LINKS}
    row = {name: float(np.float32(value)) for name, value in row.items()} | {"energy": energy}
    row |= {"tensor_active": 0.0} if state["owner"] in IDLE else {}
    row |= dict.fromkeys(missing | state["out"])
    return row | {"time": time, "owner": state["owner"]}


def table_of(fleets):
    """The fleets as our table of samples, a cluster each."""
    columns = defaultdict(list)
    for seed, fleet in fleets.items():
        for number, device in enumerate(fleet["devices"]):
            for row in device["scrapes"]:
                columns["time"].append(row["time"] * 1000)
                columns["cluster"].append(str(seed))
                columns["gpu"].append(f"{seed}/{number}")
                columns["model"].append(device["model"])
                columns["job"].append({"held idle": "1", "job 1": "1", "job 2": "2"}.get(row["owner"]))
                columns["gr_active"].append(0.0 if row["owner"] in IDLE else 0.9)
                columns["energy"].append(row["energy"])
                for name in (*GAUGES, *LINKS):
                    columns[name].append(np.nan if row[name] is None else row[name])
    arrays = {name: np.array(columns[name]) for name in ("gr_active", *GAUGES, *LINKS)}
    words = {name: columns[name] for name in ("time", "cluster", "gpu", "model", "job")}
    return pa.Table.from_batches([as_samples(words | arrays | {"energy": pa.array(columns["energy"], pa.int64())})])


def settled(fleets):
    """Samples at rest; what a device's first sample stands for is our guess by its median interval, here it is one scrape."""
    table = settle(table_of(fleets), gap_ms=GAP * 1000)
    gpus, span = table["gpu"].to_pylist(), table["span_ms"].to_pylist()
    span = [SCRAPE * 1000 if number == 0 or gpus[number] != gpus[number - 1] else value for number, value in enumerate(span)]
    place = table.schema.get_field_index("span_ms")
    return table.set_column(place, table.schema.field(place), pa.array(span, pa.int32()))


def keys_of(rated):
    """Each row's fleet and owner, as the reference calls it."""
    whose = [OWNERS[code] for code in rated.sums["owner"].to_pylist()]
    owners = [f"job {job}" if owner == "job" else owner for owner, job in zip(whose, rated.words("job"), strict=True)]
    return [(int(seed), owner) for seed, owner in zip(rated.words("cluster"), owners, strict=True)]


def close(found, expected, what):
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9), what


def compare(seeds, place):
    """All fleets are one question of ours, and the reference's one by one."""
    fleets = {seed: random_fleet(seed) for seed in seeds}
    theirs = {seed: reference(fleet) for seed, fleet in fleets.items()}
    rated = rate(state_sums(ibis.memtable(settled(fleets)), []))
    names = keys_of(rated)
    keys = sorted(set(names))
    codes = np.array([keys.index(name) for name in names])
    assert set(keys) == {(seed, owner) for seed, found in theirs.items() for owner in found if owner != "silence"}
    roofs, energies = roofs_of(rated, codes, len(keys), place), energies_of(rated, codes, len(keys))
    for (seed, owner), under, energy in zip(keys, roofs, energies, strict=True):
        compare_roofs((seed, owner), under, theirs[seed][owner])
        compare_energy((seed, owner), energy, theirs[seed][owner])
    meter = sum(float(joules) for found in theirs.values() for sums in found.values() for joules in sums["joules"].values())
    close(sum(energy.joules or 0.0 for energy in energy_ledger(rated).values()), meter, "the ledger is the meter")


def compare_roofs(what, roofs, expected):
    levels = {}
    for level, (name, _, _, sources) in zip(roofs.levels, ROOFS, strict=True):
        known = {source: float(expected["level"][source]) for source in sources if source in expected["level"]}
        assert (level.height is None) == (not known), (what, name)
        if known:
            fullest = max(known, key=known.get)
            levels[name] = known[fullest]
            close(level.utilization, known[fullest], (what, name))
            close(level.hours * 3600, float(expected["time"][fullest]), (what, name, "time"))
    assert (roofs.nearest is None) == (not {"tensor", "memory"} <= levels.keys()), what
    if roofs.nearest is not None:
        close(roofs.distance, 1 - max(levels.values()), what)


def compare_energy(what, energy, expected):
    close(energy.counted, float(expected["joules"]["counter"]), (what, "counted"))
    close(energy.sampled, float(expected["joules"]["sampled"]), (what, "sampled"))
    close(energy.dark_hours * 3600, float(expected["metered"]["none"]), (what, "dark"))
    assert (energy.joules is None) == (set(expected["metered"]) <= {"none"}), what
    assert energy.idle == (energy.joules or 0.0 if what[1] == "held idle" else 0.0), what


@pytest.mark.parametrize("block", some(range(22), 2))
def test_roofs_and_energy_are_what_a_walk_second_by_second_finds(block, tmp_path):
    compare(range(200 * block, 200 * block + 200), tmp_path)


@pytest.mark.parametrize("name", CHIPS)
def test_the_peaks_of_these_tests_are_those_of_the_table(name):
    chip = find(name)
    links = chip.link.per_direction, chip.pcie.per_direction
    assert (chip.sm_clock, chip.tensor_clock, chip.memory_clock, *links) == CHIPS[name]


def roofs(**heights):
    """How high a job is under these roofs; None: nobody exports the gauge."""
    return RoofHeights(tuple(RoofLevel(name, height, height, 1.0, measured=False) for name, height in heights.items()))


def test_the_nearest_roof_is_the_one_with_the_least_distance():
    found = roofs(tensor=0.2, memory=0.7, fp64=None, nvlink=0.3)
    assert (found.nearest.name, found.kind, found.bound, found.unknown) == ("memory", "memory", "memory", ("fp64",))
    assert found.distance == pytest.approx(0.3)


@pytest.mark.parametrize(("heights", "kind"), [
    ({"fp32": 0.6}, "other pipe"), ({"nvlink": 0.6}, "network"), ({"pcie": 0.6}, "host"), ({}, "tensor"),
])  # fmt: skip
def test_each_roof_has_its_class(heights, kind):
    assert roofs(tensor=0.5, memory=0.4, **heights).kind == kind


@pytest.mark.parametrize(("height", "bound"), [(0.4999, None), (0.5, "memory")])
def test_a_job_is_bound_by_a_roof_of_which_it_reaches_half(height, bound):
    assert roofs(tensor=0.1, memory=height).bound == bound


@pytest.mark.parametrize("missing", ["tensor", "memory"])
def test_no_roof_is_nearest_before_tensor_pipes_and_memory_are_known(missing):
    found = roofs(**{"tensor": 0.9, "memory": 0.9, "nvlink": 0.1} | {missing: None})
    assert found.nearest is None and found.kind is None and found.distance is None and missing in found.unknown


def one_job(**gauges):
    """Two samples, 30 s apart, of an H100 that one job holds."""
    rows = {"time": [30_000, 60_000], "gpu": ["GPU-0"] * 2, "model": ["H100"] * 2, "job": ["1"] * 2}
    read = {name: np.full(2, value) for name, value in ({"gr_active": 0.9} | gauges).items() if name != "energy"}
    counted = {"energy": pa.array(gauges["energy"], pa.int64())} if "energy" in gauges else {}
    table = settle(pa.Table.from_batches([as_samples(rows | read | counted)]))
    return rate(state_sums(ibis.memtable(table), []))


def test_a_measured_ceiling_stands_for_the_stated_peak(tmp_path):
    # 1.34 of 3.35 TB/s are 40 % of what is stated and 50 % of the 2.68 TB/s that were measured
    measured = {"global memory": MeasuredCeiling(2.68e12, "memory-bandwidth")}
    save(Ceilings("NVIDIA H100 80GB HBM3", "", "2026-08-10", "", {"bf16": MeasuredCeiling(494.7e12, "best-gemm")}, measured), tmp_path)
    rated = one_job(tensor_active=0.2, sm_clock=1.83e9, dram_active=0.4, memory_clock=2.619e9)
    found = roofs_of(rated, np.zeros(len(rated), np.int64), 1, tmp_path)[0]
    assert found.nearest.name == "memory" and found.bound == "memory" and found.nearest.measured
    assert (found.nearest.utilization, found.nearest.height) == (pytest.approx(0.4), pytest.approx(0.5))
    assert found.level("tensor").height == pytest.approx(0.2 / 0.500, rel=1e-3)  # 494.7 of 989.4 TFLOP/s
    assert found.unknown == ("fp64", "fp32", "fp16", "nvlink", "pcie")


def test_energy_is_the_counters_and_of_the_first_sample_that_of_power():
    # 30 s at 400 W, of which no growth is known; then the counter says 9 kJ. 400 W at OFU 0.25: 247 TFLOP/s over 350 W
    rated = one_job(tensor_active=0.25, sm_clock=1.83e9, power=400.0, energy=[1000, 10_000])
    found = energies_of(rated, np.zeros(len(rated), np.int64), 1)[0]
    assert (found.counted, found.sampled, found.joules, found.power) == (9000, 12_000, 21_000, 350)
    assert found.error == 0.05 * 21_000  # one sample has no spread: the sensor's error alone
    assert found.flops_per_joule == pytest.approx(0.25 * 989.4e12 / 350, rel=1e-3) and found.best == pytest.approx(989.4e12 / 700, rel=1e-3)


def test_samples_of_power_that_differ_leave_a_larger_error():
    # 100 W and 300 W, each for 30 s: 12 kJ, standard deviation 100 W, of two samples' mean 71 W, in 60 s 4,243 J; twice that, and 5 %
    found = energies_of(one_job(power=np.array([100.0, 300.0])), np.zeros(1, np.int64), 1)[0]
    assert found.joules == 12_000 and found.error == pytest.approx(0.05 * 12_000 + 2 * 60 * 100 / 2**0.5)


def test_no_meter_is_no_energy():
    found = energies_of(one_job(), np.zeros(1, np.int64), 1)[0]
    assert (found.joules, found.kwh, found.error, found.power, found.flops_per_joule) == (None,) * 5
    assert found.dark_hours == pytest.approx(60 / 3600)


def test_the_steps_of_sums_are_those_that_they_are_counted_in():
    sums = {name: value for name, value in _sums(ibis.memtable(settled({1: random_fleet(1)}))).items() if isinstance(value, Steps)}
    limited = {f"{limit}_{what}" for limit in CLOCK_LIMITS for what in ("tensor_sum", "ofu_sum", "cycles")}  # parts of others
    assert {name: value.step for name, value in sums.items()} == {name: step for name, step in STEPS.items() if name not in limited}


def test_a_gauge_that_appears_in_a_later_part_counts_from_roll_ups_as_from_samples(tmp_path):
    # the first day has neither counters nor memory activity, the second has both; each is a part of the store
    store = Store.open(tmp_path / "store", create=True)
    for day, late in enumerate((False, True)):
        rows = {"time": [day * 86_400_000 + 30_000 * n for n in range(1, 9)], "gpu": ["GPU-0"] * 8, "model": ["H100"] * 8, "job": ["1"] * 8}
        read = {"gr_active": 0.9, "tensor_active": 0.5, "sm_clock": 1.5e9} | ({"dram_active": 0.4, "memory_clock": 2.619e9} if late else {})
        counted = {name: pa.array(range(8), pa.int64()) for name in ("energy", "tensor_cycles")} | {
            "sm_cycles": pa.array(range(1, 9), pa.int64())
        }
        arrays = {name: np.full(8, value) for name, value in read.items()} | (counted if late else {})
        store.append(pa.Table.from_batches([as_samples(rows | arrays)]))
    store.roll_up()
    plain = fleet_report(store.speaking(None, None), None, FleetRequest(by="job"))
    rolled = fleet_report(store.speaking(None, None), None, FleetRequest(by="job"), rolled=store.rolled(None, None))
    assert rolled == plain and plain.roofs.level("memory").height == pytest.approx(0.4)


WIDTHS = {"Tesla V100-SXM2-32GB": 4096, "Tesla T4": 256, "NVIDIA A100-SXM4-40GB": 5120, "NVIDIA A100 80GB PCIe": 5120, "NVIDIA A30": 3072}
WIDTHS |= {"NVIDIA A10": 384, "NVIDIA A40": 384, "NVIDIA L4": 192, "NVIDIA L40S": 384, "NVIDIA H100 80GB HBM3": 5120, "NVIDIA H200": 6144}
WIDTHS |= {
    "NVIDIA H100 NVL": 6016,
    "NVIDIA B200": 8192,
    "NVIDIA GeForce RTX 4090": 384,
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": 512,
}


@pytest.mark.parametrize(("name", "bits"), WIDTHS.items())
def test_both_edges_of_the_memory_clock_over_the_bus_are_the_stated_bandwidth(name, bits):
    assert 2 * find(name).memory_clock * bits / 8 == pytest.approx(find(name).bandwidth, rel=0.025)
