"""Calls that only ask CUDA for what it knows: left out of recordings, told how many, all recorded where that is asked for."""

from __future__ import annotations

import pytest

from tests.recorder.recorder_runs import in_python, read, run_cuda
from ullage.cupti.chunks import HostKind
from ullage.cupti.kinds import ENQUIRIES, ActivityKind, call_name, enquiries

DRIVER, RUNTIME = ActivityKind.DRIVER, ActivityKind.RUNTIME
LAUNCH, CREATED = 211, 155  # cudaLaunchKernel, cuCtxCreate_v2


def recorded(ran, kind):
    return {call_name(kind == DRIVER, int(record["cbid"])) for record, _ in ran.only.records(kind)}


@pytest.mark.parametrize("version", ["130000", "130101", "130500"])  # of one subscriber alone, and of several
def test_calls_that_are_left_out_have_no_records_and_all_others_have(version, tmp_path):
    for name in ("every", "some"):
        (tmp_path / name).mkdir()
    every = run_cuda(tmp_path / "every", CUPTI_DOUBLE_VERSION=version)
    some = run_cuda(tmp_path / "some", CUPTI_DOUBLE_VERSION=version, ULLAGE_CALLS_LEFT_OUT=f"4:{CREATED},5:7+{LAUNCH}")
    assert {"cudaLaunchKernel"} == recorded(every, RUNTIME) - recorded(some, RUNTIME)
    assert recorded(some, RUNTIME) < recorded(every, RUNTIME) and recorded(some, DRIVER) <= recorded(every, DRIVER)
    assert some.only.info["calls_left_out"] == 3 and "calls_left_out" not in every.only.info
    assert len(some.only.records(ActivityKind.CONCURRENT_KERNEL)) == len(every.only.records(ActivityKind.CONCURRENT_KERNEL)) > 0


@pytest.mark.parametrize("listed", ["", "5:", "5", "x", "5:x", "4:+", "5:0", "5:99999999999999999999", "6:1+2"])
def test_a_list_that_says_nothing_leaves_nothing_out_and_harms_nobody(listed, tmp_path):
    ran = run_cuda(tmp_path, ULLAGE_CALLS_LEFT_OUT=listed)
    assert ran.code == 0 and "cudaLaunchKernel" in recorded(ran, RUNTIME) and "calls_left_out" not in ran.only.info


@pytest.mark.parametrize("fault", ["cuptiActivityEnableRuntimeApi=999", "cuptiActivityEnableRuntimeApi=27"])
def test_where_cupti_will_not_leave_calls_out_they_are_recorded_and_it_is_said(fault, tmp_path):
    ran = run_cuda(tmp_path, ULLAGE_CALLS_LEFT_OUT=f"5:{LAUNCH}+7", CUPTI_DOUBLE_FAULTS=fault)
    assert "cudaLaunchKernel" in recorded(ran, RUNTIME) and "calls_left_out" not in ran.only.info
    assert ran.only.info["calls_not_left_out"] == {"calls": 2, "answer": int(fault.partition("=")[2])}


def test_calls_that_are_left_out_are_not_called_back_either(tmp_path):
    kinds = {"ULLAGE_KINDS": "10", "ULLAGE_CALLBACKS": "runtime,driver"}
    some = run_cuda(tmp_path, **kinds, ULLAGE_CALLS_LEFT_OUT=f"5:{LAUNCH}")
    called = some.only.did(HostKind.API)
    assert "cuLaunchKernel" in called and "cudaLaunchKernel" not in called and some.only.info["calls_left_out"] == 1
    assert some.only.end["api_callbacks"] == len(called) - 1  # cuInit is told by nobody


def test_they_stay_left_out_after_a_pause(tmp_path):
    code = f"launch()\nr.attach({str(tmp_path / 'rec')!r})\nlaunch(); r.stop(); launch(); r.start(); launch()\nr.detach()\nprint('{{}}')\n"
    in_python(tmp_path, code, ULLAGE_CALLS_LEFT_OUT=f"5:{LAUNCH}")
    (path,) = (path for path in (tmp_path / "rec").iterdir() if path.suffix == ".ullage")
    found = read(path)
    assert not [record for record, _ in found.records(RUNTIME) if record["cbid"] == LAUNCH]
    assert len(found.records(ActivityKind.CONCURRENT_KERNEL)) == 2


def test_the_recorder_is_told_every_release_of_an_enquiry_and_nothing_that_works_or_waits():
    listed = {int(kind): numbers.split("+") for kind, _, numbers in (part.partition(":") for part in enquiries().split(","))}
    names = {kind: {call_name(kind == DRIVER, int(number)) for number in numbers} for kind, numbers in listed.items()}
    assert ENQUIRIES[RUNTIME] <= names[RUNTIME] and ENQUIRIES[DRIVER] <= names[DRIVER] | {"cuCtxGetId"}
    assert {"cuGetProcAddress_v2", "cuCtxPopCurrent_v2", "cudaStreamIsCapturing_ptsz"} <= names[DRIVER] | names[RUNTIME]
    working = ("Launch", "Memcpy", "Memset", "Synchronize", "Query", "Wait", "Alloc", "Free", "LoadData", "Record", "Create", "Retain")
    assert not [name for kind in names for name in names[kind] if any(word in name for word in working)]
    assert len(enquiries()) < 1000
