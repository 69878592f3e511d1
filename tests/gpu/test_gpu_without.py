"""The checks on a machine that lacks libraries: what is missing costs its own checks and no other."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from gpu.check import CHECKS, NotMeasured, checks
from gpu.machine import Machine, described, installed, machine, versions
from gpu.telemetry import batches, plain_rows, rows

from gpu import telemetry
from tests.cupti.cuda_double import cublas, in_process_with_driver
from tests.gpu.gpu_double import World
from tests.live.nvml_double import Gpu, Nvml
from tests.sources.test_nvml import NOT_SUPPORTED, Clock
from ullage.problems import Problems

ROOT = Path(__file__).parents[2]
NEEDS_NO_TABLES = ("ofu_gemm", "cycle_counters", "sampling_overhead", "clock_noise")
checks()


# --- without pyarrow ---

ACTIVITY = [{5: 61.53, 2: 88.1, 3: 12.7, 10: 35.009, 20: 100.3, 21: 0.1, 60: 12345.678, 248: 3_000_000_007, 250: 1_500_000_001}]
GPUS = {
    "plain": [Gpu("GPU-1", activity=ACTIVITY, energy=5_000_000_999, power=612_345, sm_clock=1413)],
    "counters beyond 53 bits": [Gpu("GPU-1", activity=[{5: 1.0, 248: 2.0**60 + 2**10, 250: 2.0**63}])],
    "before Hopper": [Gpu("GPU-1", gpm=False)],
    "an older driver": [Gpu("GPU-1", activity=ACTIVITY, old_driver=True)],
    "refused metrics": [Gpu("GPU-1", activity=ACTIVITY, refused=frozenset({5, 250}))],
    "silent": [Gpu("GPU-1", sm_clock=NOT_SUPPORTED, power=NOT_SUPPORTED, energy=NOT_SUPPORTED, memory=NOT_SUPPORTED, activity=ACTIVITY)],
    "sentinels and impossible values": [
        Gpu("GPU-1", power=4294967295, sm_clock=9_999, temperature=-99, activity=[{5: 180.0, 2: math.nan}])
    ],
    "MIG beside a whole GPU": [
        Gpu("GPU-1", mig={0: "NVIDIA H100 80GB HBM3 MIG 1g.10gb"}, instances={0: 7}, activity=ACTIVITY),
        Gpu("GPU-2", activity=ACTIVITY, util=37),
    ],
}


def read(gpus):
    """Return the rows of every GPU by tables and without, and the problems of both ways."""
    found = []
    for plain in (False, True):
        clock, problems, nvml = Clock(), Problems(), Nvml(gpus)
        one = Machine(nvml, nvml.gpus[0], 0, "x", "GPU-1", clock=clock, sleep=clock.sleep)
        if plain:
            told = plain_rows(one, 3, 0.5, problems)
        else:
            table = batches(one, 3, 0.5, problems)
            whole = [row for gpu in gpus for row in rows(table, gpu.uuid)]
            told = whole + [
                {name: value for name, value in {**row, "time": row["time"].timestamp()}.items() if value is not None}
                for row in table.to_pylist()
                if row["mig"]
            ]
        found.append((sorted(told, key=lambda row: (row["time"], row["gpu"], row.get("mig", ""))), problems.lines()))
    return found


@pytest.mark.parametrize("gpus", GPUS.values(), ids=GPUS.keys())
def test_the_rows_are_those_of_the_readers_tables_to_the_last_digit(gpus):
    (tables, problems), (plain, others) = read(gpus)
    assert len(plain) >= 6 and plain == tables and others == problems
    for one, other in zip(plain, tables, strict=True):
        assert {name: type(value) for name, value in one.items()} == {name: type(value) for name, value in other.items()}


@pytest.fixture
def no_pyarrow(monkeypatch):
    for module in (telemetry, sys.modules["gpu.check_clock_noise"], sys.modules["gpu.check_nvml_recording"]):
        monkeypatch.setattr(module, "installed", lambda name: name != "pyarrow" and installed(name))


@pytest.mark.parametrize("name", NEEDS_NO_TABLES)
def test_four_checks_find_without_pyarrow_what_they_find_with_it(name, no_pyarrow, monkeypatch):
    without = CHECKS[name].function(World().machine())
    monkeypatch.undo()
    with_tables = CHECKS[name].function(World().machine())
    assert without.answers == with_tables.answers and without.rows == with_tables.rows and without.wrong == with_tables.wrong == []
    assert without.settings["load"] == "simulated products"
    kept = name == "clock_noise"
    assert bool(with_tables.recordings) is kept and not without.recordings
    assert without.notes == with_tables.notes + (["the series is not kept: that needs pyarrow"] if kept else [])


def test_the_recording_of_the_reader_is_not_measured_without_pyarrow(no_pyarrow):
    with pytest.raises(NotMeasured, match="no pyarrow"):
        CHECKS["nvml_recording"].function(World().machine())


def test_those_checks_need_numpy_alone():
    code = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.split('.')[0] in 'pyarrow duckdb ibis click rich urllib3 msgspec pandas torch pynvml cuda'.split():\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, No()); sys.path[:0] = ['.', 'src']\n"
        "import importlib\n"
        f"for name in {(*NEEDS_NO_TABLES, 'peaks', 'nvml_recording', 'gemm_ofu', 'tile_flops', 'model_step', 'benches')!r}:\n"
        "    importlib.import_module(f'gpu.check_{name}')\n"
        "from gpu.telemetry import plain_rows; from gpu.machine import Machine; from ullage.problems import Problems\n"
        "from tests.live.nvml_double import Gpu, Nvml\n"
        "nvml = Nvml([Gpu('GPU-1', activity=[{5: 50.0}])])\n"
        "one = Machine(nvml, nvml.gpus[0], 0, 'x', 'GPU-1', clock=lambda: 0, sleep=lambda seconds: None)\n"
        "print([row['tensor_active'] for row in plain_rows(one, 1, 0.5, Problems())])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[0.5, 0.5]\n", "")


# --- without nvidia-ml-py, cuda-bindings and PyTorch ---


def bare(gpu, folder):
    """Return what is known of a machine that has a driver and cuBLAS and no Python package for them, and the load that it has."""
    from tests.gpu.test_gpu_driver_load import gemm
    from tests.live.nvml_libraries import Double

    Double(folder)
    gpu.kernels["gemm"] = gemm
    patch = pytest.MonkeyPatch()
    patch.setattr("gpu.libraries.loaded", lambda name: cublas())
    try:
        one = machine()
        about, told, imported = described(one), versions(), "torch" in sys.modules
        patch.setitem(sys.modules, "torch", None)  # not installed: a load would ask it first
        with one.load(64) as work:
            pass
        facts = one.index, one.uuid, one.sms, one.sms_by_cuda, one.compute_capability, one.load_name, len(work.bursts) > 0
        return facts, about, told, imported
    finally:
        patch.undo()


needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc: the doubles can't be built")


@needs_gcc
def test_a_machine_with_little_more_than_a_driver_is_known_by_the_stand_ins_and_has_a_load(tmp_path):
    facts, about, told, imported = in_process_with_driver(partial(bare, folder=tmp_path), True)
    assert facts == (1, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", 132, 132, "9.0", "cuBLAS 13.1", True)
    assert (about["gpu"], about["driver"], about["cuda"]) == ("NVIDIA H200", "580.159.04", "13.0") and about["power_limit"] == 700
    assert told["nvidia-ml-py"] == told["cuda-bindings"] == "stand-in" and told["numpy"] not in (None, "stand-in")
    assert not imported, "importing PyTorch takes seconds"


def test_the_libraries_themselves_are_told_by_their_versions():
    for name, module in (("nvidia-ml-py", "pynvml"), ("cuda-bindings", "cuda.bindings")):
        pytest.importorskip(module)
        assert versions()[name][0].isdigit()


def test_pytorch_is_looked_for_when_a_check_asks_for_it_and_once():
    asked = []
    one = Machine(None, None, 0, "x", "GPU-1", find_torch=lambda: asked.append(1) or "torch")
    assert asked == [] and (one.torch, one.torch) == ("torch", "torch") and asked == [1]


def test_without_a_cuda_driver_there_is_no_load():
    one = machine(Nvml([Gpu("GPU-1")]), find_board=lambda: None)
    assert one.load is None and one.load_name is None and one.sms_by_cuda is None


@pytest.mark.parametrize("name", ["model_step", "trace_trees", "tile_flops", "gemm_ofu"])
def test_checks_that_need_pytorch_say_so(name):
    pytest.importorskip("msgspec")
    one = Machine(World(), None, 0, "x", "GPU-1", load=lambda *_: None, room=World().machine().room)
    with pytest.raises(NotMeasured, match="no PyTorch that sees the GPU"):
        CHECKS[name].function(one)
