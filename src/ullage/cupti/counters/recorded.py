"""Counters of each kernel of a program: the plan that the recorder is given, and what it counted.

The recorder (`native/counters.c`) can't plan: that is done before the program starts, for the chip that it will run on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from ullage.cupti.chunks import Chunk, ChunkType, EarlyEnd, chunks
from ullage.cupti.counters.host import Host, NotCollected, Use
from ullage.cupti.counters.images import CounterImage, unpacked
from ullage.cupti.counters.structures import FIRST_LEVEL
from ullage.cupti.library import Library
from ullage.errors import UllageError, harmless

MOST_RANGES = 100_000
VARIABLE = "ULLAGE_COUNTERS"


@dataclass(frozen=True)
class CountedContext:
    """What one context of one process counted: the image with its kernels' names as ranges, the device's number, and how many launches
    CUPTI dropped. `foreign` is the file of libnvperf_host that counted, where it is not the one beside libcupti ("": it is, or isn't
    told)."""

    image: CounterImage
    process: int
    device: int
    dropped: int
    foreign: str = ""


def plan(library: Library, chip: str, metrics: Sequence[str], launches: int) -> bytes:
    """Return the plan to count `metrics` of the first `launches` launches of each context; metrics that the chip can't count over ranges
    are left out (the plan says which it has). Raises UllageError where none can be counted or the library can't plan here."""
    if not 0 < launches <= MOST_RANGES:
        raise UllageError(f"{launches:,} launches can't be counted", f"count 1 to {MOST_RANGES:,}")
    with Host(library, chip, Use.RANGES) as host:
        metrics, config = _collectable(host, metrics)
    lines = ["ULLAGE PLAN 2", f"chip {chip}", f"version {library.version or 0}", f"ranges {launches}"]
    lines += [f"level {FIRST_LEVEL}", f"config {len(config)}"]
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


def counted(path: Path) -> Iterator[CountedContext]:
    """Yield what a recording holds of counters, whole images only. Raises UllageError for a file that is no recording."""
    names: dict[int, str] = {}
    images: list[Chunk] = []
    info: dict[str, Any] = {}
    with path.open("rb") as file:
        try:
            for chunk in chunks(file, harmless(str(path))):
                if chunk.type == ChunkType.NAMES and chunk.flags == 1:
                    names |= chunk.names()
                elif chunk.type == ChunkType.INFO:
                    info |= chunk.json()
                elif chunk.type == ChunkType.IMAGE:
                    images.append(chunk)
        except EarlyEnd:
            pass  # a program that was killed: what came before is good
    yield from (_counted(chunk, names, info) for chunk in images)


def _counted(chunk: Chunk, names: Mapping[int, str], info: Mapping[str, Any]) -> CountedContext:
    image = unpacked(chunk.payload)
    (length,) = struct.unpack_from("<I", chunk.payload)
    told = replace(chunk, payload=chunk.payload[4 : 4 + length]).json()
    kernels = tuple(names.get(int(number), "(no name)") if number.isdigit() else number for number in image.ranges)
    image = replace(image, ranges=kernels)
    return CountedContext(
        image, int(info.get("pid") or 0), int(told.get("device") or 0), int(told.get("dropped") or 0), _foreign_perfworks(info)
    )


def _foreign_perfworks(info: Mapping[str, Any]) -> str:
    """Return the libnvperf_host that a program counted with, where it doesn't lie beside libcupti.

    >>> _foreign_perfworks({"library": "/a/libcupti.so.13", "perfworks": {"libnvperf_host.so": "/a/libnvperf_host.so"}})
    ''
    >>> _foreign_perfworks({"library": "/a/libcupti.so.13", "perfworks": {"libnvperf_host.so": "/b/libnvperf_host.so"}})
    '/b/libnvperf_host.so'
    """
    perfworks = info.get("perfworks")
    host = str(perfworks.get("libnvperf_host.so") or "") if isinstance(perfworks, dict) else ""
    return "" if not host or PurePath(host).parent == PurePath(str(info.get("library"))).parent else host
