"""Roll-ups: a report from the sums that a store keeps is the report from its samples, to the last bit; and what can't be used is not."""

from __future__ import annotations

import dataclasses
import itertools
import random
from pathlib import Path

import pytest

from tests.fleet.fleet_generator import random_fleet
from tests.fleet.test_fleet_property import turned, unsettled
from tests.seeds import some
from ullage.errors import UllageError
from ullage.reports.fleet.fleet import fleet
from ullage.reports.fleet.request import FleetRequest
from ullage.store import rollups
from ullage.store.store import Store


def store_of(seed, folder, *, parts=1, faults=False):
    """A store of a random fleet, in so many commits."""
    rows = turned(random_fleet(seed))
    rng = random.Random(seed)
    if faults:  # gauges that stand still while the GPU works, for half of a device's life: a part of it is left out
        broken = {row["uuid"] for row in rows if rng.random() < 0.2}
        half = rows[len(rows) // 2]["time"]
        for row in rows:
            if row["uuid"] in broken and row["time"] > half:
                row |= {"engine_active": 0.0, "sm_active": 0.0, "tensor_active": 0.0, "busy": 0.97}
    if rng.random() < 0.5:  # an exporter that is upgraded: what it did not tell at first it tells later, or the other way round
        upgraded, until = rng.choice(("engine_active", "sm_active", "busy", "sm_clock")), rows[len(rows) // 2]["time"]
        before = rng.random() < 0.5
        for row in rows:
            if (row["time"] <= until) == before:
                row[upgraded] = None
    store = Store.open(folder, create=True)
    edges = [round(len(rows) * part / parts) for part in range(parts + 1)]
    for first, last in itertools.pairwise(edges):
        if last > first:
            store.append(unsettled(rows[first:last]))
    return store


def told(store, question, *, rolled):
    """What the report says, or why there is none."""
    kept = store.rolled(question.since, question.until) if rolled else None
    try:
        found = fleet(store.speaking(question.since, question.until), store.jobs(), question, rolled=kept)
    except UllageError as error:
        return str(error)
    return {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}


def windows(store, rng):
    """All of it, and a window that begins and ends anywhere."""
    first, last = store.window()
    edges = sorted(rng.sample(range(first - 60_000, last + 60_000), 2))
    return [(None, None), (edges[0], edges[1]), (None, edges[1])]


def compare(seed, folder):
    rng = random.Random(seed)
    store = store_of(seed, folder, parts=rng.choice((1, 2, 4)), faults=rng.random() < 0.5)
    made = store.roll_up()
    assert made == len(store.manifest().parts) and store.roll_up() == 0
    if rng.random() < 0.4:  # a part that nobody added up
        part = rng.choice(store.manifest().parts)
        (store.path / rollups.place_of(part, "gauges")).unlink()
    for since, until in windows(store, rng):
        question = FleetRequest(since=since, until=until, by=rng.choice((None, "gpu", "user", "cluster")))
        plain, rolled = told(store, question, rolled=False), told(store, question, rolled=True)
        assert rolled == plain, (seed, since, until)


@pytest.mark.parametrize("seed", some(range(60), 2))
def test_a_report_from_roll_ups_is_the_report_from_samples(seed, tmp_path):
    compare(seed, tmp_path / "store")


@pytest.mark.full
@pytest.mark.parametrize("block", range(20))
def test_five_hundred_fleets(block, tmp_path):
    for seed in range(100_000 + 25 * block, 100_025 + 25 * block):
        compare(seed, tmp_path / f"store-{seed}")


def test_sums_of_another_algorithm_or_another_part_are_not_used(tmp_path, monkeypatch):
    store = store_of(3, tmp_path / "store", parts=2)
    assert store.rolled() is None
    store.roll_up()
    assert len(store.rolled().rolled) == len(store.manifest().parts) and store.rolled().rest is None
    one, other, *_ = store.manifest().parts
    (store.path / rollups.place_of(one, "states")).write_bytes((store.path / rollups.place_of(other, "states")).read_bytes())
    assert len(store.rolled().rolled) == len(store.manifest().parts) - 1 and store.rolled().rest is not None
    rollups.algorithm.cache_clear()
    monkeypatch.setattr(rollups, "_MADE_BY", ("sums.devices",))
    assert store.rolled() is None
    assert store.roll_up() == len(store.manifest().parts)
    monkeypatch.undo()
    rollups.algorithm.cache_clear()


def test_a_damaged_roll_up_is_made_anew_and_no_number_is_taken_from_it(tmp_path):
    store = store_of(5, tmp_path / "store")
    expected = told(store, FleetRequest(), rolled=False)
    store.roll_up()
    path = store.path / rollups.place_of(store.manifest().parts[0], "states")
    content = bytearray(path.read_bytes())
    for place in range(4, min(len(content) - 400, 2000), 7):
        content[place] ^= 0x10
    path.write_bytes(bytes(content))
    assert told(store, FleetRequest(), rolled=True) == expected
    path.write_bytes(b"")
    assert told(store, FleetRequest(), rolled=True) == expected and store.roll_up() == 1


def test_upkeep_removes_the_roll_ups_of_parts_that_are_gone(tmp_path):
    store = store_of(7, tmp_path / "store", parts=4)
    store.roll_up()
    before = told(store, FleetRequest(), rolled=True)
    store.compact(grace_ms=0)
    kept = {Path(rollups.place_of(part, name)).name for part in store.manifest().parts for name in ("states", "gauges", "course")}
    assert {path.name for path in (store.path / rollups.ROLLUPS).iterdir()} <= kept
    store.roll_up()
    assert {path.name for path in (store.path / rollups.ROLLUPS).iterdir()} == kept
    assert told(store, FleetRequest(), rolled=True) == before
