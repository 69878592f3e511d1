"""The machine code that a program loads: kept as it comes, told apart by CUPTI's CRC, its addresses turned into lines of source."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ullage.cupti.pc_sampling.structures import CrcParams, SourceParams, sized

if TYPE_CHECKING:
    from ullage.cupti.library import Library

RESOURCE = 3  # CUPTI_CB_DOMAIN_RESOURCE
LEAVING, LOADED, UNLOADING = 2, 6, 7  # CUPTI_CBID_RESOURCE_…: CONTEXT_DESTROY_STARTING, MODULE_LOADED, MODULE_UNLOAD_STARTING
LARGEST = 256 << 20  # bytes of one cubin that is kept
MOST = 2 << 30  # bytes of all of them


class _Resource(ctypes.Structure):
    _fields_: ClassVar = [("context", ctypes.c_void_p), ("stream", ctypes.c_void_p), ("descriptor", ctypes.c_void_p)]


class _Module(ctypes.Structure):
    _fields_: ClassVar = [("id", ctypes.c_uint32), ("size", ctypes.c_size_t), ("cubin", ctypes.c_void_p)]


_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)


class Modules:
    """Keeps every cubin that is loaded from now on, also those that a driver compiles from PTX, until it is closed.

    `unloading` is called before a module goes, `leaving` with its handle before a context does. CUPTI allows one subscriber in a
    process: raises CuptiError where there is one already. Modules that were loaded before are not seen: begin before the program's
    first kernel. Guide, 2.10.5 and 2.4.2.
    """

    def __init__(
        self, library: Library, unloading: Callable[[], None] = lambda: None, leaving: Callable[[int], None] = lambda _: None
    ) -> None:
        self.problems: list[str] = []
        self._library, self._unloading, self._leaving = library, unloading, leaving
        self._kept: dict[bytes, None] = {}
        self._bytes = 0
        self._callback = _CALLBACK(self._called)  # must outlive the subscription
        self._subscriber = ctypes.c_void_p()
        library.call("cuptiSubscribe", ctypes.byref(self._subscriber), self._callback, None, doing="watching which modules are loaded")
        try:
            for number in (LEAVING, LOADED, UNLOADING):
                library.call("cuptiEnableCallback", 1, self._subscriber, RESOURCE, number, doing="watching which modules are loaded")
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        """Stop watching; a second call does nothing."""
        subscriber, self._subscriber = self._subscriber, ctypes.c_void_p()
        if subscriber.value is not None:
            self._library.ask("cuptiUnsubscribe", subscriber)

    def cubins(self) -> dict[int, bytes]:
        """Return the cubins seen, by CUPTI's CRC."""
        return {crc(self._library, code): code for code in self._kept}

    def _called(self, _user: Any, domain: int, number: int, data: int | None) -> None:
        """Runs on the program's own thread, inside its call of CUDA: whatever fails here must not fail there."""
        try:
            if domain == RESOURCE and number == LOADED and data:
                self._keep(_Resource.from_address(data).descriptor)
            elif domain == RESOURCE and number == UNLOADING:
                self._unloading()
            elif domain == RESOURCE and number == LEAVING and data:
                self._leaving(_Resource.from_address(data).context or 0)
        except Exception as error:  # the program goes on
            self.problems.append(f"a module was not taken in: {type(error).__name__}: {error}")

    def _keep(self, descriptor: int | None) -> None:
        if not descriptor:
            return
        module = _Module.from_address(descriptor)
        if not module.cubin or not 0 < module.size <= LARGEST or self._bytes + module.size > MOST:
            self.problems.append(f"a module of {module.size:,} bytes was not kept")
            return
        code = ctypes.string_at(module.cubin, module.size)
        if code not in self._kept:
            self._kept[code] = None
            self._bytes += len(code)


def crc(library: Library, cubin: bytes) -> int:
    """Return the CRC by which CUPTI names a cubin in its samples; needs no GPU in CUPTI 12.0 to 13.1. Raises CuptiError."""
    params = sized(CrcParams, length=len(cubin), cubin=cubin)
    library.call("cuptiGetCubinCrc", ctypes.byref(params), doing="naming a cubin")
    return int(params.crc)


def source(library: Library, cubin: bytes, function: str, pc: int) -> tuple[str, int] | None:
    """Return (path, line) of the source that an instruction comes from; None where the cubin has no line information for it.

    `pc` counts bytes from the function's start. Needs `-lineinfo`, and no GPU in CUPTI 12.0 to 13.1. Raises CuptiError.
    """
    params = sized(SourceParams, cubin=cubin, function=function.encode(), length=len(cubin), pc=pc)
    library.call("cuptiGetSassToSourceCorrelation", ctypes.byref(params), doing="looking up a line of source")
    try:
        name, folder = (_text(one) for one in (params.file, params.folder))
        if not name or not params.line:
            return None
        return (f"{folder}/{name}" if folder and not name.startswith("/") else name), int(params.line)
    finally:
        for one in (params.file, params.folder):
            if one:
                _free(one)


def _text(address: int | None) -> str:
    return (ctypes.c_char_p(address).value or b"").decode("utf-8", "replace") if address else ""


def _free(address: int) -> None:
    """Give back what CUPTI allocated for us, by the C library's own free."""
    release = ctypes.CDLL(None).free
    release.argtypes, release.restype = [ctypes.c_void_p], None
    release(address)
