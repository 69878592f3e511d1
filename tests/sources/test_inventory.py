"""A GPU exists for the time for which an inventory lists it: the ledger's total is that, and what no sample tells of is unknown."""

from __future__ import annotations

import random

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.seeds import some
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.reports.fleet.fleet import fleet
from ullage.reports.fleet.request import FleetRequest
from ullage.sources.inventory import Listed, read_inventory
from ullage.sums.windows import settle
from ullage.tables import samples

HOUR = 3_600_000
MINUTE = 60_000


def told(gpus, first=1, last=120):
    """Readings of GPUs every minute, each for the minute before it: from the start of `first` to the end of `last`."""
    rows = [(minute, gpu) for gpu in gpus for minute in range(first, last + 1)]
    columns = {"time": [minute * MINUTE for minute, _ in rows], "gpu": [gpu for _, gpu in rows], "host": ["n"] * len(rows)}
    columns |= {"index": pa.array([int(gpu[1:]) for _, gpu in rows], pa.int16()), "model": ["NVIDIA H100 80GB HBM3"] * len(rows)}
    columns |= {"tensor_active": [0.25] * len(rows), "sm_clock": [1.83e9] * len(rows), "gr_active": [0.5] * len(rows)}
    return pa.Table.from_batches([samples(columns)])


def report(table, inventory, **asked):
    return fleet(ibis.memtable(settle(table)), None, FleetRequest(existing=tuple(inventory), **asked), [])


def test_a_gpu_exists_as_long_as_the_inventory_says():
    # two hours of G0 are seen; G1 is listed for the second hour and never seen; G2 is seen and not listed
    table = pa.concat_tables([told(["G0"]), told(["G2"], 61, 90)])
    found = report(table, [Listed("G0"), Listed("G1", start=HOUR)])
    assert found.ledger["total"] == pytest.approx(2 + 1 + 0.5)
    assert found.ledger["unknown"] == pytest.approx(1 + 2.5)  # what is seen here is busy, and nobody's
    assert "1 GPUs of the inventory were never seen (first: G1): their 1.0 GPU-hours are unknown" in found.notes
    assert any("1 GPUs were seen that the inventory does not list (first: G2)" in note for note in found.notes)


def test_what_was_seen_outside_the_inventory_is_left_out():
    found = report(told(["G0"]), [Listed("G0", start=HOUR // 2, end=HOUR)])
    assert (found.gpu_hours, found.ledger["total"]) == pytest.approx((0.5, 0.5))
    assert "1.5 GPU-hours were observed when the inventory says that their GPU was not there; left out" in found.notes
    assert report(told(["G0"]), [Listed("G0")]).ledger["total"] == pytest.approx(2)


def test_a_window_cuts_the_inventory():
    found = report(told(["G0"]), [Listed("G0"), Listed("G1", start=-HOUR)], since=HOUR, until=3 * HOUR)
    assert found.ledger["total"] == pytest.approx(4) and found.ledger["unknown"] == pytest.approx(4)
    assert found.gpu_hours == pytest.approx(1)


def test_a_place_is_one_gpu_after_the_other():
    # n/0 was G0 for an hour; then another came, which goes by the same number
    table = pa.concat_tables([told(["G0"], 1, 60), told(["H0"], 61, 120)])
    found = report(table, [Listed(host="n", index=0)])
    assert found.ledger["total"] == pytest.approx(2) and found.gpu_hours == pytest.approx(2)
    assert found.notes == [note for note in found.notes if "inventory" not in note]


@pytest.mark.parametrize("seed", some(range(8), 3))
def test_the_ledger_agrees_with_counting_minutes(seed):
    rng = random.Random(seed)
    lives = {f"G{n}": sorted(rng.sample(range(1, 121), 2)) for n in range(5)}
    table = pa.concat_tables([told([gpu], *life) for gpu, life in lives.items()])
    inventory = []
    for gpu in [*lives, "X"]:
        for _ in range(rng.randint(0, 2)):
            start, end = sorted(rng.sample(range(121), 2))
            inventory.append(Listed(gpu, start=rng.choice((None, start * MINUTE)), end=rng.choice((None, end * MINUTE))))
    window = min(life[0] for life in lives.values()) - 1, max(life[1] for life in lives.values())
    minutes = 0
    for gpu in [*lives, "X"]:
        own = [entry for entry in inventory if entry.gpu == gpu]
        for minute in range(*window):  # the one that begins there
            listed = any((e.start or 0) <= minute * MINUTE and (e.end is None or minute * MINUTE < e.end) for e in own)
            seen = gpu in lives and lives[gpu][0] - 1 <= minute < lives[gpu][1]
            minutes += listed if own else seen
    assert report(table, inventory).ledger["total"] * 60 == pytest.approx(minutes)


def test_an_inventory_is_read_from_csv_and_parquet(tmp_path):
    path = tmp_path / "gpus.csv"
    path.write_text("# ours\nGPU UUID;Host;gpu_index;start;end;model\nGPU-1;;;;;H100\n;n1;3;2026-08-10T00:00:00Z;;\n")
    expected = (Listed("GPU-1", model="H100"), Listed(host="n1", index=3, start=1_786_320_000_000))
    assert read_inventory(str(path), Problems()) == expected
    table = pa.table({"uuid": ["GPU-1", None], "model": ["H100", None], "host": [None, "n1"], "index": [None, 3.0]})
    table = table.append_column("start", pa.array([None, 1_786_320_000_000], pa.timestamp("ms", "UTC")))
    pq.write_table(table, tmp_path / "gpus.parquet")
    assert read_inventory(str(tmp_path / "gpus.parquet"), Problems()) == expected
    path.write_text("host,gpus,end\nn1,2,2026-08-10\ncpu-1,0,\nn2,1.0,\n")
    at = 1_786_320_000_000
    hosts = (Listed(host="n1", index=0, end=at), Listed(host="n1", index=1, end=at), Listed(host="n2", index=0))
    assert read_inventory(str(path), Problems()) == hosts
    path.write_text("uuid\nGPU-1\nGPU-2\n")
    assert read_inventory(str(path), Problems()) == (Listed("GPU-1"), Listed("GPU-2"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gpu,start\nG,soon\n", "gpus.csv line 2: the start 'soon' is not a time"),
        ("gpu,start,end\nG,,\nH,2026-08-11,2026-08-10\n", "gpus.csv line 3: the GPU ends before it starts"),
        ("gpu,host\nG,n\n,n\n", "gpus.csv line 3 names no GPU"),
        ("host,index\nn,x\n", "gpus.csv line 2: the index 'x' is not a number of a GPU"),
        ("host,gpus\nn,some\n", "gpus.csv line 2: the gpus 'some' is not a number of GPUs"),
        ("host,gpus\nn,1024\nm,1025\n", "gpus.csv line 3: no host has 1,025 GPUs"),
        ("host,gpus\nn,8\nm,\n", "gpus.csv line 3 names no GPU"),
        ("host,gpus\nn,0\n", "gpus.csv lists no GPU"),
        ("host,index\nn,1,2\n", "gpus.csv line 2 has 3 columns, and the first line 2"),
        ("job,user\n1,ann\n", "gpus.csv names no GPUs: its columns are 'job', 'user'"),
        ("gpu\n", "gpus.csv lists no GPU"),
        ("", "gpus.csv names no GPUs: its columns are "),
        ("gpu\0", "gpus.csv is neither CSV nor Parquet"),
    ],
)
def test_what_can_not_be_read_is_one_error_with_file_and_line(tmp_path, text, problem):
    path = tmp_path / "gpus.csv"
    path.write_text(text)
    with pytest.raises(UllageError) as raised:
        read_inventory(str(path), Problems())
    assert raised.value.problem == problem


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=200), begin=st.sampled_from([b"", b"gpu,host,index,start,end\n", b"host;index\n", b"PAR1", b"\x1f\x8b"]))
def test_any_bytes_are_an_inventory_or_one_clear_error(tmp_path_factory, data, begin):
    path = tmp_path_factory.mktemp("inventory") / "gpus.csv"
    path.write_bytes(begin + data)
    try:
        assert read_inventory(str(path), Problems())
    except UllageError as error:
        assert error.problem


def test_the_command_takes_an_inventory(tmp_path):
    pq.write_table(settle(told(["G0"])), tmp_path / "samples.parquet")
    (tmp_path / "gpus.csv").write_text("gpu\nG0\nG1\n")
    asked = ["fleet", str(tmp_path / "samples.parquet"), "--inventory", str(tmp_path / "gpus.csv")]
    found = CliRunner().invoke(cli, asked)
    assert found.exit_code == 0 and "never seen (first: G1): their 2.0 GPU-hours are unknown" in found.output
    missing = CliRunner().invoke(cli, [*asked[:-1], str(tmp_path / "none.csv")], catch_exceptions=True)
    assert missing.exit_code != 0
