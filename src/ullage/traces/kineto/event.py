"""One event of a PyTorch profile as it stands in the file, decoded no further than it is used."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from functools import reduce
from operator import or_
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ullage.traces.json.salvage import ERRORS, valid_letters
from ullage.traces.kineto.category import API, CODES, DEVICE, KNOWN, NOTE, OPERATOR, OTHER, WAIT

Number = int | float | str | None  # as writers write numbers
_EMPTY = msgspec.Raw(b"{}")
NOTHING = msgspec.Raw(b"null")  # text of what is not recorded


class Event(msgspec.Struct, gc=False):
    """What every event has; its arguments stay text until it is known to matter."""

    cat: str | None = ""
    name: str | None = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: int | float | None = None
    dur: int | float | None = None
    args: msgspec.Raw = _EMPTY


class Extent(msgspec.Struct, array_like=True, gc=False):
    """A grid or a block."""

    x: int = 1
    y: int = 1
    z: int = 1

    @property
    def size(self) -> int:
        """How many blocks or threads it is."""
        return self.x * self.y * self.z


class Call(msgspec.Struct, gc=False):
    """The arguments of a call of the GPU runtime."""

    correlation: Number = None


class EventWait(msgspec.Struct, gc=False):
    """The arguments of a wait for an event or a stream: what waits, for which stream, up to which call that recorded the event."""

    device: Number = None
    stream: Number = None
    correlation: Number = None
    awaited_stream: Number = msgspec.field(default=None, name="wait_on_stream")
    awaited: Number = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")


class Communication(msgspec.Struct, gc=False):
    """What the arguments of a collective say, on the host and on the device."""

    external: Number = msgspec.field(default=None, name="External id")
    collective: str | None = msgspec.field(default=None, name="Collective name")
    group: Number = msgspec.field(default=None, name="Process Group Name")
    sequence: Number = msgspec.field(default=None, name="Seq")
    members: Number = msgspec.field(default=None, name="Group size")
    dtype: str | None = None
    sent: Number = msgspec.field(default=None, name="In msg nelems")
    received: Number = msgspec.field(default=None, name="Out msg nelems")


class DeviceWork(Communication, gc=False):
    """The arguments of work on a device: of kernels, copies, and of collectives."""

    device: Number = None
    stream: Number = None
    correlation: Number = None
    bytes: Number = None
    grid: Extent | None = None
    block: Extent | None = None
    registers: Number = msgspec.field(default=None, name="registers per thread")
    shared: Number = msgspec.field(default=None, name="shared memory")
    direction: str | None = None  # of a copy on MTIA, whose bytes are called size
    size: Number = None


class Tensors(msgspec.Struct, gc=False):
    """The tensors that a note of a collective was given: their shapes and types."""

    dims: Any = msgspec.field(default=None, name="Input Dims")
    types: Any = msgspec.field(default=None, name="Input type")


class Operands(Communication, gc=False):
    """The arguments of an operator: its tensors as text, for shapes are few and operators many; the number by which kernels name it
    (`external`, once written `older`); and what ties it to its gradients (`order`, `forward`)."""

    dims: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=NOTHING, name="Input type")
    strides: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Strides")
    concrete: msgspec.Raw = msgspec.field(default=NOTHING, name="Concrete Inputs")
    older: Number = msgspec.field(default=None, name="external id")
    order: Number = msgspec.field(default=None, name="Sequence number")
    forward: Number = msgspec.field(default=None, name="Fwd thread id")


_ARGUMENTS: dict[int, type[Any]] = dict.fromkeys(DEVICE, DeviceWork) | {API: Call, NOTE: Tensors, OPERATOR: Operands, WAIT: EventWait}


def _kind_of(category: str, code: int) -> type[Any]:
    """Return a struct for the events of one category, with no more than is used of them."""
    when = [("ts", int | float | None, None), ("dur", int | float | None, None), ("pid", int | str | None, None)]
    what = [("name", str | None, ""), ("tid", int | str | None, None)]
    fields: list[tuple[str, Any, Any]] = [] if code == OTHER else when + what
    if code in DEVICE:
        fields = [*fields, ("args", DeviceWork | None, None)]
    elif code in (API, WAIT):
        fields = [*fields, ("args", _ARGUMENTS[code] | None, None)]
    elif code == OPERATOR:
        fields = [*fields, ("args", Operands | None, None)]
    elif code == NOTE:
        fields = [*fields, ("args", msgspec.Raw, _EMPTY)]
    return msgspec.defstruct(f"{category}_event", fields, gc=False, tag_field="cat", tag=category)


class _Name(msgspec.Struct, gc=False):
    name: str = ""


class _Moment(msgspec.Struct, gc=False):
    ts: msgspec.Raw = msgspec.Raw(b"null")


_KINDS = {_kind_of(category, code): code for category, code in KNOWN.items()}
_EVENTS = msgspec.json.Decoder(list[Event])
_SORTED = msgspec.json.Decoder(list[reduce(or_, _KINDS)])  # type: ignore[misc]
_EVENT = msgspec.json.Decoder(Event)
_NAME = msgspec.json.Decoder(_Name)
_MOMENTS = msgspec.json.Decoder(list[_Moment])
_DECODERS: dict[type[Any], tuple[msgspec.json.Decoder[Any], msgspec.json.Decoder[Any]]] = {
    Call: (msgspec.json.Decoder(list[Call]), msgspec.json.Decoder(Call)),
    EventWait: (msgspec.json.Decoder(list[EventWait]), msgspec.json.Decoder(EventWait)),
    DeviceWork: (msgspec.json.Decoder(list[DeviceWork]), msgspec.json.Decoder(DeviceWork)),
    Operands: (msgspec.json.Decoder(list[Operands]), msgspec.json.Decoder(Operands)),
    Tensors: (msgspec.json.Decoder(list[Tensors]), msgspec.json.Decoder(Tensors)),
}


def events(text: bytes | memoryview) -> list[Any]:
    """Return the events of an array's text: structs by category, which are fastest, or `Event`s where one is of another category."""
    found: list[Any]
    try:
        found = _SORTED.decode(text)
    except (msgspec.ValidationError, UnicodeError):  # letters that are none are no matter in arguments that nobody looks at
        found = list(_EVENTS.decode(text))
    return found


def categories(found: Sequence[Any]) -> npt.NDArray[np.int8]:
    """Return the code of each event's category."""
    if found and type(found[0]) is Event:
        return np.array([CODES[event.cat] for event in found], np.int8)
    return np.fromiter(map(_KINDS.__getitem__, map(type, found)), np.int8, len(found))


def usable(text: bytes) -> bytes | None:
    """Return the text of an event that can be decoded as one: as it is, or put right; None for what is no event."""
    try:
        _EVENT.decode(text)
    except UnicodeError:
        return usable(valid_letters(text))
    except ERRORS:
        return _retyped(text)
    return text


def _retyped(text: bytes) -> bytes | None:
    """Return an event with its values as the types that they must have, where they can be understood so."""
    try:
        found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except ERRORS:
        return None
    event = {key: value for key, value in found.items() if key in Event.__struct_fields__}
    for key, kind in (("cat", str), ("name", str), ("pid", int), ("tid", int), ("ts", float), ("dur", float)):
        if key in event:
            try:
                event[key] = msgspec.Raw(msgspec.json.encode(msgspec.json.decode(event[key], type=kind | None, strict=False)))
            except ERRORS:
                del event[key]
    return msgspec.json.encode(event)


def arguments(category: int, events: Sequence[Any]) -> list[Any]:
    """Return the arguments of events of one category, decoded; what can't be understood is left out of them."""
    kind = _ARGUMENTS[category]
    if events and not isinstance(events[0].args, msgspec.Raw):
        nothing = kind()
        return [event.args or nothing for event in events]
    many, one = _DECODERS[kind]
    try:
        found: list[Any] = many.decode(b"[" + b",".join([e.args for e in events]) + b"]")
        if len(found) == len(events):
            return found
    except ERRORS:
        pass
    return [_argument(kind, one, event.args) for event in events]


def _argument(kind: type[Any], decoder: msgspec.json.Decoder[Any], text: msgspec.Raw) -> Any:
    try:
        return decoder.decode(text)
    except ERRORS:
        pass
    found = kind()
    try:
        values = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except ERRORS:
        return found
    for item in msgspec.structs.fields(kind):
        if item.encode_name in values:
            try:
                setattr(found, item.name, msgspec.json.decode(values[item.encode_name], type=item.type))
            except ERRORS:
                continue
    return found


def value(text: bytes | msgspec.Raw) -> Any:
    """Return what a text of JSON says, None for what is none."""
    try:
        return msgspec.json.decode(text)
    except ERRORS:
        return None


def named(event: Event) -> str:
    """Return the name that an event gives to a process or thread."""
    try:
        return _NAME.decode(event.args).name
    except ERRORS:
        return ""


def exact_times(text: bytes | memoryview, keep: Sequence[bool]) -> npt.NDArray[np.int64]:
    """Return the exact starts in ns of those elements of an array of events that are to be kept.

    For starts too long for a float: microseconds since 1970 with decimals.
    """
    found = zip(_MOMENTS.decode(text), keep, strict=True)
    return np.array([_nanoseconds(bytes(moment.ts)) for moment, kept in found if kept], np.int64)


def _nanoseconds(text: bytes) -> int:
    if len(text) > 40 or b"e" in text.lower():
        return 0
    try:
        return int((Decimal(text.decode("ascii")) * 1000).to_integral_value())
    except (InvalidOperation, UnicodeError):
        return 0
