"""What NVML tells that only somebody who looks at a machine wants: errors of a board and its links, and who works on it.

It is asked for apart from a reading (`nvml_readings`), so that sampling costs no more for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

from ullage.sources.machine import Device, DeviceProcess
from ullage.sources.nvml_readings import NvmlDevice

_LINK_FIELDS = {
    "nvlink_replays": "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "nvlink_recoveries": "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
}
_VALUES = {1: "uiVal", 2: "ulVal", 3: "ullVal"}  # nvmlValueType_t: which member of the union was filled
MOST_EVENTS = 100  # Xid errors that are taken at a look
SAMPLED_EVERY = 1_000_000  # µs: NVML samples what processes use "between 1 second and 1/6 second, depending on the product"
NOT_AVAILABLE = 2**64 - 1  # what NVML says for a process's memory that it can't tell


class BoardHealth:
    """The errors of every board, and the last Xid error of each since this was entered; what a driver refuses is absent.

    Xid errors come as events, for which a set is open as long as the body runs.
    """

    def __init__(self, nvml: Any, devices: Sequence[NvmlDevice]) -> None:
        self._nvml = nvml
        self._boards = [device for device in devices if device.instance is None]
        self._events: Any = None
        self._xids: dict[str, float] = {}
        self._begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._events is not None:
            with suppress(self._nvml.NVMLError, AttributeError):
                self._nvml.nvmlEventSetFree(self._events)

    def read(self) -> dict[Device, dict[str, float]]:
        """Return what each board tells now: fields of `field.HEALTH`."""
        self._take_events()
        return {(board.uuid, None): self._board_errors(board) for board in self._boards}

    def _board_errors(self, board: NvmlDevice) -> dict[str, float]:
        nvml, told = self._nvml, {}
        with suppress(nvml.NVMLError, AttributeError):
            told["ecc_uncorrected"] = float(
                nvml.nvmlDeviceGetTotalEccErrors(board.handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
            )
        with suppress(nvml.NVMLError, AttributeError):
            _, uncorrected, _, failed = nvml.nvmlDeviceGetRemappedRows(board.handle)
            told |= {"remapped_rows": float(uncorrected), "remap_failed": float(bool(failed))}
        for name, field in _LINK_FIELDS.items():
            with suppress(nvml.NVMLError, AttributeError, KeyError):
                [answer] = nvml.nvmlDeviceGetFieldValues(board.handle, [getattr(nvml, field)])
                if answer.nvmlReturn == nvml.NVML_SUCCESS:
                    told[name] = float(getattr(answer.value, _VALUES[answer.valueType]))
        if board.uuid in self._xids:
            told["xid"] = self._xids[board.uuid]
        return told

    def _take_events(self) -> None:
        """Take the Xid errors that came since the look before."""
        nvml = self._nvml
        if not self._begun:
            self._begun = True
            with suppress(nvml.NVMLError, AttributeError):
                self._events = nvml.nvmlEventSetCreate()
                for board in self._boards:
                    with suppress(nvml.NVMLError):
                        nvml.nvmlDeviceRegisterEvents(board.handle, nvml.nvmlEventTypeXidCriticalError, self._events)
                        self._xids[board.uuid] = 0.0
        if self._events is None:
            return
        for _ in range(MOST_EVENTS):
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = nvml.nvmlDeviceGetUUID(event.device)
            except (nvml.NVMLError, AttributeError):  # none came, or the driver does not tell
                return
            self._xids[uuid.decode() if isinstance(uuid, bytes) else uuid] = float(event.eventData)


def device_processes(nvml: Any, device: NvmlDevice) -> list[DeviceProcess]:
    """Return the processes that compute or draw on a device, those that compute first; one that does both computes."""
    found: dict[int, DeviceProcess] = {}
    kinds: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("C", lambda: nvml.nvmlDeviceGetComputeRunningProcesses(device.handle)),
        ("G", lambda: nvml.nvmlDeviceGetGraphicsRunningProcesses(device.handle)),
    )
    shares = _sm_shares(nvml, device)
    for kind, ask in kinds:
        with suppress(nvml.NVMLError, AttributeError):
            for one in ask():
                memory = getattr(one, "usedGpuMemory", None)
                known = None if memory is None or memory == NOT_AVAILABLE else float(memory)
                found.setdefault(int(one.pid), DeviceProcess(int(one.pid), kind, known, shares.get(int(one.pid))))
    return list(found.values())


def _sm_shares(nvml: Any, device: NvmlDevice) -> dict[int, float]:
    """Return the share of time in which each process had SMs busy, by NVML's last sample of it.

    A process without a sample since the reading before, or for `SAMPLED_EVERY`, has none, and so have MIG instances.
    """
    newest: dict[int, tuple[int, float]] = {}
    if device.instance is None:
        since = min(device.processes_seen, time.time_ns() // 1000 - SAMPLED_EVERY)
        with suppress(nvml.NVMLError, AttributeError):  # NVML_ERROR_NOT_FOUND: no sample since then
            for one in nvml.nvmlDeviceGetProcessUtilization(device.handle, since):
                if 0 <= one.smUtil <= 100:
                    newest[int(one.pid)] = max(newest.get(int(one.pid), (0, 0.0)), (int(one.timeStamp), one.smUtil / 100))
        device.processes_seen = max([since, *(when for when, _ in newest.values())])
    return {pid: share for pid, (_, share) in newest.items()}
