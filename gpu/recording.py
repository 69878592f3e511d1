"""A recorder around pynvml: every call that goes through it, with arguments and reply made plain, for tests to replay.

A recording is JSON: `calls` is a list of [function, arguments, reply, microseconds], where a reply is {"reply": …} or
{"error": number}; `constants` are the NVML_… numbers that were looked up; `clock` what the reader's clock said; `errors`
the words of the error numbers. An opaque object (a handle, a GPM sample) is {"object": number}, a structure
{"fields": {…}}, bytes {"bytes": "…"}. The call nvmlGpmMetricsGet has as arguments the version, the two samples and the
list of metric ids, and as reply a list of [nvmlReturn, value]. UUIDs are pseudonyms.
"""

from __future__ import annotations

import ctypes
import gzip
import json
import time
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from typing import Any

from gpu.machine import text
from ullage.gpus.names import pseudonym

FORMAT = "ullage nvml recording 1"
# What a reader may look up only where a call fails, so that a replay can fail too.
ALWAYS = ("NVML_SUCCESS", "NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_FUNCTION_NOT_FOUND")


class Recorder:
    """Stands before `nvml` (the module pynvml, or its double) and answers as it does; `recording()` is what was said."""

    def __init__(self, nvml: Any, clock: Callable[[], int], timer: Callable[[], float] = time.perf_counter) -> None:
        self._nvml, self._clock, self._timer = nvml, clock, timer
        self._numbers: dict[tuple[str, int], int] = {}
        self._kept: list[Any] = []  # an object that lives keeps its identity for itself
        self.constants: dict[str, Any] = {name: getattr(nvml, name) for name in ALWAYS}
        self.calls: list[list[Any]] = []
        self.clocks: list[int] = []
        self.errors: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._nvml, name)
        if isinstance(member, type):
            return member
        if not callable(member):
            self.constants[name] = member
            return member
        return lambda *arguments: self._call(name, member, arguments)

    def clock(self) -> int:
        """Return what the clock says, in ms since 1970, and keep it."""
        self.clocks.append(self._clock())
        return self.clocks[-1]

    def recording(self, **about: Any) -> dict[str, Any]:
        """Return the recording, with what else is to be said of it."""
        kept = {"constants": self.constants, "errors": self.errors, "clock": self.clocks, "calls": self.calls}
        return {"format": FORMAT, **about, **kept}

    def _call(self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        asked = self._metrics_asked(arguments[0]) if name == "nvmlGpmMetricsGet" else [self._plain(a) for a in arguments]
        begin = self._timer()
        try:
            reply = function(*arguments)
        except self._nvml.NVMLError as error:
            self._keep(name, asked, {"error": error.value}, begin)
            self.errors[str(error.value)] = str(error)
            raise
        if name == "nvmlDeviceGetUUID":
            reply = pseudonym(text(reply))
        self._keep(name, asked, {"reply": self._answered(name, reply)}, begin)
        return reply

    def _keep(self, name: str, asked: list[Any], reply: dict[str, Any], begin: float) -> None:
        self.calls.append([name, asked, reply, round((self._timer() - begin) * 1e6)])

    def _answered(self, name: str, reply: Any) -> Any:
        if name == "nvmlGpmMetricsGet":
            return [[metric.nvmlReturn, metric.value] for metric in reply.metrics[: reply.numMetrics]]
        if name == "nvmlGpmSampleAlloc" or ("Handle" in name and _identity(reply) not in self._numbers):
            self._kept.append(reply)
            self._numbers[_identity(reply)] = len(self._kept)
        return self._plain(reply)

    def _metrics_asked(self, request: Any) -> list[Any]:
        ids = [metric.metricId for metric in request.metrics[: request.numMetrics]]
        return [request.version, self._plain(request.sample1), self._plain(request.sample2), ids]

    def _plain(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, bytes):
            return {"bytes": value.decode(errors="replace")}
        if _identity(value) in self._numbers:
            return {"object": self._numbers[_identity(value)]}
        if isinstance(value, list | tuple):
            return [self._plain(item) for item in value]
        if isinstance(value, ctypes.Structure):
            return {"fields": {name: self._plain(getattr(value, name)) for name, *_ in value._fields_}}
        if is_dataclass(value) and not isinstance(value, type):
            return {"fields": asdict(value)}
        raise TypeError(f"a recording can't hold a {type(value).__name__}")


def _identity(value: Any) -> tuple[str, int]:
    """Tell one opaque object from another. ctypes makes a new pointer object at every look; the address stays."""
    if isinstance(value, ctypes._Pointer):
        return "address", ctypes.cast(value, ctypes.c_void_p).value or 0
    return "object", id(value)


def packed(recording: dict[str, Any]) -> bytes:
    """Return a recording as gzipped JSON; the same recording gives the same bytes."""
    return gzip.compress(json.dumps(recording, separators=(",", ":")).encode(), mtime=0)
