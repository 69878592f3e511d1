"""The map of a fleet: its numbers are those of the fleet's report, GPUs stand in their places, areas are in proportion."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ullage
from tests.command_line import ask
from tests.seeds import some
from tests.service.running import hour
from ullage.errors import UllageError
from ullage.render.fleet_map import MOST_OWNERS, host_name, record, treemap_owners, view
from ullage.render.svg.treemap import TreemapTile, tiles, treemap
from ullage.reports.fleet.fleet_map import FleetMap, MappedGpu, MappedHost, OwnerLosses, natural_order, places_of
from ullage.simulate.fleet import Specification
from ullage.simulate.fleet import fleet as simulated
from ullage.store.store import Store
from ullage.tables import samples
from ullage.views.html import html

H100 = "NVIDIA H100 80GB HBM3"


def stored(folder: Path, *tables: Any) -> str:
    Store.open(folder / "store", create=True).append([*tables])
    return str(folder / "store")


def made_map(hosts: int = 3, owners: int = 3) -> FleetMap:
    gpus = [MappedGpu(f"GPU-{place}", 0.25 * place, 1.0, 1.0, "activity") for place in range(4)]
    return FleetMap(
        window=(0, 3_600_000),
        ofu=0.375,
        gpus=4 * hosts,
        gpu_hours=4.0 * hosts,
        ullage=2.5 * hosts,
        by="user",
        hosts=[MappedHost(None, f"n{row}", 0, gpus, 2.5) for row in range(hosts)],
        owners=[OwnerLosses(f"u{row}", 4.0, 4.0 - row / owners, {"activity": 3.0 - row / owners, "clock": 1.0}) for row in range(owners)],
    )


def test_each_gpu_stands_in_its_place_with_its_ofu_and_what_takes_most(tmp_path: Path) -> None:
    # tensor pipes work half of the time at the tensor clock: OFU 0.5; of the other half 0.3 are SM time without tensor work
    found = ullage.fleet_map(stored(tmp_path, hour(gpus=2), hour(host="n10", user="bob", gpus=1, tensor_active=0.1, sm_active=0.1)))
    assert [(one.host, len(one.gpus)) for one in found.hosts] == [("n1", 2), ("n10", 1)]
    first, other = found.hosts[0].gpus[0], found.hosts[1].gpus[0]
    assert first is not None and other is not None
    assert first.ofu == pytest.approx(0.5, abs=0.01) and first.most_lost == "tensor issue"
    assert other.ofu == pytest.approx(0.1, abs=0.01) and other.most_lost == "SM fill"
    assert found.by == "user" and [one.key for one in found.owners] == ["ann", "bob"]
    # 2 GPUs for an hour at 0.5, and one at 0.1
    assert found.ullage == pytest.approx(2 * 0.5 + 0.9, abs=0.03)
    assert found.owners[0].losses["tensor issue"] == pytest.approx(2 * 0.3, abs=0.02)


@pytest.mark.parametrize("seed", some(range(200), quick=2))
def test_the_numbers_are_those_of_the_fleets_report(tmp_path: Path, seed: int) -> None:
    made = simulated(Specification(gpus=32, hours=1, seed=seed, faults=("all",), changes=("all",)))
    store = stored(tmp_path, *made.batches())
    whole, by_gpu, by_user = (ullage.fleet(store, by=by) for by in ("host", "gpu", "user"))
    found = ullage.fleet_map(store, by="user")
    assert (found.ofu, found.gpu_hours) == (whole.ofu, whole.gpu_hours)
    assert found.ullage == pytest.approx(whole.ullage, rel=1e-9)
    assert sum(one.ullage for one in found.hosts) == pytest.approx(whole.ullage, rel=1e-9)
    assert sum(sum(one.losses.values()) for one in found.owners) == pytest.approx(whole.ullage, rel=1e-9)
    assert {one.key: one.ullage for one in found.owners} == {group.key: group.ullage or 0.0 for group in by_user.groups}
    cells = [gpu for one in found.hosts for gpu in one.gpus if gpu is not None]
    assert sum(gpu.gpu_hours for gpu in cells) == pytest.approx(whole.gpu_hours, rel=1e-9)
    once = {gpu.gpu: gpu for gpu in cells if [one.gpu for one in cells].count(gpu.gpu) == 1}
    for group in by_gpu.groups:
        if group.key in once:
            assert once[group.key].ofu == (None if group.ofu is None else pytest.approx(group.ofu, rel=1e-9)), group.key


def test_a_part_of_the_fleet_has_the_numbers_that_it_has_in_the_whole(tmp_path: Path) -> None:
    store = stored(tmp_path, hour(), hour(job="8", user="bob", host="n2", tensor_active=0.2))
    whole, part = ullage.fleet_map(store, by="user"), ullage.fleet_map(store, by="user", where="user=bob")
    assert [one.host for one in part.hosts] == ["n2"] and part.owners == [one for one in whole.owners if one.key == "bob"]


def test_who_owns_the_hours_is_said_by_the_first_name_that_is_known(tmp_path: Path) -> None:
    plain = hour()
    named = samples({**{name: plain[name].to_pylist() for name in plain.column_names}, "namespace": ["vision"] * len(plain)})
    assert ullage.fleet_map(stored(tmp_path, named)).by == "namespace"
    with pytest.raises(UllageError, match="no owners by 'hour'"):
        ullage.fleet_map(str(tmp_path / "store"), by="hour")


def test_what_cannot_be_trusted_has_no_ofu(tmp_path: Path) -> None:
    # the clock counts, the pipe says it works more than always: nobody believes it
    store = stored(tmp_path, hour(gpus=1), hour(host="n2", gpus=1, sm_clock=9e9))
    cells = {one.host: one.gpus[0] for one in ullage.fleet_map(store).hosts}
    doubted = cells["n2"]
    assert doubted is not None and doubted.ofu is None and doubted.trusted_share == 0
    page = html(view(ullage.fleet_map(store)))
    assert "cannot be trusted" in page


def test_places_are_indices_unless_they_tell_nothing() -> None:
    assert places_of(["a"] * 3, [5, 0, 2], ["x", "y", "z"]) == [5, 0, 2]
    assert places_of(["a"] * 3, [5, 5, None], ["x", "y", "z"]) == [0, 1, 2]
    assert places_of(["a", "a"], [16, 0], ["x", "y"]) == [16, 0] and places_of(["a", "a"], [18, 0], ["x", "y"]) == [1, 0]


def test_a_host_of_many_gpus_goes_on_in_a_further_row(tmp_path: Path) -> None:
    found = ullage.fleet_map(stored(tmp_path, hour(minutes=5, gpus=40)))
    assert [(one.first, len(one.gpus)) for one in found.hosts] == [(0, 16), (16, 16), (32, 8)]
    assert [host_name(found, one) for one in found.hosts] == ["n1", "n1 from 16", "n1 from 32"]
    assert [one["gpus"][0]["index"] for one in record(found)["hosts"]] == [0, 16, 32]


def test_hosts_stand_as_people_count() -> None:
    names = ["n10", "n2", "n1", "N3", "", "²", "7" * 5000]
    assert sorted(names[:3], key=natural_order) == ["n1", "n2", "n10"] and len(sorted(names, key=natural_order)) == len(names)


def test_a_terminal_shows_the_hosts_that_lose_most() -> None:
    report = made_map(hosts=30)
    report.hosts[17] = MappedHost(None, "worst", 0, report.hosts[17].gpus, 9.0)
    lines = str(report).splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith("host"))
    assert lines[head + 1].startswith("worst") and "10 more" in str(report)


def test_a_page_has_every_cell_as_a_number_and_its_script_draws_them() -> None:
    page = html(view(made_map()))
    table = re.search(r'<div class="heat".*?</table>', page, re.S)
    assert table is not None and len(re.findall(r"<td data-v=", table[0])) == 12 and "<details>" in table[0]
    assert 'title="most lost: activity"' in table[0] and "style=" not in table[0]


@pytest.mark.parametrize("seed", some(range(3000), quick=100))
def test_tiles_fill_the_area_in_proportion_and_nowhere_overlap(seed: int) -> None:
    pick = random.Random(seed)
    sizes = sorted((pick.choice([pick.random(), pick.random() ** 8, 1.0, 1e-9]) for _ in range(pick.randint(1, 30))), reverse=True)
    area = TreemapTile(pick.random(), pick.random(), pick.uniform(1, 900), pick.uniform(1, 900))
    found = tiles(sizes, area)
    assert len(found) == len(sizes)
    whole = area.width * area.height
    for size, one in zip(sizes, found, strict=True):
        assert one.width * one.height == pytest.approx(size / sum(sizes) * whole, rel=1e-6, abs=1e-9 * whole)
        assert one.x >= area.x - 1e-6 and one.x + one.width <= area.x + area.width + 1e-6
        assert one.y >= area.y - 1e-6 and one.y + one.height <= area.y + area.height + 1e-6
    for number, one in enumerate(found):
        for other in found[:number]:
            wide = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
            high = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
            assert min(wide, high) < 1e-6


def test_tiles_are_nearly_squares_where_they_can_be() -> None:
    # the example of the paper: 6, 6, 4, 3, 2, 2, 1 in an area of 6 by 4; its figure has 3 by 2 twice, then 4/3…
    found = tiles([6, 6, 4, 3, 2, 2, 1], TreemapTile(0, 0, 6, 4))
    assert [(round(one.width, 3), round(one.height, 3)) for one in found[:4]] == [(3, 2), (3, 2), (1.714, 2.333), (1.286, 2.333)]
    assert np.mean([max(one.width / one.height, one.height / one.width) for one in found]) < 2


def test_owners_beyond_the_largest_are_one_area_and_gains_are_none() -> None:
    report = made_map(owners=MOST_OWNERS + 5)
    areas = treemap_owners(report)
    assert len(areas) == MOST_OWNERS + 1
    (rest,) = [one for one in areas if one.name == "5 others"]
    assert not rest.leads and sum(one.size for one in areas) == pytest.approx(sum(sum(one.losses.values()) for one in report.owners))
    gained = FleetMap(**{**vars(report), "owners": [OwnerLosses("u", 1.0, 0.5, {"activity": 0.6, "clock": -0.1})]})
    assert [[area.cause for area in one.areas] for one in treemap_owners(gained)] == [["activity"]]


def test_names_lead_and_stay_words() -> None:
    hostile = '"><script>alert(1)</script>'
    owners = [OwnerLosses(hostile, 1.0, 1.0, {"activity": 1.0}), OwnerLosses("no user", 1.0, 1.0, {"clock": 1.0})]
    report = FleetMap(**{**vars(made_map()), "owners": owners})
    drawn = treemap(treemap_owners(report), "user", ["activity", "clock"], address_of=lambda kind, name: f"/?{kind}={len(name)}")
    assert "<script" not in drawn and drawn.count("<a href=") == 2 and f'href="/?user={len(hostile)}#where"' in drawn
    assert 'role="group"' in drawn and 'role="img"' in treemap(treemap_owners(report), "user", ["activity"])
    assert "nothing falls short" in treemap([], "user", [])


def test_owners_say_what_falls_short_is_worth_and_add_up_to_the_fleets(tmp_path: Path) -> None:
    store = stored(tmp_path, hour(gpus=2), hour(job="8", user="bob", host="n2", tensor_active=0.2))
    file = tmp_path / "prices.toml"
    file.write_text('currency = "EUR"\n[[prices]]\namount = 4\n[teams.a]\nusers = ["ann"]\n')
    found, whole = ullage.fleet_map(store, by="user", price_file=str(file)), ullage.fleet(store, by="user", price_file=str(file))
    assert {one.key: one.ullage_cost for one in found.owners} == {group.key: group.ullage_cost for group in whole.groups}
    assert found.money.ullage_cost == pytest.approx(sum(one.ullage_cost or 0.0 for one in found.owners)) == whole.money.ullage_cost
    # a GPU-hour costs 4: what falls short is worth four times its hours
    assert found.money.ullage_cost == pytest.approx(4 * (found.ullage or 0.0))
    said = ask("fleet-map", store, "--by", "user", "--prices", file)
    assert "worth of ullage at list price, EUR" in said.out
    assert f"; worth EUR {found.money.ullage_cost:.2f} at list price" in said.out.split("\n")[0]
    data = ask("fleet-map", store, "--by", "user", "--prices", file, "--json").json
    assert (data["ullage_cost"], data["currency"], data["price"]) == (pytest.approx(found.money.ullage_cost), "EUR", "list")
    team = ullage.fleet_map(store, by="user", where="team=a", price_file=str(file))
    assert [one.key for one in team.owners] == ["ann"]
    assert ullage.fleet_map(store, by="user").money.ullage_cost is None
