"""What the ranks of a distributed run know together: how many they are, sums of integers, and lists of all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeVar

from ullage.adapters.optional import installed, library

T = TypeVar("T")

_WORD = 40  # bits; FLOPs of large steps don't fit into 64, and 2²⁰ ranks' words of 40 bits do


def distributed() -> Any | None:
    """Return torch.distributed where a process group is open, else None."""
    module = installed("torch.distributed")
    return module if module is not None and module.is_available() and module.is_initialized() else None


def world(group: Any = None) -> int:
    """Return the number of ranks of a group (all without one); 1 outside of distributed runs."""
    module = distributed()
    return 1 if module is None else int(module.get_world_size(group))


def summed(values: Sequence[int], group: Any = None) -> list[int]:
    """Return the sums over the ranks of a group, exactly; every rank of it must call this."""
    module = distributed()
    if module is None or module.get_world_size(group) == 1:
        return list(values)
    torch = library("torch", "summing over ranks")
    words = [part for value in values for part in (value >> _WORD, value & ((1 << _WORD) - 1))]
    on_gpu = "nccl" in str(module.get_backend_config(group)) and torch.cuda.is_available()
    tensor = torch.tensor(words, dtype=torch.int64, device="cuda" if on_gpu else "cpu")
    module.all_reduce(tensor, group=group)
    whole = tensor.tolist()
    return [(high << _WORD) + low for high, low in zip(whole[::2], whole[1::2], strict=True)]


def gathered(values: Sequence[T], group: Any = None) -> list[T]:
    """Return the lists of all ranks of a group, one behind the other in the order of ranks; every rank of it must call this."""
    module = distributed()
    if module is None or module.get_world_size(group) == 1:
        return list(values)
    parts: list[Any] = [None] * module.get_world_size(group)
    module.all_gather_object(parts, list(values), group=group)
    return list(chain.from_iterable(parts))
