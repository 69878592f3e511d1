"""Detaching CUPTI from a process that goes on (guide, 2.3.7).

cuptiFinalize is safe on the way out of a call of the driver, where CUPTI has nothing else under way. So one such call is made here, with
a callback on it, after the buffers are flushed: cuCtxSynchronize, which also is the synchronisation that the guide asks for.
"""

from __future__ import annotations

import contextlib
import ctypes

from ullage.cupti.callbacks import Subscriber
from ullage.cupti.heard import Domain, Heard
from ullage.cupti.library import Library
from ullage.cupti.results import CuptiError

SYNCHRONIZE_CONTEXT = 17  # CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize


class Detaching:
    """Calls cuptiFinalize once, from the right place. `heard` is what the process's subscriber must hear."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._wanted = False
        self._code: int | None = None

    def heard(self, call: Heard) -> None:
        """Finalize on the way out of a call, when that is wanted."""
        if self._wanted and call.domain == Domain.DRIVER and call.details.get("exit"):
            self._wanted = False
            self._code = self._library.ask("cuptiFinalize")

    def finalize(self, subscriber: Subscriber) -> None:
        """Detach; records must have been flushed, and no kind be enabled. Raises CuptiError."""
        subscriber.enable(Domain.DRIVER, SYNCHRONIZE_CONTEXT)
        self._code, self._wanted = None, True
        with contextlib.suppress(OSError, AttributeError):  # no driver, so there is no call to wait for either
            ctypes.CDLL("libcuda.so.1").cuCtxSynchronize()
        self._wanted = False
        if self._code is None:  # CUDA was never begun: nothing is under way
            self._code = self._library.ask("cuptiFinalize")
        if self._code:
            raise CuptiError("detaching from CUPTI", self._code)
        subscriber.forget()
