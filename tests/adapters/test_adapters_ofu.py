"""OFU beside MFU: the readings of the live sampler that lie in the measured time, and a word where there are none."""

from __future__ import annotations

import gc
import itertools
import random
import sys
import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from tests.live.nvml_double import Gpu, Nvml
from tests.live.sampled_machine import CLOCK, H100, Load, gpu, rows
from ullage.adapters import gpu_ofu
from ullage.adapters import torch as torch_meter
from ullage.adapters.gpu_ofu import GpuOfuSampler, OfuReading, TrainedSpans, keep_reading, keep_readings, overlapped_mean, own_uuid
from ullage.adapters.notes import Notes
from ullage.adapters.ray_train import means
from ullage.adapters.torch import StepWindow, TorchMeter
from ullage.errors import UllageError
from ullage.problems import Problems

H200 = "NVIDIA H200"

TINY: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 10,
}  # fmt: skip


def ticks() -> Any:
    seconds = iter(range(1, 10_000))
    return lambda: float(next(seconds))


def by_tenths(readings: list[OfuReading], spans: list[tuple[float, float]]) -> float | None:
    """The same by a loop over tenths of a second: what reading covers each that lies in a span."""
    tenths = [tenth / 10 + 0.05 for since, until in spans for tenth in range(round(since * 10), round(until * 10))]
    values = [one.ofu for middle in tenths for one in readings if one.end - one.length < middle < one.end]
    return sum(values) / len(values) if values else None


@pytest.mark.parametrize("seeds", [range(100), pytest.param(range(100, 3000), marks=pytest.mark.full)], ids=["few", "many"])
def test_readings_count_by_how_long_they_lie_in_the_measured_time(seeds: range) -> None:
    for seed in seeds:
        dice = random.Random(seed)
        ends = sorted(dice.sample(range(5, 400), dice.randint(0, 30)))
        readings = [
            OfuReading(end / 10, dice.randint(1, end - before) / 10, dice.random()) for before, end in zip([0, *ends], ends, strict=False)
        ]
        edges = sorted(dice.sample(range(400), 2 * dice.randint(0, 30)))
        spans = [(since / 10, until / 10) for since, until in zip(edges[::2], edges[1::2], strict=True)]
        assert overlapped_mean(readings, spans) == pytest.approx(by_tenths(readings, spans)), seed


def test_a_log_looks_at_the_readings_of_its_own_time_alone() -> None:
    looked = []

    class Reading(OfuReading):
        def __getattribute__(self, name: str) -> Any:
            looked.append(name)
            return super().__getattribute__(name)

    readings = [Reading(end / 2, 0.5, 0.25) for end in range(1, 20_001)]
    looked.clear()
    assert overlapped_mean(readings, [(7000.25, 7001.0), (7002.0, 7003.0)]) == 0.25
    assert len(looked) < 200  # 16 steps of bisection at each end, and a few looks at each of 7 readings
    assert overlapped_mean(readings, []) is None


def test_a_clock_that_is_set_back_leaves_no_reading_of_its_future() -> None:
    readings = deque[OfuReading]()
    for end, ofu in ((100.0, 0.9), (101.0, 0.9), (40.0, 0.2), (41.0, 0.4)):
        keep_reading(readings, OfuReading(end, 1.0, ofu))
    assert overlapped_mean(readings, [(39.0, 102.0)]) == pytest.approx(0.3)


def test_pauses_are_not_counted_and_each_window_begins_anew() -> None:
    sampler = GpuOfuSampler(Notes(), uuid=lambda: "GPU-1")
    sampler._started = True
    sampler.readings += [OfuReading(float(end), 1.0, ofu) for end, ofu in enumerate((0.1, 0.9, 0.3, 0.5), 1)]
    now = iter([0.0, 1.0, 2.0, 3.0, 3.0, 4.0, 9.0, 9.5])
    trained = TrainedSpans(sampler, now.__next__)
    found = []
    for spans in (2, 1, 1):
        for _ in range(spans):
            trained.start()
            trained.pause()
        found.append(trained.mean_ofu())
    assert found == [pytest.approx(0.2), pytest.approx(0.5), None]


def sampled(monkeypatch: pytest.MonkeyPatch, machine: Nvml, notes: Notes) -> GpuOfuSampler:
    """A sampler that has read its GPU once, or has said why it can't."""
    monkeypatch.setitem(sys.modules, "pynvml", machine)
    monkeypatch.setattr(gpu_ofu, "own_uuid", lambda: "GPU-2")
    sampler = GpuOfuSampler(notes, interval=0.1)
    sampler.start()
    while not sampler.readings and thread() is not None:
        one = thread()
        assert one is not None
        one.join(0.02)
    return sampler


def thread() -> threading.Thread | None:
    return next((one for one in threading.enumerate() if one.name == "ullage OFU"), None)


def test_the_gpu_of_this_process_is_read_until_nobody_asks_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = sampled(monkeypatch, Nvml([gpu("GPU-1", 0.8), gpu("GPU-2", 0.4)]), Notes())
    (reading, *_) = sampler.readings
    assert reading.ofu == pytest.approx(0.4 * CLOCK / 1.83e9) and reading.length == pytest.approx(0.1)
    one = thread()
    assert one is not None
    del sampler
    gc.collect()
    one.join(5)
    assert not one.is_alive()


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (Nvml([Gpu("GPU-2", name="NVIDIA A100-SXM4-80GB", gpm=False)]), "(GPM needs Hopper or later)"),
        (Nvml(fails=Nvml.NVML_ERROR_LIBRARY_NOT_FOUND), "driver does not answer"),
        (Nvml([gpu("GPU-1")]), "this machine has no GPU 'GPU-2'"),
    ],
    ids=["without GPM", "no driver", "another machine"],
)
def test_what_can_not_be_read_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: Any, machine: Nvml, said: str) -> None:
    sampler = sampled(monkeypatch, machine, Notes())
    sampler.start()
    assert caplog.text.count("OFU is not logged: ") == 1 and said in caplog.text
    assert sampler.mean([(0.0, 1e12)]) is None


class SampledBatches:
    """A sampler that has these readings, and ends."""

    interval = 1.0

    def __init__(self, batches: list[Any]) -> None:
        self._batches = batches

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        """End."""

    def readings(self) -> Any:
        return ([batch] for batch in self._batches)


def failing_at_first(failures: int, name: str = H100) -> Nvml:
    """A machine whose GPU tells nothing of its tensor pipes in the first readings."""
    machine, taken = Nvml([Gpu("GPU-2", name=name, activity=Load(0.4, counted=False))]), itertools.count()

    def get(metrics: Any) -> Any:
        if next(taken) < 2 * failures:  # it is asked again without the newer ids
            raise machine.error(999)
        return Nvml.nvmlGpmMetricsGet(machine, metrics)

    machine.nvmlGpmMetricsGet = get  # type: ignore[method-assign]
    return machine


@pytest.mark.parametrize("failures", [gpu_ofu.MOST_FAILURES - 1, gpu_ofu.MOST_FAILURES])
def test_ofu_is_given_up_after_five_failed_readings_not_before(monkeypatch: pytest.MonkeyPatch, caplog: Any, failures: int) -> None:
    sampler = sampled(monkeypatch, failing_at_first(failures), Notes())
    given_up = failures == gpu_ofu.MOST_FAILURES == 5
    assert bool(sampler.readings) is not given_up and ("OFU is not logged: " in caplog.text) is given_up


def test_once_read_a_gpu_is_read_again_after_any_number_of_failures(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    readings, one = deque[OfuReading](), rows((1, {"tensor_active": 0.4, "sm_clock": CLOCK}))
    silent = [rows((at, {"sm_clock": CLOCK})) for at in range(2, 20)]
    last = rows((20, {"tensor_active": 0.2, "sm_clock": CLOCK}))
    keep_readings(SampledBatches([one, *silent, last]), Problems(), readings, Notes())
    assert [reading.ofu for reading in readings] == pytest.approx([0.4 * CLOCK / 1.83e9, 0.2 * CLOCK / 1.83e9])
    assert not caplog.text


@pytest.mark.parametrize(("name", "counted", "warned"), [(H200, False, 1), (H200, True, 0), (H100, False, 0)])
def test_a_clock_that_the_driver_tells_too_high_is_said_once(caplog: Any, name: str, counted: bool, warned: int) -> None:
    cycles = {"tensor_cycles": 1e9, "sm_cycles": 2e9}
    told = [
        {"tensor_active": 0.4, "sm_clock": CLOCK} | {key: at * value for key, value in cycles.items() if counted} for at in (1, 2, 3, 4)
    ]
    batches = [rows((at, fields), model=name) for at, fields in enumerate(told, 1)]
    readings = deque[OfuReading]()
    keep_readings(SampledBatches(batches), Problems(), readings, Notes())
    assert len(readings) == 4
    assert caplog.text.count("9 to 16 % too high under tensor load") == caplog.text.count("WARNING") == warned


def test_without_a_gpu_and_on_a_part_of_one_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(is_available=lambda: True, current_device=lambda: 1)
    monkeypatch.setattr(gpu_ofu, "installed", lambda name: SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(gpu_ofu, "cuda_devices", lambda: [SimpleNamespace(uuid="MIG-1"), SimpleNamespace(uuid="GPU-2")])
    assert own_uuid() == "GPU-2"
    cuda.current_device = lambda: 0
    with pytest.raises(UllageError, match="MIG instance"):
        own_uuid()
    cuda.is_available = lambda: False
    with pytest.raises(UllageError, match="PyTorch sees no GPU"):
        own_uuid()


def test_whatever_a_driver_raises_no_training_ends_for_it(caplog: Any) -> None:
    def broken() -> str:
        raise RuntimeError("Found no NVIDIA driver on your system")

    GpuOfuSampler(Notes(), uuid=broken).start()
    assert caplog.text.count("OFU is not logged: RuntimeError: Found no NVIDIA driver") == 1


class KnownOfu(GpuOfuSampler):
    """A GPU whose OFU is known, or is not."""

    def __init__(self, ofu: float | None) -> None:
        super().__init__(Notes(), uuid=lambda: "GPU-1")
        self._ofu, self._started = ofu, True

    def mean(self, spans: Any) -> float | None:
        assert len(spans) == 1 and spans[0][0] <= spans[0][1]
        return self._ofu


@pytest.mark.parametrize("ofu", [0.0, 0.375, None])
def test_it_stands_beside_the_mfu(ofu: float | None) -> None:
    meter = TorchMeter(TINY, peak_tflops=1e-3, clock=ticks(), lengths=lambda batch: batch)
    meter.ofu = KnownOfu(ofu)
    with meter.measure([4]) as step:
        pass
    assert step.measured.named().get("ofu") == ofu and step.measured.mfu == pytest.approx(34560 / 1e9)
    window = StepWindow(meter)
    window.count([-1])  # lengths that nobody can read
    window.start()
    assert window.end().named() == ({} if ofu is None else {"ofu": ofu})


def test_ranks_take_the_mean_of_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [[100, 100, 0, round(0.5e9), 1], [100, 100, 0, 0, 0]]
    monkeypatch.setattr(torch_meter.ranks, "summed", lambda values, group: [sum(column) for column in zip(values, *others, strict=True)])
    meter = TorchMeter(TINY, gpus=3)
    assert meter.together(100, 100, 0, 1.0, 0.25).ofu == pytest.approx(0.375)
    assert meter.together(100, 100, 0, 1.0, None).ofu == pytest.approx(0.5)
    others[0][4] = others[0][3] = 0
    assert meter.together(100, 100, 0, 1.0, None).ofu is None


def test_ray_trains_workers_report_it_too() -> None:
    assert means([{"ofu": 0.5}, {"ofu": 0.25, "mfu": 0.5}]) == {"ofu": 0.375, "mfu": 0.5}
