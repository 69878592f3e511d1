"""Where each field of an activity record lies, per release of CUPTI: NumPy's structured types for each kind of record.

A struct grows by a new name (Kernel9 has 208 bytes in 12.0, Kernel13 248 in 13.5), now and then under the same name, and nothing in a
buffer says which it is: that is known by the release alone. Fields of structs inside structs are called `outer.inner`, the members of a
union overlap, pointers are 64-bit numbers, bit fields and padding are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from ullage.cupti.releases import Release
from ullage.cupti.stored import stored

if TYPE_CHECKING:
    import numpy as np

_FILLING = re.compile(r"(^|\.)(pad|padding|reserved)\d*$")
_POINTER = "char*"


@dataclass(frozen=True)
class RecordLayout:
    """One kind's record: CUPTI's name of the struct, its bytes, its fields, and those fields that point to text."""

    kind: int
    struct: str
    size: int
    dtype: np.dtype[np.void]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Layouts:
    """The layouts of one library, by kind: `sizes` has the bytes of a record of each kind that it knows."""

    sizes: Mapping[int, int]
    _structs: Mapping[int, int] = field(default_factory=dict)  # their numbers: each is made when it is asked for

    def of(self, kind: int) -> RecordLayout | None:
        """Return the layout of a kind; None where this library has no such records."""
        return _layout(kind, self._structs[kind]) if kind in self._structs else None

    def name_offsets(self, kinds: Iterable[int]) -> str:
        """Return where records of these kinds hold pointers to text, as the recorder takes it (ULLAGE_NAMES).

        >>> from ullage.cupti.releases import release
        >>> from ullage.cupti.kinds import ActivityKind
        >>> layouts(release(130001)).name_offsets([ActivityKind.CONCURRENT_KERNEL, ActivityKind.MARKER, ActivityKind.MEMCPY])
        '10:104,12:40+48'
        """
        found = ((kind, self._texts(kind)) for kind in sorted(set(kinds)))
        return ",".join(f"{kind:d}:" + "+".join(map(str, offsets)) for kind, offsets in found if offsets)

    def _texts(self, kind: int) -> list[int]:
        """Return where a record of a kind holds pointers to text, without NumPy: whoever starts a program needs no more of it."""
        told = _told(self._structs[kind]) if kind in self._structs else ()
        return [offset for _, offset, code in told if code == _POINTER]


@cache
def layouts(release: Release) -> Layouts:
    """Return the layouts of a release's predefined records.

    Source: the headers that the wheels of CUPTI 12.0 to 13.5 ship; up to 13.1 the sizes are those by which that wheel's own
    cuptiActivityGetNextRecord steps, later ones could not be asked without a driver. Kinds that 13.0's walker no longer knows (events,
    metrics, source-level results) have no layout from there on.

    >>> from ullage.cupti.releases import release
    >>> kernel = layouts(release(130101)).of(10)
    >>> kernel.struct, kernel.size, kernel.names
    ('CUpti_ActivityKernel11', 224, ('name',))
    """
    kinds = {int(kind): struct for kind, struct in _release(release)["kinds"].items()}
    structs = stored("layouts")["structs"]
    return Layouts({kind: structs[struct][1] for kind, struct in kinds.items()}, kinds)


def _release(release: Release) -> Any:
    return stored("layouts")["releases"][str(release.known)]


@cache
def _layout(kind: int, number: int) -> RecordLayout:
    name, size, _ = stored("layouts")["structs"][number]
    told = _told(number)
    return RecordLayout(kind, name, size, dtype(told, size), tuple(label for label, _, code in told if code == _POINTER))


def _told(number: int) -> list[tuple[str, int, str]]:
    """Return the fields of a struct that tell anything."""
    return [(label, offset, code) for label, offset, code in stored("layouts")["structs"][number][2] if not _FILLING.search(label)]


def dtype(fields: Iterable[tuple[str, int, str]], size: int) -> np.dtype[np.void]:
    """Return the structured type of a record of `size` bytes: (name, offset, type) of each field, "char*" for a pointer to text.

    >>> dtype([("kind", 0, "<u4"), ("name", 8, "char*")], 16).fields["name"]
    (dtype('uint64'), 8)
    """
    import numpy as np

    told = list(fields)
    return np.dtype(
        {
            "names": [label for label, _, _ in told],
            "formats": ["<u8" if code == _POINTER else code for _, _, code in told],
            "offsets": [offset for _, offset, _ in told],
            "itemsize": size,
        }
    )
