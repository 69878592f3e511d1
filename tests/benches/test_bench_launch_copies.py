"""Launches and copies that PyTorch makes, on a stand-in for its GPU: real tensors of the CPU, streams and graphs that only note."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from ullage.benches import copies, launch
from ullage.benches.bench import BENCHES, LibraryCase, Target, cases_for

torch = pytest.importorskip("torch")


class Graph:
    """Keeps what was launched while it was recorded, and launches it when it is replayed."""

    def __init__(self) -> None:
        self.launches: list[Callable[[], object]] = []

    def replay(self) -> None:
        for one in self.launches:
            one()


class Launcher:
    """Launches that count; while a graph is recorded they go there instead."""

    def __init__(self) -> None:
        self.count, self.waits = 0, 0
        self.recording: Graph | None = None
        self.cuda = SimpleNamespace(CUDAGraph=Graph, graph=self._graph, synchronize=self._synchronize)

    def __call__(self, torch: Any) -> launch.Launched:
        return self._one, lambda launches: None if launches == self.count else f"{launches} and not {self.count}"

    def _one(self) -> None:
        if self.recording is None:
            self.count += 1
        else:
            self.recording.launches.append(self._one)

    def _synchronize(self) -> None:
        self.waits += 1

    @contextmanager
    def _graph(self, graph: Graph) -> Iterator[None]:
        self.recording = graph
        yield
        self.recording = None


@pytest.mark.parametrize(("how", "items"), [("one after another", 1000), ("graph", 1000), ("each waited for", 100)])
def test_a_run_launches_as_often_as_its_rate_counts(how: str, items: int) -> None:
    launcher = Launcher()
    case = launch.case("add", launcher, how)
    prepared = case.prepare(launcher, "random")
    assert (case.items, launcher.count) == (items, 1)  # one launch loads the kernel
    prepared.run()
    prepared.run()
    assert launcher.count == 1 + 2 * items
    assert prepared.wrong() is None
    launcher.count -= 1
    assert prepared.wrong() == f"{1 + 2 * items} and not {2 * items}"


def test_only_the_round_trip_waits_for_each_launch() -> None:
    waits = {}
    for how in launch.WAYS:
        launcher = Launcher()
        prepared = launch.case("empty", launcher, how).prepare(launcher, "random")
        before = launcher.waits
        prepared.run()
        waits[how] = launcher.waits - before
    assert waits == {"one after another": 0, "graph": 0, "each waited for": 100}


def test_the_counter_of_additions_tells_when_one_is_lost(gpu: Any) -> None:
    one, wrong = launch.add(gpu)
    one()
    one()
    assert wrong(2) is None
    assert wrong(3) == "3 launches counted 2"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """PyTorch whose GPU is the CPU."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    cuda = SimpleNamespace(Stream=lambda: stream, current_stream=lambda: stream, stream=nullcontext, synchronize=lambda: None)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor.clone())
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)

    def on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *words, **named: function(*words, **{name: word for name, word in named.items() if name != "device"})

    names = {name: on_cpu(getattr(torch, name)) for name in ("full", "zeros", "randint")}
    return SimpleNamespace(cuda=cuda, uint8=torch.uint8, int64=torch.int64, **names)


@pytest.mark.parametrize("data", ["random", "zero"])
@pytest.mark.parametrize("path", [copies.HOST_TO_DEVICE, copies.DEVICE_TO_HOST, copies.ON_DEVICE, copies.BOTH])
def test_a_copy_is_wrong_until_it_was_made(gpu: Any, path: str, data: Any) -> None:
    case = copies.both_ways(4096) if path == copies.BOTH else copies.one_way(path, "pinned", 4096)
    prepared = case.prepare(gpu, data)
    assert prepared.wrong() == "4,096 of 4,096 bytes differ"
    prepared.run()
    assert prepared.wrong() is None


def test_bytes_count_where_they_arrive_and_twice_on_the_device() -> None:
    assert copies.one_way(copies.HOST_TO_DEVICE, "pinned", 4096).bytes == 4096
    assert copies.one_way(copies.ON_DEVICE, "device", 4096).bytes == 8192
    assert copies.both_ways(4096).bytes == 8192


def test_no_copy_is_larger_than_a_quarter_of_the_memory() -> None:
    sizes = {case.labels["size"] for case in cases_for(BENCHES["copies"], Target("sm_80", memory=8 * 2**20))}
    assert sizes == {64 * 1024, 2**20}


@pytest.mark.parametrize("family", ["launch", "copies"])
def test_quick_cases_are_some_of_all_and_all_are_named_apart(family: str) -> None:
    names = [tuple(case.labels.items()) for case in cases_for(BENCHES[family], Target("sm_90a"))]
    quick = [tuple(case.labels.items()) for case in cases_for(BENCHES[family], Target("sm_90a"), quick=True)]
    assert quick
    assert set(quick) <= set(names)
    assert len(set(names)) == len(names)
    assert all(isinstance(case, LibraryCase) for case in cases_for(BENCHES[family], Target("sm_90a")))
