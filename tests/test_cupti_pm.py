"""PM sampling, on the double of libcupti: what comes, what is lost and said to be lost, and that nothing stays held."""

from __future__ import annotations

import pytest

from tests.cupti_counting import KERNELS, RARE, SLOW, WORK, called, double
from ullage.cupti.counters.evaluate import evaluate
from ullage.cupti.counters.host import NotCollected
from ullage.cupti.counters.pm import Sampling
from ullage.cupti.counters.target import hindrances
from ullage.cupti.results import CuptiError
from ullage.errors import UllageError

NANOSECONDS, CYCLES, OLDEST, LATEST = 1, 0, 0, 1


@pytest.fixture
def library():
    return double()


def sampling(library, *metrics, **options):
    return Sampling(metrics or (WORK, KERNELS), library=library, **options)


def hardware(library, *samples):
    """Let the hardware take samples: (start, end, work)."""
    for sample in samples:
        library.handle.cupti_double_sample(*sample)


def held(library):
    return library.handle.cupti_double_counting() != 0


def test_samples_come_with_their_times_and_a_column_a_metric(library):
    with sampling(library) as sampled:
        hardware(library, (100, 200, 1.5), (200, 300, 2.5))
        found = sampled.drain()
    assert found.start.tolist() == [100, 200]
    assert found.end.tolist() == [200, 300]
    assert found[WORK].tolist() == [1.5, 2.5]
    assert found[KERNELS].tolist() == [1, 1]
    assert (found.overflow, found.full, found.untimed) == (False, False, 0)
    assert not held(library)


def test_a_sample_comes_once(library):
    with sampling(library, WORK) as sampled:
        hardware(library, (100, 200, 1))
        assert sampled.drain()[WORK].tolist() == [1]
        assert len(sampled.drain()) == 0
        hardware(library, (200, 300, 2))
        assert sampled.drain()[WORK].tolist() == [2]


def test_what_was_left_at_the_end_can_still_be_had_once(library):
    with sampling(library, WORK) as sampled:
        hardware(library, (100, 200, 1))
    assert sampled.drain()[WORK].tolist() == [1]
    assert len(sampled.drain()) == 0


def test_an_overflow_is_told_and_is_no_error(library, monkeypatch):
    called(monkeypatch, "overflow")
    with sampling(library, WORK) as sampled:
        hardware(library, (100, 200, 1))
        found = sampled.drain()
    assert found.overflow
    assert len(found) == 0


def test_samples_without_room_are_said_to_be_lost(library):
    with sampling(library, WORK, room=2) as sampled:
        hardware(library, (100, 200, 1), (200, 300, 2), (300, 400, 3))
        found = sampled.drain()
    assert found.full
    assert found[WORK].tolist() == [1, 2]


def test_samples_that_cover_no_time_are_left_out(library):
    # one without any time is counted; one that begins where it ends comes after the stop and is no sample
    with sampling(library, WORK) as sampled:
        hardware(library, (0, 0, 9), (100, 200, 1), (200, 200, 9))
        found = sampled.drain()
    assert found[WORK].tolist() == [1]
    assert found.untimed == 1


def test_metrics_of_several_passes_are_refused_with_the_way_to_a_plan(library):
    # double__slow has counters in two groups
    with pytest.raises(UllageError, match="these 2 metrics need 3 passes on GH100") as caught, sampling(library, WORK, SLOW):
        pass
    assert "ullage cupti plan GH100" in caught.value.hint
    assert not held(library)


def test_a_metric_of_ranges_alone_is_refused(library):
    with pytest.raises(NotCollected, match=r"can't collect double__rare\.sum by PM sampling"), sampling(library, RARE):
        pass
    assert not held(library)


@pytest.mark.parametrize(
    ("chip", "trigger", "keep"), [("GH100", NANOSECONDS, LATEST), ("GA100", CYCLES, LATEST), ("TU102", CYCLES, OLDEST)]
)
def test_chips_without_a_trigger_in_time_or_a_ring_get_what_they_have(library, monkeypatch, chip, trigger, keep):
    called(monkeypatch, chip=chip)
    with sampling(library, WORK, interval=250_000):
        handle = library.handle
        assert (handle.cupti_double_trigger(), handle.cupti_double_keep(), handle.cupti_double_interval()) == (trigger, keep, 250_000)


def test_the_oldest_samples_are_kept_where_that_was_asked(library):
    with sampling(library, WORK, keep="oldest"):
        assert library.handle.cupti_double_keep() == OLDEST


@pytest.mark.parametrize("options", [{"interval": 0}, {"room": 0}])
def test_nonsense_is_refused(library, options):
    with pytest.raises(UllageError, match="can't be sampled"):
        sampling(library, WORK, **options)


def test_counters_that_are_forbidden_say_so_and_hold_nothing(library, monkeypatch):
    called(monkeypatch, "privileges")
    with pytest.raises(CuptiError, match="INSUFFICIENT_PRIVILEGES"), sampling(library):
        pass
    assert not held(library)


def test_a_second_sampling_is_refused_and_the_first_goes_on(library):
    with sampling(library, WORK) as first:
        with pytest.raises(CuptiError, match="INVALID_OPERATION"), sampling(library, WORK):
            pass
        hardware(library, (100, 200, 1))
        assert first.drain()[WORK].tolist() == [1]


FLOW = (
    "cuptiDeviceGetChipName", "cuptiPmSamplingGetCounterAvailability", "cuptiProfilerHostInitialize", "cuptiProfilerHostConfigAddMetrics",
    "cuptiProfilerHostGetNumOfPasses", "cuptiPmSamplingEnable", "cuptiPmSamplingSetConfig", "cuptiPmSamplingGetCounterDataSize",
    "cuptiPmSamplingCounterDataImageInitialize", "cuptiPmSamplingStart", "cuptiPmSamplingDecodeData", "cuptiPmSamplingGetCounterDataInfo",
    "cuptiPmSamplingCounterDataGetSampleInfo", "cuptiProfilerHostEvaluateToGpuValues", "cuptiPmSamplingStop",
)  # fmt: skip


@pytest.mark.parametrize("function", FLOW)
def test_an_error_anywhere_is_one_error_and_leaves_nothing_held(library, monkeypatch, function):
    called(monkeypatch, f"{function}=999")
    with pytest.raises(CuptiError) as caught, sampling(library) as sampled:
        hardware(library, (100, 200, 1))
        sampled.drain()
    assert caught.value.code == 999
    assert not held(library)


def test_an_error_of_the_program_passes_through(library, monkeypatch):
    with pytest.raises(ZeroDivisionError), sampling(library):
        called(monkeypatch, "cuptiPmSamplingStop=999", "cuptiPmSamplingDisable=999")
        raise ZeroDivisionError


def test_counter_data_that_were_kept_evaluate_to_the_same_values(library):
    with sampling(library) as sampled:
        hardware(library, (100, 200, 1), (200, 300, 2))
        image = sampled.image()
        assert len(sampled.drain()) == 0  # they are taken once
    assert image.times == ((100, 200), (200, 300))
    assert evaluate(image, double()).values.tolist() == [[1, 1], [2, 1]]


def test_what_stands_in_the_way_of_counters_is_told_in_words(library, monkeypatch):
    assert hindrances(library, 0) == []
    called(monkeypatch, "virtual")
    assert hindrances(library, 0, sampling=True) == ["a virtual GPU: switched off"]
