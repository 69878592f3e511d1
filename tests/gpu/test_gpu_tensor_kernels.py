"""The tensor-core kernels of the GPU checks: what they compute, by a model of PTX and by NVIDIA's assembler, and how they are launched."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gpu.cupti_device import SPIN_PTX
from gpu.tensor_kernels import INCREMENT_PTX, MMA_FLOPS, SUMS, WARPS, mma_kernel, mma_ptx, steady_load, trips_lasting, wgmma_kernel

from gpu import cupti_counters_program, cupti_pc_program, tensor_kernels
from tests.benches.ptx_model import Thread
from ullage.benches import ptx_wgmma
from ullage.benches.operands import BF16, FP32, product
from ullage.errors import UllageError

NOTES = 4096  # an address


def ran(ptx, trips, precision="bf16"):
    return Thread(ptx.decode().rstrip("\0"), {"notes": NOTES, "trips": trips}).run()


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("trips", [1, 2, 100])
def test_the_kernel_multiplies_as_often_as_its_flops_say_and_finds_its_sums_right(precision, trips):
    thread = ran(mma_ptx(precision), trips)
    assert thread.issued["mma"] == SUMS * trips
    assert (thread.memory[NOTES], thread.memory[NOTES + 4]) == (0, 1)  # no wrong sum, one thread
    assert thread.registers["%c0"] == trips and thread.registers[f"%c{4 * SUMS - 1}"] == SUMS - 1 + trips


@pytest.mark.parametrize(
    ("given", "instead", "bad"),
    [
        ("0x3D803D80", "0x3E003E00", 4 * SUMS),  # 1/8 in place of 1/16: all sums grow by 2
        ("{%c0, %c1, %c2, %c3}, {%a, %a, %a, %a}", "{%c4, %c5, %c6, %c7}, {%a, %a, %a, %a}", 8),  # into another sum
        ("mov.f32 %c5, 0f3F800000", "mov.f32 %c5, 0f7FC00000", 1),  # not a number
    ],
)
def test_a_kernel_whose_sums_are_wrong_counts_them(given, instead, bad):
    ptx = mma_ptx("bf16").decode()
    assert given in ptx
    assert ran(ptx.replace(given, instead, 1).encode(), 3).memory[NOTES] == bad


def test_the_number_that_a_checkpoint_is_to_bring_back_grows_by_one():
    thread = Thread(INCREMENT_PTX.decode().rstrip("\0"), {"number": NOTES})
    thread.memory[NOTES] = 41
    assert thread.run().memory[NOTES] == 42


def tool(name):
    """Return a program of NVIDIA's toolkit; skips without."""
    places = [Path(place, "nvidia/cu13/bin", name) for place in sys.path]
    return next((str(path) for path in places if path.is_file()), None) or shutil.which(name) or pytest.skip(f"no {name}")


def assembled(folder, ptx, architecture):
    """Return the machine code that NVIDIA's assembler makes of PTX, as text."""
    (folder / "kernel.ptx").write_bytes(ptx.rstrip(b"\0"))
    subprocess.run([tool("ptxas"), f"-arch={architecture}", "-o", folder / "kernel.cubin", folder / "kernel.ptx"], check=True)
    return subprocess.run([tool("nvdisasm"), "-c", folder / "kernel.cubin"], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_nvidias_assembler_makes_tensor_instructions_of_it_and_leaves_none_out(tmp_path, architecture):
    for precision, opcode in (("bf16", "HMMA.16816.F32.BF16"), ("fp16", "HMMA.16816.F32")):
        found = re.findall(r"HMMA\.\S+", assembled(tmp_path, mma_ptx(precision), architecture))
        # the loop is unrolled, each time with all its sums
        assert set(found) == {opcode} and len(found) % SUMS == 0


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_the_sampled_kernel_calls_a_function_of_its_own_in_ptx_too(tmp_path, architecture):
    assert re.search(r"CALL\.\S+ .*_Z6calledf", assembled(tmp_path, cupti_pc_program.SOURCE_PTX, architecture))


@pytest.mark.parametrize("ptx", [SPIN_PTX, INCREMENT_PTX])
def test_the_other_kernels_are_assembled(tmp_path, ptx):
    assert "EXIT" in assembled(tmp_path, ptx, "sm_90")


# --- how they are launched ---


class Device:
    """The driver, as far as kernels are launched by it: memory is the host's, and what a kernel does is done by `kernels`, by name."""

    sms = 4

    def __init__(self, architecture="sm_90", compiles=True, **kernels):
        self.architecture, self.compiles, self.kernels, self.launches, self.held = architecture, compiles, kernels, [], []

    def module(self, code):
        if not self.compiles and code.lstrip().startswith(b".version"):
            raise UllageError("the CUDA driver answers 221 to cuModuleLoadData (it has no PTX compiler here)")
        return code

    def function(self, module, name):
        return name

    def room(self, size):
        self.held.append((ctypes.c_uint8 * size)())
        return ctypes.c_void_p(ctypes.addressof(self.held[-1]))

    def copy(self, to, data):
        ctypes.memmove(to, data, ctypes.sizeof(data))

    def fetch(self, data, source):
        ctypes.memmove(data, source, ctypes.sizeof(data))
        return data

    def use(self):
        pass

    def wait(self):
        pass

    def launch(self, name, grid, block, *parameters, shared=0):
        self.launches.append((name, grid, block, shared))
        if name in self.kernels:
            self.kernels[name](grid, block, *parameters)


def counting(bad=0, threads=None):
    """Return what the kernel by `mma` does to its notes."""

    def kernel(grid, block, notes, trips):
        words = (ctypes.c_uint32 * 2).from_address(notes.value)
        words[0] += bad
        words[1] += grid * block if threads is None else threads

    return kernel


def test_a_launch_has_a_block_of_eight_warps_on_every_sm_and_flops_to_match():
    device = Device(tensor=counting())
    kernel = mma_kernel(device)
    kernel.launch(10)
    assert device.launches == [("tensor", 4, 32 * WARPS, 0)] and kernel.problem() == ""
    # 4 SMs × 8 warps × 8 instructions × 2·16·8·16
    assert kernel.flops == 4 * 8 * 8 * 4096 == device.sms * WARPS * SUMS * MMA_FLOPS


@pytest.mark.parametrize(
    ("kernel", "words"), [(counting(bad=3), "3 sums are wrong"), (counting(threads=5), "5 threads ran, and 1,024 were")]
)
def test_wrong_sums_and_missing_threads_are_a_problem(kernel, words):
    made = mma_kernel(Device(tensor=kernel))
    made.launch(1)
    assert made.problem().startswith(words)


@pytest.mark.parametrize("trips", [0, tensor_kernels.MOST_TRIPS + 1])
def test_trips_that_the_sums_could_not_count_are_refused(trips):
    with pytest.raises(ValueError, match="trips"):
        mma_kernel(Device()).launch(trips)


def wgmma(wrong=0.0):
    """Return what the kernel by `wgmma` computes, from what it is given in memory."""
    one = ptx_wgmma.Wgmma(BF16, FP32, tensor_kernels.WGMMA_N)
    rows, width = 128, one.slices * one.real_k

    def kernel(grid, block, clocks, a, b, d, trips):
        given = [
            np.frombuffer((ctypes.c_uint16 * (n * width)).from_address(at.value), np.uint16).reshape(n, width)
            for at, n in ((a, rows), (b, 256))
        ]
        (result,) = product(BF16, FP32, tuple(given), trips.value * one.rounds)
        to = np.frombuffer((ctypes.c_float * (rows * 256)).from_address(d.value), np.float32).reshape(rows, 256)
        to[:] = result
        to[0, 0] += wrong

    return kernel


@pytest.mark.parametrize(("wrong", "words"), [(0.0, ""), (1e6, "the result is wrong")])
def test_the_kernel_by_wgmma_is_the_benches_and_compared_with_its_reference(wrong, words):
    pytest.importorskip("cuda.bindings.nvrtc")
    device = Device(wgmma=wgmma(wrong))
    kernel = wgmma_kernel(device)
    # two warp groups a block, 4 instructions of 64 × 256 × 16 each in a trip
    assert kernel.flops == 4 * 2 * 4 * 2 * 64 * 256 * 16
    assert kernel.problem().startswith(words) and bool(kernel.problem()) == bool(words)
    assert device.launches[0] == ("wgmma", 4, 256, 49152)


def test_hopper_has_both_kernels_and_others_one_with_the_reason():
    pytest.importorskip("cuda.bindings.nvrtc")
    kernels, missing = tensor_kernels.tensor_kernels(Device())
    assert ([kernel.name for kernel in kernels], missing) == (["wgmma m64n256k16", "mma.sync m16n8k16"], [])
    kernels, missing = tensor_kernels.tensor_kernels(Device("sm_80"))
    assert ([kernel.name for kernel in kernels], missing) == (["mma.sync m16n8k16"], ["wgmma kernel: sm_80 has no wgmma"])


def test_without_any_compiler_it_is_said_what_is_missing(monkeypatch):
    def no_nvrtc(*_):
        raise UllageError("there is no NVRTC")

    monkeypatch.setattr(tensor_kernels, "compile_cubin", no_nvrtc)
    with pytest.raises(
        UllageError, match=r"no tensor-core kernel runs here: wgmma kernel: there is no NVRTC; mma kernel: .* no PTX compiler"
    ):
        tensor_kernels.tensor_kernels(Device(compiles=False))


def test_trips_are_as_many_as_last_so_long():
    # a trip takes 1 µs; timed with 16384 of them, the first that last over 10 ms
    now = [0.0]

    def kernel(grid, block, notes, trips):
        now[0] += 1e-6 * trips.value

    device = Device(tensor=kernel)
    assert trips_lasting(device, mma_kernel(device), 0.025, clock=lambda: now[0]) == 25_000
    assert trips_lasting(device, mma_kernel(device), 1e-9, clock=lambda: now[0]) == 1


def test_a_steady_load_goes_on_burst_by_burst_while_the_body_runs(monkeypatch):
    monkeypatch.setattr(tensor_kernels, "trips_lasting", lambda *_: 5)
    device = Device(tensor=counting())
    with steady_load(device, mma_kernel(device)) as work:
        while len(work.bursts) < 3:
            time.sleep(0.001)
    count = len(work.bursts)
    assert count >= 3 and len(device.launches) in (count, count + 1)
    assert all(begin <= end for begin, end in work.bursts)


@pytest.mark.parametrize(("kernel", "error"), [(counting(bad=1), ArithmeticError), ((lambda *_: 1 / 0), ZeroDivisionError)])
def test_a_load_that_goes_wrong_is_told_when_the_body_ends(monkeypatch, kernel, error):
    monkeypatch.setattr(tensor_kernels, "trips_lasting", lambda *_: 5)
    device = Device(tensor=kernel)
    with pytest.raises(error), steady_load(device, mma_kernel(device)):
        while not device.launches:
            time.sleep(0.001)


# --- as work to be counted ---


def test_kernels_of_ours_are_counted_for_few_and_for_many_trips(monkeypatch):
    told = []
    monkeypatch.setattr(cupti_counters_program, "tell", lambda **facts: told.append(facts))
    works = list(cupti_counters_program.own_works(Device("sm_80", tensor=counting())))
    each = 4 * WARPS * SUMS * MMA_FLOPS
    assert [(work.kind, work.size, work.flops) for work in works] == [
        ("mma.sync m16n8k16", 64, 64 * each),
        ("mma.sync m16n8k16", 4096, 4096 * each),
    ]
    works[0].run()
    assert works[0].problem() == "" and told == [{"missing": ["wgmma kernel: sm_80 has no wgmma"]}]


def test_a_number_of_ours_grows_and_is_set_back():
    def increment(grid, block, number):
        ctypes.c_uint32.from_address(number.value).value += 1

    number = cupti_counters_program.own_number(Device(increment=increment))
    number.grow(), number.reset(), number.grow()
    assert number.value() == 1.0


class Torch:
    """PyTorch, as far as a number and products are made by it; `waits` counts the times that the GPU was waited for."""

    def __init__(self):
        self.waits = 0
        self.cuda = SimpleNamespace(synchronize=self.wait)

    def wait(self):
        self.waits += 1

    def zeros(self, size, device):
        return Number()


class Number:
    value = 0

    def add_(self, more):
        self.value += more

    def zero_(self):
        self.value = 0

    def item(self):
        return self.value


def test_a_number_of_pytorchs_does_the_same():
    torch = Torch()
    number = cupti_counters_program.torch_number(torch)
    number.grow(), number.reset(), number.grow()
    assert (number.value(), torch.waits) == (1.0, 3)


def test_products_that_pytorch_cannot_make_say_so_and_the_others_run(monkeypatch):
    runs = []

    def product(torch, shape, precision):
        if precision == "fp8":
            raise TypeError("no such type")
        return SimpleNamespace(run=lambda: runs.append(shape.m), wrong=lambda: None)

    monkeypatch.setattr(cupti_counters_program, "product", product)
    torch = Torch()
    works = list(cupti_counters_program.torch_works(torch))
    assert [(work.precision, work.size, work.problem()) for work in works] == [
        ("bf16", 1024, ""), ("bf16", 4096, ""), ("fp8", 1024, "TypeError: no such type"), ("fp8", 4096, "TypeError: no such type"),
    ]  # fmt: skip
    works[1].run()
    assert (runs, torch.waits, works[1].flops) == ([4096], 1, 2 * 4096**3)
