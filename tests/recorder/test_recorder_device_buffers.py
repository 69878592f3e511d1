"""What CUPTI keeps on devices until it is over is bounded, told, and counted where it finds no room."""

from __future__ import annotations

import ctypes

import pytest

from tests.cupti import cupti_double
from tests.recorder.recorder_runs import run_cuda
from ullage import read_trace
from ullage.recording import RecorderCost, Recording
from ullage.reports.trace.recorder_cost import recorder_cost

MIB = 1 << 20
USUAL = {"bytes": 3_200_000, "limit": 250, "at_first": 3, "pinned": False}  # of CUPTI, and of its double
LIMIT, AT_FIRST, PER_THREAD = 2, 6, 9  # CUpti_ActivityAttribute


@pytest.mark.parametrize(
    ("asked", "bytes_", "limit"),
    [
        (64 * MIB, 3_200_000, 20),  # 67,108,864 / 3,200,000 = 20.97
        (12_800_000, 3_200_000, 4),
        (12_799_999, 3_199_999, 4),  # never fewer than four: three are made at first, and there must be room for one more
        (4 * 65_536, 65_536, 4),
        (1, 65_536, 4),
        (0, 3_200_000, 250),  # CUPTI's own
    ],
)
def test_buffers_on_devices_take_as_much_as_they_may(asked, bytes_, limit, tmp_path):
    info = run_cuda(tmp_path, ULLAGE_DEVICE_MEMORY=str(asked)).only.info
    assert info["device_buffers"] == USUAL | {"bytes": bytes_, "limit": limit}
    assert "problems" not in info


def test_they_are_bounded_unless_somebody_asks_for_more(tmp_path):
    assert run_cuda(tmp_path).only.info["device_buffers"] == USUAL | {"limit": 20}


def test_what_finds_no_room_is_dropped_and_counted(tmp_path):
    # four buffers of 65,536 bytes hold 64 kernels of 4,096 bytes; the device needs 400 ms for what is launched at once
    given = {"ULLAGE_KINDS": "10", "ULLAGE_DEVICE_MEMORY": "1", "CUPTI_DOUBLE_FAULTS": "device-record=4096"}
    ran = run_cuda(tmp_path, "--kernels", "400", "--microseconds", "1000", "--flood", **given)
    (recording,) = ran.recordings
    report = read_trace(recording.path).report()
    (device,) = report.whole.device_parts
    assert recording.dropped == recording.end["dropped"] > 0
    assert device.device.launches + recording.dropped == 400 and device.device.launches >= 64
    assert any(f"{recording.dropped:,} activity records that CUPTI dropped" in note for note in report.notes)


def test_the_report_says_what_buffers_took(tmp_path):
    ran = run_cuda(tmp_path, ULLAGE_DEVICE_MEMORY="16000000")
    said = next(note for note in read_trace(ran.only.path).report().notes if note.startswith("the recorder itself"))
    peak = ran.only.end["memory_peak"] / 1e6
    assert said.endswith(f"; CUPTI's buffers took {peak:.3g} MB of memory and at most 16 MB of each context's GPU")


@pytest.mark.parametrize(
    ("memory", "device", "said"),
    [
        (0, 0, ""),
        (2_100_000, 0, "; CUPTI's buffers took 2.1 MB of memory"),
        (2_100_000, 64_000_000, "; CUPTI's buffers took 2.1 MB of memory and at most 64 MB of each context's GPU"),
    ],
)
def test_buffers_are_spoken_of_where_there_are_any(memory, device, said):
    recording = Recording("a", cost=RecorderCost(1, 0, 10**9, memory=memory, device_memory=device))
    assert recorder_cost([recording])[0].endswith(f"0 s in its own{said}")


def test_where_cupti_refuses_its_own_size_holds_and_that_is_said(tmp_path):
    info = run_cuda(tmp_path, CUPTI_DOUBLE_FAULTS="cuptiActivitySetAttribute=1").only.info
    assert info["device_buffers"] == USUAL
    assert [problem["what"] for problem in info["problems"]] == ["cuptiActivitySetAttribute"]


def test_the_double_refuses_what_cupti_does():
    cupti = ctypes.CDLL(str(cupti_double.library()))
    cupti.cupti_double_reset()

    def set_attribute(which, value):
        asked = ctypes.c_size_t(value)
        return cupti.cuptiActivitySetAttribute(which, ctypes.byref(ctypes.c_size_t(8)), ctypes.byref(asked))

    invalid_parameter, invalid_operation = 1, 7
    assert [set_attribute(LIMIT, 3), set_attribute(LIMIT, 4)] == [invalid_parameter, 0]
    assert [set_attribute(AT_FIRST, 4), set_attribute(AT_FIRST, 3)] == [invalid_parameter, 0]
    assert set_attribute(PER_THREAD, 1) == 0
    requested = ctypes.CFUNCTYPE(None)(lambda: None)
    cupti.cuptiActivityRegisterCallbacks(requested, requested)
    assert set_attribute(PER_THREAD, 1) == invalid_operation
    cupti.cupti_double_reset()
