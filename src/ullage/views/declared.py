"""Documents declared as types: which keys an answer has, of what type and unit, and where in the report each is found.

A declaration is a `msgspec.Struct`; its fields are filled from the attributes of the same name, and JSON and the published schema are made
of it.
"""

from __future__ import annotations

import datetime
import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta, UnsetType

D = TypeVar("D", bound=msgspec.Struct)


@dataclass(frozen=True)
class At:
    """Where a field's value is found, if not at the attribute of its name: a path of attributes; None where one on the way is."""

    path: str


@dataclass(frozen=True)
class Made:
    """How a field's value is made of what is found."""

    by: Callable[[Any], Any]


class Document(msgspec.Struct):
    """What documents and their parts derive from: a field a key."""


def iso(milliseconds: int) -> str:
    """Return a time as ISO 8601 in UTC.

    >>> iso(1_786_363_200_000)
    '2026-08-10T12:00:00Z'
    """
    when = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
    return when.isoformat(timespec="milliseconds" if milliseconds % 1000 else "seconds").replace("+00:00", "Z")


def _known_or_none(words: Any) -> Any:
    return words or None


Ratio = Annotated[float, Meta(description="a ratio; an efficiency or a share lies in [0, 1]")]
Hours = Annotated[float, Meta(description="GPU-hours")]
Seconds = Annotated[float, Made(lambda nanoseconds: nanoseconds / 1e9), Meta(description="s")]
Nanoseconds = Annotated[int, Meta(description="ns")]
Moment = Annotated[str, Made(iso), Meta(description="ISO 8601, UTC")]
Flops = Annotated[int, Meta(description="FLOPs")]
Rate = Annotated[float, Meta(description="FLOP/s")]
Words = Annotated[str | None, Made(_known_or_none)]  # "" is null


def filled(kind: type[D], report: Any, **computed: Any) -> D:
    """Return a declared document, filled from the attributes of a report, and with what is `computed` for it.

    A field that may be missing is left out where the report has no such attribute.
    """
    found = {name: read(report) for name, read, needed in _readers(kind) if name not in computed and (needed or hasattr(report, name))}
    return kind(**found, **computed)


def plain_data(kind: type[msgspec.Struct], report: Any, **computed: Any) -> dict[str, Any]:
    """Return `filled` as plain data."""
    return plain(filled(kind, report, **computed))


def plain(found: msgspec.Struct) -> dict[str, Any]:
    """Return a document as plain data."""
    made: dict[str, Any] = msgspec.to_builtins(found, enc_hook=_number)
    return made


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, float) else value.item()  # a kind of float, or NumPy's


@functools.cache
def _readers(kind: type[msgspec.Struct]) -> tuple[tuple[str, Callable[[Any], Any], bool], ...]:
    """Return the name of each field, what reads it from a report, and whether it is always there."""
    return tuple((one.name, _reader(one.name, one.type), one.required) for one in msgspec.structs.fields(kind))


def _reader(name: str, declared: Any) -> Callable[[Any], Any]:
    path = next((one.path for one in _marks(declared) if isinstance(one, At)), name)
    get, make = attrgetter(path) if "." not in path else functools.partial(_along, path.split(".")), _maker(declared)
    return get if make is None else lambda report: make(get(report))


def _along(names: list[str], found: Any) -> Any:
    for name in names:
        if found is None:
            return None
        found = getattr(found, name)
    return found


def _marks(declared: Any) -> tuple[Any, ...]:
    return get_args(declared)[1:] if get_origin(declared) is Annotated else ()


def _maker(declared: Any) -> Callable[[Any], Any] | None:
    """Return what makes a value of a declared type of what is found; None where it is taken as it is."""
    made = next((one.by for one in _marks(declared) if isinstance(one, Made)), None)
    if made is not None:
        return made
    if get_origin(declared) is Annotated:
        return _maker(get_args(declared)[0])
    if isinstance(declared, type) and issubclass(declared, Document):
        return lambda found: filled(declared, found)
    if get_origin(declared) in (Union, types.UnionType):
        return _maker_of_union(get_args(declared))
    if get_origin(declared) is list:
        item = _maker(get_args(declared)[0]) or (lambda found: found)
        return lambda found: [item(one) for one in found]
    if get_origin(declared) in (dict, Mapping):
        value = _maker(get_args(declared)[1]) or (lambda found: found)
        return lambda found: {key: value(one) for key, one in found.items()}
    return None


def _maker_of_union(members: tuple[Any, ...]) -> Callable[[Any], Any] | None:
    """Return what makes a value of one of several types: None, UNSET and values of plain types are taken as they are.

    Raises TypeError for a union of several types that are made of what is found: nothing tells of which one that is.
    """
    makers = [make for member in members if (make := _maker(member)) is not None]
    if len(makers) > 1:
        raise TypeError(f"nothing tells which of {members} a value is: say with Made how it is made")
    if not makers:
        return None
    plain_types = (UnsetType, *(member for member in members if isinstance(member, type) and _maker(member) is None))
    return lambda value: value if isinstance(value, plain_types) else makers[0](value)
