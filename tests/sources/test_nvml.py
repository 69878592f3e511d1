"""The machine's own GPUs through NVML, with a stand-in for the driver."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.live.nvml_double import Gpu, Nvml
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.sources import nvml as reader
from ullage.sources import nvml_readings
from ullage.sources.source import Options, Place
from ullage.tables import SAMPLES

NOT_SUPPORTED = Nvml.NVMLError(Nvml.NVML_ERROR_NOT_SUPPORTED)


class Clock:
    """Milliseconds that pass only while somebody sleeps."""

    def __init__(self):
        self.now, self.naps = 1_000_000, []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.naps.append(seconds)
        self.now += round(seconds * 1000)


def watch(nvml, problems=None, **options):
    clock = Clock()
    batches = list(reader.watch(nvml, Options(**options), problems or Problems(), "n7", clock, clock.sleep))
    assert all(batch.schema == SAMPLES for batch in batches)
    rows = [{k: v for k, v in row.items() if v is not None} for row in pa.Table.from_batches(batches).to_pylist()]
    return rows, clock


def test_activities_come_from_pairs_of_samples_and_become_ratios():
    # ids: 5 any tensor, 2 SM, 10 DRAM, 20 PCIe TX in MiB/s, 248 SM cycles, 250 MMA cycles
    nvml = Nvml([Gpu("GPU-1", activity=[{5: 61.5, 2: 88, 10: 35, 20: 100, 248: 3_000_000, 250: 1_500_000}])])
    [row], clock = watch(nvml)
    assert row["tensor_active"] == pytest.approx(0.615) and row["sm_active"] == pytest.approx(0.88)
    assert row["dram_active"] == pytest.approx(0.35) and row["pcie_tx"] == 100 * 2**20
    assert (row["sm_cycles"], row["tensor_cycles"]) == (3_000_000, 1_500_000)
    assert clock.naps == [1]


def test_clocks_power_and_the_like_are_in_si_units():
    [row], _ = watch(Nvml([Gpu("GPU-1")]))
    assert row["sm_clock"] == 1.41e9 and row["power"] == 612 and row["energy"] == 5_000_000
    assert row["temperature"] == 51 and row["memory_used"] == 64 * 2**30 and row["throttle"] == 4
    assert row["gpu_util"] == pytest.approx(0.98) and row["flags"] == 0
    assert (row["gpu"], row["index"], row["host"], row["model"]) == ("GPU-1", 0, "n7", "NVIDIA H100 80GB HBM3")


def test_it_watches_at_the_interval_and_each_pair_is_the_next():
    gpu = Gpu("GPU-1", activity=[{5: 10}, {5: 20}, {5: 30}])
    rows, clock = watch(Nvml([gpu]), watch=30, interval=10)
    assert [row["tensor_active"] for row in rows] == pytest.approx([0.1, 0.2, 0.3])
    assert [round(row["time"].timestamp() * 1000) for row in rows] == [1_010_000, 1_020_000, 1_030_000]
    assert gpu.samples_taken == 4 and clock.naps == [10, 10, 10]


def test_an_interval_below_what_the_hardware_can_do_is_made_longer():
    rows, clock = watch(Nvml([Gpu("GPU-1")]), watch=0.2, interval=0.001)
    assert len(rows) == 2 and clock.naps == [0.1, 0.1]


def test_everything_is_given_back_at_the_end_and_after_an_error():
    nvml = Nvml([Gpu("GPU-1"), Gpu("GPU-2")])
    watch(nvml)
    assert not nvml.running and len(nvml.samples) == 4 and all(sample.freed for sample in nvml.samples)
    batches = reader.watch(nvml, Options(watch=99, interval=1), Problems(), "n7", Clock(), lambda _: None)
    next(batches)
    batches.close()
    assert not nvml.running and all(sample.freed for sample in nvml.samples)


def test_a_gpu_without_gpm_tells_clocks_power_and_utilization_and_that_is_said():
    problems = Problems()
    [row], _ = watch(Nvml([Gpu("GPU-1", name="NVIDIA A100-SXM4-80GB", gpm=False)]), problems)
    assert row["sm_clock"] == 1.41e9 and row["gpu_util"] == pytest.approx(0.98)
    assert not {"tensor_active", "sm_active", "sm_cycles"} & row.keys()
    assert problems.notes == [
        "GPU 0 (NVIDIA A100-SXM4-80GB) tells no activity of its SMs and tensor pipes (GPM needs Hopper or later); "
        "clocks, power and utilization only"
    ]


def test_gpm_that_is_not_allowed_is_said_with_the_drivers_reason():
    problems = Problems()
    watch(Nvml([Gpu("GPU-1", gpm=Nvml.NVMLError(4))]), problems)
    assert "(GPM: Insufficient Permissions)" in problems.notes[0]


def test_what_a_gpu_does_not_support_is_missing_without_a_word():
    problems = Problems()
    [row], _ = watch(Nvml([Gpu("GPU-1", energy=NOT_SUPPORTED, power=NOT_SUPPORTED, util=NOT_SUPPORTED)]), problems)
    assert not {"energy", "power", "gpu_util"} & row.keys() and row["sm_clock"] == 1.41e9
    assert problems.lines() == []


def test_a_gpu_that_is_lost_is_counted_and_the_others_go_on():
    problems, lost = Problems(), Nvml.NVMLError(Nvml.NVML_ERROR_GPU_IS_LOST)
    rows, _ = watch(Nvml([Gpu("GPU-1", sm_clock=lost), Gpu(lost), Gpu("GPU-3")]), problems)
    assert ["sm_clock" in row for row in rows] == [False, True]
    assert problems.first == {
        "GPUs that do not answer": "GPU 1: GPU is lost",
        "readings that the driver refused": "GPU 0, sm_clock: GPU is lost",
    }


def test_single_metrics_that_the_driver_does_not_know_are_missing():
    [row], _ = watch(Nvml([Gpu("GPU-1", activity=[{5: 50}], refused=frozenset({248, 249, 250}))]))
    assert row["tensor_active"] == 0.5 and not {"sm_cycles", "tensor_cycles"} & row.keys()


def test_a_driver_that_refuses_the_cycle_counters_is_asked_without_them():
    problems = Problems()
    [row], _ = watch(Nvml([Gpu("GPU-1", activity=[{5: 50}], old_driver=True)]), problems)
    assert row["tensor_active"] == 0.5 and "sm_cycles" not in row and not problems.dropped


def test_of_a_gpu_in_mig_mode_the_instances_carry_the_activities():
    names = {0: "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 3: "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", 4: "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb"}
    gpu = Gpu("GPU-1", mig=names, instances={0: 7, 3: 2, 4: 2}, activity=[{5: 40}])
    board, small, large = watch(Nvml([gpu]))[0]
    assert (board.get("mig"), small["mig"], large["mig"]) == (None, "1g.10gb/7", "3g.40gb/2")  # two compute instances, one GPU instance
    assert "tensor_active" not in board and board["power"] == 612
    assert "power" not in small and small["sm_clock"] == 1.41e9 and small["tensor_active"] == pytest.approx(0.4)
    assert board["gpu"] == small["gpu"] == "GPU-1"


def test_mig_mode_without_instances_reads_the_whole_gpu():
    [row], _ = watch(Nvml([Gpu("GPU-1", mig={}, activity=[{5: 40}])]))
    assert row["tensor_active"] == pytest.approx(0.4)


def test_without_a_driver_the_error_says_so():
    with pytest.raises(UllageError) as error:
        watch(Nvml(fails=Nvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    assert error.value.problem == "this machine's NVIDIA driver does not answer (NVML Shared Library Not Found)"


def test_without_a_gpu_the_error_says_so():
    with pytest.raises(UllageError, match="no GPU that NVML can read"):
        watch(Nvml())


def test_without_the_library_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(UllageError, match=r"ullage\[gpu\]"):
        list(reader.read(Place("local"), Options(), Problems()))


def test_the_place_is_called_local():
    assert [reader.recognise(Place(name)) for name in ("local", "nvml://", "http://local", "locale")] == [2, 2, 0, 0]
    assert reader.recognise(Place("local", Path("local"))) == 0  # a file of that name


def used_names():
    """Return every attribute of `nvml` that the reader's source names."""
    tree = ast.parse(Path(inspect.getfile(reader)).read_text())
    names = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "nvml"}
    return names | {f"NVML_GPM_METRIC_{name}" for name in nvml_readings.GPM}


def test_every_name_the_reader_uses_exists_in_nvidia_ml_py_as_in_the_double():
    pynvml = pytest.importorskip("pynvml")
    for name in used_names():
        real, double = getattr(pynvml, name), getattr(Nvml, name)
        if name.startswith("NVML_"):
            assert real == double, name
        elif name.startswith("nvml"):
            assert list(inspect.signature(real).parameters) == list(inspect.signature(double).parameters)[1:], name


def test_the_structures_of_the_double_have_the_fields_of_nvidia_ml_py():
    pynvml = pytest.importorskip("pynvml")
    for name, extra in (("c_nvmlGpmMetricsGet_t", ()), ("c_nvmlGpmMetric_t", ())):
        assert {field[0] for field in getattr(pynvml, name)._fields_} == set(vars(getattr(Nvml, name)())) | set(extra)
    assert len(pynvml.c_nvmlGpmMetricsGet_t().metrics) == len(Nvml.c_nvmlGpmMetricsGet_t().metrics)
    assert "used" in {field[0] for field in pynvml.c_nvmlMemory_t._fields_}
    assert "gpu" in {field[0] for field in pynvml.c_nvmlUtilization_t._fields_}
    assert "isSupportedDevice" in {field[0] for field in pynvml.c_nvmlGpmSupport_t._fields_}
    assert issubclass(pynvml.NVMLError_GpuIsLost, pynvml.NVMLError) and pynvml.NVMLError(15).value == 15


def test_the_reader_needs_only_numpy_and_the_ground_floor():
    code = (
        "import sys; import ullage.sources.nvml;"
        "heavy = {'duckdb', 'ibis', 'rich', 'click', 'scipy', 'urllib3', 'pandas', 'pynvml', 'pyarrow'};"
        "print(sorted({m.split('.')[0] for m in sys.modules} & heavy))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
