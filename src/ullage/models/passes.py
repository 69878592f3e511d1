"""Which products the forward work entails: gradients of inputs and weights, adapters, recomputation.

Backward is one product for the gradient of the input (dgrad) and one for the gradient of the weight (wgrad), each as large
as the forward one; attention, a product of two activations, has two dgrads. The convention of the field counts all of them
("twice" the forward). What the mathematics needs may be less ("exact"): nothing flows into data, into frozen weights, or
from an output that no loss sees. With frozen weights or adapters only "exact" makes sense.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any, Literal

from ullage.errors import UllageError
from ullage.models.sample import Quantity
from ullage.models.work import Work, matmul

Pass = Literal["forward", "dgrad", "wgrad", "recompute"]
Backward = Literal["twice", "exact"]


@dataclass(frozen=True)
class Training:
    """How a step trains: what is frozen or adapted, what is recomputed, by which convention backward is counted.

    `frozen` are patterns of module paths ("model.layers.3.*", "visual.*") or names of work ("embedding"), `frozen_layers`
    the number of layers frozen from the bottom. With `lora_rank` all but the adapters is frozen; `lora_targets` are ends of
    module paths ("q_proj"), or "all-linear" for every weight but the head. `recompute` is "none", "full" (each layer is a
    checkpoint) or patterns of names of work that are done again ("attention.scores"). A `reentrant` checkpoint does whole
    layers again; PyTorch's other kind stops before each layer's last product, where nothing of the backward pass reads its result
    (`spares`: not in diffusion transformers, whose last product is gated).
    """

    forward_only: bool = False
    backward: Backward = "twice"
    frozen: tuple[str, ...] = ()
    frozen_layers: int = 0
    lora_rank: int | None = None
    lora_targets: tuple[str, ...] = ("all-linear",)
    recompute: str | tuple[str, ...] = "none"
    reentrant: bool = False
    spares: bool = True

    def __post_init__(self) -> None:
        if self.backward not in ("twice", "exact"):
            raise UllageError(f"a backward pass '{self.backward}' is not known", "say twice or exact")
        if isinstance(self.recompute, str) and self.recompute not in ("none", "full"):
            raise UllageError(f"recompute '{self.recompute}' is not known", "say none or full, or name works in a tuple: attention.scores")
        for word, value, least in (("freeze-layers", self.frozen_layers, 0), ("lora-rank", self.lora_rank, 1)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise UllageError(f"--{word} {value} can't be", f"give a whole number from {least} on")

    @property
    def partial(self) -> bool:
        """Whether some weights do not train."""
        return bool(self.frozen or self.frozen_layers or self.lora_rank)

    @property
    def counted(self) -> Backward:
        """The convention of backward in use: "exact" as soon as something is frozen."""
        return "exact" if self.partial else self.backward


@dataclass(frozen=True)
class Booked:
    """FLOPs of one kind of work in one pass, `coefficient` per unit of the quantity, all layers together.

    `least` is the part that the mathematics needs (all of it, but for chunked scans).
    """

    name: str
    group: str
    pass_: Pass
    coefficient: int
    least: int
    quantity: Quantity


def booked(works: Sequence[Work], training: Training) -> list[Booked]:
    """Return every pass of a step over `works`: forward, and as `training` says dgrad, wgrad and recompute.

    Raises UllageError for a pattern that matches no work.
    """
    rows = [_booked(work, pass_, times) for work, pass_, times in executed(works, training)]
    return [row for row in rows if row.coefficient]


def executed(works: Sequence[Work], training: Training) -> list[tuple[Work, Pass, int]]:
    """Return every work with its passes, and in how many layers each is done; adapters are works of their own.

    Raises UllageError for a pattern that matches no work.
    """
    adapted = list(_adapted(works, training)) if training.lora_rank else list(works)
    _refuse_idle_patterns(works, training)
    rows: list[tuple[Work, Pass, int]] = [(work, "forward", len(work.layers)) for work in adapted]
    if not training.forward_only:
        rows += _twice(adapted) if training.counted == "twice" else _exact(adapted, training)
        rows += [(work, "recompute", times) for work, times in _recomputed(adapted, training)]
    return rows


def _booked(work: Work, pass_: Pass, times: int) -> Booked:
    least = work.flops if work.least is None else work.least
    return Booked(work.name, work.group, pass_, work.flops * times, least * times, work.quantity)


def _twice(works: Iterable[Work]) -> Iterator[tuple[Work, Pass, int]]:
    for work in works:
        count = len(work.layers)
        yield work, "dgrad", count if work.shape else 2 * count
        if work.shape:
            yield work, "wgrad", count


def _exact(works: Sequence[Work], training: Training) -> Iterator[tuple[Work, Pass, int]]:
    """Follow the gradient's need through the model in the order of execution: an output needs one if its weight trains or an input does."""
    needs: dict[str, bool] = defaultdict(bool)
    dgrads: dict[int, int] = defaultdict(int)
    wgrads: dict[int, int] = defaultdict(int)
    trains = _Trains(works, training)
    streams = {work.to for work in works}
    for index, work, layer in _in_order(works):
        weight = trains(work, layer)
        # a layer that trains has a norm that trains, and so what it reads of a stream needs a gradient
        normed = weight and bool(work.stack) and not training.lora_rank
        inputs = [needs[name] or (normed and name in streams) for name in work.reads]
        if work.gradient:
            dgrads[index] += any(inputs) if work.shape else sum(inputs)
            wgrads[index] += weight and bool(work.shape)
        needed = work.gradient and (weight or any(inputs))
        needs[work.name] = needed
        if work.name.endswith(".lora_b"):
            needs[work.name.removesuffix(".lora_b")] |= needed
        if work.to:
            needs[work.to] |= needed
    for index, work in enumerate(works):
        yield work, "dgrad", dgrads[index]
        yield work, "wgrad", wgrads[index]


def _in_order(works: Sequence[Work]) -> Iterator[tuple[int, Work, int]]:
    """Yield (index, work, layer) as they are executed: the layers of a stack one after the other."""
    for stack, members in groupby(enumerate(works), key=lambda item: item[1].stack):
        stage = [(index, work, frozenset(work.layers)) for index, work in members]
        if not stack:
            yield from ((index, work, layer) for index, work, _ in stage for layer in work.layers)
            continue
        for layer in sorted(frozenset().union(*(layers for _, _, layers in stage))):
            yield from ((index, work, layer) for index, work, layers in stage if layer in layers)


class _Trains:
    """Whether the weight of a work trains in a layer."""

    def __init__(self, works: Sequence[Work], training: Training) -> None:
        self.training = training
        depth: dict[str, int] = defaultdict(int)
        for work in works:
            depth[work.stack] = max(depth[work.stack], max(work.layers, default=0))
        self.deepest = max((s for s in depth if s), key=lambda s: depth[s], default="")

    def __call__(self, work: Work, layer: int) -> bool:
        if work.shape is None and work.flops:
            return False
        if self.training.lora_rank:
            return work.name.endswith((".lora_a", ".lora_b"))
        if work.stack and work.stack == self.deepest and layer < self.training.frozen_layers:
            return False
        return not any(matches(pattern, work, layer) for pattern in self.training.frozen)


def path(work: Work, layer: int) -> str:
    """Return where a work's weight lies in the checkpoint: "model.layers.3.self_attn.q_proj"."""
    parts = [work.stack, str(layer)] if work.stack else []
    return ".".join(p for p in [*parts, work.module] if p)


def matches(pattern: str, work: Work, layer: int) -> bool:
    """Return whether a pattern means this work: its path, a parent of it, or its name or group, and what lies below them.

    Checkpoints of one model are written with the outermost "model." and without: "visual.*" is "model.visual.*" too.
    """
    where = path(work, layer)
    words = (where, where.removeprefix("model."), work.name)
    return any(fnmatchcase(word, pattern) or word.startswith(f"{pattern}.") for word in words)


def _refuse_idle_patterns(works: Sequence[Work], training: Training) -> None:
    wanted = [*training.frozen, *(training.recompute if isinstance(training.recompute, tuple) else ())]
    for pattern in wanted:
        if not any(matches(pattern, work, layer) for work in works for layer in work.layers):
            raise unmatched(pattern, works)
    deepest = _Trains(works, training).deepest
    layers = 1 + max((layer for work in works if work.stack == deepest for layer in work.layers), default=-1)
    if training.frozen_layers > layers:
        raise UllageError(
            f"--freeze-layers {training.frozen_layers:,} can't be: the model has {layers:,} layers", "freeze as many or fewer"
        )


def unmatched(pattern: str, works: Iterable[Work]) -> UllageError:
    """Return the error for a pattern that means no work: with what there is to name."""
    listed = list(works)
    stacks = sorted({work.stack for work in listed if work.stack})
    paths = f"; its layers lie at {', '.join(stacks[:8])}" if stacks else ""
    groups = ", ".join(sorted({work.group for work in listed}))
    return UllageError(f"no weight or work of this model matches '{pattern}'", f"its groups are {groups}{paths}")


def _adapted(works: Iterable[Work], training: Training) -> Iterator[Work]:
    """Yield the works with low-rank adapters behind their targets: down to the rank, and up again (LoRA, arXiv:2106.09685)."""
    rank = training.lora_rank or 0
    targets = training.lora_targets
    found = False
    for work in works:
        yield work
        every = "all-linear" in targets and bool(work.stack) and not any(part in work.name for part in _NO_LINEAR)
        named = any(work.module == t or work.module.endswith(f".{t}") for t in targets)
        if work.shape is None or not (every or named):
            continue
        found = True
        inner, columns = work.shape
        times = work.flops // (2 * inner * columns)
        place: dict[str, Any] = {"stack": work.stack, "times": times, "gradient": work.gradient}
        down = matmul(f"{work.name}.lora_a", work.quantity, inner, rank, work.layers, reads=work.reads, to=None, **place)
        yield replace(down, module=f"{work.module}.lora_A")
        up = matmul(f"{work.name}.lora_b", work.quantity, rank, columns, work.layers, reads=(down.name,), to=work.to, **place)
        yield replace(up, module=f"{work.module}.lora_B")
    if not found:
        raise UllageError(
            f"no weight of this model is called {' or '.join(targets)}", "name ends of module paths: --lora-targets q_proj,v_proj"
        )


# What "all-linear" leaves out, as peft does: the head, convolutions, and the parameters of routed experts, which are no linear modules
_NO_LINEAR = ("head", "conv", "moe.experts", "moe.router")


def _recomputed(works: Sequence[Work], training: Training) -> Iterator[tuple[Work, int]]:
    """Yield the works that are done again in the backward pass, and in how many layers."""
    if training.recompute == "none":
        return
    chosen = training.recompute
    if isinstance(chosen, tuple):
        for work in works:
            yield work, sum(any(matches(p, work, layer) for p in chosen) for layer in work.layers)
        return

    def spared(last: Work) -> int:
        return 0 if training.reentrant or not training.spares else _spared(last)

    flows = {index for index, work, layer in _flowing(works, training)}
    times: dict[int, int] = defaultdict(int)
    for _, layer_works in groupby(_flowing(works, training), key=lambda item: (item[1].stack, item[2])):
        members = list(layer_works)
        if not members[0][1].stack:
            continue
        for index, _, _ in members[: len(members) - spared(members[-1][1])]:
            times[index] += 1
    for index in sorted(flows & set(times)):
        yield works[index], times[index]


def _flowing(works: Sequence[Work], training: Training) -> Iterator[tuple[int, Work, int]]:
    """Yield what lies at or above the first trained weight: a checkpoint below it is never done again."""
    trains = _Trains(works, training)
    begun = False
    for index, work, layer in _in_order(works):
        begun = begun or trains(work, layer)
        if begun:
            yield index, work, layer


def _spared(last: Work) -> int:
    """Return 1 when a layer's last product need not be done again: nothing of the backward pass reads its result.

    Routed experts' results are weighted by the router, whose gradient reads them.
    """
    return int(last.shape is not None and last.to is not None and not last.name.startswith("moe.experts"))
