"""What a callback of CUPTI says, as small Python objects. Structures: cupti_callbacks.h, the same from 12.0 to 13.5."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar

from ullage.cupti import nvtx


class Domain(IntEnum):
    """CUpti_CallbackDomain; STATE is new in 12.2."""

    DRIVER = 1
    RUNTIME = 2
    RESOURCE = 3
    SYNCHRONIZE = 4
    NVTX = 5
    STATE = 6


class Resource(IntEnum):
    """CUpti_CallbackIdResource."""

    CONTEXT_CREATED = 1
    CONTEXT_DESTROY_STARTING = 2
    STREAM_CREATED = 3
    STREAM_DESTROY_STARTING = 4
    CU_INIT_FINISHED = 5
    MODULE_LOADED = 6
    MODULE_UNLOAD_STARTING = 7
    MODULE_PROFILED = 8
    GRAPH_CREATED = 9
    GRAPH_DESTROY_STARTING = 10
    GRAPH_CLONED = 11
    GRAPHNODE_CREATE_STARTING = 12
    GRAPHNODE_CREATED = 13
    GRAPHNODE_DESTROY_STARTING = 14
    GRAPHNODE_DEPENDENCY_CREATED = 15
    GRAPHNODE_DEPENDENCY_DESTROY_STARTING = 16
    GRAPHEXEC_CREATE_STARTING = 17
    GRAPHEXEC_CREATED = 18
    GRAPHEXEC_DESTROY_STARTING = 19
    GRAPHNODE_CLONED = 20
    STREAM_ATTRIBUTE_CHANGED = 21
    GRAPH_NODE_UPDATED = 22
    GRAPH_NODE_SET_PARAMS = 23


class Synchronize(IntEnum):
    """CUpti_CallbackIdSync."""

    STREAM_SYNCHRONIZED = 1
    CONTEXT_SYNCHRONIZED = 2


class State(IntEnum):
    """CUpti_CallbackIdState."""

    FATAL_ERROR = 1
    ERROR = 2
    WARNING = 3


@dataclass(frozen=True)
class Heard:
    """One callback: its domain and id by number, the id's name where the domain's ids are few, and what it says.

    `details` has, by domain: DRIVER and RUNTIME: function, symbol, context, correlation, exit (at the call's end, with `result`).
    RESOURCE: context, stream; for modules module, size, address; for graphs graph, original, node, original_node, dependency, executable.
    SYNCHRONIZE: context, stream. NVTX: function, and text where the call gives one. STATE: code, text. Numbers are handles and ids.
    """

    domain: int
    id: int
    name: str
    details: dict[str, Any] = field(default_factory=dict)


def decoded(domain: int, callback: int, address: int) -> Heard:
    """Return what stands at `address`, which is valid only while the callback runs; no details where it is 0 or the domain is new."""
    read = _READERS.get(domain)
    return Heard(domain, callback, _name(domain, callback), read(callback, address) if read and address else {})


def _name(domain: int, callback: int) -> str:
    known = _IDS.get(domain)
    if domain == Domain.NVTX or known is None:
        return nvtx.function(callback) if domain == Domain.NVTX else ""
    return next((identity.name for identity in known if identity == callback), "")


class _Call(ctypes.Structure):  # CUpti_CallbackData
    _fields_: ClassVar = [
        ("site", ctypes.c_int), ("function", ctypes.c_char_p), ("parameters", ctypes.c_void_p), ("returned", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p), ("context", ctypes.c_void_p), ("context_id", ctypes.c_uint32), ("scratch", ctypes.c_void_p),
        ("correlation", ctypes.c_uint32),
    ]  # fmt: skip


class _Resource(ctypes.Structure):  # CUpti_ResourceData
    _fields_: ClassVar = [("context", ctypes.c_void_p), ("stream", ctypes.c_void_p), ("descriptor", ctypes.c_void_p)]


class _Module(ctypes.Structure):  # CUpti_ModuleResourceData
    _fields_: ClassVar = [("id", ctypes.c_uint32), ("size", ctypes.c_size_t), ("address", ctypes.c_void_p)]


class _Graph(ctypes.Structure):  # CUpti_GraphData
    _fields_: ClassVar = [
        ("graph", ctypes.c_void_p), ("original", ctypes.c_void_p), ("node", ctypes.c_void_p), ("original_node", ctypes.c_void_p),
        ("type", ctypes.c_int), ("dependency", ctypes.c_void_p), ("executable", ctypes.c_void_p),
    ]  # fmt: skip


class _Nvtx(ctypes.Structure):  # CUpti_NvtxData
    _fields_: ClassVar = [("function", ctypes.c_char_p), ("parameters", ctypes.c_void_p), ("returned", ctypes.c_void_p)]


class _State(ctypes.Structure):  # CUpti_StateData
    _fields_: ClassVar = [("code", ctypes.c_int), ("text", ctypes.c_char_p)]


def _call(_: int, address: int) -> dict[str, Any]:
    call = _Call.from_address(address)
    details = {
        "function": _text(call.function), "symbol": _text(call.symbol), "context": call.context_id, "correlation": call.correlation,
        "exit": call.site == 1,
    }  # fmt: skip
    if call.site == 1 and call.returned:
        details["result"] = ctypes.c_int.from_address(call.returned).value
    return details


def _resource(callback: int, address: int) -> dict[str, Any]:
    resource = _Resource.from_address(address)
    details: dict[str, Any] = {"context": resource.context or 0, "stream": resource.stream or 0}
    if not resource.descriptor:
        return details
    if Resource.MODULE_LOADED <= callback <= Resource.MODULE_PROFILED:
        module = _Module.from_address(resource.descriptor)
        return details | {"module": module.id, "size": module.size, "address": module.address or 0}
    if callback >= Resource.GRAPH_CREATED and callback != Resource.STREAM_ATTRIBUTE_CHANGED:
        graph = _Graph.from_address(resource.descriptor)
        names = ("graph", "original", "node", "original_node", "dependency", "executable")
        return details | {name: getattr(graph, name) or 0 for name in names}
    return details


def _synchronize(_: int, address: int) -> dict[str, Any]:
    return {"context": ctypes.c_size_t.from_address(address).value, "stream": ctypes.c_size_t.from_address(address + 8).value}


def _nvtx(callback: int, address: int) -> dict[str, Any]:
    call = _Nvtx.from_address(address)
    text = nvtx.message(callback, call.parameters or 0)
    return {"function": _text(call.function)} | ({"text": text} if text is not None else {})


def _state(_: int, address: int) -> dict[str, Any]:
    state = _State.from_address(address)
    return {"code": state.code, "text": _text(state.text)}


def _text(text: bytes | None) -> str:
    return (text or b"").decode(errors="replace")


_IDS: dict[int, type[IntEnum]] = {3: Resource, 4: Synchronize, 6: State}
_READERS = {1: _call, 2: _call, 3: _resource, 4: _synchronize, 5: _nvtx, 6: _state}
