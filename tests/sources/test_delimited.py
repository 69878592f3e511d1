"""CSV, TSV and Parquet of any form become samples; what is no telemetry is refused with the columns named."""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.compressed import head
from ullage.errors import UllageError
from ullage.intake import opened
from ullage.problems import Problems
from ullage.sources import clock, delimited, parquet
from ullage.sources.source import Options, Place, read_samples
from ullage.tables import SAMPLES, SETTLED, Flag, samples

T = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC


def place(path: Path) -> Place:
    return Place(str(path), path, head(path))


def read(path: Path, options: Options | None = None, problems: Problems | None = None) -> list[dict]:
    reader = parquet if path.suffix == ".parquet" else delimited
    batches = list(reader.read(place(path), options or Options(), problems if problems is not None else Problems()))
    assert all(batch.schema == SAMPLES for batch in batches)
    table = pa.Table.from_batches(batches, SAMPLES)
    table = table.set_column(0, "time", table["time"].cast(pa.int64()))
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]


def write(folder: Path, text: str, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def test_a_wide_csv_with_an_exporters_names_is_read_in_its_units(tmp_path):
    path = write(tmp_path, "timestamp,Hostname,gpu,UUID,DCGM_FI_DEV_SM_CLOCK,DCGM_FI_DEV_GPU_UTIL,note\n1700000000,n1,3,GPU-1,1410,58,x\n")
    # 1410 MHz is 1.41e9 Hz, 58 % is 0.58
    assert read(path) == [
        {"time": T, "host": "n1", "index": 3, "gpu": "GPU-1", "sm_clock": 1.41e9, "gpu_util": pytest.approx(0.58), "flags": 0}
    ]


def test_a_wide_csv_with_our_own_names_keeps_every_word(tmp_path):
    heads = "time,cluster,host,gpu,index,mig,model,job,user,namespace,pod,container,tensor_active,sm_clock"
    path = write(tmp_path, f"{heads}\n2023-11-14T22:13:20Z,c,n1,sim-7,7,1g.10gb/9,H100,j1,ann,ns,p,k,0.5,1.41e9\n")
    (row,) = read(path)
    told = {"cluster": "c", "host": "n1", "gpu": "sim-7", "index": 7, "mig": "1g.10gb/9", "model": "H100", "job": "j1", "user": "ann"}
    assert row == told | {
        "namespace": "ns",
        "pod": "p",
        "container": "k",
        "time": T,
        "tensor_active": 0.5,
        "sm_clock": 1.41e9,
        "flags": Flag.NAMED_RATIO,
    }


def test_a_job_column_next_to_an_instance_column_is_the_scrape_job(tmp_path):
    path = write(tmp_path, "time,instance,gpu,job,power\n1700000000,n1:9400,0,dcgm-exporter,300\n")
    (row,) = read(path)
    assert "job" not in row and row["host"] == "n1"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(tmp_path, delimiter):
    path = write(tmp_path, "time,gpu,power\n1700000000,0,300\n1700000030,0,310\n".replace(",", delimiter))
    assert [row["power"] for row in read(path)] == [300, 310]


def test_a_gzip_with_comments_and_a_byte_order_mark_is_read(tmp_path):
    path = write(tmp_path, "\ufeff# exported by hand\nsep=,\n\ntime,gpu,power\n1700000000,0,300\n", "a.csv.gz")
    assert [row["power"] for row in read(path)] == [300]


def test_a_long_csv_comes_together_by_device_and_time(tmp_path):
    path = write(
        tmp_path,
        "time,gpu,metric,value\n"
        "1700000000,GPU-1,DCGM_FI_DEV_SM_CLOCK,1410\n1700000000,GPU-2,DCGM_FI_DEV_SM_CLOCK,1000\n"
        "1700000000,GPU-1,DCGM_FI_PROF_PIPE_TENSOR_ACTIVE,0.25\n1700000000,GPU-1,go_goroutines,7\n",
    )
    problems = Problems()
    assert read(path, problems=problems) == [
        {"time": T, "gpu": "GPU-1", "tensor_active": 0.25, "sm_clock": 1.41e9, "flags": Flag.NAMED_RATIO},
        {"time": T, "gpu": "GPU-2", "sm_clock": 1e9, "flags": 0},
    ]
    assert problems.lines() == ["1 rows of metrics that Ullage does not keep left out (first: a.csv line 5)"]


def test_a_long_csv_of_other_metrics_is_refused_with_near_names(tmp_path):
    path = write(tmp_path, "time,gpu,metric,value\n1700000000,0,sm_activ,1\n")
    with pytest.raises(UllageError, match="no metric that Ullage knows; it has 'sm_activ'") as error:
        read(path)
    assert "did you mean 'sm_active'" in error.value.hint


def test_a_grafana_export_has_a_column_per_series(tmp_path):
    path = write(
        tmp_path,
        '"Time","DCGM_FI_DEV_SM_CLOCK{gpu=""0"", Hostname=""n1""}","DCGM_FI_DEV_SM_CLOCK{gpu=""1"", Hostname=""n1""}"\n'
        "2023-11-14 22:13:20,1410,\n",
    )
    problems = Problems()
    assert read(path, problems=problems) == [{"time": T, "host": "n1", "index": 0, "gpu": "n1/0", "sm_clock": 1.41e9, "flags": 0}]
    assert problems.notes == ["times without a time zone were taken as UTC (a.csv)"]


def test_what_nvidia_smi_writes_is_read(tmp_path):
    path = write(
        tmp_path,
        "timestamp, index, name, clocks.current.sm [MHz], power.draw [W]\n2023/11/14 22:13:20.000, 0, NVIDIA H100, 1410 MHz, 300.5 W\n",
    )
    (row,) = read(path)
    assert (row["time"], row["index"], row["sm_clock"], row["power"]) == (T, 0, 1.41e9, 300.5)


def test_bad_lines_and_cells_are_counted_with_the_line_of_the_first(tmp_path):
    path = write(
        tmp_path,
        "time,gpu,power,sm_clock\n1700000000,0,300,1.4e9\n1700000030,0\n1700000060,0,broken,1.4e9\nsoon,0,300,1.4e9\n1700000090,0,N/A,\n",
    )
    problems = Problems()
    rows = read(path, problems=problems)
    assert [row.get("power") for row in rows] == [300, None]
    assert sorted(problems.lines()) == [
        "1 lines with a wrong number of columns left out (first: a.csv line 3)",
        "1 rows whose time can't be read left out (first: a.csv line 5)",
        "1 values that are not numbers left out (first: a.csv line 4)",
    ]


def test_a_file_without_a_time_names_its_columns(tmp_path):
    with pytest.raises(UllageError, match=r"a.csv has no time column; its columns are 'gpu', 'power'"):
        read(write(tmp_path, "gpu,power\n0,300\n"))


def test_a_file_without_a_known_field_names_the_nearest(tmp_path):
    with pytest.raises(UllageError, match="no column that Ullage knows; its columns are 'time', 'gpu', 'tensor_activ'") as error:
        read(write(tmp_path, "time,gpu,tensor_activ\n1,0,300\n"))
    assert "did you mean 'tensor_active'" in error.value.hint


def test_quantile_functions_are_refused_for_what_they_are(tmp_path):
    path = write(tmp_path, "quantile_pct,seren_gpu_util_pct\n0.0,0.0\n100.0,100.0\n")
    with pytest.raises(UllageError, match=r"holds quantile functions .column 'quantile_pct'., not samples over time"):
        list(read_samples(str(path)))


def test_other_formats_are_left_to_their_readers(tmp_path):
    for text in (
        '{"status": "success"}',
        "<html>a,b\n",
        '# HELP a,b\nup{a="1",b="2"} 1\n',
        'up{a="1",b="2"} 1\n',
        "one column\n",
        "1,2\n3,4\n",
        "",
    ):
        assert delimited.recognise(place(write(tmp_path, text))) == 0, text


def test_half_a_gzip_gives_its_whole_lines_and_then_one_error(tmp_path):
    lines = "".join(f"{1700000000 + 30 * i},0,{100 + (i * 7919) % 300}.25\n" for i in range(20_000))
    path = write(tmp_path, "time,gpu,power\n" + lines, "a.csv.gz")
    path.write_bytes(path.read_bytes()[:-20_000])
    problems, rows = Problems(), 0
    with pytest.raises(UllageError, match="is damaged after"):
        for batch in delimited.read(place(path), Options(), problems):
            rows += batch.num_rows
            assert (np.array(batch["power"]) % 1 == 0.25).all()  # no cut number passed for a whole one
    assert rows > 1000 and problems.dropped["lines with a wrong number of columns"] == 1


def test_only_what_was_asked_for_is_kept(tmp_path):
    text = "time,gpu,power\n" + "".join(f"{1700000000 + s},0,300\n" for s in (0, 30, 60))
    options = Options(since=T + 30_000, until=T + 30_000, cluster="east")
    assert read(write(tmp_path, text), options) == [
        {"time": T + 30_000, "cluster": "east", "gpu": "east/0", "index": 0, "power": 300, "flags": 0}
    ]


def test_a_ratio_column_that_turns_out_percent_is_percent_when_idle_too(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK", 200)  # a few lines a block
    busy = "".join(f"{1700000000 + s},0,58\n" for s in range(40))
    idle = "".join(f"{1700000000 + s},0,0.9\n" for s in (*range(-40, 0), *range(40, 80)))
    with opened([str(write(tmp_path, "time,gpu,tensor_active\n" + idle + busy))]) as taken:
        found = taken.samples.select("tensor_active", "flags").to_pyarrow().to_pylist()
        assert taken.problems.repaired == {"readings under the name of a ratio are percent; settled by exporter and host": 120}
    assert {round(row["tensor_active"], 4) for row in found} == {0.58, 0.009}
    assert all(row["flags"] & Flag.UNIT_GUESSED for row in found)


def test_invalid_utf8_and_control_characters_come_through_harmless(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"time,gpu,job_id,power\n1700000000,GPU-1,\xff\x1b[31m,300\n")
    (row,) = read(path)
    assert row["job"] == "\ufffd\x1b[31m" and row["power"] == 300


def test_a_line_longer_than_a_block_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK", 1000)
    path = write(tmp_path, "time,gpu,power\n1700000000,GPU-1,300\n1700000030," + "x" * 5000 + ",300\n")
    with pytest.raises(UllageError, match=r"a.csv can't be read beyond line"):
        read(path)


# --- Parquet


def test_our_own_parquet_passes_through_as_it_is(tmp_path):
    batch = samples({"time": [T, T + 1], "gpu": ["a", "b"], "sm_clock": np.array([1410.0, np.nan]), "flags": np.array([4, 0], np.uint16)})
    table = pa.Table.from_batches([batch])
    settled = table.append_column(SETTLED.field("span_ms"), pa.array([0, 0], pa.int32()))
    pq.write_table(settled, tmp_path / "a.parquet")
    # 1410 Hz is absurd, but the file says its units are settled: nothing is guessed again
    assert read(tmp_path / "a.parquet") == [
        {"time": T, "gpu": "a", "sm_clock": 1410, "flags": 4},
        {"time": T + 1, "gpu": "b", "flags": 0},
    ]
    assert [r["gpu"] for r in read(tmp_path / "a.parquet", Options(since=T + 1))] == ["b"]
    assert {r["cluster"] for r in read(tmp_path / "a.parquet", Options(cluster="east"))} == {"east"}


@pytest.mark.parametrize(
    "time",
    [pa.array([T], pa.timestamp("ms")), pa.array([T / 1000]), pa.array([T * 1000]), pa.array([T]), pa.array(["2023-11-14T22:13:20Z"])],
)
def test_a_foreign_wide_parquet_is_read_by_its_columns(tmp_path, time):
    table = pa.table({"ts": time, "Hostname": ["n1"], "gpu": [3.0], "DCGM_FI_DEV_SM_CLOCK": [1410], "blob": [b"x"]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", Options(since=T, until=T)) == [
        {"time": T, "host": "n1", "index": 3, "gpu": "n1/3", "sm_clock": 1.41e9, "flags": 0}
    ]
    assert read(tmp_path / "a.parquet", Options(since=T + 1)) == []


def test_a_long_parquet_comes_together(tmp_path):
    table = pa.table({"time": [T, T], "gpu": ["GPU-1", "GPU-1"], "metric": ["power", "sm_active"], "value": [300.0, 0.5]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [{"time": T, "gpu": "GPU-1", "sm_active": 0.5, "power": 300, "flags": Flag.NAMED_RATIO}]


def test_a_damaged_parquet_is_one_clear_error(tmp_path):
    pq.write_table(pa.table({"time": [T] * 9999, "gpu": ["a"] * 9999, "power": np.arange(9999.0)}), tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UllageError, match="damaged Parquet file"):
        read(tmp_path / "a.parquet")
    (tmp_path / "a.parquet").write_bytes(whole[:400] + b"\xff" * 4000 + whole[4400:])
    with pytest.raises(UllageError, match="damaged Parquet file"):
        read(tmp_path / "a.parquet")


def test_a_parquet_that_is_no_telemetry_names_its_columns(tmp_path):
    pq.write_table(pa.table({"time": [T], "weight": [1.0]}), tmp_path / "a.parquet")
    with pytest.raises(UllageError, match="no column that Ullage knows; its columns are 'time', 'weight'"):
        read(tmp_path / "a.parquet")


# --- both


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 50), st.sampled_from(["GPU-a", "GPU-b"]), st.one_of(st.none(), st.integers(0, 100))),
        min_size=1,
        max_size=30,
    )
)
def test_csv_and_parquet_wide_and_long_say_the_same(tmp_path_factory, rows):
    rows = list({(t, gpu): (t, gpu, value) for t, gpu, value in rows}.values())
    folder = tmp_path_factory.mktemp("same")
    wide = "time,gpu,power\n" + "".join(f"{1700000000 + t},{gpu},{'' if v is None else v}\n" for t, gpu, v in rows)
    long = "time,gpu,metric,value\n" + "".join(f"{1700000000 + t},{gpu},power,{'' if v is None else v}\n" for t, gpu, v in rows)
    table = pa.table({"time": [T // 1000 + t for t, _, _ in rows], "gpu": [g for _, g, _ in rows], "power": [v for _, _, v in rows]})
    pq.write_table(table.set_column(2, "power", table["power"].cast(pa.float64())), folder / "a.parquet")
    expected = {(T + 1000 * t, gpu, float(v)) for t, gpu, v in rows if v is not None}
    for path in (write(folder, wide), write(folder, long, "b.csv"), folder / "a.parquet"):
        assert {(row["time"], row["gpu"], row["power"]) for row in read(path)} == expected


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_after_a_head_give_rows_or_one_clear_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "a.csv"
    path.write_bytes(b"time,gpu,power\n1700000000,0,300\n" + data)
    with contextlib.suppress(UllageError):
        read(path)


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("1700000000", T), ("1700000000.5", T + 500), ("1700000000000", T), ("1700000000000000000", T), ("2023-11-14T22:13:20Z", T),
        ("2023-11-15 06:13:20+08:00", T), ("2023-11-14 22:13:20.123456789", T + 123), ("2023/11/14 22:13:20.500", T + 500),
        ("2023-11-14 22:13:20 UTC", T), ("Unknown", None), ("", None), ("yesterday", None), ("1e300", None),
    ],
)  # fmt: skip
def test_times_are_read_in_every_form(written, ms):
    assert clock.moment(written, Problems()) == ms
    mixed = pa.array([written, "2023-11-14T22:13:20+00:00"])
    times, valid = clock.milliseconds(mixed, Problems())
    assert (times[0] if valid[0] else None) == ms and times[1] == T
