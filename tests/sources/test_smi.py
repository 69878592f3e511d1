"""nvidia-smi as the last resort: its lines parsed, and the ways in which it fails."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.sources import nvidia_smi as reader
from ullage.sources.nvidia_smi import COLUMNS, WHO, parsed
from ullage.sources.source import Options, Place, read_samples

ALL = list(COLUMNS)
# the columns of COLUMNS in their order: two clocks, power, temperature, memory, utilization, reasons, then three limits
H100 = "0, GPU-aa, NVIDIA H100 80GB HBM3, 1410, 2619, 612.34, 51, 65536, 98, 0x0000000000000004, 700.00, 1980, 81559"


def rows(printed, problems=None, columns=ALL):
    with reader.opened(Options(), problems if problems is not None else Problems(), "n7", lambda _: printed) as machine:
        batch = machine.read(1_700_000_000_000)
        return [{k: v for k, v in row.items() if v is not None} for row in batch.to_pylist()], machine.limits


def test_a_line_becomes_a_row_in_si_units():
    [row], limits = rows(H100 + "\n")
    assert (row["gpu"], row["index"], row["model"], row["host"]) == ("GPU-aa", 0, "NVIDIA H100 80GB HBM3", "n7")
    assert row["sm_clock"] == 1.41e9 and row["power"] == pytest.approx(612.34) and row["temperature"] == 51
    assert row["memory_used"] == 64 * 2**30 and row["gpu_util"] == pytest.approx(0.98) and row["throttle"] == 4
    assert "tensor_active" not in row and row["flags"] == 0
    assert (limits["GPU-aa"].power, limits["GPU-aa"].sm_clock) == (700, 1.98e9)


def test_that_ofu_is_not_known_from_it_is_said():
    problems = Problems()
    rows(H100, problems)
    assert "OFU is not known" in problems.notes[0]


@pytest.mark.parametrize(
    "nothing",
    ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[GPU requires reset]", "[Insufficient Permissions]", "ERR!", "", "nan"],
)
def test_what_means_no_value_is_missing_and_never_zero(nothing):
    [reading] = parsed(f"3, GPU-x, NVIDIA L4, {nothing}, 0", ["clocks.sm", "utilization.gpu"], Problems())
    assert reading.values == {"gpu_util": 0.0} and reading.index == 3


def test_lines_that_are_no_reading_are_counted_and_the_others_kept():
    # what nvidia-smi prints of a GPU that fell off the bus
    problems = Problems()
    words = "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU"
    found = parsed(f"{words}\n\n{H100}\n1, GPU-cut, NVIDIA H1", ALL, problems)
    assert [reading.uuid for reading in found] == ["GPU-aa"]
    assert problems.dropped == {"lines of nvidia-smi that are not readings": 2}


@given(st.text(max_size=200))
def test_any_text_gives_readings_or_counts_and_never_fails(text):
    assert all(len(reading.uuid) < 200 for reading in parsed(text, ALL, Problems()))


def test_a_column_that_an_old_driver_does_not_know_is_asked_for_by_its_older_name_or_left_out():
    asked = []

    def old(columns):
        asked.append(list(columns))
        for name in ("clocks_event_reasons.active", "clocks.max.sm"):
            if name in columns:
                return f'Field "{name}" is not a valid field to query.\n'
        return "0, GPU-aa, Tesla V100-SXM2-16GB, 1380, 877, 250.1, 40, 1024, 77, 0x0000000000000001, 300.00, 16384\n"

    with reader.opened(Options(), Problems(), "n7", old) as machine:
        [row] = machine.read(0).to_pylist()
    assert row["throttle"] == 1 and row["sm_clock"] == 1.38e9 and machine.limits["GPU-aa"].sm_clock is None
    assert "clocks_throttle_reasons.active" in asked[-1] and "clocks.max.sm" not in asked[-1]


def test_no_gpu_is_one_error():
    with pytest.raises(UllageError, match="nvidia-smi finds no GPU"):
        rows("No devices were found\n")


# -- the program itself -----------------------------------------------------------------------------------------------


def program(folder: Path, monkeypatch, body: str) -> None:
    """Put a program called nvidia-smi on the path, alone."""
    path = folder / "nvidia-smi"
    path.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_it_is_asked_by_csv_without_head_and_units(tmp_path, monkeypatch):
    program(tmp_path, monkeypatch, f"open({os.fspath(tmp_path / 'asked')!r}, 'w').write(' '.join(sys.argv[1:])); print({H100!r})")
    [batch] = read_samples("nvidia-smi", Options(interval=0.1))
    assert batch.num_rows == 1
    assert (tmp_path / "asked").read_text() == f"--query-gpu={','.join([*WHO, *ALL])} --format=csv,noheader,nounits"


def test_where_it_is_not_installed_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UllageError, match="nvidia-smi is not installed"):
        reader.asked(["index"])


def test_what_it_says_when_it_fails_stands_in_the_error(tmp_path, monkeypatch):
    program(tmp_path, monkeypatch, "print('NVIDIA-SMI has failed because it could not communicate\\x1b[31m with the driver.'); sys.exit(9)")
    with pytest.raises(UllageError) as error:
        reader.asked(["index"])
    assert error.value.problem == "nvidia-smi fails (NVIDIA-SMI has failed because it could not communicate\\x1b[31m with the driver.)"


def test_a_failure_that_still_gives_readings_is_read(tmp_path, monkeypatch):
    # one GPU of two is lost: exit code 15, and the line of the other
    program(tmp_path, monkeypatch, f"print('GPU is lost'); print({H100!r}); sys.exit(15)")
    assert "GPU-aa" in reader.asked(["index"])


def test_one_that_hangs_is_given_up(tmp_path, monkeypatch):
    program(tmp_path, monkeypatch, "time.sleep(60)")
    with pytest.raises(UllageError, match=r"did not answer within 0\.3 s"):
        reader.asked(["index"], patience=0.3)


def test_the_place_is_called_nvidia_smi():
    assert [reader.recognise(Place(name)) for name in ("nvidia-smi", "local")] == [2, 0]
    assert reader.recognise(Place("nvidia-smi", Path("nvidia-smi"))) == 0  # a file of that name
