"""nvidia-smi dmon logs into samples."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest

from ullage.compressed import head
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.sources.dmon import read as read_dmon
from ullage.sources.dmon import recognise
from ullage.sources.source import Options, Place

# printed on an A100, which has no GPM: dashes (the en-dash is what a terminal's copy made of them)
A100 = """\
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk smutil  smocc mmaact
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz  GPM:%  GPM:%  GPM:%
    0    360     55     56    100     16      0      0      0      0   1593   1410      –      –      –
"""
# the header as an 8-GPU H20 printed it
H20 = """\
# gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk      gract    smutil     smocc   intutil    mmaact      dram     pcitx     nvltx
# Idx      W      C      C      %      %    MHz    MHz      GPM:%     GPM:%     GPM:%     GPM:%     GPM:%     GPM:% GPM:MiB/s GPM:MiB/s
    0     56     30     28      0      0   1593    210          -         -         -         -         -         -         -         -
    1    455     49     57     98      0   1593   1980         97        88        42         3        61        35       100      2000
"""
NOON = 1786363200  # 2026-08-10 12:00:00 UTC


@pytest.fixture
def log(tmp_path):
    def run(text, name="node-17.dmon", written=NOON, options=None, problems=None):
        path = tmp_path / name
        path.write_bytes(text.encode())
        os.utime(path, (written, written))
        batches = read_dmon(Place(str(path), path, head(path)), options or Options(), problems if problems is not None else Problems())
        return [{k: v for k, v in row.items() if v is not None} for batch in batches for row in batch.to_pylist()]

    return run


def test_columns_are_found_by_name_and_dashes_are_missing(log):
    [row] = log(A100)
    assert row["power"] == 360 and row["temperature"] == 55 and row["gpu_util"] == 1.0
    assert row["sm_clock"] == 1.41e9 and row["memory_clock"] == pytest.approx(1.593e9)
    assert not {"sm_active", "sm_occupancy", "tensor_active", "model"} & row.keys()
    assert (row["gpu"], row["host"], row["index"]) == ("node-17/0", "node-17", 0)


def test_gpm_columns_are_ratios_and_bytes_a_second(log):
    first, second = log(H20)
    assert "tensor_active" not in first and first["power"] == 56
    assert second["tensor_active"] == pytest.approx(0.61) and second["sm_active"] == pytest.approx(0.88)
    assert second["gr_active"] == pytest.approx(0.97) and second["dram_active"] == pytest.approx(0.35)
    assert second["pcie_tx"] == 100 * 2**20 and second["nvlink_tx"] == 2000 * 2**20


def test_headers_that_come_again_may_change_the_columns(log):
    text = "# gpu    pwr\n# Idx      W\n    0    100\n# gpu   pclk    pwr\n# Idx    MHz      W\n    0   1000    200\n"
    first, second = log(text)
    assert first["power"] == 100 and "sm_clock" not in first
    assert second["power"] == 200 and second["sm_clock"] == 1e9


def test_date_and_time_are_taken_as_utc_and_that_is_said(log):
    problems = Problems()
    [row] = log(
        "#Date       Time        gpu    pwr\n#YYYYMMDD   HH:MM:SS    Idx      W\n 20260810   12:00:05      0    360\n", problems=problems
    )
    assert row["time"] == datetime(2026, 8, 10, 12, 0, 5, tzinfo=UTC)
    assert problems.notes == ["nvidia-smi dmon writes local times without a zone; they are taken as UTC"]


def test_a_time_without_a_date_counts_back_from_the_day_the_file_was_written(log):
    # written at noon on the 10th: 23:59:59 was on the 9th, the two lines after it on the 10th
    text = "#Time        gpu    pwr\n#HH:MM:SS    Idx      W\n 23:59:59      0    1\n 00:00:01      0    2\n 11:59:59      0    3\n"
    assert [row["time"].strftime("%d %H:%M:%S") for row in log(text)] == ["09 23:59:59", "10 00:00:01", "10 11:59:59"]


def test_without_any_time_a_round_is_a_second_and_the_last_ends_when_the_file_was_written(log):
    problems = Problems()
    text = "# gpu    pwr\n# Idx      W\n    0    1\n    1    2\n    0    3\n    1    4\n"
    assert [(row["index"], row["time"].timestamp() - NOON) for row in log(text, problems=problems)] == [(0, -1), (1, -1), (0, 0), (1, 0)]
    assert len(problems.notes) == 1 and "-o DT writes them" in problems.notes[0]


@pytest.mark.parametrize("text", ["#gpu, pwr, pclk\n#Idx, W, MHz\n0, 360 W, 1410 MHz\n", "# gpu, pwr, pclk\n0, 360, 1410\n"])
def test_csv_is_the_same_with_commas_and_perhaps_units(log, text):
    [row] = log(text)
    assert row["power"] == 360 and row["sm_clock"] == 1.41e9


def test_lines_that_cannot_be_read_are_counted(log):
    problems = Problems()
    text = A100 + "    0    360\n    x" + "      0" * 14 + "\nerror: GPU is lost\n    0    3"
    assert len(log(text, problems=problems)) == 1
    assert problems.lines()[:2] == [
        "3 lines that can't be read left out (first: node-17.dmon line 4)",
        f"1 last lines without an end left out (first: {problems.first['last lines without an end']})",
    ]


@pytest.mark.parametrize(("gpu", "kept"), [("32767", True), ("32768", False), ("99999999999999999999", False), ("9" * 5000, False)])
def test_a_gpu_number_beyond_counting_is_left_out_and_counted(log, gpu, kept):
    problems = Problems()
    found = log(f"# gpu pwr\n 0 300\n {gpu} 400\n", problems=problems)
    assert [row["power"] for row in found] == [300, 400][: 1 + kept]
    assert problems.dropped == ({} if kept else {"lines with a GPU number above 32,767": 1})


def test_a_log_without_a_line_is_an_error(log):
    with pytest.raises(UllageError, match=r"node-17\.dmon is a dmon log without a line"):
        log("# gpu    pwr\n# Idx      W\n")


def test_only_the_time_that_was_asked_for_is_kept(log):
    text = "# gpu    pwr\n    0    1\n    0    2\n    0    3\n"
    assert [row["power"] for row in log(text, options=Options(since=(NOON - 1) * 1000, until=NOON * 1000))] == [3]


@pytest.mark.parametrize(
    ("start", "sure"),
    [
        (A100, 2),
        (H20, 2),
        ("#Date       Time        gpu   pwr gtemp\n", 2),
        ("#Time        gpu    sm   mem\n", 2),
        ("#gpu, pwr\n", 2),
        ("# HELP DCGM_FI_DEV_SM_CLOCK gpu clock\n", 0),
        ("gpu,pwr\n0,1\n", 0),
    ],
)
def test_a_log_is_recognised_by_its_header(start, sure):
    assert recognise(Place("f", None, start.encode())) == sure
