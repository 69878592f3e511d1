"""The structures of cupti_pcsampling.h, for 64-bit Linux. One changed its size under one name: a record of a program counter."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np

if TYPE_CHECKING:
    from ullage.cupti.releases import Release

CORRELATED = 22  # cuptiGetVersion of CUDA 12.4: from here on CUpti_PCSamplingPCData has a correlationId

_RECORD = [
    ("size", "<u8"), ("cubin", "<u8"), ("pc", "<u8"), ("function_index", "<u4"), ("padding", "<u4"), ("function", "<u8"),
    ("reasons", "<u8"), ("reason", "<u8"),
]  # fmt: skip
# CUpti_PCSamplingStallReason: the reason's index, and how many samples had it.
COUNT = np.dtype([("reason", "<u4"), ("samples", "<u4")])


def record(release: Release) -> np.dtype[np.void]:
    """Return the layout of CUpti_PCSamplingPCData: 56 bytes in CUDA 12.0 to 12.3, 64 bytes with a correlation from 12.4 on."""
    more = [("correlation", "<u4"), ("padding_2", "<u4")] if release.version >= CORRELATED else []
    return np.dtype(_RECORD + more)


class _Sized(ctypes.Structure):
    """A structure that begins with its own size, by which CUPTI tells the fields that the caller knows."""


S = TypeVar("S", bound=_Sized)


def sized(kind: type[S], **values: object) -> S:
    """Return a structure with its `size` filled in and all other fields 0 or as given."""
    made = kind(**values)
    made.size = ctypes.sizeof(kind)
    return made


class Data(_Sized):
    """CUpti_PCSamplingData: what one call of cuptiPCSamplingGetData gave, and the room for it. 80 bytes."""

    _fields_: ClassVar = [
        ("size", ctypes.c_size_t),
        ("room", ctypes.c_size_t),  # collectNumPcs
        ("total", ctypes.c_uint64),  # totalSamples: user and other kernels, and dropped ones
        ("dropped", ctypes.c_uint64),
        ("count", ctypes.c_size_t),  # totalNumPcs
        ("remaining", ctypes.c_size_t),  # remainingNumPcs
        ("range", ctypes.c_uint64),
        ("records", ctypes.c_void_p),  # pPcData
        ("other", ctypes.c_uint64),  # nonUsrKernelsTotalSamples
        ("full", ctypes.c_uint8),  # hardwareBufferFull
    ]


class ContextParams(_Sized):
    """The parameters of Enable, Disable, Start and Stop."""

    _fields_: ClassVar = [("size", ctypes.c_size_t), ("private", ctypes.c_void_p), ("context", ctypes.c_void_p)]


class PointerParams(_Sized):
    """The parameters of GetData (`pointer`: a Data) and of GetNumStallReasons (`pointer`: a size_t)."""

    _fields_: ClassVar = [*ContextParams._fields_, ("pointer", ctypes.c_void_p)]


class ReasonsParams(_Sized):
    """The parameters of cuptiPCSamplingGetStallReasons."""

    _fields_: ClassVar = [
        *ContextParams._fields_,
        ("count", ctypes.c_size_t),
        ("indices", ctypes.c_void_p),
        ("names", ctypes.c_void_p),
    ]


class _Pair(ctypes.Structure):
    _fields_: ClassVar = [("count", ctypes.c_size_t), ("indices", ctypes.c_void_p)]


class _Value(ctypes.Union):
    _fields_: ClassVar = [("data", ctypes.c_uint64 * 3), ("word", ctypes.c_uint32), ("number", ctypes.c_uint64), ("reasons", _Pair)]


class Attribute(ctypes.Structure):
    """CUpti_PCSamplingConfigurationInfo: one attribute, CUPTI's answer to it, its value. 32 bytes."""

    _fields_: ClassVar = [("type", ctypes.c_int), ("status", ctypes.c_int), ("value", _Value)]


class ConfigurationParams(_Sized):
    """The parameters of Set- and GetConfigurationAttribute."""

    _fields_: ClassVar = [
        *ContextParams._fields_,
        ("count", ctypes.c_size_t),
        ("attributes", ctypes.POINTER(Attribute)),
    ]


class SourceParams(_Sized):
    """CUpti_GetSassToSourceCorrelationParams. `file` and `folder` are CUPTI's to make and ours to free."""

    _fields_: ClassVar = [
        ("size", ctypes.c_size_t),
        ("cubin", ctypes.c_char_p),
        ("function", ctypes.c_char_p),
        ("length", ctypes.c_size_t),
        ("line", ctypes.c_uint32),
        ("pc", ctypes.c_uint64),
        ("file", ctypes.c_void_p),
        ("folder", ctypes.c_void_p),
    ]


class CrcParams(_Sized):
    """CUpti_GetCubinCrcParams."""

    _fields_: ClassVar = [
        ("size", ctypes.c_size_t),
        ("length", ctypes.c_size_t),
        ("cubin", ctypes.c_char_p),
        ("crc", ctypes.c_uint64),
    ]
