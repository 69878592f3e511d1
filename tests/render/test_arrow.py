"""Tables for other programs: what CSV says, Arrow says with types; every report gives its tables, and a line for a prompt."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta

import duckdb
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import ullage
from ullage.askable import askable
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.questions.fleet import FleetQuestion
from ullage.views.arrow import arrow_table
from ullage.views.csv import table_csv
from ullage.views.notation import COUNT, GPU_HOURS, PERCENT, WORDS
from ullage.views.text import text
from ullage.views.view import Cell, Column, Headline, Section, Table, View

COLUMNS = (Column("job"), Column("", PERCENT), Column("GPUs", COUNT), Column("OFU", PERCENT), Column("ullage", GPU_HOURS), Column("why"))
ROWS = [
    ["=a", 0.1, 2**40, 0.25, Cell(1, look="doubt"), None],
    ["näht", 0.2, None, float("nan"), 2.5, None],
    [Cell("b", words="other words", tip="tip"), 0.3, 3, None, float("inf"), None],
]
TABLE = Table("jobs", COLUMNS, ROWS, last=[["all", None, 1, 1.0, 1.0, None]])


def run(*words):
    """Return a command's exit status, and all that it says."""
    done = CliRunner().invoke(cli, [*map(str, words)])
    return (1, str(done.exception)) if isinstance(done.exception, UllageError) else (done.exit_code, done.output)


def test_a_table_has_the_types_that_its_values_have_and_null_for_what_is_not_known():
    made = pa.table(TABLE)
    assert made.column_names == ["job", "GPUs", "OFU", "ullage (GPU-hours)", "why"]
    assert [field.type for field in made.schema] == [pa.string(), pa.int64(), pa.float64(), pa.float64(), pa.string()]
    assert made.to_pydict() == {
        "job": ["=a", "näht", "b"],
        "GPUs": [2**40, None, 3],
        "OFU": [0.25, None, None],
        "ullage (GPU-hours)": [1.0, 2.5, None],
        "why": [None, None, None],
    }
    assert made.schema.field("ullage (GPU-hours)").metadata == {b"unit": b"GPU-hours", b"heading": b"ullage"}
    assert made.schema.metadata[b"table"] == b"jobs"


def test_numbers_too_large_for_64_bits_and_columns_of_one_name():
    table = Table("t", [Column("n", COUNT), Column("n", COUNT), Column("n 2", WORDS), Column("n", WORDS)], [[2**63, -(2**63), 1, "x"]])
    made = pa.table(table)
    assert made.column_names == ["n", "n 2", "n 2 2", "n 3"]
    assert made.to_pylist() == [{"n": 2.0**63, "n 2": -(2.0**63), "n 2 2": 1, "n 3": "x"}]
    just_fits = pa.table(Table("t", [Column("n", COUNT)], [[2**63 - 1], [1 - 2**63]]))
    assert just_fits.schema.field("n").type == pa.int64()


def test_an_empty_table_keeps_the_kinds_of_its_columns():
    assert [field.type for field in arrow_table(Table("t", COLUMNS, [])).schema][1:3] == [pa.float64(), pa.float64()]


def test_pandas_and_duckdb_take_a_table_as_it_is():
    frame = pandas.DataFrame.from_arrow(TABLE)
    assert list(frame["job"]) == ["=a", "näht", "b"] and frame["ullage (GPU-hours)"].sum() == 3.5
    jobs = TABLE  # noqa: F841 - the query reads it
    assert duckdb.sql('select job from jobs where "GPUs" = 3').fetchall() == [("b",)]


def test_polars_takes_a_table_as_it_is():
    polars = pytest.importorskip("polars")
    assert polars.DataFrame(TABLE)["job"].to_list() == ["=a", "näht", "b"]


def test_a_table_shows_itself():
    assert repr(TABLE) == "<table 'jobs': 3 × 6>"
    assert "other words" in str(TABLE) and "all" in str(TABLE).splitlines()[-1]
    assert "<table" in TABLE._repr_html_() and "other words" in TABLE._repr_html_()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    place = tmp_path_factory.mktemp("fleet")
    assert run("simulate", "--gpus", 16, "--hours", 1, "--faults", "none", "--format", "parquet", "--out", place / "fleet")[0] == 0
    assert run("simulate", "trace", "--ranks", 2, "--steps", 2, "--out", place / "traces")[0] == 0
    config = place / "config.json"
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    config.write_text(json.dumps({"model_type": "llama", **sizes}))
    fleet = ullage.fleet(str(place / "fleet" / "samples"), jobs=str(place / "fleet" / "jobs.csv"), by="job")
    return {
        "fleet": fleet,
        "trace": ullage.trace(str(place / "traces")),
        "flops": ullage.flops(str(config), batch=2, seq=64),
        "gemm": ullage.gemm(512, 512, 512, gpu="H100 SXM"),
        "audit": ullage.audit_mfu(str(config), reported=0.5, ofu=0.2, seq=64, gpu="H100 SXM"),
    }


@pytest.mark.parametrize("name", ["fleet", "trace", "flops", "gemm", "audit"])
def test_every_table_of_a_report_says_in_arrow_what_it_says_in_csv(reports, name):
    report = reports[name]
    for called in report.table_names:
        table = report.table(called)
        heads, *rows = csv.reader(io.StringIO(table_csv(table)))
        made = pa.table(table)
        assert made.num_rows == len(rows) and len(made.column_names) == len(heads), called
        for place, column in enumerate(made.columns):
            written = [row[place].removeprefix("'") for row in rows]
            number = not pa.types.is_string(column.type)
            said = [None if value == "" else float(value) if number else value for value in written]
            assert [None if value == "" else value for value in column.to_pylist()] == said, (called, heads[place])


@pytest.mark.parametrize("name", ["fleet", "trace", "flops", "gemm", "audit"])
def test_a_report_is_one_line_at_a_prompt_and_its_tables_have_names_of_their_own(reports, name):
    report = reports[name]
    assert repr(report).startswith(f"<{type(report).__name__}: ") and "\n" not in repr(report)
    tables = [part.name for section in report._view().sections for part in section.parts if isinstance(part, Table)]
    assert tables == report.table_names


def test_a_table_that_a_report_has_not_is_an_error_that_lists_those_it_has(reports):
    with pytest.raises(UllageError, match="no table 'nope'") as raised:
        reports["flops"].table("nope")
    assert raised.value.hint == f"it has {', '.join(reports['flops'].table_names)}"


def test_a_table_alone_is_whole():
    several = [
        Table("a", [Column("a")], [[f"a{n}"] for n in range(50)], chosen=[1]),
        Table("b", [Column("b")], [["b0"]], detail=True, drawn=True),
    ]
    view = View("fleet", "Fleet", Headline("x"), sections=[Section("s", "S", several, detail=True)])
    for name, rows in (("a", 50), ("b", 1), ("", 50)):
        alone = view.alone(name)
        assert [*alone.tables] == [name or "a"] and len(alone.tables[name or "a"].rows) == rows
        assert text(alone).count(f"\n{name or 'a'}") == rows + 1


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    place = tmp_path_factory.mktemp("traces")
    assert run("simulate", "trace", "--ranks", 2, "--steps", 2, "--out", place)[0] == 0
    return place


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv", ".md", ".txt", ".html"])
def test_a_command_writes_one_table_in_every_form(steps, tmp_path, ending):
    out = tmp_path / f"kernels{ending}"
    name = ullage.trace(str(steps)).table_names[-1]
    done = run("trace", steps, "--only", name, "--out", out)
    assert done[0] == 0, done[1]
    expected = ullage.trace(str(steps)).table(name)
    if ending == ".parquet":
        assert pq.read_table(out).to_pylist() == pa.table(expected).to_pylist()
    elif ending == ".arrow":
        assert pa.ipc.open_file(out).read_all().to_pylist() == pa.table(expected).to_pylist()
    elif ending == ".csv":
        assert out.read_bytes().decode() == table_csv(expected)
    else:
        assert expected.columns[0].heading in out.read_text()


def test_a_command_prints_one_table_and_refuses_what_can_not_hold_one(steps, tmp_path):
    whole = run("trace", steps)
    one = run("trace", steps, "--only", "processes")
    assert one[0] == 0 and len(one[1]) < len(whole[1]) and "rank 0" in one[1]
    wrong = run("trace", steps, "--only", "nope")
    assert wrong[0] == 1 and "it has" in wrong[1] and "processes" in wrong[1]
    for words in (["--json"], ["--out", tmp_path / "x.json"]):
        refused = run("trace", steps, "--only", "processes", *words)
        assert refused[0] == 2 and "JSON holds every table" in refused[1]
    picture = run("trace", steps, "--only", "processes", "--out", tmp_path / "x.svg")
    assert picture[0] == 1 and not (tmp_path / "x.svg").exists()


def test_times_are_taken_as_texts_datetimes_and_spans():
    since = next(field for field in askable(FleetQuestion) if field.name == "since")
    when = datetime(2026, 8, 10, 12, tzinfo=UTC)
    assert since.value(when, 0.0) == since.value("2026-08-10T12:00:00Z", 0.0) == since.value(pandas.Timestamp(when), 0.0) == 1786363200000
    assert since.value(datetime(2026, 8, 10, 12), 0.0) == 1786363200000
    assert since.value(timedelta(hours=24), 1e6) == since.value("24h", 1e6) == round((1e6 - 86400) * 1000)
    assert since.value(1786363200000, 0.0) == 1786363200000


def test_the_package_lists_its_functions():
    assert set(ullage.__all__) < set(dir(ullage)) and "live" in dir(ullage) and "import_module" not in dir(ullage)
    assert all(getattr(ullage, name) is not None for name in dir(ullage))
