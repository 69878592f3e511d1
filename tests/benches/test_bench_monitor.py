"""The stamp's power, temperature, clock and throttle reasons: by a double of nvidia-ml-py, and without it."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.live.nvml_double import Gpu, Nvml
from ullage.benches.running.monitor import Monitor, ObservedRun, Watch, _Sample, reasons
from ullage.benches.running.session import monitor_of
from ullage.benches.running.timing import Lasting, timed

UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


class Board(Nvml):
    """NVML with the questions that only benches ask; `instant` in mW."""

    NVML_FI_DEV_POWER_INSTANT = 186
    instant = 650_000

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return next((one for one in self.gpus if one.uuid == uuid), None) or self._missing()

    def nvmlDeviceGetHandleByPciBusId(self, pci):
        return self.gpus[-1] if pci == "0000:1B:00.0" else self._missing()

    def _missing(self):
        raise self.NVMLError(self.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetFieldValues(self, handle, fields):
        assert fields == [186]
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=self.instant))]


def sample(**changed):
    return _Sample(**{"instant": None, "average": None, "temperature": None, "mask": None, "clock": None, **changed})


def watched(seconds, before=None, after=None, *samples):
    return Watch(list(samples), (10.0, before), (10.0 + seconds, after)).observed()


def test_power_over_a_long_span_is_the_energy_counters_difference():
    # 1,300 J in 2 s
    assert watched(2.0, 5_000_000, 6_300_000, sample(instant=900_000, average=100_000)).power == 650.0


def test_power_over_a_short_span_is_sampled_at_instants_and_never_an_average_over_a_longer_time():
    assert watched(0.3, 5_000_000, 5_001_000, sample(instant=600_000), sample(instant=700_000)).power == 650.0
    assert watched(0.3, None, None, sample(average=600_000)).power is None
    assert watched(2.0, None, None, sample(average=600_000)).power == 600.0
    assert watched(2.0, 7, 7, sample(average=600_000)).power == 600.0  # a counter that stands still says nothing


def test_the_hottest_temperature_the_median_and_the_lowest_clock_and_all_reasons_are_told():
    boards = ((51, 1980, 0), (64, 1755, 4), (60, 1750, 0x24))
    found = watched(0.1, None, None, *(sample(temperature=t, clock=c, mask=m) for t, c, m in boards))
    assert found == ObservedRun(None, 64, ("power cap", "software thermal slowdown"), 1.755e9, 1.75e9)


def test_no_reason_is_told_apart_from_not_knowing():
    assert watched(0.1, None, None, sample(mask=0x1)).throttle == ()
    assert watched(0.1, None, None, sample()).throttle is None
    assert reasons(0x4000) == ("reason 0x4000",)


def test_a_board_is_watched_while_something_runs():
    nvml = Board([Gpu(UUID, sm_clock=1980, reasons=4, temperature=55)])
    with Monitor(nvml, nvml.gpus[0], interval=1e-3).watching() as watch:
        pass
    assert watch.observed() == ObservedRun(650.0, 55, ("power cap",), 1.98e9, 1.98e9)


@pytest.mark.parametrize("changed", [{"power": "no"}, {"temperature": "no"}, {"sm_clock": "no"}, {"reasons": "no"}, {"energy": "no"}])
def test_what_the_driver_refuses_is_none_and_the_rest_is_told(changed):
    nvml = Board([])
    nvml.instant = 0
    (name,) = changed
    nvml.gpus.append(Gpu(UUID, **{name: nvml.NVMLError(nvml.NVML_ERROR_NO_PERMISSION)}))
    with Monitor(nvml, nvml.gpus[0], interval=1e-3).watching() as watch:
        pass
    found = watch.observed()
    told = {"temperature": found.temperature, "sm_clock": found.sm_clock, "reasons": found.throttle}
    assert {key for key, value in told.items() if value is None} == {name} & set(told)


class Load:
    """A queue whose runs take 10 ms each; `passed` is what the GPU has done so far."""

    def __init__(self):
        self.passed = 0.0

    def run(self, span):
        self.passed += 0.01

    def mark(self):
        return self.passed

    def seconds(self, begin, end):
        return end - begin

    def wait(self, limit):
        pass


class Watched(Monitor):
    """A monitor that notes how much a load had done when it began and ceased to watch."""

    def __init__(self, load):
        super().__init__()
        self.load, self.from_to = load, []

    @contextmanager
    def watching(self):
        self.from_to.append(self.load.passed)
        with super().watching() as watch:
            yield watch
        self.from_to.append(self.load.passed)


@pytest.mark.parametrize(
    ("lasting", "least"), [(Lasting(5.3, settle=1.1), (1.1, 5.3)), (Lasting(3.0), (0.05, 3.0)), (Lasting(), (0.05, 0.15))]
)
def test_a_board_is_watched_over_what_is_timed_and_not_while_the_load_settles(lasting, least):
    load = Load()
    monitor = Watched(load)
    spans = timed(load, 0.01, lasting, monitor)
    begin, end = monitor.from_to
    assert spans.settled == pytest.approx(begin) and least[0] <= begin <= least[0] + 0.1
    assert spans.total == pytest.approx(end - begin - 0.01)  # one run goes before the first mark, so that the GPU is busy at it
    assert spans.total >= least[1] - 1e-9


def test_without_nvml_nothing_is_told():
    with Monitor().watching() as watch:
        pass
    assert watch.observed() == ObservedRun(None, None, None, None, None)


def test_nvml_is_asked_about_the_same_board_by_uuid_then_by_its_place_on_the_bus():
    device = SimpleNamespace(uuid=UUID, pci="0000:1B:00.0")
    nvml = Board([Gpu("GPU-other"), Gpu(UUID)])
    assert monitor_of(device, nvml).handle is nvml.gpus[1]
    nvml.gpus[1].uuid = "GPU-hidden"
    assert monitor_of(device, nvml).handle is nvml.gpus[1]
    assert monitor_of(SimpleNamespace(uuid=UUID, pci="elsewhere"), nvml).handle is None
    assert monitor_of(device, Nvml(fails=12)).handle is None
