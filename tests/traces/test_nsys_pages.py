"""Tables read off a database's pages are the tables that SQLite gives, and what is damaged is passed over and counted."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.traces.nsys.columns import batches, by_sqlite
from ullage.traces.nsys.file import opened
from ullage.traces.nsys.names import NsysNames, distinct
from ullage.traces.nsys.records import MISSING

WHOLE = st.one_of(
    st.none(), st.sampled_from([0, 1, -1]), *(st.integers(-(2 ** (8 * n - 1)), 2 ** (8 * n - 1) - 1) for n in (1, 2, 3, 4, 6))
)
WHOLE |= st.integers(-(2**63) + 1, 2**63 - 1)
TEXT = st.one_of(st.none(), st.text(max_size=20), st.text("aé☃", min_size=50, max_size=90), st.integers(5000, 9000).map("x".__mul__))


def table(path: Path, rows: list[tuple[Any, ...]], more: str = "", page: int = 4096) -> Path:
    """A database with one table T(a, t, b)."""
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA page_size = {page}")
        connection.execute(f"CREATE TABLE T (a INTEGER, t TEXT, b INTEGER) {more}")
        connection.executemany("INSERT INTO T VALUES (?, ?, ?)", rows)
    connection.close()
    return path


def read(path: Path) -> list[tuple[Any, ...]]:
    """All rows as they are read in batches."""
    database = opened(path)
    found = []
    for batch in batches(database, "T", ("a", "b"), ("t",)):
        a, b = ([None if v == MISSING else v for v in batch[name].tolist()] for name in "ab")
        found += list(zip(a, batch["t"].to_pylist(), b, strict=True))
    assert not database.damage
    database.close()
    return found


@settings(max_examples=60)
@given(rows=st.lists(st.tuples(WHOLE, TEXT, WHOLE), max_size=60), page=st.sampled_from([512, 1024, 4096, 65536]))
def test_any_rows_are_read_as_they_were_written(rows: list[tuple[Any, ...]], page: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = table(tmp_path_factory.mktemp("t") / "t.db", rows, page=page)
    assert sorted(read(path), key=repr) == sorted(rows, key=repr)


def test_many_pages_are_read_in_the_order_of_the_rows(tmp_path: Path) -> None:
    # 512 bytes a page: a tree of several levels
    rows = [(n * 1000, f"row {n}", -n) for n in range(20_000)]
    assert read(table(tmp_path / "t.db", rows, page=512)) == rows


def test_deleted_rows_are_gone(tmp_path: Path) -> None:
    path = table(tmp_path / "t.db", [(n, "x" * 50, n) for n in range(2000)])
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM T WHERE a % 3 <> 0")
    assert [row[0] for row in read(path)] == list(range(0, 2000, 3))


def test_a_column_that_was_added_later_is_missing_in_older_rows(tmp_path: Path) -> None:
    path = table(tmp_path / "t.db", [(1, "a", 2)])
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE T ADD COLUMN c INTEGER")
        connection.execute("INSERT INTO T VALUES (3, 'b', 4, 5)")
    database = opened(path)
    (batch,) = batches(database, "T", ("c", "a", "nowhere"))
    assert batch["c"].tolist() == [MISSING, 5] and batch["a"].tolist() == [1, 3] and batch["nowhere"].tolist() == [MISSING] * 2


def test_floats_are_rounded_and_words_in_place_of_numbers_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE T (a REAL, t TEXT, b)")
        connection.executemany("INSERT INTO T VALUES (?, ?, ?)", [(1.5e9, "x", "word"), (2.0, b"\xff", 7), (-3.0, "z", b"blob")])
    assert read(path) == [(1_500_000_000, "x", None), (2, None, 7), (-3, "z", None)]


@pytest.mark.parametrize("more", ["WITHOUT ROWID", ""])
def test_tables_of_another_form_are_left_to_sqlite(more: str, tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE T (a INTEGER PRIMARY KEY, t TEXT, b INTEGER AS (a + 1)) {more}")
        connection.executemany("INSERT INTO T (a, t) VALUES (?, ?)", [(5, "x"), (6, None)])
    assert read(path) == [(5, "x", 6), (6, None, 7)]


def test_other_encodings_are_left_to_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA encoding = 'UTF-16le'")
        connection.execute("CREATE TABLE T (a INTEGER, t TEXT, b INTEGER)")
        connection.execute("INSERT INTO T VALUES (1, 'ü', 2)")
    assert read(path) == [(1, "ü", 2)]


@given(data=st.data())
@settings(max_examples=60)
def test_damage_anywhere_never_stops_the_reading(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = table(tmp_path_factory.mktemp("t") / "t.db", [(10**9 + n, f"row {n}", n) for n in range(600)], page=512)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 20))):
        at = data.draw(st.integers(1024, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    path.write_bytes(whole[: data.draw(st.integers(len(whole) // 2, len(whole)))])
    database = opened(path)
    for batch in batches(database, "T", ("a", "b"), ("t",)):
        assert len(batch["a"]) == len(batch["b"]) == len(batch["t"])
    database.close()


def test_a_damaged_page_costs_its_own_rows_alone(tmp_path: Path) -> None:
    path = table(tmp_path / "t.db", [(n, "word", n) for n in range(5000)])
    whole = bytearray(path.read_bytes())
    whole[10 * 4096 : 11 * 4096] = bytes(4096)
    path.write_bytes(whole)
    database = opened(path)
    kept = np.concatenate([batch["a"] for batch in batches(database, "T", ("a",))])
    lost = sorted(set(range(5000)) - set(kept.tolist()))
    assert 100 < len(lost) < 500 and lost == list(range(lost[0], lost[-1] + 1))
    assert "1 of its" in database.damage["T"]


def test_a_tree_that_links_to_itself_ends(tmp_path: Path) -> None:
    path = table(tmp_path / "t.db", [(n, "word", n) for n in range(5000)])
    database = opened(path)
    root = database.tables["T"].root
    whole = bytearray(path.read_bytes())
    whole[(root - 1) * 4096 + 8 : (root - 1) * 4096 + 12] = root.to_bytes(4, "big")
    path.write_bytes(whole)
    assert sum(len(batch["a"]) for batch in batches(database, "T", ("a",))) < 5000
    assert database.damage


def test_names_are_looked_up_for_the_numbers_in_use_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", ((n, f"name of {n}") for n in range(1_000_000)))
    database, asked = opened(path), list[str]()
    database.connection.set_trace_callback(asked.append)
    found = NsysNames(database).of(np.array([999_999, 3, MISSING, 3, 2_000_000]))
    assert [found.table[code] if code >= 0 else None for code in found.codes] == [
        "name of 999999",
        "name of 3",
        None,
        "name of 3",
        "name 2000000",
    ]
    assert len(asked) == 1 and found.arrow().to_pylist() == ["name of 999999", "name of 3", None, "name of 3", "name 2000000"]


@given(st.lists(st.one_of(st.integers(-100, 100), st.integers(-(2**62), 2**62))))
def test_distinct_is_numpys_unique(values: list[int]) -> None:
    table, codes = distinct(np.array(values, np.int64))
    assert table.tolist() == sorted(set(values)) and [table[c] for c in codes] == values


def test_both_ways_of_reading_give_the_same(tmp_path: Path) -> None:
    path = table(tmp_path / "t.db", [(n**5, None if n % 7 else "ab" * n, (-n) ** 3) for n in range(3000)])
    database = opened(path)
    fast = [pa.table(batch) for batch in batches(database, "T", ("a", "b"), ("t",))]
    slow = [pa.table(batch) for batch in by_sqlite(database, database.tables["T"], ("a", "b"), ("t",))]
    assert sorted(map(repr, pa.concat_tables(fast).to_pylist())) == sorted(map(repr, pa.concat_tables(slow).to_pylist()))
