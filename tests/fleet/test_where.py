"""A part of a fleet: its numbers are those that the whole fleet's report has for it; the small language, and what is wrong with it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.errors import UllageError
from ullage.questions.fleet import FleetQuestion, write_samples
from ullage.reports.fleet.fleet import FleetReport, fleet
from ullage.reports.fleet.prices import PriceTable, Team
from ullage.reports.fleet.request import FleetRequest
from ullage.reports.fleet.where import (
    DEEPEST,
    FILTER_FIELDS,
    Condition,
    FieldTest,
    FleetFilter,
    condition_of,
    rows_that_fit,
    samples_that_fit,
    without_teams,
)
from ullage.simulate.fleet import Specification
from ullage.simulate.fleet import fleet as simulated
from ullage.sums.windows import settle

NAMES = ("ann", "bob", "node-1", "H100", "a,b", None)


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory, stores_engine: Any) -> Callable[..., FleetReport]:
    """A function that asks a simulated fleet, with faulty series, shared GPUs and slices."""
    file = tmp_path_factory.mktemp("where") / "samples.parquet"
    simulation = simulated(Specification(gpus=48, hours=3, seed=5, faults=("all",), changes=("all",)))
    parquet.write_table(settle(pa.Table.from_batches([*simulation.batches()])), file)
    samples, jobs = stores_engine.read_parquet(file), simulation.jobs()

    def asked(by: str, **words: Any) -> FleetReport:
        return fleet(samples, jobs, FleetRequest(by=by, prices={"": 2.0}, **words))

    return asked


@pytest.mark.parametrize("places", [(0, 4), pytest.param((1, 2, 3, 5), marks=pytest.mark.full)])
@pytest.mark.parametrize("by", ["job", "user", "host", "model", "cluster"])
def test_a_part_has_the_numbers_that_the_whole_fleet_has_for_it(ask: Callable[..., FleetReport], by: str, places: tuple[int, ...]) -> None:
    rows = [row for row in ask(by).groups if not row.key.startswith("no ") and "," not in row.key]
    for row in [row for place, row in enumerate(rows) if place in places]:
        cluster, _, name = row.key.rpartition("/")  # a name of several clusters is told with its own
        part = ask(by, where=f"{by}='{name}'" + (f" and cluster={cluster}" if cluster else ""))
        own = next(one for one in part.groups if one.key == name)
        # the bounds of OFU rest on the clocks that were seen at work in all that was asked about: a part has seen fewer
        assert replace(own, key=row.key, ofu_bounds=row.ofu_bounds) == row
        assert (own.ofu_bounds is None) == (row.ofu_bounds is None)
        if own.ofu_bounds is not None and row.ofu_bounds is not None:
            slack = 1 + 1e-9
            assert row.ofu_bounds[0] <= own.ofu_bounds[0] * slack and own.ofu_bounds[1] <= row.ofu_bounds[1] * slack, row.key
        if len(part.groups) == 1:  # what several share is of each of them
            assert (part.ofu, part.gpu_hours, part.trusted_share, part.money.cost) == pytest.approx(
                (row.ofu, row.gpu_hours, row.trusted_share, row.cost)
            )
            assert part.ullage == pytest.approx(row.ullage) and part.tree == row.tree
            assert part.ledger["total"] == pytest.approx(part.gpu_hours)


def test_parts_add_up_to_the_whole(ask: Callable[..., FleetReport]) -> None:
    whole, hosts = ask("host"), [row.key for row in ask("host").groups]
    first, rest = ask("host", host=tuple(hosts[:2])), ask("host", where=f"not (host={hosts[0]} or host={hosts[1]})")
    assert first.gpu_hours + rest.gpu_hours == pytest.approx(whole.gpu_hours)
    assert (first.ullage or 0) + (rest.ullage or 0) == pytest.approx(whole.ullage)
    assert sorted(row.key for row in (*first.groups, *rest.groups)) == sorted(hosts)
    assert {one.gpu for one in (*first.doubtful_series, *rest.doubtful_series)} == {one.gpu for one in whole.doubtful_series}


def test_hours_of_a_part_are_those_of_its_rows(ask: Callable[..., FleetReport]) -> None:
    (host, *_) = ask("host").groups
    hours = ask("hour", host=(host.key,))
    assert sum(row.gpu_hours for row in hours.groups) == pytest.approx(host.gpu_hours)
    assert sum(point.gpu_hours for point in hours.course) <= host.gpu_hours + 1e-6
    assert hours.notes[0] == f"this is the part of the fleet that fits 'host={host.key}'"


def test_a_part_that_is_not_there(ask: Callable[..., FleetReport]) -> None:
    with pytest.raises(UllageError, match="no sample of this fleet fits --where 'job=nobody'"):
        ask("job", job=("nobody",))


def brute(condition: Condition, row: dict[str, Any]) -> bool:
    if isinstance(condition, FieldTest):
        return condition.fits(row[condition.field])
    found = [brute(part, row) for part in condition.parts]
    return not found[0] if condition.sort == "not" else all(found) if condition.sort == "and" else any(found)


def drawn(draw: random.Random, depth: int = 0) -> Condition:
    if depth > 3 or draw.random() < 0.4:
        return FieldTest(draw.choice(FILTER_FIELDS), draw.choice(["ann", "bob", "node-1", "H100", "x", "", "a"]), equal=draw.random() < 0.7)
    sort = draw.choice(["and", "or", "not"])
    return FleetFilter(sort, tuple(drawn(draw, depth + 1) for _ in range(1 if sort == "not" else draw.randint(2, 3))))


def test_conditions_choose_the_rows_that_a_slow_reading_chooses_and_read_back_as_written() -> None:
    for seed in range(150):
        draw = random.Random(seed)
        rows = [{name: draw.choice(NAMES) for name in FILTER_FIELDS} for _ in range(40)]
        table = pa.Table.from_pylist(rows, schema=pa.schema([(name, pa.string()) for name in FILTER_FIELDS]))
        condition = drawn(draw)
        due = [brute(condition, row) for row in rows]
        assert rows_that_fit(condition, table).tolist() == due, str(condition)
        assert rows_that_fit(condition_of(str(condition)), table).tolist() == due, str(condition)
        if seed < 30:
            samples = ibis.memtable(table.append_column("row", pa.array(range(len(rows)))))
            kept = samples_that_fit(condition, samples, {name: list(NAMES) for name in FILTER_FIELDS}).to_pyarrow()
            assert sorted(kept["row"].to_pylist()) == [number for number, fits in enumerate(due) if fits], str(condition)


@pytest.mark.parametrize("value", ["a*b", "*", "o'brien", " ann", "a b", "not", "node[1]*", 'say "x"', "a=b"])
def test_a_comparison_is_written_as_what_reads_back_the_same(value: str) -> None:
    for globbing in {False, "*" in value and " " not in value}:
        test = FieldTest("user", value, glob=globbing)
        assert condition_of(str(test)) == test


def test_what_a_comparison_means() -> None:
    assert condition_of("model=H100").fits("NVIDIA H100 80GB HBM3") and condition_of("model='h100 sxm'").fits("NVIDIA H100 80GB HBM3")  # type: ignore[union-attr]
    assert not condition_of("model=A100").fits("NVIDIA H100 80GB HBM3") and not condition_of("model=H").fits("NVIDIA H100 80GB HBM3")  # type: ignore[union-attr]
    assert condition_of("job=b").fits("a,b") and not condition_of("job=a").fits("aa") and condition_of(r"job='c,d'").fits(r"c\,d")  # type: ignore[union-attr]
    assert (
        condition_of("host=node-*").fits("node-12")
        and not condition_of("host='node-*'").fits("node-12")
        and condition_of("host=[a]*").fits("[a]b")
    )  # type: ignore[union-attr]
    assert condition_of("user=''").fits(None) and not condition_of("user=ann").fits(None) and condition_of("user!=ann").fits(None)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "ends where a field should be, at character 1"),
        ("user", "has no = or != after 'user', at character 5"),
        ("user=", "has no value after 'user=', at character 6"),
        ("user=ann model=x", "has 'model' where 'and', 'or' or the end should be, at character 10"),
        ("usr=ann", "has no field 'usr', at character 1"),
        ("(user=ann", "has a '(' without its ')', at character 1"),
        ("user=ann)", "has ')' where"),
        ("user='ann", "has a quote that does not end, at character 6"),
        ("user=ann and", "ends where a field should be"),
        ("user>ann", "has no field 'user>ann'"),
        ("user=!", "sign that it can't read"),
        ("(" * 5_000 + "user=ann", "is 5,008 characters long"),
        ("(" * (DEEPEST + 1) + "user=ann", f"has more than {DEEPEST} conditions in one another"),
        ("not " * (DEEPEST + 1) + "user=ann", "in one another"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(UllageError) as raised:
        condition_of(text)
    assert problem in raised.value.problem and raised.value.hint


@given(st.text(max_size=60) | st.text("()='\"!* andortuse", max_size=60))
def test_no_text_does_more_than_raise_our_error(text: str) -> None:
    try:
        condition = condition_of(text)
    except UllageError as error:
        assert "\x1b" not in error.problem
    else:
        assert str(condition_of(str(condition))) == str(condition)


def test_a_question_takes_them_as_texts(tmp_path: Path) -> None:
    import ullage

    simulation = simulated(Specification(gpus=16, hours=1, seed=2))
    parquet.write_table(pa.Table.from_batches([*simulation.batches()]), tmp_path / "fleet.parquet")
    first = ullage.fleet(tmp_path / "fleet.parquet", by="job").groups[0]
    assert ullage.fleet(tmp_path / "fleet.parquet", by="job", job=first.key).groups == [first]
    assert ullage.fleet(tmp_path / "fleet.parquet", by="job", where=f"job={first.key} and model=*").groups == [first]
    with pytest.raises(UllageError, match="all samples of a fleet"):
        write_samples(FleetQuestion(sources=("x",), by="sample", job=("1",)), tmp_path / "a.parquet", lambda _: None)
    with pytest.raises(UllageError, match="has no field 'owner'"):
        ullage.fleet("nowhere", where="owner=ann")


TEAM_TESTS = ("team=vision", "team!=vision", "team=''", "team='several teams'", "team=s*")


def teams_drawn(draw: random.Random) -> PriceTable:
    """Return teams whose users and namespaces overlap, in an order of their own."""
    names = draw.sample(["vision", "speech", "robots"], 3)
    users, spaces = ["ann", "bob", "c*", "a*"], ["ml-*", "ml-1", "x"]
    some = [[tuple(draw.sample(of, draw.randint(0, 2))) for of in (users, spaces)] for _ in names]
    return PriceTable(teams={name: Team(*own) for name, own in zip(names, some, strict=True)})


@pytest.mark.parametrize("seed", range(20))
def test_a_team_is_that_of_each_row_and_sample(seed: int, stores_engine: Any) -> None:
    draw = random.Random(seed)
    table = teams_drawn(draw)
    users, spaces = ["ann", "bob", "cleo", "ann,bob", "zoe", None], ["ml-1", "ml-2", "x", "y", None]
    rows = [{"user": draw.choice(users), "namespace": draw.choice(spaces)} for _ in range(60)]
    for text in (*TEAM_TESTS, "not team=robots and user=ann or team=speech"):
        condition = condition_of(text)

        def fits(one: Any, row: dict[str, str | None]) -> bool:
            if isinstance(one, FleetFilter):
                parts = [fits(part, row) for part in one.parts]
                return {"and": all(parts), "or": any(parts), "not": not parts[0]}[one.sort]
            return bool(one.fits(table.team_of(row["user"], row["namespace"]) if one.field == "team" else row[one.field]))

        due = [fits(condition, row) for row in rows]
        plain = without_teams(condition, users, spaces, table.team_of)
        sums = pa.Table.from_pylist(rows, schema=pa.schema([("user", pa.string()), ("namespace", pa.string())]))
        assert rows_that_fit(plain, sums).tolist() == due, text
        numbered = ibis.memtable(sums.append_column("row", pa.array(range(60))))
        kept = stores_engine.to_pyarrow(samples_that_fit(plain, numbered, {"user": users, "namespace": spaces}))
        assert sorted(kept["row"].to_pylist()) == [row for row, fit in enumerate(due) if fit], text


def test_a_part_by_team_has_the_row_of_that_team(ask: Callable[..., FleetReport], tmp_path: Path) -> None:
    users = [row.key for row in ask("user").groups if "," not in row.key and not row.key.startswith("no ")]
    file = tmp_path / "prices.toml"
    file.write_text(f"[[prices]]\namount = 2\n[teams.one]\nusers = {users[:2]}\n[teams.two]\nusers = {users[2:]}\n")
    words = {"price_file": str(file)}
    for row in ask("team", **words).groups:
        name = "" if row.key == "no team" else row.key
        for by in ("team", "hour"):
            part = ask(by, where=f"team='{name}'", **words)
            assert (part.gpu_hours, part.ofu, part.ullage) == pytest.approx((row.gpu_hours, row.ofu, row.ullage), rel=1e-9), (name, by)
            assert sum(one.gpu_hours for one in part.groups) == pytest.approx(row.gpu_hours), (name, by)
    with pytest.raises(UllageError, match="no team is known to choose by"):
        ask("user", where="team=one")
