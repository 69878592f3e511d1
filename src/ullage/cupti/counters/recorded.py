"""Counters of each kernel of a program: the plan that the recorder is given, and what it counted.

The recorder (`native/counters.c`) can't plan: that is done before the program starts, for the chip that it will run on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ullage.cupti.chunks import Chunk, Cut, Type, chunks
from ullage.cupti.counters.host import Host, NotCollected, Use
from ullage.cupti.counters.images import Image, unpacked
from ullage.cupti.library import Library
from ullage.errors import UllageError, harmless

MOST_RANGES = 100_000
VARIABLE = "ULLAGE_COUNTERS"


@dataclass(frozen=True)
class Counted:
    """What one context of one process counted: the image with its kernels' names as ranges, the device's number, and how many launches
    CUPTI dropped."""

    image: Image
    process: int
    device: int
    dropped: int


def plan(library: Library, chip: str, metrics: Sequence[str], launches: int) -> bytes:
    """Return the plan to count `metrics` of the first `launches` launches of each context; metrics that the chip can't count over ranges
    are left out (the plan says which it has). Raises UllageError where none can be counted or the library can't plan here."""
    if not 0 < launches <= MOST_RANGES:
        raise UllageError(f"{launches:,} launches can't be counted", f"count 1 to {MOST_RANGES:,}")
    with Host(library, chip, Use.RANGES) as host:
        metrics, config = _collectable(host, metrics)
    lines = ["ULLAGE PLAN 1", f"chip {chip}", f"version {library.version or 0}", f"ranges {launches}", f"config {len(config)}"]
    return "\n".join([*lines, *(f"metric {name}" for name in metrics), "", ""]).encode() + config


def _collectable(host: Host, metrics: Sequence[str]) -> tuple[Sequence[str], bytes]:
    """Return those of some metrics that can be counted over ranges, and the config image for them."""
    try:
        return metrics, host.config(metrics)
    except NotCollected:
        kept = [name for name in metrics if _alone(host, name)]
        return kept, host.config(kept)


def _alone(host: Host, metric: str) -> bool:
    try:
        host.config([metric])
    except NotCollected:
        return False
    return True


def counted(path: Path) -> Iterator[Counted]:
    """Yield what a recording holds of counters, whole images only. Raises UllageError for a file that is no recording."""
    names: dict[int, str] = {}
    images: list[Chunk] = []
    process = 0
    with path.open("rb") as file:
        try:
            for chunk in chunks(file, harmless(str(path))):
                if chunk.type == Type.NAMES and chunk.flags == 1:
                    names |= chunk.names()
                elif chunk.type == Type.INFO:
                    process = int(chunk.json().get("pid") or process)
                elif chunk.type == Type.IMAGE:
                    images.append(chunk)
        except Cut:
            pass  # a program that was killed: what came before is good
    yield from (_counted(chunk, names, process) for chunk in images)


def _counted(chunk: Chunk, names: dict[int, str], process: int) -> Counted:
    image = unpacked(chunk.payload)
    (length,) = struct.unpack_from("<I", chunk.payload)
    told = replace(chunk, payload=chunk.payload[4 : 4 + length]).json()
    kernels = tuple(names.get(int(number), "(no name)") if number.isdigit() else number for number in image.ranges)
    return Counted(replace(image, ranges=kernels), process, int(told.get("device") or 0), int(told.get("dropped") or 0))
