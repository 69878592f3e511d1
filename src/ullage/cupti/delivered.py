"""Layouts of user-defined records (CUPTI 13.3 and later), which are not in a header but handed over with each buffer.

A subscriber that chooses the fields of its records is told where they lie by the second argument of its buffer-complete callback: an
array with a layout for each activity kind, by the kind's number (CUPTI documentation, "User-Defined Activity Records"; the structs are
CUpti_BufferCallbackCompleteInfo, CUpti_ActivityRecordLayout and CUpti_ActivityFieldLayoutEntry of cupti_activity.h).

Tried: structs laid out as the headers of 13.3 to 13.5 say, filled by hand. Not tried: a library that fills them, for those answer to
nothing without a driver.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache

from ullage.cupti.kinds import Kind, kind_name
from ullage.cupti.layouts import Layout, Layouts, dtype, layouts
from ullage.cupti.releases import RELEASES
from ullage.cupti.stored import stored
from ullage.errors import UllageError

Told = Mapping[int, tuple[int, Sequence[tuple[int, int, int]]]]  # by kind: bytes of a record; field, offset and bytes of each field

_FAMILIES = {
    Kind.KERNEL: "KERNEL", Kind.CONCURRENT_KERNEL: "KERNEL", Kind.DRIVER: "API", Kind.RUNTIME: "API", Kind.INTERNAL_LAUNCH_API: "API",
    Kind.MEMORY2: "MEMORY", Kind.UNIFIED_MEMORY_COUNTER: "UVM_COUNTER",
}  # fmt: skip


class _Entry(ctypes.Structure):
    _fields_ = (
        ("structSize", ctypes.c_size_t), ("fieldId", ctypes.c_int), ("offset", ctypes.c_size_t), ("size", ctypes.c_size_t),
        ("alignment", ctypes.c_size_t),
    )  # fmt: skip


class _Record(ctypes.Structure):
    _fields_ = (
        ("structSize", ctypes.c_size_t), ("pEntries", ctypes.c_void_p), ("numFields", ctypes.c_size_t), ("recordSize", ctypes.c_size_t),
    )  # fmt: skip


class _Info(ctypes.Structure):
    _fields_ = (
        ("structSize", ctypes.c_size_t), ("threadId", ctypes.c_uint64), ("ppRecordLayouts", ctypes.c_void_p),
        ("numRecordLayouts", ctypes.c_size_t),
    )  # fmt: skip


def told(info: int) -> dict[int, tuple[int, list[tuple[int, int, int]]]]:
    """Return what the CUpti_BufferCallbackCompleteInfo at an address says, copied: it can be kept as JSON beside the buffer.

    Only for use inside the callback that was given the address; it is read as it stands.
    """
    complete = _Info.from_address(info)
    if not complete.ppRecordLayouts:
        return {}
    pointers = (ctypes.c_void_p * complete.numRecordLayouts).from_address(complete.ppRecordLayouts)
    records = {kind: _Record.from_address(pointer) for kind, pointer in enumerate(pointers) if pointer}
    return {kind: (record.recordSize, _entries(record)) for kind, record in records.items()}


def _entries(record: _Record) -> list[tuple[int, int, int]]:
    entries = (_Entry * record.numFields).from_address(record.pEntries) if record.numFields else ()
    return [(entry.fieldId, entry.offset, entry.size) for entry in entries]


def delivered(records: Told) -> Layouts:
    """Return layouts as `decode` takes them, from what `told` said.

    Fields are called as in predefined records of the newest release (`start`, `correlationId`, `name`), so that what reads those reads
    these too; an id that is newer than that is called `field47`. Raises UllageError where a record can't be as it is said to be.

    >>> found = delivered({10: (24, [(0, 0, 4), (7, 8, 8), (8, 16, 8)])})
    >>> found.of(10).dtype.names, found.sizes
    (('kind', 'start', 'end'), {10: 24})
    """
    made = {kind: _layout(kind, size, fields) for kind, (size, fields) in records.items()}
    return Layouts({kind: layout.size for kind, layout in made.items()}, made)


def _layout(kind: int, size: int, fields: Sequence[tuple[int, int, int]]) -> Layout:
    fits = all(offset >= 0 and width > 0 and offset + width <= size for _, offset, width in fields)
    once = len({identity for identity, *_ in fields}) == len(fields)
    kind_first = any((identity, offset, width) == (0, 0, 4) for identity, offset, width in fields)
    if not (fits and once and kind_first and size % 4 == 0 and 0 < kind < 1024):
        raise UllageError(
            f"CUPTI says that a record of {kind_name(kind)} has {size} bytes and the fields {list(fields)[:60]}, which can't be",
            "use predefined records",
        )
    types = _types(kind)
    found = [(*types.get(identity, (f"field{identity}", "")), offset, width) for identity, offset, width in fields]
    texts = tuple(name for name, code, _, width in found if code == "char*" and width == 8)
    return Layout(
        kind, "user-defined", size, dtype([(name, offset, _code(code, width)) for name, code, offset, width in found], size), texts
    )


def _code(code: str, width: int) -> str:
    """Return the type of the predefined field where it is as wide, else a plain number, or bytes."""
    if code == "char*" and width == 8:
        return code
    if code[-1:] == str(width):
        return code
    return {1: "u1", 2: "<u2", 4: "<u4", 8: "<u8"}.get(width, f"({width},)u1")


@cache
def _types(kind: int) -> dict[int, tuple[str, str]]:
    """Return name and type of each field of a kind by its id."""
    newest = layouts(RELEASES[-1]).of(kind)
    known = {}
    if newest is not None and newest.dtype.fields is not None:
        for name, (of, *_) in newest.dtype.fields.items():
            known[name.replace("_", "").lower()] = (name, "char*" if name in newest.names else of.str if of.shape == () else "")
    family = _FAMILIES.get(Kind(kind), Kind(kind).name) if kind in Kind._value2member_map_ else ""
    labels = {int(identity): label for identity, label in _labels(family).items()}
    plain = {identity: label.partition("_FIELD_")[2] for identity, label in labels.items()}
    return {identity: known.get(label.replace("_", "").lower(), (_camel(label), "")) for identity, label in plain.items()}


def _labels(family: str) -> Mapping[str, str]:
    enumerations = (values for name, values in stored("names").items() if name.endswith("FieldIds"))
    return next((values for values in enumerations if values["0"] == f"{family}_FIELD_KIND"), {})


def _camel(label: str) -> str:
    """Return a field's name as CUPTI writes those of structs.

    >>> _camel("SOURCE_GRAPH_ID")
    'sourceGraphId'
    """
    first, *others = label.lower().split("_")
    return first + "".join(word.capitalize() for word in others)
