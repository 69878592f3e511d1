"""PM sampling as telemetry: hardware samples added up by hand, what is lost, what is asked of a chip, and why it is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from tests.cupti import cupti_double
from tests.cupti.cupti_counting import KERNELS, WORK, called, double, real
from ullage.cli import cli
from ullage.cupti.counters.host import Host, Use
from ullage.cupti.counters.pm import Samples
from ullage.cupti.metric_names import dictionary
from ullage.cupti.results import CuptiError
from ullage.cupti.surroundings import Surroundings
from ullage.errors import UllageError
from ullage.live.cuda_devices import CudaDevice, cuda_devices
from ullage.live.sampling import pm
from ullage.live.sampling.pm import CYCLES, STEP, CycleTally, explained, metrics
from ullage.problems import Problems
from ullage.sources.machine import GpuLibrary
from ullage.sources.source import Options
from ullage.sums.devices import device_sums
from ullage.sums.windows import settle
from ullage.tables import samples

GPU = CudaDevice(0, "GPU-1", "NVIDIA A100-SXM4-80GB")
NAMES = {CYCLES: "cycles", "tensor_active": "tensor", "sm_active": "sm", "dram_active": "dram"}
MS = 1_000_000


def taken(*rows, start=1000 * MS, gaps=(), **more):
    """Samples one after another: (ms, cycles, tensor %, sm %, dram %); before those whose number is in `gaps` a ms is missing."""
    begins, at = [], start
    for number, row in enumerate(rows):
        at += MS if number in gaps else 0
        begins.append(at)
        at += row[0] * MS
    begin = np.array(begins, np.int64)
    end = begin + np.array([row[0] * MS for row in rows], np.int64)
    return Samples(begin, end, tuple(NAMES.values()), np.array([row[1:] for row in rows], float), **more)


# -- what samples come to ---------------------------------------------------------------------------------------------


def test_cycles_weigh_shares_of_cycles_and_time_weighs_shares_of_time():
    # 1 ms at 1.0 GHz, all tensor; 3 ms at 2.0 GHz, a quarter tensor: (1e6 + 1.5e6) of 7e6 cycles; 7e6 cycles in 4 ms are 1.75 GHz;
    # memory is active for all of the first ms and none of the rest: a quarter
    told = CycleTally(NAMES).take(taken((1, 1e6, 100, 100, 100), (3, 6e6, 25, 50, 0)))
    assert told["tensor_active"] == pytest.approx(2.5 / 7)
    assert told["sm_active"] == pytest.approx(4 / 7)
    assert told["dram_active"] == pytest.approx(0.25)
    assert told["sm_clock"] == pytest.approx(1.75e9)
    assert (told["sm_cycles"], told["sm_active_cycles"], told["tensor_cycles"]) == (7_000_000, 4_000_000, 2_500_000)


def test_counters_go_on_from_reading_to_reading():
    tally = CycleTally(NAMES)
    tally.take(taken((1, 1e6, 100, 100, 0)))
    told = tally.take(taken((1, 1e6, 50, 100, 0), start=1001 * MS))
    assert (told["sm_cycles"], told["tensor_cycles"], told["tensor_active"]) == (2_000_000, 1_500_000, 0.5)


def test_after_a_gap_the_shares_are_told_and_the_counters_are_not():
    # 2 ms of samples and one ms missing between them: a third
    tally = CycleTally(NAMES)
    told = tally.take(taken((1, 1e6, 50, 50, 0), (1, 1e6, 50, 50, 0), gaps=(1,)))
    assert told["tensor_active"] == 0.5 and "sm_cycles" not in told and "tensor_cycles" not in told
    assert tally.lost == MS
    assert "sm_cycles" in tally.take(taken((1, 1e6, 50, 50, 0), start=1003 * MS))


def test_a_gap_before_the_samples_of_a_reading_counts_too():
    tally = CycleTally(NAMES)
    tally.take(taken((1, 1e6, 50, 50, 0)))
    assert "sm_cycles" not in tally.take(taken((1, 1e6, 50, 50, 0), start=1500 * MS))
    assert tally.lost == 499 * MS


def test_what_could_not_be_computed_is_missing_and_not_zero():
    told = CycleTally(NAMES).take(taken((1, 1e6, np.nan, 50, 10), (1, 1e6, 40, 50, np.nan)))
    assert (told["tensor_active"], told["dram_active"]) == (0.4, 0.1)
    assert "tensor_active" not in CycleTally(NAMES).take(taken((1, 1e6, np.nan, 50, 0)))
    assert "tensor_cycles" not in CycleTally(NAMES).take(taken((1, 1e6, np.nan, 50, 0)))
    lost = CycleTally(NAMES).take(taken((1, np.nan, 50, 50, 10)))
    assert lost == {"dram_active": 0.1}


def test_settled_samples_have_the_exact_growth_and_the_true_clock():
    # per 500 ms 0.7e9 cycles, 40 % of them tensor: 1.4 GHz and 0.28e9 a reading
    tally, rows = CycleTally(NAMES), []
    for step in range(4):
        told = tally.take(taken((500, 0.7e9, 40, 50, 0), start=500 * step * MS))
        rows.append({"time": 1_767_225_600_000 + 500 * step, "gpu": "GPU-1", "model": GPU.name, **told})
    batch = samples({name: [row[name] for row in rows] for name in rows[0]})
    import ibis

    [sums] = device_sums(ibis.memtable(settle(pa.Table.from_batches([batch])))).to_pyarrow().to_pylist()
    assert (sums["cycles_ms"], sums["sm_cycles"], sums["tensor_cycles"]) == (1500, 3 * 0.7e9, 3 * 0.28e9)


# -- what is asked of a chip ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", ["GA100", "GA102", "AD102", "AD104", "GH100", "GB100", "GB202"])
def test_nvidias_own_planner_takes_one_pass_for_what_is_sampled(chip):
    with Host(real(), chip, Use.SAMPLING) as host:
        assert host.passes(tuple(metrics(chip, "13.1").values())) == 1


def test_a_chip_without_tensor_pipes_is_refused_with_its_name():
    with pytest.raises(UllageError, match="GM200 has no counter of tensor activity"):
        metrics("GM200")


def test_the_tensor_counter_of_each_chip_is_the_one_it_has():
    assert metrics("GH100")["tensor_active"].startswith("sm__pipe_tensor_cycles_active.")
    assert metrics("AD102")["tensor_active"].startswith("sm__pipe_tensor_cycles_active_v2.")
    assert all(dictionary.has(metric, "GA100") for metric in metrics("GA100").values())


# -- on the double of libcupti ----------------------------------------------------------------------------------------


@pytest.fixture
def library():
    return double()


def machine(library, problems, devices=(GPU,), interval=0.25):
    """The double's GPUs; its counter of work stands for cycles, its count of kernels for percent."""
    chosen = {CYCLES: WORK, "tensor_active": KERNELS}
    return pm.opened(Options(interval=interval), problems, "node-1", library=library, devices=devices, chosen=lambda *_: chosen)


def hardware(library, *rows):
    for row in rows:
        library.handle.cupti_double_sample(*row)


def test_a_reading_is_a_row_of_the_samples_table(library):
    with machine(library, Problems()) as gpus:
        hardware(library, (STEP, 2 * STEP, 14e6), (2 * STEP, 3 * STEP, 14e6))
        [row] = gpus.read(1_767_225_600_000).to_pylist()
    assert (row["gpu"], row["host"], row["model"], row["index"]) == ("GPU-1", "node-1", "NVIDIA A100-SXM4-80GB", 0)
    assert row["time"].timestamp() == 1_767_225_600
    # 14e6 cycles in 10 ms
    assert row["sm_clock"] == 1.4e9 and row["sm_cycles"] == 28_000_000 and row["tensor_active"] == pytest.approx(0.01)
    assert library.handle.cupti_double_counting() == 0


def test_an_interval_without_samples_is_no_row(library):
    with machine(library, Problems()) as gpus:
        assert gpus.read(1_767_225_600_000).num_rows == 0


def test_lost_samples_are_counted(library):
    problems = Problems()
    with machine(library, problems) as gpus:
        hardware(library, (STEP, 2 * STEP, 1e6), (5 * STEP, 6 * STEP, 1e6))
        gpus.read(1_767_225_600_000)
    assert problems.lines() == ["3 PM samples that were lost left out (first: GPU 0)"]


def test_an_overflow_is_counted_and_sampling_begins_anew(library, monkeypatch):
    problems = Problems()
    with machine(library, problems) as gpus:
        called(monkeypatch, "overflow")
        assert gpus.read(1_767_225_600_000).num_rows == 0
        called(monkeypatch)
        hardware(library, (STEP, 2 * STEP, 1e6))
        assert gpus.read(1_767_225_600_500).num_rows == 1
    assert problems.lines() == ["1 times that a GPU's buffer of PM samples ran over, and what was in it left out (first: GPU 0)"]
    assert library.handle.cupti_double_counting() == 0


def test_the_hardwares_buffer_holds_what_two_intervals_bring(library):
    with machine(library, Problems(), interval=2.0):
        assert library.handle.cupti_double_buffer() == 64 << 20


@pytest.mark.parametrize(("times", "mebibytes"), [(1, 16), (3, 64), (6, 512), (7, 512)])
def test_after_each_overflow_the_hardwares_buffer_is_doubled_to_512_mib_at_most(library, monkeypatch, times, mebibytes):
    with machine(library, Problems()) as gpus:
        assert library.handle.cupti_double_buffer() == 8 << 20
        called(monkeypatch, "overflow")
        for _ in range(times):
            gpus.read(1_767_225_600_000)
        assert library.handle.cupti_double_buffer() == mebibytes << 20


def test_another_buffer_than_the_usual_one_is_noted_with_what_refused_it(library, monkeypatch):
    called(monkeypatch, "no-oldest", f"buffer={2 << 20}")
    problems = Problems()
    with machine(library, problems):
        pass
    assert problems.lines() == [
        "GPU 0 keeps the latest PM samples in 2 MiB until they are read: CUPTI refused the oldest in 8 MiB "
        "(cuptiPmSamplingSetConfig: CUPTI_ERROR_NOT_SUPPORTED) and 2 more"
    ]


def test_a_gpu_that_fails_in_the_middle_is_noted_and_let_go(library, monkeypatch):
    problems = Problems()
    with machine(library, problems) as gpus:
        called(monkeypatch, "cuptiPmSamplingDecodeData=999")
        assert gpus.read(1_767_225_600_000).num_rows == 0
        called(monkeypatch)
        assert gpus.read(1_767_225_600_500).num_rows == 0
    assert problems.lines()[0].startswith("PM sampling of GPU 0 ended before the program did: reading samples failed")
    assert library.handle.cupti_double_counting() == 0


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("privileges", "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
        ("cuptiPmSamplingEnable=26", "somebody else is using this GPU's counters"),
        ("virtual", "a virtual GPU: switched off"),
    ],
)
def test_a_refusal_says_why(library, monkeypatch, fault, words):
    called(monkeypatch, fault)
    with pytest.raises(UllageError) as error, machine(library, Problems()):
        pass
    assert error.value.problem.startswith("GPU 0 (NVIDIA A100-SXM4-80GB) can't be sampled: ") and words in error.value.problem
    assert library.handle.cupti_double_counting() == 0


def test_a_gpu_that_serves_one_process_is_left_to_the_program(library):
    problems = Problems()
    devices = (CudaDevice(0, "GPU-1", "A", exclusive=True), CudaDevice(0, "GPU-2", "B"))
    with machine(library, problems, devices) as gpus:
        hardware(library, (STEP, 2 * STEP, 1e6))
        assert gpus.read(0)["gpu"].to_pylist() == ["GPU-2"]
    assert problems.lines()[0].startswith("GPU 0 (A) can't be sampled: it serves one process at a time")


def test_what_stands_in_the_way_here_goes_before_the_general_hint():
    refused, busy = CuptiError("beginning to sample", 35), CuptiError("beginning to sample", 26)
    locked = Surroundings(driver=13000, cupti=13000, params="RmProfilingAdminOnly: 1", status="CapEff: 0")
    assert "(the driver keeps counters for the administrator (RmProfilingAdminOnly: 1): run as root" in explained(refused, locked)
    held = Surroundings(driver=13000, cupti=13000, params="RmProfilingAdminOnly: 0", processes=("nv-hostengine",))
    assert "`dcgmi profile --pause` lets go of them" in explained(busy, held)
    assert explained(UllageError("no", "do")) == "no (do)"


# -- the GPUs that CUDA shows -----------------------------------------------------------------------------------------


class Driver:
    """libcuda, as far as it is asked; `mig` gives devices UUIDs of their own."""

    def __init__(self, count=1, answer=0, mig=False, mode=0):
        self.count, self.answer, self.mig, self.mode = count, answer, mig, mode

    def cuInit(self, flags):
        return self.answer

    def cuDeviceGetCount(self, count):
        count._obj.value = self.count
        return 0

    def cuDeviceGet(self, handle, ordinal):
        handle._obj.value = ordinal
        return 0

    def cuDeviceGetName(self, name, size, handle):
        name.value = b"NVIDIA A100-SXM4-80GB"
        return 0

    def cuDeviceGetAttribute(self, value, attribute, handle):
        value._obj.value = self.mode if attribute == 20 else -1
        return 0

    def cuDeviceGetUuid(self, raw, handle):
        raw.raw = bytes(range(16))
        return 0

    def cuDeviceGetUuid_v2(self, raw, handle):
        raw.raw = bytes(range(1, 17)) if self.mig else bytes(range(16))
        return 0


def test_gpus_are_called_as_nvml_calls_them():
    assert cuda_devices(Driver()) == [CudaDevice(0, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", "NVIDIA A100-SXM4-80GB")]
    assert cuda_devices(Driver(mig=True, mode=3)) == [
        CudaDevice(0, "MIG-01020304-0506-0708-090a-0b0c0d0e0f10", "NVIDIA A100-SXM4-80GB", exclusive=True)
    ]


@pytest.mark.parametrize(("driver", "words"), [(Driver(answer=100), "answers 100"), (Driver(count=0), "shows no GPU")])
def test_a_driver_that_shows_no_gpu_is_an_error(driver, words):
    with pytest.raises(UllageError, match=words):
        cuda_devices(driver)


def test_the_double_of_the_driver_is_asked_in_the_same_way():
    # in a process of its own: this one is not to have a driver
    command = [sys.executable, "-c", "from ullage.live.cuda_devices import cuda_devices; print(cuda_devices()[0].uuid)"]
    done = subprocess.run(command, env=cupti_double.environment(), capture_output=True, text=True, timeout=60)
    assert done.stdout == "GPU-01010101-0101-0101-0101-010101010101\n"


def test_sample_reads_by_pm_sampling_where_it_is_asked_to(monkeypatch):
    @contextmanager
    def opened(options, problems, host):
        told = {"gpu": "GPU-1", "model": "NVIDIA A100-SXM4-80GB", "tensor_active": 0.25, "sm_clock": 0.705e9}
        yield GpuLibrary(lambda moment: samples({name: [value] for name, value in (told | {"time": moment}).items()}))

    monkeypatch.setattr(pm, "opened", opened)
    done = CliRunner().invoke(cli, ["sample", "--pm", "--json", "--every", "0.1s", "--for", "0.1s"])
    assert done.exit_code == 0, done.output
    # 705 of 1410 MHz
    assert json.loads(done.stdout.splitlines()[0])["ofu"] == pytest.approx(0.125)
