"""What ranges and PM sampling share on a GPU: CUPTI's profiler begun, the device and its chip, what it can count here."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any

from ullage.cupti.counters.host import prepare
from ullage.cupti.counters.structures import call, room
from ullage.cupti.library import Library
from ullage.cupti.results import INVALID_OPERATION, CuptiError
from ullage.errors import UllageError

_RANGES, _SAMPLING = 0, 3  # CUpti_Profiler_API
_UNSUPPORTED, _DISABLED, _SUPPORTED = 1, 2, 3  # CUpti_Profiler_Support_Level
_STATES = {
    "architecture": "the architecture is older than Volta", "sli": "SLI", "vGpu": "a virtual GPU", "wsl": "WSL", "sku": "this product",
    "confidentialCompute": "confidential computing", "cmp": "a mining processor",
}  # fmt: skip


def begin(library: Library) -> None:
    """Begin CUPTI's profiler in this process.

    It is never ended again: cuptiProfilerDeInitialize is global and doesn't count who began, so that it would pull the ground from under
    another profiler of this process (PyTorch's), and a second call crashes. Begun alone it holds nothing on the GPU.
    """
    prepare(library)
    try:
        call(library, "cuptiProfilerInitialize", "beginning to count")
    except CuptiError as error:
        if error.code != INVALID_OPERATION:
            raise


def let_go(give_back: Callable[[], object]) -> None:
    """Give something back; what fails here has no remedy, and must not hide what happened before."""
    with contextlib.suppress(UllageError):
        give_back()


def device_of(library: Library, context: int) -> int:
    """Return the number of a context's device."""
    device = ctypes.c_uint32()
    library.call("cuptiGetDeviceId", ctypes.c_void_p(context), ctypes.byref(device), doing="finding the context's GPU")
    return device.value


def chip_name(library: Library, device: int) -> str:
    """Return the chip of a device as CUPTI calls it ("GH100")."""
    told = call(library, "cuptiDeviceGetChipName", f"asking which chip GPU {device} is", deviceIndex=device)
    return (told.pChipName or b"").decode()


def hindrances(library: Library, device: int, sampling: bool = False) -> list[str]:
    """Return what of a GPU stands in the way of counters, in words; [] where nothing does.

    Privileges aren't among it: they show when counting begins. Source: cuptiProfilerDeviceSupported.
    """
    begin(library)
    told = call(
        library, "cuptiProfilerDeviceSupported", f"asking what GPU {device} allows", cuDevice=device, api=_SAMPLING if sampling else _RANGES
    )  # fmt: skip
    if told.isSupported == _SUPPORTED:
        return []
    words = {_UNSUPPORTED: "not supported", _DISABLED: "switched off"}
    states = {field: words.get(getattr(told, field, _SUPPORTED)) for field in _STATES}
    return [f"{_STATES[field]}: {word}" for field, word in states.items() if word] or ["CUPTI doesn't say what"]


def availability(library: Library, function: str, **which: Any) -> Any:
    """Return what a GPU can count here and now, as the profiler host takes it.

    Refused for want of privileges, and while something else counts on the GPU. Raises CuptiError.
    """
    doing = "asking what this GPU can count"
    size = call(library, function, doing, **which).counterAvailabilityImageSize
    image = room(size)
    call(library, function, doing, counterAvailabilityImageSize=size, pCounterAvailabilityImage=image, **which)
    return image
