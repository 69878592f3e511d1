"""A device's state saved and restored through libcheckpoint's documented interface, on a double of it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cupti import cupti_double
from tests.cupti.wheel_headers import headers
from ullage.cupti import checkpoint
from ullage.cupti.checkpoint import NONE_OF_IT, Checkpoint, Handle, replay
from ullage.cupti.results import CuptiError
from ullage.errors import UllageError

CONTEXT = 0x1234


class Double:
    def __init__(self):
        self.path = cupti_double.checkpoint()
        handle = ctypes.CDLL(str(self.path))
        self._device = ctypes.c_int.in_dll(handle, "checkpoint_double_device")
        self._calls = (ctypes.c_char * 1024).in_dll(handle, "checkpoint_double_calls")
        self.seen = Handle.in_dll(handle, "checkpoint_double_seen")
        self._calls.value, self.device = b"", 0

    @property
    def device(self):
        return self._device.value

    @device.setter
    def device(self, value):
        self._device.value = value

    @property
    def calls(self):
        return self._calls.value.decode().split()


@pytest.fixture
def double(monkeypatch):
    monkeypatch.delenv("CHECKPOINT_DOUBLE_FAULTS", raising=False)
    return Double()


def test_the_context_that_is_current_is_named_because_libcheckpoint_finds_none_itself(double, monkeypatch):
    monkeypatch.setattr(checkpoint, "current_context", lambda: CONTEXT)
    with Checkpoint(path=double.path):
        assert double.seen.context == CONTEXT
    monkeypatch.undo()
    with pytest.raises(UllageError, match="no NVIDIA driver answers"):
        Checkpoint(path=double.path).save()


def test_a_restored_device_is_as_it_was_saved_and_the_room_is_freed_once(double):
    double.device = 5
    with Checkpoint(CONTEXT, path=double.path) as saved:
        double.device = 9
        saved.restore()
        assert double.device == 5
        double.device = 7
        saved.restore()
        assert double.device == 5
    saved.free()
    assert double.calls == ["save", "restore", "restore", "free"]


def test_the_room_is_freed_when_the_body_fails_and_its_error_is_the_one_told(double, monkeypatch):
    monkeypatch.setenv("CHECKPOINT_DOUBLE_FAULTS", "free=999")
    with pytest.raises(ZeroDivisionError), Checkpoint(CONTEXT, path=double.path):
        1 / 0  # noqa: B018
    assert double.calls == ["save", "free"]


def test_every_option_reaches_the_library(double):
    with Checkpoint(CONTEXT, reserve_device=512, reserve_host=NONE_OF_IT, overwrite=True, only_changed=True, path=double.path):
        pass
    seen = double.seen
    assert (seen.size, seen.context, seen.reserve_device, seen.reserve_host) == (48, 0x1234, 512, 2**64 - 1)
    assert (seen.overwrite, seen.optimizations) == (1, 1)


def test_saving_twice_needs_to_be_allowed(double):
    with Checkpoint(CONTEXT, path=double.path) as saved, pytest.raises(UllageError, match="holds a state already"):
        saved.save()
    double.device = 1
    with Checkpoint(CONTEXT, overwrite=True, path=double.path) as saved:
        double.device = 2
        saved.save()
        double.device = 3
        saved.restore()
    assert double.device == 2


def test_a_freed_checkpoint_can_be_used_again_and_not_be_restored(double):
    one = Checkpoint(CONTEXT, path=double.path)
    for _ in range(2):
        with one:
            pass
    with pytest.raises(UllageError, match="holds no state"):
        one.restore()
    assert double.calls == ["save", "free", "save", "free"]


def test_too_little_room_says_what_the_room_is_for(double, monkeypatch):
    monkeypatch.setenv("CHECKPOINT_DOUBLE_FAULTS", "save=8")
    with pytest.raises(CuptiError, match="saving the GPU's state failed: memory ran out") as caught, Checkpoint(CONTEXT, path=double.path):
        pass
    assert "as much room as the GPU's memory in use" in caught.value.hint
    assert double.calls == ["save"], "what was never saved is not freed"


def test_each_pass_of_a_replay_begins_with_the_same_device(double):
    double.device = 10
    seen = []

    def run(number):
        seen.append(double.device)
        double.device += number + 1
        return double.device

    # each pass sees 10; the last one leaves 10 + 3 behind
    assert replay(run, 3, Checkpoint(CONTEXT, path=double.path)) == [11, 12, 13]
    assert seen == [10, 10, 10]
    assert (double.device, double.calls) == (13, ["save", "restore", "restore", "free"])


def test_one_pass_needs_no_checkpoint(double):
    assert replay(lambda number: number, 1, Checkpoint(CONTEXT, path=double.path)) == [0]
    assert double.calls == []


def test_a_failed_pass_frees_the_checkpoint(double):
    def run(number):
        if number == 1:
            raise ValueError("the second pass")
        return number

    with pytest.raises(ValueError, match="second"):
        replay(run, 3, Checkpoint(CONTEXT, path=double.path))
    assert double.calls == ["save", "restore", "free"]


def test_a_library_that_is_none_is_named(tmp_path):
    with pytest.raises(UllageError, match="can't be loaded"):
        Checkpoint(path=tmp_path / "libcheckpoint.so")
    with pytest.raises(UllageError, match="has no cuptiCheckpointSave"):
        Checkpoint(path=Path("libc.so.6"))
    with pytest.raises(UllageError, match="reserve_device of -1 MB"):
        Checkpoint(reserve_device=-1)


def test_the_handle_is_that_of_nvidias_header(tmp_path):
    compiler = shutil.which("g++") or pytest.skip("no compiler for C++, which this header is written in")
    fields = {"structSize": "size", "ctx": "context", "reserveDeviceMB": "reserve_device", "reserveHostMB": "reserve_host",
              "allowOverwrite": "overwrite", "optimizations": "optimizations", "pPriv": "private"}  # fmt: skip
    for folders, version in headers():
        text = "#include <cstdio>\n#include <cupti_checkpoint.h>\nusing namespace NV::Cupti::Checkpoint;\nint main() {\n"
        text += "".join(f'std::printf("%zu\\n", offsetof(CUpti_Checkpoint, {name}));\n' for name in fields)
        text += 'std::printf("%zu\\n%d\\n", CUpti_Checkpoint_STRUCT_SIZE, CUPTI_CHECKPOINT_OPT_TRANSFER); }\n'
        Path(tmp_path, "sizes.cpp").write_text(text)
        command = [compiler, *(f"-I{one}" for one in folders), "-o", str(tmp_path / "sizes"), str(tmp_path / "sizes.cpp")]
        subprocess.run(command, check=True, capture_output=True)
        told = [int(word) for word in subprocess.run([tmp_path / "sizes"], check=True, capture_output=True).stdout.split()]
        ours = [getattr(Handle, mine).offset for mine in fields.values()]
        assert [*ours, ctypes.sizeof(Handle), checkpoint.ONLY_CHANGED] == told, f"release {version}"
