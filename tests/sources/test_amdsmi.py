"""The machine's own AMD GPUs through amdsmi, with a stand-in for it."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path

import pytest

from tests.live.amdsmi_double import LOST, NOT_SUPPORTED, Amdsmi, Gpu
from ullage.errors import UllageError
from ullage.gpus.chip import find
from ullage.problems import Problems
from ullage.sources import amdsmi as reader
from ullage.sources.source import Options, Place, read_samples


def rows(smi, problems=None):
    with reader.opened(smi, Options(), problems if problems is not None else Problems(), "n9") as machine:
        batch = machine.read(1_700_000_000_000)
    return [{name: value for name, value in row.items() if value is not None} for row in batch.to_pylist()]


def test_activity_clocks_power_memory_and_energy_are_in_si_units():
    [row] = rows(Amdsmi(Gpu()))
    assert (row["host"], row["index"], row["model"]) == ("n9", 0, "AMD Instinct MI300X")
    assert row["gr_active"] == row["gpu_util"] == pytest.approx(0.92) and row["dram_active"] == pytest.approx(0.41)
    assert row["sm_clock"] == 1.95e9 and row["memory_clock"] == 1.3e9 and row["power"] == 688 and row["temperature"] == 71
    assert row["memory_used"] == 65_536 * 2**20
    assert row["energy"] == 30_518  # 2e9 steps of 15.259 uJ
    assert "tensor_active" not in row and row["flags"] == 0


def test_the_name_is_one_that_the_tables_of_gpus_know():
    [row] = rows(Amdsmi(Gpu()))
    assert find(row["model"]).vendor == "AMD"


def test_what_a_board_can_reach_is_told_beside_the_readings():
    with reader.opened(Amdsmi(Gpu(uuid="u")), Options(), Problems(), "n9") as machine:
        limits = machine.limits["u"]
    assert (limits.power, limits.sm_clock, limits.memory) == (pytest.approx(750), 2.1e9, 196_592 * 2**20)


def test_older_names_and_boards_are_understood():
    # ROCm 6.0 says cur_clk; an MI200 has no current_socket_power (65535 means none), only an average, and an edge sensor
    old = Gpu(
        clocks={"GFX": {"cur_clk": 1700}, "MEM": {"cur_clk": 1600}},
        power={"current_socket_power": 0xFFFF, "average_socket_power": 301},
        temperatures={"HOTSPOT": NOT_SUPPORTED, "EDGE": 44},
        energy={"power": 1_000_000, "counter_resolution": 15.3, "timestamp": 1},
        asic={"market_name": "N/A"},
    )
    [row] = rows(Amdsmi(old))
    assert (row["sm_clock"], row["power"], row["temperature"], row["energy"]) == (1.7e9, 301, 44, 15)
    assert row["model"] == "MI300X board"


@pytest.mark.parametrize("nothing", ["N/A", 0xFFFF, 0xFFFFFFFF, float("nan"), None, True])
def test_what_means_no_value_is_missing_and_never_zero(nothing):
    problems = Problems()
    [row] = rows(Amdsmi(Gpu(activity={"gfx_activity": nothing, "umc_activity": 0})), problems)
    assert "gr_active" not in row and "gpu_util" not in row and row["dram_active"] == 0
    assert not problems.dropped


def test_what_a_gpu_does_not_support_is_missing_without_a_word():
    problems = Problems()
    [row] = rows(Amdsmi(Gpu(activity=NOT_SUPPORTED, energy=KeyError("counter_resolution"))), problems)
    assert not {"gr_active", "energy"} & row.keys() and not problems.dropped


def test_a_gpu_that_is_lost_is_counted_and_the_others_go_on():
    problems = Problems()
    lost = Gpu(activity=LOST, clocks=LOST, power=LOST, energy=LOST, temperatures=LOST, vram=LOST)
    gone, good = rows(Amdsmi(lost, Gpu(uuid=LOST), Gpu(uuid="u3")), problems)
    assert set(gone) <= {"time", "host", "gpu", "index", "model", "flags"} and good["gpu"] == "u3" and good["index"] == 2
    assert problems.dropped == {"readings that the driver refused": 9, "GPUs that do not answer": 1}
    assert "Driver not loaded" in problems.first["readings that the driver refused"]


def test_it_is_shut_down_at_the_end_and_after_an_error():
    smi = Amdsmi(Gpu())
    rows(smi)
    assert not smi.running
    with pytest.raises(UllageError, match="amdsmi finds no GPU"), reader.opened(smi := Amdsmi(), Options(), Problems(), "n9"):
        pass
    assert not smi.running


def test_without_a_driver_the_error_gives_its_reason_in_one_line():
    with pytest.raises(UllageError) as error:
        rows(Amdsmi(fails=LOST))
    assert error.value.problem == "AMD's driver does not answer (Error code: 34 | AMDSMI_STATUS_DRIVER_NOT_LOADED - Driver not loaded)"


def test_without_the_library_the_error_says_where_it_comes_from(monkeypatch):
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with pytest.raises(UllageError, match="'amdsmi' is not installed") as error:
        next(read_samples("amdsmi"))
    assert "ROCm" in error.value.hint


def test_an_import_that_breaks_and_prints_is_one_sentence_and_prints_nothing(monkeypatch, tmp_path, capsys):
    # what amdsmi 7.0 does where libamd_smi.so is missing: a line on stdout, then a KeyError
    (tmp_path / "amdsmi.py").write_text("print('Unable to find libamd_smi.so library')\n{}['libamd_smi.so']\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    with pytest.raises(UllageError, match=r"'amdsmi' can't be loaded \(KeyError\('libamd_smi.so'\)\)"):
        reader.library()
    assert capsys.readouterr().out == ""


def test_the_place_is_called_amdsmi():
    assert [reader.recognise(Place(name)) for name in ("amdsmi", "local", "http://amdsmi")] == [2, 0, 0]
    assert reader.recognise(Place("amdsmi", Path("amdsmi"))) == 0  # a file of that name


def test_it_is_read_as_a_source_by_its_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "amdsmi", Amdsmi(Gpu()))
    [batch] = read_samples("amdsmi", Options(interval=0.1))
    assert batch.num_rows == 1


def test_the_double_has_every_name_that_the_reader_asks_for():
    tree = ast.parse(Path(inspect.getfile(reader)).read_text())
    used = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "smi"}
    assert len(used) > 10 and not [name for name in used if not hasattr(Amdsmi, name)]
