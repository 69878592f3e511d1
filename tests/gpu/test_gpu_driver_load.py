"""The loads without PyTorch, by cuda-bindings and by its stand-in, on doubles of the driver and of cuBLAS; which load is chosen."""

from __future__ import annotations

import ctypes
import gc
import shutil
import threading
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from gpu.check import NotMeasured
from gpu.driver_load import kernel_of, normal_matrix, own_kernel, product_by, sized
from gpu.load import BURST, Load

from gpu import carried, driver_load
from tests.benches.emulated_gpu import emulated
from tests.cupti.cuda_double import cublas, in_process_with_driver
from tests.gpu.test_gpu_load import Torch
from ullage.benches.bench import Target
from ullage.benches.operands import BF16, FP16
from ullage.errors import UllageError

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc: the doubles of the driver and of cuBLAS can't be built")
BOTH = pytest.mark.parametrize("stand_in", [False, True], ids=["cuda-bindings", "stand-in"])
SIZE = 64


def on_gpu(function, stand_in=False, **given):
    """Return what a function of this module gives in a process with the doubles."""
    if not stand_in:
        pytest.importorskip("cuda.bindings.nvrtc")
    return in_process_with_driver(partial(function, **given), stand_in)


class Clock:
    """The host's seconds, which pass with the GPU's."""

    def __init__(self, gpu):
        self.gpu, self.rests = gpu, []

    def __call__(self):
        return 1000 + self.gpu.now / 1e9

    def sleep(self, seconds):
        self.rests.append(seconds)
        self.gpu.now += round(seconds * 1e9)


def gemm(launch, error=0.0, seen=None, half=False):
    """What the GPU does for a product of cuBLAS, columns first, in 5 ms: C = A·B."""
    m, n, k = (launch.integer(place) for place in (3, 4, 5))
    operand, kind = (FP16, np.float16) if half else (BF16, np.uint16)
    # a column of A after the other: as rows, it is A transposed
    a, b = (operand.decode(launch.array(place, kind, count)) for place, count in ((0, m * k), (1, k * n)))
    launch.array(2, kind, m * n)[:] = operand.encode(b.reshape(n, k) @ a.reshape(k, m) + error).reshape(-1)
    launch.gpu.now += 5_000_000
    if seen is not None:
        seen.append((a.any() or b.any(), a.std(), b.std()))


def load(gpu, make, bursts=5, size=SIZE, until=lambda work: False, **options):
    """Return the work of a load that ran for some bursts, its clock, and what is left on the GPU afterwards, at last its contexts."""
    clock = Clock(gpu)
    with driver_load.driver_load(make, size, clock=clock, sleep=clock.sleep, **options) as work:
        while len(work.bursts) < bursts and not until(work):
            threading.Event().wait(0.001)
    gc.collect()
    return work, clock, (gpu.blocks_of_memory, gpu.used, gpu.events, gpu.graphs, gpu.modules, gpu.contexts)


# --- cuBLAS ---


def by_cublas(gpu, body=gemm, **options):
    seen = []
    gpu.kernels["gemm"] = partial(body, seen=seen)
    work, clock, left = load(gpu, product_by(cublas()), **options)
    handles = ctypes.c_int.in_dll(cublas(), "handles").value
    return work.flops, work.dtype, work.bursts, clock.rests, left, handles, [bool(one) for one, *_ in seen], seen[0], gpu.replays


@BOTH
def test_cublas_keeps_the_gpu_busy_in_graphs_whose_flops_are_counted(stand_in):
    # 5 ms each, 25 ms a burst: 5 products of 2 × 64³ FLOPs
    flops, dtype, bursts, _, left, handles, _, (_, *deviations), replays = on_gpu(by_cublas, stand_in)
    assert BURST == 0.025 and flops == 5 * 2 * SIZE**3 and dtype == "bfloat16" and replays >= len(bursts) >= 5
    assert all(last - first == pytest.approx(0.025) for first, last in bursts)
    assert all(a[1] == pytest.approx(b[0]) for a, b in pairwise(bursts))
    assert deviations == pytest.approx([1, 1], abs=0.05), "normal numbers"
    assert (set(left[:-1]), handles) == ({0}, 0), "all is given back"
    assert left[-1] == 1, "but the context, which the library takes to be there when it is used again"


@BOTH
def test_gaps_come_between_stretches_of_work(stand_in):
    # 0.1 s on is four bursts of 25 ms, then 0.05 s of rest
    _, _, bursts, rests, *_ = on_gpu(by_cublas, stand_in, bursts=12, on=0.1, off=0.05)
    gaps = [b[0] - a[1] for a, b in pairwise(bursts)]
    assert {round(gap, 6) for gap in gaps} == {0.0, 0.05} and set(rests) == {0.05}


def test_operands_are_zero_only_where_that_is_asked_and_only_after_the_product_was_checked():
    *_, filled, _, _ = on_gpu(by_cublas)
    assert all(filled)
    *_, filled, _, _ = on_gpu(by_cublas, zeros=True)
    assert filled[0] and not any(filled[1:])


def test_half_precision_is_multiplied_as_such():
    flops, dtype, *_ = on_gpu(by_cublas, body=partial(gemm, half=True), dtype="float16")
    assert (flops, dtype) == (5 * 2 * SIZE**3, "float16")


def two_loads_by_cublas(gpu):
    gpu.kernels["gemm"] = gemm
    make = product_by(cublas())
    return [load(gpu, make)[2][-1] for _ in range(2)]


def test_the_context_is_held_once_however_often_the_library_is_used():
    assert on_gpu(two_loads_by_cublas) == [1, 1]


def refused(gpu, make, error, **options):
    """Return what a load raises, and what it left on the GPU."""
    said = "nothing"
    try:
        load(gpu, make, **options)
    except error as raised:
        said = str(raised)
    gc.collect()  # the events of the frames that the error went through
    return said, (gpu.blocks_of_memory, gpu.events, gpu.graphs, gpu.contexts - 1)


def a_wrong_product(gpu, error):
    gpu.kernels["gemm"] = partial(gemm, error=error)
    return refused(gpu, product_by(cublas()), ArithmeticError)


def test_a_product_is_refused_where_it_is_further_off_than_rounding_can_be():
    # 0.05 × √64 is 0.4; BF16 itself is up to 0.13 off at four deviations (32)
    said, left = on_gpu(a_wrong_product, error=0.6)
    assert said.startswith("a product of size 64 is wrong by 0.") and set(left) == {0}
    assert on_gpu(a_wrong_product, error=float("nan"))[0] == "a product of size 64 is wrong by nan"
    assert on_gpu(a_wrong_product, error=0.2)[0] == "nothing"


def a_driver_that_fails(gpu, after):
    gpu.kernels["gemm"] = gemm
    gpu.fail("cuGraphLaunch", 999, after=after)
    return refused(gpu, product_by(cublas()), UllageError, until=lambda work: work.failure is not None)


@BOTH
@pytest.mark.parametrize("after", [0, 4], ids=["at once", "later"])
def test_what_the_driver_refuses_is_raised_here(after, stand_in):
    said, left = on_gpu(a_driver_that_fails, stand_in, after=after)
    assert said.startswith("the CUDA driver refuses to launch a graph (CUDA_ERROR_UNKNOWN") and set(left) == {0}


def a_capture_that_breaks(gpu):
    """Fail while launches are captured: the first product, and eight of the warm-up, are not."""
    gpu.kernels["gemm"] = gemm
    gpu.fail("cuLaunchKernelEx", 1, after=10, times=1)
    first = refused(gpu, product_by(cublas()), UllageError)
    return first, load(gpu, product_by(cublas()))[0].flops


def test_a_capture_that_breaks_is_ended_so_that_the_next_can_begin():
    (said, left), flops = on_gpu(a_capture_that_breaks)
    assert said.startswith("cuBLAS answers 13 to cublasGemmEx") and set(left) == {0} and flops == 5 * 2 * SIZE**3


def test_large_matrices_are_made_of_fewer_numbers_and_their_rows_differ(monkeypatch):
    monkeypatch.setattr(driver_load, "POOL", 4096)
    small, large = (normal_matrix(np.random.default_rng(0), size, BF16) for size in (64, 200))
    assert small.shape == (64, 64) and len(np.unique(BF16.decode(small))) > 1000
    assert large.shape == (200, 200) and BF16.decode(large).std() == pytest.approx(1, abs=0.05)
    assert len(np.unique(large, axis=0)) > 190


# --- a kernel of ours ---


def tensor_work(launch, size, architecture, seen, error=0.0):
    """What the GPU does for the kernel: right, at 1 FLOP a picosecond."""
    target = Target(architecture, sms=132)
    case = sized(kernel_of(target, BF16), size)
    shapes = [array.shape for array in case.inputs(np.random.default_rng(0), "zero")]
    a, b = (launch.array(1 + place, np.uint16, int(np.prod(shape))).reshape(shape) for place, shape in enumerate(shapes))
    trips, (output,) = launch.integer(4), case.outputs
    right = case.reference((a, b), trips)[0] if trips < 10 else 0
    launch.array(3, np.float32, int(np.prod(output.shape))).reshape(output.shape)[:] = right + error
    launch.gpu.now += round(case.flops / case.trips * trips / 1e3)
    seen.append((trips, bool(a.any() or b.any())))


def by_own_kernel(gpu, capability=(9, 0), size=4096, error=0.0, **options):
    seen = []
    gpu.state.attributes[75], gpu.state.attributes[76] = capability
    architecture, name = {(9, 0): ("sm_90a", "wgmma"), (8, 0): ("sm_80", "mma")}[capability]
    gpu.kernels[name] = partial(tensor_work, size=size, architecture=architecture, seen=seen, error=error)
    work, _, left = load(gpu, own_kernel, size=size, **options)
    return work.flops, work.size, work.bursts, left, seen


@BOTH
@pytest.mark.parametrize(
    ("capability", "each"),
    [
        ((9, 0), 2 * 64 * 256 * 16 * 4 * 2 * 132),  # wgmma: slices of k, warp groups, SMs
        ((8, 0), 2 * 16 * 8 * 16 * 2 * 4 * 4 * 8 * 132),  # mma: tiles of a warp, passes, warps, SMs
    ],
    ids=["sm_90a", "sm_80"],
)
def test_a_kernel_of_ours_does_the_work_of_a_product_and_its_flops_are_counted(capability, each, stand_in):
    flops, size, bursts, left, seen = on_gpu(by_own_kernel, stand_in, capability=capability)
    (check, _), (trips, _) = seen[:2]
    assert check == 2 and trips * each == pytest.approx(2 * 4096**3, rel=0.01) and size == 4096
    # a launch takes 137 ms at 1 FLOP a picosecond: one is a burst
    assert flops == trips * each and bursts[0][1] - bursts[0][0] == pytest.approx(flops / 1e12) and set(left) == {0}
    assert all(filled for _, filled in seen)


def test_a_small_product_is_one_trip_at_least():
    assert sized(kernel_of(Target("sm_90a", sms=132), BF16), 16).trips == 1
    case = kernel_of(Target("sm_100a", sms=148), BF16)
    assert case.entry == "mma" and sized(case, 8192).flops == pytest.approx(2 * 8192**3, rel=0.01)


def test_zeros_come_after_the_check_of_our_kernel_too():
    *_, seen = on_gpu(by_own_kernel, zeros=True)
    assert seen[0] == (2, True) and not any(filled for _, filled in seen[1:])


def a_wrong_kernel(gpu):
    with pytest.raises(ArithmeticError) as raised:
        by_own_kernel(gpu, error=1e6)
    return str(raised.value)


def test_a_kernel_of_ours_that_is_wrong_is_refused():
    assert on_gpu(a_wrong_kernel).startswith("the result is wrong: ")


def without_a_compiler(gpu, folder):
    """Return what becomes of the load where NVRTC is missing: with nothing carried, and with the kernels in a folder."""

    def missing(*_):
        raise UllageError("there is no compiler")

    gone = pytest.MonkeyPatch()
    gone.setattr(driver_load, "compile_cubin", missing)
    gone.setattr(driver_load, "carried_cubin", partial(carried.carried_cubin, folder=folder))
    try:
        with pytest.raises(NotMeasured) as raised:
            by_own_kernel(gpu)
        carried.compile_kernels(folder)
        return str(raised.value), by_own_kernel(gpu)[0]
    finally:
        gone.undo()


def test_without_a_compiler_the_kernel_is_carried_or_there_is_no_load(tmp_path):
    said, flops = on_gpu(without_a_compiler, folder=tmp_path)
    assert said == "no load: no PyTorch, no cuBLAS, and no kernel of ours can be compiled (there is no compiler)"
    assert flops > 1e11 and len(list((tmp_path / "kernels").glob("sm_*.cubin"))) == 12


def test_a_carried_kernel_is_that_of_the_very_source(tmp_path):
    (tmp_path / "kernels").mkdir()
    carried._cubin(tmp_path, "a", "sm_80", ()).write_bytes(b"machine code")
    assert carried.carried_cubin("a", "sm_80", folder=tmp_path) == b"machine code"
    assert carried.carried_cubin("b", "sm_80", folder=tmp_path) is carried.carried_cubin("a", "sm_89", folder=tmp_path) is None


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which builds the model")
@pytest.mark.parametrize("architecture", ["sm_90a", "sm_80"])
def test_our_kernel_is_right_on_the_model_of_a_gpu(architecture, emulation_folder):
    assert emulated(sized(kernel_of(Target(architecture, sms=1), BF16), 512), emulation_folder) is None


# --- the choice ---


def chosen(gpu, torch=False, blas=True, environment=None, capability=(9, 0)):
    """Return the name of the load that a machine has."""
    gpu.state.attributes[75], gpu.state.attributes[76] = capability
    patch = pytest.MonkeyPatch()

    def loaded(name):
        if not blas:
            raise OSError("there is none")
        return cublas()

    patch.setattr("gpu.libraries.loaded", loaded)
    try:
        made = SimpleNamespace(__version__="2.11.0") if torch else None
        return Load(lambda: made, environment or {}).name
    except UllageError as error:
        return error.problem
    finally:
        patch.undo()


def test_pytorch_comes_before_cublas_and_cublas_before_a_kernel_of_ours():
    assert on_gpu(chosen, torch=True) == "PyTorch 2.11.0"
    assert on_gpu(chosen) == "cuBLAS 13.1"
    assert on_gpu(chosen, blas=False) == "own wgmma kernel"
    assert on_gpu(chosen, blas=False, capability=(8, 0)) == "own mma kernel"


def test_a_load_can_be_named_and_is_then_the_only_one():
    assert on_gpu(chosen, torch=True, environment={"ULLAGE_GPU_LOAD": "cublas"}) == "cuBLAS 13.1"
    assert on_gpu(chosen, torch=True, environment={"ULLAGE_GPU_LOAD": "own"}) == "own wgmma kernel"
    assert on_gpu(chosen, environment={"ULLAGE_GPU_LOAD": "torch"}) == "ULLAGE_GPU_LOAD asks for the load 'torch', which this machine lacks"
    assert on_gpu(chosen, environment={"ULLAGE_GPU_LOAD": "gemm"}) == "ULLAGE_GPU_LOAD is 'gemm'"


def test_the_chosen_load_is_called_as_pytorchs_is():
    torch = Torch()
    torch.__version__ = "2.11.0"
    with Load(lambda: torch, {})(64, "bfloat16", zeros=True) as work:
        while not work.bursts:
            threading.Event().wait(0.001)
    assert work.flops == 5 * 2 * 64**3
