"""The device and its driver, through the real cuda-bindings, on a double of libcuda.so.1."""

import numpy as np
import pytest

from tests.benches.bench_cases import case, reference
from tests.cupti.cuda_double import ILLEGAL_ADDRESS, run_with_stand_in, with_driver
from ullage.benches.bench import TensorMap
from ullage.benches.running.board import architecture_of
from ullage.benches.running.device import Arguments, HangError, Launch, open_device
from ullage.benches.running.driver import CudaError
from ullage.benches.running.kernel_case import KernelQueue, check, loaded
from ullage.errors import UllageError
from ullage.kernels.compiling import compile_cubin

DOUBLE = 'extern "C" __global__ void twice(int *out, const int *in, int factor) { out[threadIdx.x] = in[threadIdx.x] * factor; }'


def twice(launch):
    count = launch.block[0]
    launch.array(0, np.int32, count)[:] = launch.array(1, np.int32, count) * launch.integer(2)
    launch.gpu.now += 1_000_000


def problem(action):
    with pytest.raises(UllageError) as caught:
        action()
    return caught.value.problem


@with_driver
def test_a_target_is_what_the_driver_says_of_the_gpu(gpu):
    with_device = open_device()
    target = with_device.target()
    assert (target.architecture, target.name, target.sms) == ("sm_90a", "NVIDIA H200", 132)
    assert (target.l1, target.l2, target.memory) == (256 * 1024, 50 * 2**20, 1 << 30)
    assert (target.shared_per_block, target.shared_per_sm) == (232_448, 233_472)
    assert with_device.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert (with_device.pci, with_device.cuda) == ("0000:1B:00.0", (13, 0))


@with_driver
def test_a_launch_hands_over_pointers_then_integers_and_the_events_around_it_tell_its_time(gpu):
    gpu.kernels["twice"] = twice
    device = open_device()
    kernel = device.kernel(compile_cubin(DOUBLE, "sm_90a"), "twice", Launch(1, 4))
    out, into = device.poisoned(16), device.upload(np.array([1, 2, 3, 4], np.int32))
    begin = device.mark()
    device.run(kernel, Arguments([out, into], [-3]))
    end = device.mark()
    device.wait()
    assert device.download(out, (2, 2), np.int32).tolist() == [[-3, -6], [-9, -12]]
    assert device.seconds(begin, end) == pytest.approx(1e-3)


@with_driver
def test_memory_is_poisoned_until_a_kernel_writes_it(gpu):
    device = open_device()
    assert np.isnan(device.download(device.poisoned(8), (2,), np.float32)).all()


@with_driver
def test_an_array_that_repeats_one_byte_is_filled_in_on_the_gpu_and_every_other_one_copied(gpu):
    device = open_device()
    made = []
    contiguous = np.ascontiguousarray
    for array in (np.broadcast_to(np.uint64(0), 1000), np.broadcast_to(np.int16(-1), (10, 20)), np.broadcast_to(np.uint16(7), 9),
                  np.broadcast_to(np.arange(3), (2, 3)), np.zeros((4, 5)), np.zeros(0), np.broadcast_to(np.uint8(5), 1)):  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(np, "ascontiguousarray", lambda one: made.append(one.shape) or contiguous(one))
            address = device.upload(array)
        assert (device.download(address, array.shape, array.dtype) == array).all(), array.shape
    assert made == [(9,), (2, 3), (4, 5), (0,), (1,)]  # 7 as 16 bits is 7 and 0: no single byte


@with_driver
def test_grid_block_cluster_and_shared_memory_arrive_as_asked(gpu):
    seen = []
    gpu.kernels["twice"] = seen.append
    device = open_device()
    kernel = device.kernel(compile_cubin(DOUBLE, "sm_90a"), "twice", Launch((32, 2, 1), (64, 2, 2), cluster=16, shared=200 * 1024))
    device.run(kernel, Arguments([0, 0], [1]))
    (launch,) = seen
    assert (launch.grid, launch.block, launch.cluster, launch.shared) == ((32, 2, 1), (64, 2, 2), (16, 1, 1), 204_800)
    assert (launch.shared_allowed, launch.wide_clusters) == (204_800, True)


MAPS = (
    (TensorMap(0, (512,), (256,)), [1, 0, 512, 1, 1, 256, 1, 1]),
    (TensorMap(0, (8, 64), (4, 32), 32), [2, 32, 8, 64, 1, 4, 32, 1]),
    (TensorMap(0, (16, 8, 4), (16, 4, 2), 128), [3, 128, 16, 8, 4, 16, 4, 2]),
)


@with_driver
def test_a_tensor_map_says_where_the_tensor_lies_and_how_it_is_cut(gpu):
    device = open_device()
    values = device.upload(np.zeros(512, np.uint64))
    for seen, told in MAPS:
        assert device.download(device.tensor_map(values, seen), (9,), np.uint64).tolist() == [values, *told]


def test_it_says_so_by_the_driver_without_cuda_bindings_too():
    run_with_stand_in(test_a_tensor_map_says_where_the_tensor_lies_and_how_it_is_cut)


@with_driver
def test_a_box_that_is_wider_than_its_swizzle_or_than_256_elements_is_refused(gpu):
    device = open_device()
    values = device.upload(np.zeros(1024, np.uint64))
    for seen in (TensorMap(0, (16, 64), (16, 4), 64), TensorMap(0, (1024,), (258,)), TensorMap(0, (9, 64), (2, 2))):
        with pytest.raises(CudaError, match="refuses a tensor map"):
            device.tensor_map(values, seen)


@with_driver
def test_a_kernel_gets_its_tensor_maps_behind_its_outputs(gpu):
    seen = []

    def mapped(launch):
        seen.append((launch.array(3, np.uint64, 3)[:2].tolist(), launch.array(1, np.int32, 32).ctypes.data, launch.integer(4)))
        launch.array(2, np.int32, 32)[:] = reference((launch.array(1, np.int32, 32),), launch.integer(4))[0]

    gpu.kernels["work"] = mapped
    device = open_device()
    one = case(maps=(TensorMap(0, (16,), (16,)),))
    queue = KernelQueue(one, device, loaded(one, device, "sm_90a"), one.inputs(np.random.default_rng(0), "random"))
    check(queue)
    ((map_, place, trips),) = seen
    assert (map_, trips) == ([place, 1], one.check_trips)


@with_driver
def test_pinned_memory_goes_to_the_gpu_and_comes_back(gpu):
    device = open_device()
    there, back, address = device.pinned(4), device.pinned(4), device.allocate(4)
    other = device.allocate(4)
    there[:] = [1, 2, 3, 4]
    device.copy(address, there, 4)
    device.copy(other, address, 4)
    device.copy(back, other, 4)
    device.wait()
    assert back.tolist() == [1, 2, 3, 4]


@with_driver
def test_release_and_close_give_everything_back(gpu):
    device = open_device()
    device.upload(np.zeros(1000))
    device.upload(np.zeros(0))
    device.pinned(100)
    device.kernel(compile_cubin(DOUBLE, "sm_90a"), "twice", Launch(1, 1))
    device.mark()
    assert (gpu.blocks_of_memory, gpu.hosts, gpu.modules, gpu.events) == (2, 1, 1, 1)
    device.release()
    assert (gpu.blocks_of_memory, gpu.hosts, gpu.modules, gpu.events, gpu.used) == (0, 0, 0, 0, 0)
    device.close()
    device.close()
    assert gpu.contexts == 0


@with_driver
def test_too_much_memory_is_refused_with_the_size_and_the_drivers_own_words(gpu):
    device = open_device()
    assert problem(lambda: device.allocate(2**40)) == (
        "the CUDA driver refuses 1,099,511,627,776 bytes of memory (CUDA_ERROR_OUT_OF_MEMORY: out of memory)"
    )
    device.allocate(2**20)  # and the context is as good as before


@with_driver
def test_a_kernel_that_wants_more_shared_memory_than_there_is_is_named(gpu):
    device = open_device()
    cubin = compile_cubin(DOUBLE, "sm_90a")
    asked = problem(lambda: device.kernel(cubin, "twice", Launch(1, 1, shared=300_000)))
    assert asked.startswith("the CUDA driver refuses 300,000 bytes of shared memory a block (CUDA_ERROR_INVALID_VALUE")
    assert "the kernel 'thrice' (CUDA_ERROR_NOT_FOUND" in problem(lambda: device.kernel(cubin, "thrice", Launch(1, 1)))
    assert "to load the kernel 'twice'" in problem(lambda: device.kernel(b"no cubin", "twice", Launch(1, 1)))


@with_driver
def test_an_illegal_address_spoils_the_context_and_a_new_one_computes_again(gpu):
    gpu.kernels["twice"] = lambda launch: ILLEGAL_ADDRESS
    device = open_device()
    cubin = compile_cubin(DOUBLE, "sm_90a")
    device.run(device.kernel(cubin, "twice", Launch(1, 4)), Arguments([0, 0], [1]))
    with pytest.raises(CudaError, match="ILLEGAL_ADDRESS: an illegal memory access") as caught:
        device.wait()
    assert caught.value.fatal
    device.notice(caught.value)
    assert "ILLEGAL_ADDRESS" in device.lost
    assert "ILLEGAL_ADDRESS" in problem(lambda: device.allocate(4))  # it stays so until there is another context
    device.reopen()
    assert (device.lost, gpu.resets) == ("", 1)
    gpu.kernels["twice"] = twice
    out, into = device.poisoned(16), device.upload(np.ones(4, np.int32))
    device.run(device.kernel(cubin, "twice", Launch(1, 4)), Arguments([out, into], [5]))
    assert device.download(out, (4,), np.int32).tolist() == [5] * 4


@with_driver
def test_a_kernel_that_does_not_end_is_given_up_and_nothing_more_is_tried(gpu):
    device = open_device()
    clock = iter(range(1000))
    device.now, device.sleep = lambda: next(clock), lambda seconds: None
    gpu.state.hangs = 1
    with pytest.raises(HangError, match="a kernel did not end within 7 s") as caught:
        device.wait(7)
    device.notice(caught.value)
    assert device.stuck
    with pytest.raises(HangError):
        device.reopen()
    device.release()  # would block on a GPU that is busy: nothing is freed
    device.close()


@with_driver
def test_no_gpu_and_a_wrong_number_are_told_apart(gpu):
    assert problem(lambda: open_device(1)) == "there is no GPU 1: the CUDA driver shows 1 GPU"
    assert problem(lambda: open_device(-1)) == "there is no GPU -1: the CUDA driver shows 1 GPU"
    gpu.state.devices = 0
    assert "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected" in problem(open_device)


@with_driver
def test_a_mig_slice_is_refused(gpu):
    gpu.state.name = b"NVIDIA H200 MIG 1g.18gb"
    assert problem(open_device) == "GPU 0 is a MIG slice (NVIDIA H200 MIG 1g.18gb)"


@with_driver
def test_a_driver_that_was_updated_and_not_loaded_is_named_with_its_remedy(gpu):
    gpu.fail("cuInit", 803)
    with pytest.raises(UllageError) as caught:
        open_device()
    assert "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" in caught.value.problem
    assert "restart" in caught.value.hint


@with_driver
def test_a_gpu_without_kernels_says_for_which_there_are_some(gpu):
    gpu.state.attributes[75], gpu.state.attributes[76], gpu.state.name = 7, 5, b"Tesla T4"
    assert problem(lambda: open_device().target()) == "Tesla T4 has compute capability 7.5, for which there are no kernels"


def test_each_capability_runs_kernels_of_its_own_or_of_its_family():
    assert [architecture_of(c) for c in ((8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0))] == [
        "sm_80", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a",
    ]  # fmt: skip


def test_without_a_driver_the_error_says_so(monkeypatch):
    class Missing:
        def __getattr__(self, name):
            raise RuntimeError('"cuda" is an NVIDIA driver library')

    import ullage.benches.running.driver as module

    monkeypatch.setattr(module.importlib, "import_module", lambda name: Missing())
    assert problem(module.bindings) == "no NVIDIA driver answers on this machine"


def test_without_cuda_bindings_the_error_names_the_extra(monkeypatch):
    import ullage.benches.running.driver as module

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(module.importlib, "import_module", missing)
    assert problem(module.bindings) == "running microbenchmarks needs the library 'cuda-bindings', which is not installed"


def test_a_driver_that_lacks_a_function_is_too_old(monkeypatch):
    import ullage.benches.running.driver as module

    class Old:
        def cuInit(self, flags):
            raise RuntimeError("function cuInit is not found")

    monkeypatch.setattr(module.importlib, "import_module", lambda name: Old())
    assert problem(module.bindings) == "the NVIDIA driver is too old for this cuda-bindings (function cuInit is not found)"
