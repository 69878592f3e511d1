"""Slow devices second by second: what a pause hides and does not, and who rests once, in each step, or with all the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ullage.reports.stragglers.device_peers import JobReadings
from ullage.reports.stragglers.job_pauses import QUIET, RESTS, job_pauses
from ullage.reports.stragglers.slow_devices import BUSIER, FROM_START, LASTING, SlowSpell, slow_devices

SECONDS, GPUS, LATE = 200, 4, 3
BEGINS = 120  # the second from which something happens


def healthy(gpus: int = GPUS) -> JobReadings:
    """Return a job on one host, read each second: steps of 2 s, all of them compute."""
    shape = (SECONDS, gpus)
    full = {"tensor": 0.5, "sm": 0.8, "engine": 0.99, "clock": 1.4e9, "replays": 0.0}
    times = 1000 * np.arange(SECONDS, dtype=np.int64)
    return JobReadings(
        times=times, hosts=("node",) * gpus, models=("H100",) * gpus, **{name: np.full(shape, value) for name, value in full.items()}
    )


def paused(readings: JobReadings, first: int, last: int, gpus: slice = slice(None)) -> JobReadings:
    """Return readings in which GPUs do nothing from a second to another; the others wait for them."""
    changed = {name: getattr(readings, name).copy() for name in ("tensor", "sm", "engine")}
    changed["tensor"][first:last] = 0
    changed["sm"][first:last] = 0.14
    for name in ("sm", "engine"):
        changed[name][first:last, gpus] = 0
    return replace(readings, **changed)


def resting(readings: JobReadings, gpu: int, seconds: list[int]) -> JobReadings:
    """Return readings in which a GPU comes late in some seconds: it rests for most of them and of half of the next, the others wait."""
    engine, tensor = readings.engine.copy(), readings.tensor.copy()
    for second in seconds:
        tensor[second] = 0
        tensor[second + 1] *= 0.5
        engine[second, gpu], engine[second + 1, gpu] = 0.15, 0.5
    return replace(readings, engine=engine, tensor=tensor)


def spells(readings: JobReadings) -> list[SlowSpell]:
    return slow_devices(readings, 1.0)


def test_who_comes_late_in_each_step_is_found_within_15_seconds() -> None:
    (one,) = spells(resting(healthy(), LATE, list(range(BEGINS, SECONDS - 1, 4))))
    assert (one.device, one.sign) == (LATE, "late")
    assert one.found <= BEGINS + 15


def test_a_checkpoint_just_before_hides_no_late_gpu() -> None:
    readings = paused(healthy(), BEGINS - 20, BEGINS)
    (one,) = spells(resting(readings, LATE, list(range(BEGINS, SECONDS - 1, 4))))
    assert one.device == LATE
    assert one.found <= BEGINS + 15


def test_a_single_long_rest_is_none() -> None:
    assert spells(paused(healthy(), BEGINS, BEGINS + 4, slice(LATE, LATE + 1))) == []


def test_who_writes_a_checkpoint_for_longer_than_the_others_is_none() -> None:
    assert spells(paused(paused(healthy(), BEGINS - 20, BEGINS), BEGINS, BEGINS + 20, slice(LATE, LATE + 1))) == []


def test_two_that_rest_in_turn_as_with_a_slow_disk_are_none() -> None:
    turns = resting(healthy(), 2, list(range(BEGINS, SECONDS - 1, 12)))
    assert spells(resting(turns, LATE, list(range(BEGINS + 6, SECONDS - 1, 12)))) == []


def test_where_the_fault_of_another_ends_none_is_blamed() -> None:
    # half a minute each: for 45 windows the second GPU computes longer; then it does not, and both do 6 % less for a reason that both share
    readings = healthy(2)
    sm, tensor = readings.sm.copy(), readings.tensor.copy()
    sm[:, 0] *= 1.03
    sm[10:55, 1] *= 1.4
    tensor[10:55] *= 0.9
    sm[55:] *= 0.975
    tensor[55:] *= 0.9 * 0.94
    found = slow_devices(replace(readings, sm=sm, tensor=tensor), 30.0)
    assert {one.device for one in found} == {1}


@pytest.mark.parametrize(("share", "found"), [(LASTING - 0.1, []), (LASTING + 0.1, [FROM_START - 1])])
def test_one_that_computes_longer_from_the_start_must_do_so_by_more(share: float, found: list[int]) -> None:
    readings = healthy()
    sm = readings.sm.copy()
    sm[:, LATE] *= np.exp(share * BUSIER)
    assert [one.found for one in slow_devices(replace(readings, sm=sm), 30.0)] == found


@pytest.mark.parametrize(("activity", "pauses"), [(RESTS - 0.01, True), (RESTS + 0.01, False)])
def test_a_job_pauses_where_most_devices_rest_for_longer_than_they_work(activity: float, pauses: bool) -> None:
    engine, tensor = np.full((9, 3), 0.99), np.full((9, 3), 0.5)
    engine[4, :2] = activity
    # the second before and after hold the edges of the pause
    assert job_pauses(engine, tensor, 10)[:, 2].tolist() == [False] * 3 + [pauses] * 3 + [False] * 3


@pytest.mark.parametrize(("activity", "pauses"), [(QUIET - 0.01, True), (QUIET + 0.01, False)])
def test_one_that_rests_in_nearly_all_of_half_a_minute_pauses(activity: float, pauses: bool) -> None:
    engine, tensor = np.full((9, 3), 0.99), np.full((9, 3), 0.5)
    engine[4, 0] = activity
    assert job_pauses(engine, tensor, 1)[4].tolist() == [pauses, False, False]


def test_a_device_pauses_until_it_works_itself() -> None:
    engine, tensor = np.full((9, 3), 0.99), np.full((9, 3), 0.5)
    engine[2:4], tensor[2:4] = 0, 0
    tensor[4:6, 0] = 0
    assert job_pauses(engine, tensor, 1)[:, 0].tolist() == [False] * 2 + [True] * 4 + [False] * 3
    assert job_pauses(engine, tensor, 1)[:, 1].tolist() == [False] * 2 + [True] * 2 + [False] * 5


WINDOWS = 60


def waiting_idle(hosts: tuple[str, ...], slow: dict[str, float], others: dict[str, float]) -> JobReadings:
    """Return half-minute readings of a job whose last device is slow from the start, and whose others wait without work on the GPU."""
    count = len(hosts)
    columns = {name: np.full((WINDOWS, count), others[name]) for name in others}
    for name, value in slow.items():
        columns[name][:, -1] = value
    full = {"clock": np.full((WINDOWS, count), 1.4e9), "replays": np.zeros((WINDOWS, count))} | columns
    return JobReadings(times=30_000 * np.arange(WINDOWS, dtype=np.int64), hosts=hosts, models=("H100",) * count, **full)


@pytest.mark.parametrize("hosts", [("a",) * 4, ("a", "b", "c", "d")])
def test_who_computes_for_longer_is_found_where_the_others_wait_idle(hosts: tuple[str, ...]) -> None:
    readings = waiting_idle(hosts, {"tensor": 0.18, "sm": 0.64, "engine": 0.73}, {"tensor": 0.18, "sm": 0.4, "engine": 0.46})
    (one,) = slow_devices(readings, 30.0)
    assert (one.device, one.sign, one.end) == (3, "busy", None)
    assert one.longer == pytest.approx(1.6)
    # it needs 73 % of the time for what the others do in 46 %
    assert one.waited[one.found :] == pytest.approx(0.73 * (1 - 1 / 1.6))


def test_who_waits_busily_for_one_that_rests_is_not_blamed() -> None:
    readings = waiting_idle(("a", "b"), {"tensor": 0.25, "sm": 0.47, "engine": 1.0}, {"tensor": 0.25, "sm": 0.4, "engine": 0.5})
    assert [one for one in slow_devices(readings, 30.0) if one.device == 1] == []


def test_a_job_whose_engines_are_never_busy_pauses_only_until_it_has_shown_that() -> None:
    engine, tensor = np.full((9, 3), 0.4), np.full((9, 3), 0.2)
    assert job_pauses(engine, tensor, 1, 4)[:, 0].tolist() == [True] * 4 + [False] * 5
    engine[6:8] = 0.4 * RESTS + np.array([[0.01], [-0.01]])  # a little more than half of its usual, and a little less
    assert job_pauses(engine, tensor, 1, 4)[4:, 0].tolist() == [False] * 3 + [True, False]
