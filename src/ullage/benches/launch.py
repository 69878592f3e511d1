"""How fast kernels can be launched: one after another, from a graph, through PyTorch's operators, and waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ullage.benches.bench import Data, LibraryCase, Prepared, TableLayout, Target, bench

Launched = tuple[Callable[[], object], Callable[[int], str | None]]  # a launch; what is wrong after so many of them

LAUNCHES = 1000
WAITED = 100


@bench(
    "launch",
    title="Launches",
    source="not in the Hopper paper",
    layout=TableLayout(rows=("kernel", "how")),
    needs="torch",
    seconds=5,
)
def launch(target: Target, quick: bool) -> Iterator[LibraryCase]:  # noqa: ARG001
    """Launches per second of a kernel that does next to nothing: 1 over the rate is the time from one launch to the next.

    "empty" is a kernel of one thread that returns at once, "add" an addition of 1 to one integer, through PyTorch's dispatcher.
    "one after another": queued from Python as fast as it can; the slower of host and GPU sets the rate, and for "add" it is the
    host: what an eager PyTorch program pays for each operator. "graph": 1,000 launches in a CUDA graph, where the host has no part:
    what the GPU itself needs from one dependent kernel to the next. "each waited for": the host synchronizes after every launch,
    so 1 over the rate is the latency of a round trip.
    """
    for kernel, launched in (("empty", empty), ("add", add)):
        for how in ("one after another", "graph") if quick else ("one after another", "graph", "each waited for"):
            yield case(kernel, launched, how)


def empty(torch: Any) -> Launched:
    """Return a launch of an empty kernel, and a check that has nothing to check."""
    return lambda: torch.cuda._sleep(0), lambda launches: None  # noqa: ARG005


def add(torch: Any) -> Launched:
    """Return an addition of 1 to a counter, and a check that it counted so many launches."""
    counter = torch.zeros(1, dtype=torch.int64, device="cuda")

    def wrong(launches: int) -> str | None:
        found = int(counter.item())
        return None if found == launches else f"{launches:,} launches counted {found:,}"

    return lambda: counter.add_(1), wrong


def case(kernel: str, launched: Callable[[Any], Launched], how: str) -> LibraryCase:
    """Return the case of a kernel launched many times in one of three ways."""
    times = WAITED if how == "each waited for" else LAUNCHES

    def prepare(torch: Any, data: Data) -> Prepared:  # noqa: ARG001
        one, wrong = launched(torch)
        one()  # loads the kernel, which a graph that is being recorded must not do
        torch.cuda.synchronize()
        run, runs = WAYS[how](torch, one, times), [0]

        def counted() -> object:
            runs[0] += 1
            return run()

        return Prepared(counted, lambda: wrong(1 + runs[0] * times))

    return LibraryCase({"kernel": kernel, "how": how}, prepare, ("rate",), items=times)


def _queued(torch: Any, one: Callable[[], object], times: int) -> Callable[[], object]:  # noqa: ARG001
    def run() -> None:
        for _ in range(times):
            one()

    return run


def _graph(torch: Any, one: Callable[[], object], times: int) -> Callable[[], object]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            one()
    return lambda: graph.replay()


def _waited(torch: Any, one: Callable[[], object], times: int) -> Callable[[], object]:
    def run() -> None:
        for _ in range(times):
            one()
            torch.cuda.synchronize()

    return run


WAYS = {"one after another": _queued, "graph": _graph, "each waited for": _waited}
