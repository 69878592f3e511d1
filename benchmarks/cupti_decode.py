"""Activity buffers to arrays: records a second of one core, beside an object per record and beside NVIDIA's own walker.

    python benchmarks/cupti_decode.py [--quick] [--json FILE]

The buffers are made by hand with the layouts of CUPTI 13.1, 8 MiB each as a recorder asks for them: calls of the runtime (40 bytes),
kernels (224), copies (96). Beside ours: a ctypes structure made for each record and one field of it read, what a binding does that hands
out objects; and, where a libcupti that walks without a driver is installed, one call of cuptiActivityGetNextRecord per record and nothing
else.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Iterable
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from measure import Figure, Figures, parser, seconds
from ullage.cupti.decoding import decode
from ullage.cupti.kinds import ActivityKind
from ullage.cupti.layouts import Layouts, layouts
from ullage.cupti.releases import release

VERSION = 130101
SIZE = 8 << 20  # bytes of a buffer
PROMISED = 5e6  # records a second
CALL, KERNEL, COPY = ActivityKind.RUNTIME, ActivityKind.CONCURRENT_KERNEL, ActivityKind.MEMCPY
LIBRARY = Path(sysconfig.get_path("purelib"), "nvidia", "cu13", "lib", "libcupti.so.13")


def main() -> None:
    asked = parser(__doc__).parse_args()
    figures, of = Figures(asked.json), layouts(release(VERSION))
    for what, kinds in mixes().items():
        buffer, count = filled(of, kinds, SIZE // 16 if asked.quick else SIZE)
        found = decode(buffer, of)
        if found.stopped or len(found.kinds) != count:
            sys.exit(f"{what}: {len(found.kinds)} of {count} records; {found.stopped}")
        beside = {"ctypes object per record": count / seconds(lambda buffer=buffer: objects(buffer, of), 3)}
        if LIBRARY.exists():
            beside["NVIDIA's walker through ctypes"] = count / seconds(lambda buffer=buffer: next_records(buffer), 3)
        figures.add(
            Figure(
                what, count / seconds(lambda buffer=buffer: decode(buffer, of), 15), "records/s", beside, None if asked.quick else PROMISED
            )
        )


def mixes() -> dict[str, Iterable[int]]:
    """Return the orders of kinds: what training looks like, its two extremes, and chance."""
    random = np.random.default_rng(1)
    return {
        "call and kernel in turn, now and then a copy": cycle([CALL, KERNEL] * 7 + [CALL, COPY]),
        "strictly alternating": cycle([CALL, KERNEL, CALL, COPY]),
        "runs of 1,000 of a kind": cycle([CALL] * 1000 + [KERNEL] * 1000 + [COPY] * 1000),
        "at random": cycle(
            random.choice([CALL, ActivityKind.DRIVER, KERNEL, COPY, ActivityKind.MEMSET, ActivityKind.SYNCHRONIZATION], 100_003).tolist()
        ),
        "calls alone": cycle([CALL]),
        "kernels alone": cycle([KERNEL]),
    }


def filled(of: Layouts, kinds: Iterable[int], size: int) -> tuple[bytes, int]:
    """Return a buffer and how many records it has. Small numbers stand in all fields, as in real ones; times are large."""
    random = np.random.default_rng(2)
    several = {kind: [one(of, kind, random) for _ in range(64)] for kind in of.sizes}
    order = list(islice(kinds, size // 32))
    ends = np.cumsum([of.sizes[kind] for kind in order])
    count = int(np.searchsorted(ends, size, side="right"))
    return b"".join(several[kind][at % 64] for at, kind in enumerate(order[:count])), count


def one(of: Layouts, kind: int, random: np.random.Generator) -> bytes:
    """Return one record."""
    layout = of.of(kind)
    assert layout is not None
    record = np.zeros(1, layout.dtype)
    for name in layout.dtype.names or ():
        if record[name].dtype.kind in "iu" and record[name].ndim == 1:
            record[name] = random.integers(0, 100)
    for name in {"start", "end"} & set(layout.dtype.names or ()):
        record[name] = 1_786_320_000_000_000_000 + random.integers(0, 1 << 40)
    for name in {"processId", "correlationId"} & set(layout.dtype.names or ()):
        record[name] = random.integers(1 << 12, 1 << 22)
    record["kind"] = kind
    return record.tobytes()


def objects(buffer: bytes, of: Layouts) -> int:
    """Walk a buffer record by record, make a ctypes structure of each and read one field."""
    types = {kind: structure(of, kind) for kind in of.sizes}
    memory = ctypes.create_string_buffer(buffer, len(buffer))
    begin, at, total = ctypes.addressof(memory), 0, 0
    while at < len(buffer):
        kind = ctypes.c_uint32.from_address(begin + at).value
        total += types[kind].from_address(begin + at).correlationId
        at += of.sizes[kind]
    return total


def structure(of: Layouts, kind: int) -> type[ctypes.Structure]:
    """Return a ctypes structure with the one field that is read."""
    layout = of.of(kind)
    assert layout is not None
    assert layout.dtype.fields is not None
    before = layout.dtype.fields["correlationId"][1] if "correlationId" in layout.dtype.fields else 0
    rest = layout.size - before - 4
    fields = [("before", ctypes.c_char * before), ("correlationId", ctypes.c_uint32), ("rest", ctypes.c_char * rest)]
    return type("Record", (ctypes.Structure,), {"_fields_": fields})


def next_records(buffer: bytes) -> int:
    """Walk a buffer by NVIDIA's own function."""
    step = ctypes.CDLL(str(LIBRARY)).cuptiActivityGetNextRecord
    memory, record, count = ctypes.create_string_buffer(buffer, len(buffer)), ctypes.c_void_p(None), 0
    size, where = ctypes.c_size_t(len(buffer)), ctypes.byref(record)
    while step(memory, size, where) == 0:
        count += 1
    return count


if __name__ == "__main__":
    main()
