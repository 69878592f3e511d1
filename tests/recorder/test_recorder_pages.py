"""Unified memory: what moves is configured before it is asked for, as CUPTI wants it, and told once CUDA's driver is initialised."""

from __future__ import annotations

import ctypes

import pytest

from tests.cupti import cupti_double
from tests.recorder.recorder_runs import LAYOUTS, run_cuda
from tests.recorder.recordings import rows
from ullage.cupti.kinds import ALSO, DEFAULT, ActivityKind
from ullage.live.recording import kinds
from ullage.traces.recorded.device import _SORTS

PAGES = ActivityKind.UNIFIED_MEMORY_COUNTER
ASKED = {"ULLAGE_KINDS": ",".join(map(str, kinds(also=["unified-memory"]))), "ULLAGE_NAMES": LAYOUTS.name_offsets(DEFAULT)}
NOT_INITIALIZED, NOT_ON_THIS_DEVICE = 15, 29


def test_pages_that_move_are_recorded_though_the_driver_is_not_initialised_when_it_brings_the_recorder_in(tmp_path):
    ran = run_cuda(tmp_path, "--pages", "3", **ASKED)
    (told,) = cupti_double.told(ran.output)
    moved = [(int(r["counterKind"]), int(r["start"]), int(r["end"]), int(r["value"])) for r, _ in ran.only.records(PAGES)]
    assert moved == [(1, start, end, size) for _, _, start, end, size in told.of(PAGES)] and len(moved) == 3
    assert ran.only.info["kinds"][str(PAGES)] == 0 and "problems" not in ran.only.info


def test_pages_that_move_are_copies_to_the_device_in_the_trace(tmp_path):
    ran = run_cuda(tmp_path, "--pages", "2", **ASKED)
    copies = [row for row in rows(ran.only.path)[0] if row["name"] == "Memcpy Unified HtoD"]
    assert [(row["kind"], row["bytes"], row["device"]) for row in copies] == [("memcpy", 4096, 0)] * 2


def test_with_one_gpu_pages_between_devices_are_not_asked_for_but_the_others_are(tmp_path):
    ran = run_cuda(tmp_path, "--pages", "1", CUPTI_DOUBLE_FAULTS="one-device", **ASKED)
    assert len(ran.only.records(PAGES)) == 1 and ran.only.info["kinds"][str(PAGES)] == 0


def test_where_unified_memory_cannot_be_told_the_report_says_why(tmp_path):
    fault = f"cuptiActivityConfigureUnifiedMemoryCounter={NOT_ON_THIS_DEVICE}"
    ran = run_cuda(tmp_path, "--pages", "1", CUPTI_DOUBLE_FAULTS=fault, **ASKED)
    assert (ran.code, ran.only.records(PAGES), ran.only.info["kinds"][str(PAGES)]) == (0, [], NOT_ON_THIS_DEVICE)


class PageCounter(ctypes.Structure):
    _fields_ = [("scope", ctypes.c_int), ("kind", ctypes.c_int), ("device", ctypes.c_uint32), ("enable", ctypes.c_uint32)]


@pytest.mark.parametrize(("scope", "kind", "answer"), [(1, 1, 0), (2, 8, 0), (1, 9, 1), (1, 0, 1), (0, 1, 1), (3, 1, 1)])
def test_the_double_refuses_counters_that_do_not_exist(scope, kind, answer):
    double = cupti_double.loaded()
    assert double.cuptiActivityConfigureUnifiedMemoryCounter(ctypes.byref(PageCounter(scope, kind, 0, 1)), 1) == answer


def test_whatever_is_asked_for_by_default_or_may_be_asked_for_besides_has_a_reader():
    on_hosts = {ActivityKind.RUNTIME, ActivityKind.DRIVER, ActivityKind.SYNCHRONIZATION, ActivityKind.OVERHEAD}
    beside = {ActivityKind.DEVICE, ActivityKind.MARKER}
    assert DEFAULT | set(ALSO.values()) <= set(_SORTS) | on_hosts | beside
