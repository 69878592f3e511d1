"""Copies between two GPUs and NCCL's all-reduce, on a stand-in for PyTorch's GPUs: tensors of the CPU, streams that note who waits."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tests.benches.bench_cases import Torch, library_case
from ullage.benches import links
from ullage.benches.bench import BENCHES, LibraryCase, Target, cases_for
from ullage.benches.running.kernel_case import UnmeasuredError
from ullage.benches.running.library_case import refuse_missing


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    """PyTorch whose two GPUs are the CPU; `current` is the one that is measured."""
    torch = pytest.importorskip("torch")
    stream = SimpleNamespace(wait_stream=lambda other: None)
    state = SimpleNamespace(current=0)
    places: list[str] = []
    cuda = SimpleNamespace(
        Stream=lambda device: stream, current_stream=lambda device: stream, stream=lambda one: nullcontext(), device_count=lambda: 2,
        synchronize=lambda device=None: None, current_device=lambda: state.current,
    )  # fmt: skip

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def made(*words: Any, device: str = "cpu", **named: Any) -> Any:
            places.append(device)
            return function(*words, **named)

        return made

    def reduced(inputs: list[Any], outputs: list[Any]) -> None:
        total = sum(inputs)
        for output in outputs:
            output.copy_(total)

    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, place: tensor.clone())
    monkeypatch.setitem(sys.modules, "torch.cuda.nccl", SimpleNamespace(all_reduce=reduced))
    monkeypatch.setattr(torch.cuda, "nccl", sys.modules["torch.cuda.nccl"], raising=False)
    names = {name: noted(getattr(torch, name)) for name in ("full", "zeros", "randint")}
    return SimpleNamespace(cuda=cuda, uint8=torch.uint8, state=state, places=places, **names)


@pytest.mark.parametrize("data", ["random", "zero"])
@pytest.mark.parametrize("prepare", [links.one_way, links.both_ways])
def test_a_copy_is_wrong_until_it_was_made(gpus: Any, prepare: Callable[..., Any], data: str) -> None:
    prepared = prepare(gpus, 4096, data)
    assert prepared.wrong() == "4,096 of 4,096 elements differ"
    prepared.run()
    assert prepared.wrong() is None


@pytest.mark.parametrize("data", ["random", "zero"])
def test_an_all_reduce_is_wrong_until_both_gpus_have_the_sum(gpus: Any, data: str) -> None:
    prepared = links.all_reduce(gpus, 4096, data)
    assert prepared.wrong() == "1,024 of 1,024 elements differ"
    prepared.run()
    prepared.run()  # it does not add to what it left before
    assert prepared.wrong() is None


def test_the_other_gpu_is_the_next_one_and_after_the_last_the_first(gpus: Any) -> None:
    assert links.pair(gpus) == ("cuda:0", "cuda:1")
    gpus.state.current = 1
    assert links.pair(gpus) == ("cuda:1", "cuda:0")
    links.one_way(gpus, 64, "zero")
    assert gpus.places[-1] == "cuda:0"  # what is copied to lies on the other


def test_bytes_count_once_a_direction() -> None:
    cases = {case.labels["path"]: case for case in cases_for(BENCHES["links"], Target("sm_90a"), quick=True)}
    assert {path: case.bytes // links.SIZES[-1] for path, case in cases.items()} == {
        links.ONE_WAY: 1, links.BOTH_WAYS: 2, links.ALL_REDUCE: 1,
    }  # fmt: skip
    assert all(isinstance(case, LibraryCase) and case.gpus == 2 for case in cases.values())


def test_a_case_of_two_gpus_has_no_number_where_pytorch_sees_one() -> None:
    torch = Torch()
    case = library_case(gpus=2)
    torch.device_count = lambda: 1  # type: ignore[attr-defined]
    with pytest.raises(UnmeasuredError, match="needs 2 GPUs, and PyTorch sees 1"):
        refuse_missing(case, torch)
    torch.device_count = lambda: 2  # type: ignore[attr-defined]
    refuse_missing(case, torch)


def test_a_case_of_one_gpu_asks_for_no_count() -> None:
    refuse_missing(library_case(), Torch())  # which can't tell how many there are
