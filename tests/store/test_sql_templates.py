"""SQL from templates: to the letter what Ibis compiles, whatever stands in it."""

from __future__ import annotations

import datetime
import itertools
import os
import random
import subprocess
import sys
from pathlib import Path

import ibis
import pyarrow as pa
import pytest
from ibis.backends.duckdb import Backend

from tests.store import test_rollups
from ullage.store import sql_templates, templates_on_disk
from ullage.store.sql_templates import DuckDBOfTemplates, structure_of

WORDS = ("", "a", "it's", '"quoted"', "__ullage_place_0__", '"__ullage_place_1__"', "-- no comment", "\\", "ü\n\x00", "a;b", "1000000")
NUMBERS = (0, 1, -1, 9_999, 10_000, 12_345, -12_345, 10**12, 2**62, -(2**62))
FLOATS = (0.0, 0.5, -0.5, 1e300, 5e-324, float("nan"), float("inf"), -float("inf"), 12_345.0)
START = datetime.datetime(2026, 8, 10, tzinfo=datetime.UTC)


@pytest.fixture
def engine(monkeypatch, tmp_path):
    """A DuckDB with two tables, and no template yet."""
    monkeypatch.setattr(sql_templates, "_templates", {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = DuckDBOfTemplates().connect()
    kinds = {"word": "string", "number": "int64", "real": "float64", "time": "timestamp('UTC')"}
    for name in ("one", "two"):
        made.create_table(name, schema=ibis.schema(kinds), temp=True)
    return made


def same_text(engine, expression):
    written, compiled = engine.compile(expression), Backend.compile(engine, expression)
    assert written == compiled
    return written


def moments(rng):
    return START + datetime.timedelta(milliseconds=rng.randrange(10**8))


def question(table, rng):
    """One of a few structures, with values of any kind; some of them twice."""
    word, number, real, time = rng.choice(WORDS), rng.choice(NUMBERS), rng.choice(FLOATS), moments(rng)
    again = rng.choice((number, rng.choice(NUMBERS)))
    asked = table.filter(table.time > time, table.number != number, table.word != word)
    asked = asked.mutate(other=asked.number - again, least=ibis.least(asked.real, real), who=ibis.literal(word), none=ibis.null("int64"))
    names = [rng.choice(WORDS) for _ in range(rng.randrange(3))]
    asked = asked.filter(asked.word.isin([*names, word]) | (asked.other * number >= again))
    if rng.random() < 0.3:
        edges = (asked.number // 60_000 * 60_000, rng.choice((asked.other, ibis.literal(rng.choice(NUMBERS)))))
        asked = asked.mutate(other=ibis.range(*edges, rng.choice((1, 7, 60_000, 900_000))).unnest())
    if rng.random() < 0.5:
        asked = asked.union(asked.filter(asked.time < moments(rng), asked.who == rng.choice(WORDS)))
    if rng.random() < 0.5:
        asked = asked.join(asked.group_by("word").agg(most=asked.number.max() // 60_000), "word").order_by("word", "number")
    return asked


def test_text_is_what_ibis_compiles_for_any_values(engine):
    rng = random.Random(0)
    for _ in range(12):
        same_text(engine, question(engine.table(rng.choice(("one", "two"))), rng))


@pytest.mark.full
def test_text_is_what_ibis_compiles_for_any_values_thousands_of_times(engine):
    for seed in range(3_000):
        rng = random.Random(seed)
        same_text(engine, question(engine.table(rng.choice(("one", "two"))), rng))
    assert len(sql_templates._templates) < 2_000  # at least each third was met before


@pytest.mark.parametrize(
    ("first", "second"),
    [*itertools.permutations(("a'b", '"__ullage_place_1__"', ""), 2), *itertools.permutations((10_000, 20_000, 30_000), 2)],
)
def test_values_that_are_equal_by_chance_are_not_taken_for_one(engine, first, second):
    table = engine.table("one")
    column = table.word if isinstance(first, str) else table.number

    def asked(this, that):
        return table.filter((column == this) | (column > that), column != this)

    for pair in ((first, first), (first, second), (second, first), (second, second)):
        same_text(engine, asked(*pair))
    assert len(sql_templates._templates) == 2


def test_what_may_change_the_sql_is_part_of_the_structure(engine):
    table = engine.table("one")
    for value in NUMBERS:
        same_text(engine, -(table.number - value) + -ibis.literal(value, "int64") > table.number)
    seen = {structure_of(table.filter(table.number > value).op()).digest for value in NUMBERS}
    assert len(seen) == 2 + sum(value < 10_000 for value in NUMBERS)  # of 16 bits and of 64
    other = engine.table("two").mutate(real=ibis.null("float64"))
    assert structure_of(other.op()) != structure_of(table.mutate(real=ibis.null("float32")).op())
    assert structure_of(table.op()).digest == structure_of(engine.table("two").op()).digest


def test_what_is_not_known_is_compiled_by_ibis(engine):
    table = engine.table("one")
    for number in (1, 3):
        asked = table.mutate(part=table.word[0:number], zero=ibis.literal(-0.0))
        assert structure_of(asked.op()) is None and structure_of(table.mutate(zero=ibis.literal(-0.0)).op()) is None
        same_text(engine, asked)
    assert not sql_templates._templates


def test_rows_are_those_that_ibis_gives(engine):
    rows = pa.table({"word": ["a", "b", None], "number": pa.array([1, 20_000, 3]), "real": [0.5, 1.5, None]})
    for least in (10_000, 30_000):
        held = ibis.memtable(rows)
        asked = held.filter(held.number < least).mutate(nothing=ibis.null(), half=held.real.cast("decimal(38, 0)")).order_by("number")
        mine, theirs = engine.to_pyarrow(asked), Backend.to_pyarrow(engine, asked)
        assert mine.schema == theirs.schema and str(mine.to_pydict()) == str(theirs.to_pydict())
    assert engine.to_pyarrow(held.number.sum()).as_py() == 20_004


def test_a_process_does_not_keep_templates_without_end(engine, monkeypatch):
    monkeypatch.setattr(sql_templates, "_MOST", 3)
    table = engine.table("one")
    for value in range(7):
        same_text(engine, table.filter(table.number > value))
        assert 1 <= len(sql_templates._templates) <= 3


def test_engines_that_are_not_asked_are_loaded_when_they_are():
    code = """
import sys, ullage.store.sql_templates
loaded = {name for name in sys.modules if name.startswith("sqlglot.dialects.")}
assert loaded == {"sqlglot.dialects.dialect", "sqlglot.dialects.duckdb"}, loaded
import ibis, ibis.backends.sql.compilers as compilers
assert compilers.PySparkCompiler.__name__ == "PySparkCompiler" and compilers.duckdb.compiler and compilers.postgres.compiler
assert "t0" in ibis.to_sql(ibis.table({"a": "int64"}, name="t").filter(ibis._.a > 1), dialect="postgres")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def in_next_process(engine, monkeypatch, expression):
    """The SQL of an expression where none is in memory, and whether Ibis compiled it."""
    compiled = []
    template = DuckDBOfTemplates._template
    with monkeypatch.context() as patch:
        patch.setattr(sql_templates, "_templates", {})
        patch.setattr(DuckDBOfTemplates, "_template", lambda *args: compiled.append(1) or template(*args))
        return same_text(engine, expression), bool(compiled)


def test_a_later_process_reads_the_template_that_an_earlier_one_wrote(engine, monkeypatch, tmp_path):
    one, two = engine.table("one"), engine.table("two")
    assert in_next_process(engine, monkeypatch, one.filter(one.word > "a'b"))[1]
    sql, compiled = in_next_process(engine, monkeypatch, two.filter(two.word > "c"))
    assert not compiled and '"two"' in sql and "'c'" in sql
    (file,) = (tmp_path / "cache" / "ullage" / "sql").iterdir()
    assert b"a'b" not in file.read_bytes() and file.stat().st_mode & 0o77 == 0


@pytest.mark.parametrize("damage", [lambda data: data[:-2], lambda data: data.replace(b"WHERE", b"OR"), lambda data: b"", bytes.lower])
def test_a_template_that_is_damaged_is_written_anew(engine, monkeypatch, tmp_path, damage):
    asked = engine.table("one").filter(ibis._.word > "a")
    in_next_process(engine, monkeypatch, asked)
    (file,) = (tmp_path / "cache" / "ullage" / "sql").iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert in_next_process(engine, monkeypatch, asked)[1]
    assert file.read_bytes() == whole and not in_next_process(engine, monkeypatch, asked)[1]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_template_that_others_can_write_is_not_read(engine, monkeypatch, tmp_path, mode):
    asked = engine.table("one").filter(ibis._.word > "a")
    in_next_process(engine, monkeypatch, asked)
    (file,) = (tmp_path / "cache" / "ullage" / "sql").iterdir()
    file.chmod(mode)
    assert in_next_process(engine, monkeypatch, asked)[1]
    monkeypatch.setattr(templates_on_disk.os, "geteuid", lambda: os.getuid() + 1)
    assert in_next_process(engine, monkeypatch, asked)[1]


def test_a_template_of_another_version_is_not_read(engine, monkeypatch, tmp_path):
    asked = engine.table("one").filter(ibis._.word > "a")
    in_next_process(engine, monkeypatch, asked)
    monkeypatch.setattr(templates_on_disk, "_writers", lambda: b"another")
    assert in_next_process(engine, monkeypatch, asked)[1]
    assert len([*(tmp_path / "cache" / "ullage" / "sql").iterdir()]) == 2


def test_where_nothing_can_be_kept_ibis_compiles(engine, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    asked = engine.table("one").filter(ibis._.word > "a")
    for _ in range(2):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        assert in_next_process(engine, monkeypatch, asked)[1]
    monkeypatch.setattr(templates_on_disk, "_writers", lambda: Path("/no/such/module").read_bytes())
    assert in_next_process(engine, monkeypatch, asked)[1]


def test_the_folder_of_templates_does_not_grow_without_end(engine, monkeypatch, tmp_path):
    monkeypatch.setattr(templates_on_disk, "MOST", 3)
    table = engine.table("one")
    for value in range(7):
        in_next_process(engine, monkeypatch, table.filter(table.number > value))
        assert 1 <= len([*(tmp_path / "cache" / "ullage" / "sql").iterdir()]) <= 3


def compared(monkeypatch):
    """Compare all SQL that is written from now on with what Ibis compiles."""
    written, seen = DuckDBOfTemplates._written, []

    def both(self, expr, structure):
        mine = written(self, expr, structure)
        assert mine == Backend.compile(self, expr)
        seen.append(structure.digest)
        return mine

    monkeypatch.setattr(DuckDBOfTemplates, "_written", both)
    return seen


@pytest.mark.full
@pytest.mark.parametrize("block", range(10))
def test_all_that_a_report_asks_of_random_stores_is_what_ibis_compiles(block, tmp_path, monkeypatch):
    seen = compared(monkeypatch)
    for seed in range(10 * block, 10 * block + 10):
        test_rollups.compare(seed, tmp_path / f"store-{seed}")
    assert len(set(seen)) < 0.7 * len(seen)
