"""Names that are kept for a while: afterwards one word stands for all of them, no file has them, and every sum is as it was."""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import ullage
from tests.fleet.fleet_generator import random_fleet
from tests.fleet.test_fleet_property import turned, unsettled
from tests.seeds import some
from tests.service.running import T0, hour
from ullage.errors import UllageError
from ullage.store.old_names import NO_LONGER_KNOWN, name_limits, without_old_names
from ullage.store.store import Store
from ullage.tables import JOBS
from ullage.units import DAY_MS

HIDDEN = ("user", "namespace")
LATER = T0 + 1000 * DAY_MS
DAY_S = DAY_MS // 1000


def rows_of(store: Store) -> list[dict[str, Any]]:
    rows = store.samples().to_pyarrow().to_pylist()
    return sorted(rows, key=lambda row: (row["gpu"] or "", row["mig"] or "", row["time"]))


def as_it_should_be(row: dict[str, Any], limit: int) -> dict[str, Any]:
    """A row, a name at a time."""
    old = round(row["time"].timestamp() * 1000) < limit
    return {name: NO_LONGER_KNOWN if old and name in HIDDEN and value is not None else value for name, value in row.items()}


def answer(folder: Path, by: str, **window: str) -> Any:
    try:
        found = ullage.fleet(str(folder), by=by, **window).json()
    except UllageError as error:
        return str(error)
    losses = {loss["name"]: loss["gpu_hours"] for loss in found["losses"]}
    return found["ledger"] | losses | {"ofu": found["ofu"]}, {row["key"]: row["gpu_hours"] for row in found["groups"]}


def same(one: Any, other: Any) -> bool:
    """Whether two answers are: sums of floats in another order may differ in their last bits."""
    if isinstance(one, str) or isinstance(other, str):
        return bool(one == other)
    return all(a == pytest.approx(b, rel=1e-12) for a, b in zip(one, other, strict=True))


def words_in(file: Path) -> set[str]:
    table = parquet.read_table(file)
    columns = {*HIDDEN, "name"} & {*table.column_names}
    return {word for column in columns for word in table[column].cast(pa.string()).to_pylist() if word is not None}


def two_days(seed: int, folder: Path) -> tuple[Store, int]:
    """A store of a random fleet whose life has a midnight in its middle, and that midnight."""
    rows, rng = turned(random_fleet(seed)), random.Random(seed)
    middle = round(statistics.median(row["time"] for row in rows))
    for row in rows:
        row["time"] += -middle % DAY_S
    store = Store.open(folder, create=True)
    cut = rng.randrange(len(rows))
    for part in (rows[:cut], rows[cut:]) if cut else (rows,):
        store.append(unsettled(part))
    if rng.random() < 0.5:
        store.roll_up()
    return store, (middle + -middle % DAY_S) * 1000


@pytest.mark.parametrize("seed", some(range(2000), quick=1))
def test_one_word_stands_for_every_old_name_and_sums_are_as_they_were(tmp_path: Path, seed: int) -> None:
    store, midnight = two_days(seed, tmp_path)
    rows = rows_of(store)
    by = random.Random(seed).choice(("host", "job"))
    before, hours_before = answer(tmp_path, by), answer(tmp_path, "user")
    newest = store.window()[1]  # type: ignore[index]
    assert store.name_limits({"user": 1}, newest) == {"user": midnight}
    store.forget_names(dict.fromkeys(HIDDEN, 1), newest)
    assert rows_of(store) == [as_it_should_be(row, midnight) for row in rows]
    if random.Random(seed).random() < 0.5:
        store.roll_up()
    after, hours = answer(tmp_path, by), answer(tmp_path, "user")
    assert same(after, before)
    if not isinstance(before, str):
        assert same(hours[:1], hours_before[:1])
        assert sum(hours[1].values()) == pytest.approx(sum(hours_before[1].values()), rel=1e-12)
        names, names_before = ({key.rpartition("/")[2] for key in one[1]} for one in (hours, hours_before))
        assert names <= names_before | {NO_LONGER_KNOWN}
    assert store.forget_names(dict.fromkeys(HIDDEN, 1), newest) == 0  # footers say that it was done


def filled(folder: Path) -> Store:
    """A store of ann's day, and of bob's two days later, with a record of a job each."""
    store = Store.open(folder, create=True)
    store.append([hour(minutes=5), hour(2 * 2880, minutes=5, user="bob", host="n2", job="4712")])
    ends = [T0 + DAY_MS - 1, T0 + DAY_MS, None]
    records = [
        {"job": str(4711 + at), "user": user, "name": f"run of {user}", "end": end}
        for at, (user, end) in enumerate(zip(("ann", "bob", "eve"), ends, strict=True))
    ]
    store.add_jobs(pa.Table.from_pylist(records, JOBS))
    return store


def test_no_file_has_a_name_that_is_over(tmp_path: Path) -> None:
    store = filled(tmp_path)
    store.roll_up()
    assert store.forget_names({"user": 2 * DAY_MS, "name": 2 * DAY_MS}, LATER) == 0  # the newest sample is five minutes into the third day
    assert "ann" in {row["user"] for row in rows_of(store)}
    store.append(hour(3 * 2880, minutes=5, user="bob", host="n2", job="4712"))
    assert store.forget_names({"user": 2 * DAY_MS, "name": 2 * DAY_MS}, LATER) == 1
    store.roll_up()
    store.compact(grace_ms=-1)
    assert {word for file in tmp_path.rglob("*.parquet") for word in words_in(file)} == {
        NO_LONGER_KNOWN, "bob", "eve", "run of bob", "run of eve"
    }  # fmt: skip
    users = {row["job"]: row["user"] for row in store.jobs().to_pylist()}
    # one that has not ended, or ended at the limit, keeps its names
    assert users == {"4711": NO_LONGER_KNOWN, "4712": "bob", "4713": "eve"}
    store.verify()


def test_what_comes_again_does_not_bring_a_name_back_and_what_comes_late_is_forgotten_too(tmp_path: Path) -> None:
    store, kept = filled(tmp_path), {"user": 1}
    assert store.forget_names(kept, LATER) == 1
    assert store.append(hour(minutes=5)).rows_known == 4 * 10
    late = store.append(hour(minutes=10, power=450.0))  # the same time says something else of power: the first value counts
    assert late.rows_new == 4 * 10 and store.forget_names(kept, LATER) == 1 and store.forget_names(kept, LATER) == 0
    assert {row["user"] for row in rows_of(store)} == {NO_LONGER_KNOWN, "bob"}


def test_a_clock_that_is_ahead_makes_nobody_forget(tmp_path: Path) -> None:
    store = filled(tmp_path)
    store.append(hour(400 * 2880, minutes=1, user="eve", host="ahead"))
    assert store.forget_names({"user": 3 * DAY_MS}, T0 + 2 * DAY_MS + 300_000) == 0
    assert store.forget_names({"user": 3 * DAY_MS}, LATER) == 2


def test_a_store_that_ends_at_any_moment_is_whole_and_forgets_later(tmp_path: Path) -> None:
    class EndedError(Exception):
        pass

    for moments in itertools.count():
        folder, left = tmp_path / str(moments), iter(range(moments))
        filled(folder)

        def end(_: str, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise EndedError

        try:
            Store.open(folder, hook=end).forget_names({"user": 1, "name": 1}, LATER)
        except EndedError:
            whole = False
        else:
            whole = True
        store = Store.open(folder)
        assert len(rows_of(store)) == 2 * 4 * 10
        assert store.forget_names({"user": 1, "name": 1}, LATER) == 0 or not whole
        assert {row["user"] for row in rows_of(store)} == {NO_LONGER_KNOWN, "bob"}
        if whole:
            break
    assert moments >= 6  # two points each of the records, a part, its tail, the manifest


def test_each_field_has_its_own_limit_and_a_limit_is_midnight() -> None:
    assert name_limits({"user": 1, "pod": DAY_MS + 1}, T0 + DAY_MS) == {"user": T0, "pod": T0 - DAY_MS}
    assert name_limits({"user": 0}, T0) == {"user": T0} and name_limits({"user": 0}, T0 - 1) == {"user": T0 - DAY_MS}
    words = pa.array(["a", None, "a"]).dictionary_encode()
    times = pa.array([T0 - 1, T0 - 1, T0]).cast(pa.timestamp("ms", "UTC"))
    table = pa.table({"time": times, "user": words, "pod": words, "host": words})
    found = without_old_names(table, {"user": T0, "pod": T0 - 1})
    assert found["user"].to_pylist() == [NO_LONGER_KNOWN, None, "a"] and found.schema == table.schema
    assert found["pod"].to_pylist() == found["host"].to_pylist() == ["a", None, "a"]
