"""NVTX as CUPTI's callbacks tell of it: the functions by number, and the text that a call gives."""

from __future__ import annotations

import ctypes

# CUpti_nvtx_api_trace_cbid, from 1 on (cupti_nvtx_cbid.h); the same numbers from 12.0 to 13.5
_NAMES = """
nvtxMarkA nvtxMarkW nvtxMarkEx nvtxRangeStartA nvtxRangeStartW nvtxRangeStartEx nvtxRangeEnd nvtxRangePushA nvtxRangePushW
nvtxRangePushEx nvtxRangePop nvtxNameCategoryA nvtxNameCategoryW nvtxNameOsThreadA nvtxNameOsThreadW nvtxNameCuDeviceA
nvtxNameCuDeviceW nvtxNameCuContextA nvtxNameCuContextW nvtxNameCuStreamA nvtxNameCuStreamW nvtxNameCuEventA nvtxNameCuEventW
nvtxNameCudaDeviceA nvtxNameCudaDeviceW nvtxNameCudaStreamA nvtxNameCudaStreamW nvtxNameCudaEventA nvtxNameCudaEventW
nvtxDomainMarkEx nvtxDomainRangeStartEx nvtxDomainRangeEnd nvtxDomainRangePushEx nvtxDomainRangePop nvtxDomainResourceCreate
nvtxDomainResourceDestroy nvtxDomainNameCategoryA nvtxDomainNameCategoryW nvtxDomainRegisterStringA nvtxDomainRegisterStringW
nvtxDomainCreateA nvtxDomainCreateW nvtxDomainDestroy nvtxDomainSyncUserCreate nvtxDomainSyncUserDestroy
nvtxDomainSyncUserAcquireStart nvtxDomainSyncUserAcquireFailed nvtxDomainSyncUserAcquireSuccess nvtxDomainSyncUserReleasing
"""
FUNCTIONS = ("", *_NAMES.split())

_WORD = ctypes.sizeof(ctypes.c_void_p)
_PLAIN = ("nvtxMarkA", "nvtxRangeStartA", "nvtxRangePushA")
_WITH_ATTRIBUTES = ("nvtxMarkEx", "nvtxRangeStartEx", "nvtxRangePushEx")
_IN_DOMAIN = ("nvtxDomainMarkEx", "nvtxDomainRangeStartEx", "nvtxDomainRangePushEx")
_MESSAGE_TYPE, _MESSAGE, _ASCII = 32, 40, 1  # where nvtxEventAttributes_t (nvToolsExt.h, versions 2 and 3) keeps its message


def function(callback: int) -> str:
    """Return the NVTX function that a callback's id stands for; "" for an id that is none.

    >>> function(8), function(4711)
    ('nvtxRangePushA', '')
    """
    return FUNCTIONS[callback] if 0 <= callback < len(FUNCTIONS) else ""


def message(callback: int, parameters: int) -> str | None:
    """Return the text of a mark or of a range's beginning, from where the call's parameters stand; None where it gives none as text."""
    name = function(callback)
    if not parameters:
        return None
    if name in _PLAIN:
        return _text(_pointer(parameters))
    if name in _WITH_ATTRIBUTES:
        return _of_attributes(_pointer(parameters))
    if name in _IN_DOMAIN:
        return _of_attributes(_pointer(parameters + _WORD))
    return None


def _of_attributes(address: int) -> str | None:
    if not address or ctypes.c_int32.from_address(address + _MESSAGE_TYPE).value != _ASCII:
        return None
    return _text(_pointer(address + _MESSAGE))


def _pointer(address: int) -> int:
    return ctypes.c_size_t.from_address(address).value


def _text(address: int) -> str | None:
    return ctypes.string_at(address).decode(errors="replace") if address else None
