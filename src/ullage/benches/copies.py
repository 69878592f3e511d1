"""Copies between host and GPU and on the GPU, by size, from pinned and from pageable memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ullage.benches.bench import Data, LibraryCase, Prepared, TableLayout, Target, bench

SIZES = (64 * 1024, 2**20, 16 * 2**20, 256 * 2**20)
HOST_TO_DEVICE, DEVICE_TO_HOST, ON_DEVICE, BOTH = "host to device", "device to host", "on the device", "both ways at once"


@bench(
    "copies",
    title="Copies by the copy engines",
    source="not in the Hopper paper",
    layout=TableLayout(rows=("path", "memory"), across=("size",), plot=("size", "bandwidth", ("path", "memory"))),
    needs="torch",
    seconds=15,
)
def copies(target: Target, quick: bool) -> Iterator[LibraryCase]:
    """B/s of copies that the driver makes, over their size.

    Pinned host memory lets the copy engine fetch by itself, so it shows the link (PCIe 5.0 ×16: 63 GB/s one way before overhead);
    pageable memory goes through a buffer of the driver's, and the host's own copying sets the pace. Bytes are those that arrive;
    on the device each is read and written, so its memory moves twice as many, and `bandwidth` counts both, as in `memory-bandwidth`.
    "both ways at once" is one copy each way on two streams, and counts both. Small copies show the cost of starting one.
    """
    for size in SIZES[-1:] if quick else SIZES:
        if 4 * size > target.memory:
            continue
        for path in (HOST_TO_DEVICE, DEVICE_TO_HOST):
            for memory in ("pinned",) if quick else ("pinned", "pageable"):
                yield one_way(path, memory, size)
        yield one_way(ON_DEVICE, "device", size)
        if not quick:
            yield both_ways(size)


def one_way(path: str, memory: str, size: int) -> LibraryCase:
    """Return the case of a copy of `size` bytes along a path."""

    def prepare(torch: Any, data: Data) -> Prepared:
        source = _filled(torch, size, data, "cpu" if path == HOST_TO_DEVICE else "cuda", memory)
        target = _empty(torch, size, "cpu" if path == DEVICE_TO_HOST else "cuda", memory)
        return Prepared(_copy(target, source), lambda: _differs(torch, target, source))

    return LibraryCase(
        {"path": path, "memory": memory, "size": size}, prepare, ("bandwidth",), bytes=2 * size if path == ON_DEVICE else size
    )


def both_ways(size: int) -> LibraryCase:
    """Return the case of two copies of `size` bytes at once, to the device and from it, with pinned memory."""

    def prepare(torch: Any, data: Data) -> Prepared:
        sources = [_filled(torch, size, data, place, "pinned") for place in ("cpu", "cuda")]
        targets = [_empty(torch, size, place, "pinned") for place in ("cuda", "cpu")]
        there, back = (_copy(target, source) for target, source in zip(targets, sources, strict=True))
        other = torch.cuda.Stream()

        def run() -> None:
            other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                back()
            there()
            torch.cuda.current_stream().wait_stream(other)

        return Prepared(run, lambda: _differs(torch, targets[0], sources[0]) or _differs(torch, targets[1], sources[1]))

    return LibraryCase({"path": BOTH, "memory": "pinned", "size": size}, prepare, ("bandwidth",), bytes=2 * size)


def _copy(target: Any, source: Any) -> Callable[[], object]:
    return lambda: target.copy_(source, non_blocking=True)


def _empty(torch: Any, size: int, place: str, memory: str) -> Any:
    """Return an array whose every byte is 255, so that what a copy left out is seen."""
    array = torch.full((size,), 255, dtype=torch.uint8, device=place)
    return array.pin_memory() if place == "cpu" and memory == "pinned" else array


def _filled(torch: Any, size: int, data: Data, place: str, memory: str) -> Any:
    array = torch.zeros(size, dtype=torch.uint8) if data == "zero" else torch.randint(0, 255, (size,), dtype=torch.uint8)
    if place == "cuda":
        return array.cuda()
    return array.pin_memory() if memory == "pinned" else array


def _differs(torch: Any, target: Any, source: Any) -> str | None:
    torch.cuda.synchronize()
    wrong = int((target.cpu() != source.cpu()).sum())
    return f"{wrong:,} of {target.numel():,} bytes differ" if wrong else None
