"""The stand-ins for cuda-bindings: the harness measures by them what it measures by cuda-bindings, and the kernels are the same."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from gpu.libraries import installed, major

from gpu import BARE
from tests.benches import test_bench_device, test_bench_harness
from tests.benches.bench_cases import bench, case, work
from tests.cupti.cuda_double import in_process_with_driver, run_with_stand_in
from ullage.benches.result import record
from ullage.benches.running.driver import FATAL, bindings
from ullage.benches.running.harness import run
from ullage.benches.running.session import opened
from ullage.errors import UllageError
from ullage.kernels.compiling import ARCHITECTURES, compile_cubin, compiler_version

ROOT = Path(__file__).parents[2]
SOURCE = 'extern "C" __global__ void twice(int *out, const int *in) { out[threadIdx.x] = 2 * in[threadIdx.x]; }'
HARNESS = [
    test
    for module in (test_bench_device, test_bench_harness)
    for name, test in vars(module).items()
    if name.startswith("test_") and hasattr(test, "test")
]


def module_at(path, name):
    """Return a module of the stand-ins, whatever is installed."""
    specification = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


DRIVER = module_at(BARE / "cuda" / "bindings" / "driver.py", "stand_in_driver")
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc: the double of the CUDA driver can't be built")


@needs_gcc
@pytest.mark.parametrize("test", HARNESS, ids=lambda test: test.__name__)
def test_the_harness_holds_its_promises_by_the_stand_in(test):
    run_with_stand_in(test)


# --- the same results ---


def measured(gpu):
    """Return, as plain values, what a session on the double measures, refuses and says of its GPU."""
    gpu.kernels["work"] = work(cycles=185_600)
    cases = case(), case({"level": "L2"}, trips=50, cluster=2, grid=4, shared=100_000), case({"level": "none"}, shared=2**20)
    with opened(nvml=object(), torch=object(), today=lambda: datetime(2026, 3, 1, tzinfo=UTC)) as session:
        session.seed = 7
        found = record(run(bench(*cases), session))
        target, uuid, pci = session.target, session.device.uuid, session.device.pci
    del found["seconds"]
    return found, target, uuid, pci, gpu.launches, gpu.used, gpu.blocks_of_memory


@needs_gcc
def test_a_bench_measures_the_same_by_either():
    pytest.importorskip("cuda.bindings.driver")
    real, own = (in_process_with_driver(measured, stand_in) for stand_in in (False, True))
    assert real == own
    problems = [row["problem"] for row in own[0]["rows"]]
    assert problems[:2] == ["", ""] and "CUDA_ERROR_INVALID_VALUE" in problems[2]


# --- the same kernels ---


def compiled(gpu, architecture):
    """Return the compiler's version, a cubin and how a wrong kernel is refused."""
    refused = ""
    try:
        compile_cubin("nonsense", architecture)
    except Exception as error:
        refused = str(error)
    return compiler_version(), compile_cubin(SOURCE, architecture), compile_cubin(SOURCE, architecture, ("-lineinfo",)), refused


@needs_gcc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_compiler_makes_the_same_machine_code_by_either(architecture):
    pytest.importorskip("cuda.bindings.nvrtc")
    real, own = (in_process_with_driver(partial(compiled, architecture=architecture), stand_in) for stand_in in (False, True))
    assert real == own and own[1].startswith(b"\x7fELF") and own[1] != own[2] and "nonsense" in own[3]


def test_without_the_library_the_compilers_stand_in_can_not_be_imported(monkeypatch):
    def missing(name):
        raise OSError(f"there is no lib{name} on this machine that can be loaded")

    monkeypatch.setattr("gpu.libraries.loaded", missing)
    with pytest.raises(ImportError, match="there is no libnvrtc"):
        module_at(BARE / "cuda" / "bindings" / "nvrtc.py", "stand_in_nvrtc")


# --- numbers and names ---


def test_every_number_is_that_of_cuda_bindings():
    real = pytest.importorskip("cuda.bindings.driver")
    kinds = ("CUdevice_attribute", "CUfunction_attribute", "CUlaunchAttributeID", "CUstreamCaptureMode", "CUevent_flags")
    for kind in kinds:
        for member in getattr(DRIVER, kind):
            assert int(getattr(getattr(real, kind), member.name)) == member, member.name
    assert (int(real.CUresult.CUDA_SUCCESS), int(real.CUresult.CUDA_ERROR_NOT_READY)) == (0, 600)
    assert set(FATAL) <= set(real.CUresult.__members__), "the driver's names are cuda-bindings'"


def test_every_function_that_the_code_asks_for_is_there():
    files = [*(ROOT / "src" / "ullage" / "benches").rglob("*.py"), ROOT / "gpu" / "driver_stream.py", ROOT / "gpu" / "cublas.py"]
    words = {word for path in files if path.exists() for word in re.findall(r"\bcu[A-Z]\w+\b", path.read_text())}
    asked = {word for word in words if not re.match(r"cu(da|blas|BLAS)", word)}
    assert len(asked) > 25 and {name for name in asked if not hasattr(DRIVER, name)} == set()
    compiling = (ROOT / "src" / "ullage" / "kernels" / "compiling.py").read_text()
    own = (BARE / "cuda" / "bindings" / "nvrtc.py").read_text()
    names = set(re.findall(r"\bnvrtc\.(nvrtc\w+)", compiling))
    assert len(names) > 8 and {name for name in names if not re.search(rf"^(def|class) {name}\b", own, re.MULTILINE)} == set()


def test_the_stand_ins_are_found_only_where_the_libraries_are_not():
    for name in ("pynvml", "cuda.bindings"):
        pytest.importorskip(name)
        assert not Path(importlib.util.find_spec(name).origin).is_relative_to(BARE)


def test_without_a_driver_that_is_said(monkeypatch):
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        monkeypatch.setattr("ullage.benches.running.driver.importlib.import_module", lambda name: DRIVER)
        with pytest.raises(UllageError, match="no NVIDIA driver answers on this machine"):
            bindings()
    else:
        pytest.skip("this machine has an NVIDIA driver")


def asked_of_an_old_driver(gpu):
    """Return what is said of a driver that lacks a function."""
    import cuda.bindings.driver as driver

    with pytest.raises(RuntimeError) as raised:
        driver._asking("cuNeverWas")()
    return str(raised.value)


@needs_gcc
def test_a_function_that_the_driver_lacks_is_named():
    assert in_process_with_driver(asked_of_an_old_driver, True) == "function cuNeverWas is not found in this driver"


# --- where libraries lie ---


def made(*paths):
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return paths


def test_a_wheels_library_comes_before_a_toolkits_and_the_newest_first(tmp_path):
    site, toolkits = tmp_path / "site", tmp_path / "local"
    wheel, older = made(site / "nvidia/cu13/lib/libnvrtc.so.13", site / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
    named = made(tmp_path / "home/lib64/libnvrtc.so.13")
    newest, next_one = made(
        toolkits / "cuda-13.1/lib64/libnvrtc.so.13.1.20", toolkits / "cuda-12.9/targets/x86_64-linux/lib/libnvrtc.so.12"
    )
    made(site / "nvidia/cu13/lib/libnvrtc-builtins.so.13.0", site / "nvidia/cu13/lib/libnvrtc.so.13.alt")
    found = list(installed("nvrtc", ["", str(site)], {"CUDA_HOME": str(tmp_path / "home")}, toolkits))
    assert found == [wheel, older, *named, newest, next_one]
    assert [major(path) for path in found[-2:]] == [13, 12]
