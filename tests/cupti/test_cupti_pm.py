"""PM sampling, on the double of libcupti: what comes, what is lost and said to be lost, and that nothing stays held."""

from __future__ import annotations

import pytest

from tests.cupti.cupti_counting import KERNELS, RARE, SLOW, WORK, called, double
from ullage.cupti.counters.evaluate import evaluate
from ullage.cupti.counters.host import NotCollected
from ullage.cupti.counters.pm import BufferSetting, Sampling
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


def test_the_first_sample_after_a_start_is_of_no_interval_and_left_out(library):
    # its time goes back to whatever was last, its counts are those since the start: it would outweigh all others
    for _ in range(2):
        with sampling(library, WORK) as sampled:
            assert len(sampled.drain()) == 0
            hardware(library, (100, 200, 1))
            assert sampled.drain()[WORK].tolist() == [1]
            hardware(library, (200, 300, 2))
        assert sampled.drain()[WORK].tolist() == [2]


FIVE = tuple((100 * number, 100 * number + 100, number) for number in range(1, 6))


def test_samples_that_have_no_room_in_the_image_come_with_the_next_one(library):
    with sampling(library, WORK, room=2) as sampled:
        hardware(library, *FIVE)
        found = sampled.drain()
    assert found.full and found[WORK].tolist() == [1, 2, 3, 4, 5]


def test_what_waits_when_sampling_stops_is_all_read(library):
    with sampling(library, WORK, room=2) as sampled:
        hardware(library, *FIVE)
    found = sampled.drain()
    assert found.full and found[WORK].tolist() == [1, 2, 3, 4, 5]


def test_samples_that_cupti_forgets_are_said_to_be_lost_perhaps(library, monkeypatch):
    called(monkeypatch, "forgets")
    with sampling(library, WORK, room=3) as sampled:
        hardware(library, *FIVE)
        found = sampled.drain()
    assert found.full and found[WORK].tolist() == [1, 2]


def test_a_ring_that_tells_nothing_before_the_stop_tells_it_afterwards(library, monkeypatch):
    called(monkeypatch, "ring")
    with sampling(library, WORK, keep="latest") as sampled:
        hardware(library, *FIVE)
        assert len(sampled.drain()) == 0
    assert sampled.drain()[WORK].tolist() == [1, 2, 3, 4, 5]


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


@pytest.mark.parametrize(("chip", "trigger"), [("GH100", NANOSECONDS), ("GA100", CYCLES), ("TU102", CYCLES)])
def test_chips_without_a_trigger_in_time_count_cycles(library, monkeypatch, chip, trigger):
    called(monkeypatch, chip=chip)
    with sampling(library, WORK, interval=250_000):
        assert (library.handle.cupti_double_trigger(), library.handle.cupti_double_interval()) == (trigger, 250_000)


# --- which hardware buffer, and how it is filled: what others use first, then what is left ---

MIB = 1 << 20


@pytest.mark.parametrize(
    ("faults", "options", "keep", "buffer", "refused"),
    [
        ((), {}, "oldest", 8 * MIB, 0),
        ((f"buffer={8 * MIB}",), {}, "oldest", 8 * MIB, 0),
        ((f"buffer={8 * MIB - 1}",), {}, "oldest", 4 * MIB, 1),
        ((f"buffer={MIB // 2}",), {}, "oldest", MIB // 2, 4),  # 8, 4, 2 and 1 MiB are refused
        (("no-oldest",), {}, "latest", 8 * MIB, 1),  # a smaller one would not help
        (("no-oldest", f"buffer={2 * MIB}"), {}, "latest", 2 * MIB, 3),
        ((), {"keep": "latest"}, "latest", 8 * MIB, 0),
        ((), {"buffer": 64 * MIB}, "oldest", 64 * MIB, 0),
    ],
)
def test_the_hardware_buffer_is_halved_until_it_is_accepted(library, monkeypatch, faults, options, keep, buffer, refused):
    called(monkeypatch, *faults)
    with sampling(library, WORK, **options) as sampled:
        assert (sampled.setting, len(sampled.refused)) == (BufferSetting(keep, buffer), refused)
        assert library.handle.cupti_double_keep() == {"oldest": OLDEST, "latest": LATEST}[keep]
        assert library.handle.cupti_double_buffer() == buffer
    assert not held(library)


@pytest.mark.parametrize(
    ("faults", "code", "tried"),
    [
        ((f"buffer={MIB // 2 - 1}",), 1, 10),  # 8 MiB to 512 KiB, both ways
        (("no-oldest", "no-latest"), 27, 2),
        (("cuptiPmSamplingStart=35",), 35, 1),  # no buffer helps against missing rights
    ],
)
def test_where_no_buffer_is_accepted_the_first_refusal_is_told_and_nothing_is_held(library, monkeypatch, faults, code, tried):
    called(monkeypatch, *faults)
    asked = sampling(library, WORK)
    with pytest.raises(CuptiError) as caught, asked:
        pass
    assert (caught.value.code, len(asked.refused)) == (code, tried)
    assert asked.refused[0].setting == BufferSetting("oldest", 8 * MIB) and asked.refused[0].error is caught.value
    assert not held(library)


def test_turing_has_no_ring(library, monkeypatch):
    called(monkeypatch, "no-oldest", chip="TU102")
    asked = sampling(library, WORK)
    with pytest.raises(CuptiError, match="NOT_SUPPORTED"), asked:
        pass
    assert [one.setting.keep for one in asked.refused] == ["oldest"]


@pytest.mark.parametrize("options", [{"interval": 0}, {"room": 0}, {"buffer": 0}])
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
    assert image.times == ((100, 100), (100, 200), (200, 300))  # the first one is no interval's, and covers no time
    assert evaluate(image, double()).values.tolist()[1:] == [[1, 1], [2, 1]]


def test_what_stands_in_the_way_of_counters_is_told_in_words(library, monkeypatch):
    assert hindrances(library, 0) == []
    called(monkeypatch, "virtual")
    assert hindrances(library, 0, sampling=True) == ["a virtual GPU: switched off"]


@pytest.mark.parametrize(
    ("faults", "function", "code", "held_by_others"),
    [
        ("cuptiPmSamplingGetCounterAvailability=26", "cuptiPmSamplingGetCounterAvailability", 26, True),
        ("cuptiPmSamplingEnable=7", "cuptiPmSamplingEnable", 7, True),  # "already enabled on the device", says the header
        ("cuptiPmSamplingStart=26", "cuptiPmSamplingStart", 26, True),
        ("cuptiPmSamplingDecodeData=7", "cuptiPmSamplingDecodeData", 7, False),  # a wrong order of calls
        ("cuptiPmSamplingEnable=35", "cuptiPmSamplingEnable", 35, False),
    ],
)
def test_a_refusal_names_the_call_and_says_whether_another_profiler_has_the_counters(
    library, monkeypatch, faults, function, code, held_by_others
):
    called(monkeypatch, faults)
    with pytest.raises(CuptiError) as caught, sampling(library, WORK) as sampled:
        sampled.drain()
    assert (caught.value.function, caught.value.code, caught.value.counters_taken) == (function, code, held_by_others)
