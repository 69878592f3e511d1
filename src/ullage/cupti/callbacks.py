"""CUPTI's callbacks (guide, 2.4): a subscriber hears what the program does with CUDA, as it happens.

Meant for what is rare: contexts, streams, modules, graphs, synchronisations, NVTX ranges. A callback in Python costs microseconds and
the interpreter's lock, so calls of the driver and the runtime, thousands a second, belong to the recorder in C (`native/`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from ullage.cupti.heard import Domain, Heard, decoded
from ullage.cupti.library import Library
from ullage.cupti.permissions import holders
from ullage.cupti.results import MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, CuptiError

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
_FOR_EVER: list[Any] = []  # CUPTI may call a function once more while it is being unsubscribed


class Subscriber:
    """The one subscriber of this process. `heard` is called for every callback that is enabled; none is at first.

    `failure` is the first exception that `heard` raised: none can pass through CUPTI, and the program goes on.
    Raises CuptiError where another is subscribed, with who that may be. Close it, or use it as a context manager.
    """

    def __init__(self, library: Library, heard: Callable[[Heard], None] = lambda _: None) -> None:
        self.failure: Exception | None = None
        self._library, self._heard = library, heard
        self._function = _CALLBACK(self._called)
        _FOR_EVER.append(self._function)
        self._handle = ctypes.c_void_p()
        code = library.ask("cuptiSubscribe", ctypes.byref(self._handle), self._function, None)
        if code:
            self._handle = ctypes.c_void_p()
            raise _refused(code)

    def enable(self, domain: Domain, callback: IntEnum | int | None = None, on: bool = True) -> None:
        """Enable one callback of a domain by its id, or without one all of the domain; `on=False` ends that. Raises CuptiError."""
        if callback is None:
            self._library.call("cuptiEnableDomain", int(on), self._handle, domain, doing=f"hearing of domain {domain.name}")
        else:
            doing = f"hearing of callback {int(callback)} of domain {domain.name}"
            self._library.call("cuptiEnableCallback", int(on), self._handle, domain, ctypes.c_uint32(int(callback)), doing=doing)

    def enable_all(self, on: bool = True) -> None:
        """Enable every callback of every domain, or none. Raises CuptiError."""
        self._library.call("cuptiEnableAllDomains", int(on), self._handle, doing="hearing of everything")

    def enabled(self, domain: Domain, callback: IntEnum | int) -> bool:
        """Whether a callback is enabled. Raises CuptiError."""
        told = ctypes.c_uint32()
        self._library.call(
            "cuptiGetCallbackState", ctypes.byref(told), self._handle, domain, ctypes.c_uint32(int(callback)), doing="asking what is heard"
        )
        return bool(told.value)

    def forget(self) -> None:
        """Count as closed: cuptiFinalize has ended the subscription."""
        self._handle = ctypes.c_void_p()

    def close(self) -> None:
        """Unsubscribe; a second call does nothing."""
        if self._handle:
            handle, self._handle = self._handle, ctypes.c_void_p()
            self._library.call("cuptiUnsubscribe", handle, doing="unsubscribing")

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _called(self, _: int | None, domain: int, callback: int, data: int | None) -> None:
        try:
            self._heard(decoded(domain, callback, data or 0))
        except Exception as failure:
            self.failure = self.failure or failure


def name(library: Library, domain: Domain, callback: int) -> str:
    """Return what CUPTI calls a callback ("cudaLaunchKernel_v7000"); "" where it knows none."""
    text = ctypes.c_char_p()
    code = library.ask("cuptiGetCallbackName", domain, ctypes.c_uint32(callback), ctypes.byref(text))
    return text.value.decode(errors="replace") if code == 0 and text.value else ""


def _refused(code: int) -> CuptiError:
    error = CuptiError("attaching to CUPTI", code)
    who = holders() if code == MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED else []
    return error.adding(f"it may be {' or '.join(who)}") if who else error
