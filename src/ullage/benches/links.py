"""What two GPUs of one host bring each other: copies by the copy engines, and NCCL's all-reduce."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from ullage.benches.bench import Data, LibraryCase, Prepared, TableLayout, Target, bench

SIZES = (64 * 1024, 2**20, 16 * 2**20, 256 * 2**20)
ONE_WAY, BOTH_WAYS, ALL_REDUCE = "one way", "both ways at once", "all-reduce by NCCL"
GPUS = 2


@bench(
    "links",
    title="Links between two GPUs",
    source="not in the Hopper paper",
    layout=TableLayout(rows=("path",), across=("size",), plot=("size", "bandwidth", ("path",))),
    needs="torch",
    seconds=5,
)
def links(target: Target, quick: bool) -> Iterator[LibraryCase]:
    """B/s from the GPU that is measured to another of the same host, over the size of what is sent.

    Copies go over NVLink where the two are joined by it, else over PCIe, through the host's memory where they can't reach each other:
    `nvidia-smi topo -m` tells which. "both ways at once" counts both directions. The all-reduce adds FP32 on the two GPUs; of two GPUs each
    sends and gets as many bytes as the array has, so its B/s is what NCCL's own tests call bus bandwidth, and stands beside "one way". The
    other GPU is the next in CUDA's order; where there is none, rows say so.
    """
    for size in SIZES[-1:] if quick else SIZES:
        if 4 * size > target.memory:
            continue
        yield _case(ONE_WAY, size, one_way)
        yield _case(BOTH_WAYS, size, both_ways)
        yield _case(ALL_REDUCE, size, all_reduce)


Preparation = Callable[[Any, int, Data], Prepared]


def _case(path: str, size: int, prepare: Preparation) -> LibraryCase:
    return LibraryCase(
        {"path": path, "size": size},
        lambda torch, data: prepare(torch, size, data),
        ("bandwidth",),
        bytes=2 * size if path == BOTH_WAYS else size,
        gpus=GPUS,
    )


def pair(torch: Any) -> tuple[str, str]:
    """Return the GPU that is measured and its neighbour in CUDA's order, as PyTorch names them."""
    one = torch.cuda.current_device()
    return f"cuda:{one}", f"cuda:{(one + 1) % torch.cuda.device_count()}"


def one_way(torch: Any, size: int, data: Data) -> Prepared:
    """Return a copy of `size` bytes to the other GPU."""
    here, there = pair(torch)
    source, target = _filled(torch, size, data, here), _poisoned(torch, size, there)
    return Prepared(lambda: target.copy_(source, non_blocking=True), lambda: _differs(torch, target, source))


def both_ways(torch: Any, size: int, data: Data) -> Prepared:
    """Return two copies of `size` bytes, to the other GPU and from it, on streams of their own on both."""
    here, there = pair(torch)
    sources = [_filled(torch, size, data, place) for place in (here, there)]
    targets = [_poisoned(torch, size, place) for place in (there, here)]
    own, other = torch.cuda.Stream(here), torch.cuda.Stream(there)

    def run() -> None:
        own.wait_stream(torch.cuda.current_stream(here))
        with torch.cuda.stream(other), torch.cuda.stream(own):
            targets[1].copy_(sources[1], non_blocking=True)
        targets[0].copy_(sources[0], non_blocking=True)
        torch.cuda.current_stream(here).wait_stream(own)

    return Prepared(run, lambda: _differs(torch, targets[0], sources[0]) or _differs(torch, targets[1], sources[1]))


def all_reduce(torch: Any, size: int, data: Data) -> Prepared:
    """Return NCCL's sum of an array of `size` bytes on each of the two GPUs, left on both."""
    nccl = import_module("torch.cuda.nccl")
    sources = [_numbers(torch, size // 4, data, place) for place in pair(torch)]
    targets = [torch.full((size // 4,), float("nan"), device=source.device) for source in sources]

    def wrong() -> str | None:
        torch.cuda.synchronize()
        right = sum(source.cpu() for source in sources)
        return next((told for target in targets if (told := _differs(torch, target, right))), None)

    return Prepared(lambda: nccl.all_reduce(sources, targets), wrong)


def _filled(torch: Any, size: int, data: Data, place: str) -> Any:
    made = torch.zeros(size, dtype=torch.uint8) if data == "zero" else torch.randint(0, 255, (size,), dtype=torch.uint8)
    return made.to(place)


def _poisoned(torch: Any, size: int, place: str) -> Any:
    """Return an array whose every byte is 255, so that what a copy left out is seen."""
    return torch.full((size,), 255, dtype=torch.uint8, device=place)


def _numbers(torch: Any, count: int, data: Data, place: str) -> Any:
    """Return whole numbers in FP32, whose sums are exact in any order."""
    made = torch.zeros(count) if data == "zero" else torch.randint(-(2**20), 2**20, (count,)).float()
    return made.to(place)


def _differs(torch: Any, target: Any, source: Any) -> str | None:
    torch.cuda.synchronize(target.device)
    wrong = int((target.cpu() != source.cpu()).sum())
    return f"{wrong:,} of {target.numel():,} elements differ" if wrong else None
