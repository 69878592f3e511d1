"""Counters over ranges, on the double of libcupti: the order of the calls, replay, and that nothing stays held when something fails."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from tests.cupti.cupti_counting import CONTEXT, KERNELS, RARE, SLOW, WORK, called, double
from ullage.cupti import driver
from ullage.cupti.counters import target
from ullage.cupti.counters.evaluate import evaluate
from ullage.cupti.counters.host import Host, NotCollected, Use
from ullage.cupti.counters.images import unpacked
from ullage.cupti.counters.ranges import Ranges
from ullage.cupti.counters.structures import parameters, room
from ullage.cupti.results import CuptiError
from ullage.errors import UllageError


@pytest.fixture
def library():
    return double()


def ranges(library, *metrics, **options):
    return Ranges(metrics or (WORK, KERNELS), CONTEXT, library=library, **options)


def kernels(library, *work):
    for amount in work:
        library.handle.cupti_double_count(amount)


def held(library):
    """Return whether the device is still held for counting."""
    return library.handle.cupti_double_counting() != 0


def test_each_kernel_is_a_range_by_itself(library):
    with ranges(library, WORK, KERNELS, RARE, SLOW) as counted:
        kernels(library, 1, 2, 5)
    values = counted.values()
    assert values.ranges == ("0", "1", "2")
    # work, one kernel each, ten times the work, a hundred times the work
    assert values.values.tolist() == [[1, 1, 10, 100], [2, 1, 20, 200], [5, 1, 50, 500]]
    assert counted.planned == 4
    assert not held(library)


@pytest.mark.parametrize("version", [26, 28, 130_001, 130_101])
def test_structures_have_the_size_that_each_release_knows(monkeypatch, version):
    called(monkeypatch, version=version)
    library = double()
    with ranges(library) as counted:
        kernels(library, 3)
    assert library.version == version
    assert counted.values().row(0) == {WORK: 3, KERNELS: 1}


def test_the_program_replays_its_work_once_for_each_pass(library):
    # groups 0, 1 and 2 + 3: four passes, in each of which the same two kernels run
    with ranges(library, WORK, RARE, SLOW, range="user", replay="user") as counted:
        times = 0
        for number in counted.passes():
            assert number == times
            times += 1
            with counted.range("step"):
                kernels(library, 1, 2)
    assert times == 4
    assert counted.values().ranges == ("step",)
    assert counted.values().row(0) == {WORK: 3, RARE: 30, SLOW: 300}


def test_kernels_can_be_replayed_by_the_program_too(library):
    with ranges(library, WORK, RARE, replay="user") as counted:
        for _ in counted.passes():
            kernels(library, 4)
    assert counted.values().row(0) == {WORK: 4, RARE: 40}


def test_nested_ranges_carry_their_path_and_take_the_passes_for_each_level(library):
    with ranges(library, WORK, RARE, range="user", replay="user", levels=2) as counted:
        times = 0
        for _ in counted.passes():
            times += 1
            with counted.range("step"):
                kernels(library, 1)
                with counted.range("forward"):
                    kernels(library, 2)
    assert times == 4  # two passes, two levels
    rows = {name: counted.values().row(index) for index, name in enumerate(counted.values().ranges)}
    assert rows == {"step": {WORK: 3, RARE: 30}, "step/forward": {WORK: 2, RARE: 20}}


def test_ranges_that_had_no_room_are_counted(library):
    with ranges(library, most=2) as counted:
        kernels(library, 1, 2, 5)
    assert counted.dropped == 1
    assert counted.values().ranges == ("0", "1")


def test_values_are_a_table_with_a_column_a_metric(library):
    with ranges(library) as counted:
        kernels(library, 1, 2)
    assert counted.values().table().to_pydict() == {"range": ["0", "1"], WORK: [1, 2], KERNELS: [1, 1]}


def test_counter_data_that_were_kept_evaluate_to_the_same_values(library):
    with ranges(library, WORK, SLOW) as counted:
        kernels(library, 1, 2)
    image = unpacked(counted.image().packed())
    found = evaluate(image, double())
    assert found.ranges == ("0", "1")
    np.testing.assert_array_equal(found.values, counted.values().values)


def test_counter_data_of_a_newer_cupti_are_refused(library, monkeypatch):
    with ranges(library) as counted:
        kernels(library, 1)
    image = counted.image()
    called(monkeypatch, version=28)
    with pytest.raises(UllageError, match="130101"):
        evaluate(image, double())


@pytest.mark.parametrize("payload", [b"", b"\xff\xff\xff\xff", b"\x02\x00\x00\x00{}", b"\x03\x00\x00\x00[1]xxxx"])
def test_a_damaged_image_is_refused(payload):
    with pytest.raises(UllageError, match="damaged"):
        unpacked(payload)


def test_kernel_replay_inside_the_programs_own_ranges_is_refused_before_anything_is_touched(library):
    with pytest.raises(UllageError, match="no kernels inside ranges"):
        Ranges([WORK], CONTEXT, range="user", replay="kernel", library=library)


def test_nothing_to_collect_is_refused(library):
    with pytest.raises(UllageError, match="no metric"):
        Ranges([], CONTEXT, library=library)


def test_a_metric_that_the_chip_lacks_is_named(library):
    with pytest.raises(NotCollected, match=r"GH100 can't collect double__none\.sum over ranges"), ranges(library, "double__none.sum"):
        pass
    assert not held(library)


def test_leaving_the_passes_early_is_an_error_and_gives_the_gpu_back(library):
    with pytest.raises(UllageError, match="not run in every pass"), ranges(library, WORK, RARE, replay="user") as counted:
        for _ in counted.passes():
            kernels(library, 1)
            break
    assert not held(library)
    with pytest.raises(UllageError, match="nothing has been counted"):
        counted.values()


def test_passes_that_never_suffice_come_to_an_end(library, monkeypatch):
    called(monkeypatch, "never-complete")
    with pytest.raises(UllageError, match="aren't complete after 3 passes, 1 were planned"), ranges(library, replay="user") as counted:
        for _ in counted.passes():
            kernels(library, 1)
    assert not held(library)


def test_counters_that_are_forbidden_say_so_and_hold_nothing(library, monkeypatch):
    called(monkeypatch, "privileges")
    with pytest.raises(CuptiError, match="INSUFFICIENT_PRIVILEGES") as caught, ranges(library):
        pass
    assert caught.value.code == 35
    assert "CAP_SYS_ADMIN" in caught.value.hint or "SYS_ADMIN" in caught.value.hint


def test_a_second_collection_on_the_same_gpu_is_refused_and_the_first_goes_on(library):
    with ranges(library) as first:
        kernels(library, 1)
        with pytest.raises(CuptiError, match="INVALID_OPERATION"), ranges(library):
            pass
        kernels(library, 2)
    assert first.values().values[:, 0].tolist() == [1, 2]


FLOW = (
    "cuptiDeviceGetChipName", "cuptiProfilerGetCounterAvailability", "cuptiProfilerHostInitialize", "cuptiProfilerHostConfigAddMetrics",
    "cuptiProfilerHostGetConfigImageSize", "cuptiProfilerHostGetConfigImage", "cuptiProfilerHostGetNumOfPasses",
    "cuptiRangeProfilerEnable", "cuptiRangeProfilerGetCounterDataSize", "cuptiRangeProfilerCounterDataImageInitialize",
    "cuptiRangeProfilerSetConfig", "cuptiRangeProfilerStart", "cuptiRangeProfilerStop", "cuptiRangeProfilerDecodeData",
    "cuptiRangeProfilerGetCounterDataInfo", "cuptiRangeProfilerCounterDataGetRangeInfo", "cuptiProfilerHostEvaluateToGpuValues",
)  # fmt: skip


@pytest.mark.parametrize("function", FLOW)
def test_an_error_anywhere_is_one_error_and_leaves_nothing_held(library, monkeypatch, function):
    called(monkeypatch, f"{function}=999")
    with pytest.raises(CuptiError) as caught, ranges(library) as counted:
        kernels(library, 1)
    assert caught.value.code == 999
    assert not held(library)
    called(monkeypatch)
    library.handle.cupti_double_counters_reset()
    with ranges(library) as counted:  # and it can be done again
        kernels(library, 7)
    assert counted.values().row(0)[WORK] == 7


def test_an_error_of_the_program_passes_through_even_when_nothing_can_be_given_back(library, monkeypatch):
    with pytest.raises(ZeroDivisionError), ranges(library, WORK, range="user", replay="user") as counted:
        for _ in counted.passes():
            with counted.range("step"):
                called(monkeypatch, "cuptiRangeProfilerPopRange=999", "cuptiRangeProfilerStop=999", "cuptiRangeProfilerDisable=999")
                raise ZeroDivisionError


def test_the_profiler_of_the_process_is_never_ended(library):
    # the double aborts when cuptiProfilerDeInitialize is called: it would pull it away from PyTorch's profiler
    for _ in range(2):
        with ranges(library) as counted:
            kernels(library, 1)
        assert counted.values().row(0)[WORK] == 1


# --- what the double refuses, as the headers say that CUPTI does: without it the tests above would prove less ---


class Steps:
    """The calls that count ranges, one by one; each returns CUPTI's answer."""

    def __init__(self, library):
        self.library, self.object = library, None
        target.begin(library)
        with Host(library, "GH100", Use.RANGES) as host:
            image = host.config([WORK])
        self.config, self.data = room(len(image)), room(4096)
        self.config[:] = image

    def ask(self, name, **values):
        given = parameters(f"cuptiRangeProfiler{name}", self.library.version, **{"pRangeProfilerObject": self.object} | values)
        return self.library.ask(f"cuptiRangeProfiler{name}", ctypes.byref(given)), given

    def enable(self):
        code, given = self.ask("Enable", ctx=CONTEXT)
        self.object = given.pRangeProfilerObject
        return code

    def make_room(self):
        return self.ask("CounterDataImageInitialize", counterDataSize=len(self.data), pCounterData=self.data)[0]

    def configure(self, **other):
        usual = {"configSize": len(self.config), "pConfig": self.config, "counterDataImageSize": len(self.data)}
        usual |= {"pCounterDataImage": self.data, "range": 1, "replayMode": 2, "maxRangesPerPass": 4, "numNestingLevels": 1}
        return self.ask("SetConfig", **usual | {"minNestingLevel": 1, "targetNestingLevel": 1} | other)[0]

    def start(self):
        return self.ask("Start")[0]

    def stop(self):
        return self.ask("Stop")[0]

    def decode(self):
        return self.ask("DecodeData")[0]


def test_the_double_takes_the_calls_in_the_order_of_the_headers(library):
    steps = Steps(library)
    calls = (steps.enable, steps.make_room, steps.configure, steps.start, steps.stop, steps.decode)
    assert [call() for call in calls] == [0] * 6


INVALID_PARAMETER, INVALID_OPERATION = 1, 7


@pytest.mark.parametrize(
    "wrong",
    [
        {"targetNestingLevel": 0}, {"targetNestingLevel": 2}, {"minNestingLevel": 0}, {"numNestingLevels": 0}, {"numNestingLevels": 2},
        {"maxRangesPerPass": 0}, {"configSize": 3}, {"counterDataImageSize": 8}, {"range": 0}, {"range": 2}, {"replayMode": 0},
    ],
)  # fmt: skip
def test_the_double_refuses_parameters_that_the_headers_forbid(library, wrong):
    steps = Steps(library)
    steps.enable(), steps.make_room()
    assert steps.configure(**wrong) == INVALID_PARAMETER


READY = "enable make_room configure"


@pytest.mark.parametrize(
    ("before", "wrong"),
    [
        *(("", name) for name in ("make_room", "configure", "start", "stop", "decode")), ("enable", "enable"),
        ("enable make_room", "start"), (READY, "stop"), (READY, "decode"),
        *((f"{READY} start", name) for name in ("start", "decode", "configure")),
    ],
)  # fmt: skip
def test_the_double_refuses_another_order(library, before, wrong):
    steps = Steps(library)
    assert [getattr(steps, name)() for name in before.split()] == [0] * len(before.split())
    assert getattr(steps, wrong)() == INVALID_OPERATION


def test_without_a_driver_or_a_context_the_reason_is_told(monkeypatch):
    def no_driver(_name):
        raise OSError

    monkeypatch.setattr(driver.ctypes, "CDLL", no_driver)
    with pytest.raises(UllageError, match="no NVIDIA driver"):
        driver.current_context()
    monkeypatch.setattr(driver.ctypes, "CDLL", lambda _name: SimpleNamespace(cuCtxGetCurrent=lambda _where: 0))
    with pytest.raises(UllageError, match="no CUDA context is current"):
        driver.current_context()
