"""PyTorch's FLOP counter put right: what its stock rules count as 0 or too much, and which module each product belongs to.

Stock rules of torch 2.13 give 0 for grouped matrix products, for attention and LSTMs on a CPU, for products of a matrix with a
vector and for the fused encoder layer, and forget the groups of a convolution in the gradient of its weight. What no rule
can see stays 0: a contraction written as multiply and sum, and kernels that are not PyTorch's.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ullage.models.tracing.libraries import library

Shape = Sequence[int]
CONTRACTIONS = ("bmm", "baddbmm", "attention", "dot")  # parts of names of operators that multiply activations, as a rule


@dataclass(frozen=True)
class Count:
    """Exact FLOPs of one run by (path of the module, name of the operator); the path of the model itself is ""."""

    products: dict[tuple[str, str], int]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.products.values())

    @property
    def by_operator(self) -> dict[str, int]:
        """FLOPs by operator."""
        sums: Counter[str] = Counter()
        for (_, operator), flops in self.products.items():
            sums[operator] += flops
        return dict(sums)

    @property
    def by_module(self) -> dict[str, int]:
        """FLOPs by the module in whose own forward they happen."""
        sums: Counter[str] = Counter()
        for (module, _), flops in self.products.items():
            sums[module] += flops
        return dict(sums)


def counted(run: Callable[[], object], model: Any = None) -> Count:
    """Return what calling `run` costs; with `model` by its modules, forward and backward."""
    flop_counter = library("torch.utils.flop_counter")
    products: Counter[tuple[str, str]] = Counter()
    tracker = _Tracker(model)

    class Counting(flop_counter.FlopCounterMode):  # type: ignore[misc, name-defined]  # a class of an optional library
        def _count_flops(self, operator: Any, out: Any, args: Any, kwargs: Any) -> Any:
            rule = self.flop_registry.get(operator)
            if rule is not None:
                products[tracker.path(), str(operator).rpartition(".")[2]] += rule(*args, **kwargs, out_val=out)
            return out

    mode = Counting(display=False, custom_mapping=_rules())
    mode.mod_tracker = tracker
    with mode:
        run()
    return Count({key: flops for key, flops in products.items() if flops})


class _Tracker:
    """Knows in which module the run is. A module that stands in several places is named by the place it is called from.

    In the backward pass, by the module in which autograd made the node whose gradient is taken: nodes are numbered as they
    are made.
    """

    def __init__(self, model: Any) -> None:
        self._torch = library("torch")
        self._names: dict[Any, list[str]] = {}
        for name, module in model.named_modules(remove_duplicate=False) if model is not None else ():
            self._names.setdefault(module, []).append(name)
        self._running: list[str] = []
        self._numbers: list[int] = []  # the number of the next node, whenever the run went into a module or out of it
        self._paths: list[str] = []  # and where it was from then on
        self._handles: list[Any] = []

    def path(self) -> str:
        """Return the innermost module that the present product belongs to."""
        if self._torch._C._current_graph_task_id() != -1:
            node = self._torch._C._current_autograd_node()
            at = bisect_right(self._numbers, node._sequence_nr()) if node is not None else 0
            return self._paths[at - 1] if at else ""
        return self._running[-1] if self._running else ""

    def __enter__(self) -> _Tracker:
        module = library("torch.nn.modules.module")
        self._handles += [
            module.register_module_forward_pre_hook(self._begins),
            module.register_module_forward_hook(self._ends, always_call=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _begins(self, module: Any, _: Any) -> None:
        around = self._running[-1] if self._running else ""
        places = self._names.get(module, [around])
        name = next((p for p in places if p.startswith(f"{around}.")), places[0]) if around else places[0]
        self._running.append(name)
        self._went()

    def _ends(self, *_: Any) -> None:
        if self._running:
            self._running.pop()
            self._went()

    def _went(self) -> None:
        self._numbers.append(self._torch.autograd._get_sequence_nr())
        self._paths.append(self._running[-1] if self._running else "")


def _rules() -> dict[Any, Callable[..., int]]:
    """Return the rules that the stock counter lacks or has wrong, for those operators that this PyTorch has."""
    aten = library("torch").ops.aten
    rules: dict[str, Callable[..., int]] = {
        "_grouped_mm": _grouped,
        "_scaled_grouped_mm": _grouped,
        "convolution_backward": _convolution_backward,
        "_scaled_dot_product_flash_attention_for_cpu": _attention,
        "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
        "mv": _vector,
        "addmv": lambda _, matrix, vector, **__: _vector(matrix, vector),
        "dot": lambda one, *_, **__: 2 * one[0],
        "vdot": lambda one, *_, **__: 2 * one[0],
        "addbmm": lambda _, one, other, **__: _batched(one, other),
        "_addmm_activation": lambda _, one, other, *__, **___: 2 * one[0] * one[1] * other[1],
        "mkldnn_rnn_layer": _recurrent,
        "mkldnn_rnn_layer_backward": lambda *shapes, **_: 2 * _recurrent(*shapes),
        "_transformer_encoder_layer_fwd": _encoder_layer,
        "_native_multi_head_attention": _multi_head,
    }
    return {getattr(aten, name): rule for name, rule in rules.items() if hasattr(aten, name)}


def _grouped(one: Shape, other: Shape, *_: Any, **__: Any) -> int:
    """Rows of `one` each with one of the matrices of `other` (forward, gradient of rows), or sums over groups (of weights)."""
    if len(one) == 3:
        return 2 * math.prod(one) * other[-1]
    return 2 * one[0] * one[1] * other[-1]


def _batched(one: Shape, other: Shape) -> int:
    return 2 * math.prod(one) * other[-1]


def _vector(matrix: Shape, _: Shape, **__: Any) -> int:
    return 2 * matrix[0] * matrix[1]


def _convolution_backward(
    gradient: Shape, inputs: Shape, weight: Shape, _bias: Any, _stride: Any, _padding: Any, _dilation: Any, transposed: bool,
    _output_padding: Any, _groups: int, wanted: Sequence[bool], **_: Any,
) -> int:  # fmt: skip
    """Each gradient that is asked for costs the forward product; a weight's shape has the groups in it already."""
    positions = math.prod((inputs if transposed else gradient)[2:])
    return 2 * inputs[0] * math.prod(weight) * positions * (int(wanted[0]) + int(wanted[1]))


def _attention(queries: Shape, keys: Shape, values: Shape, *_: Any, **__: Any) -> int:
    """Scores and weighted values over all pairs: what a mask skips is not known here."""
    batch, heads, length, dim = queries
    return 2 * int(batch * heads * length * keys[-2]) * (dim + values[-1])


def _attention_backward(_gradient: Shape, queries: Shape, keys: Shape, values: Shape, *_: Any, **__: Any) -> int:
    """The gradient of queries, keys, weights and values; kernels that do the scores again execute more than the model needs."""
    return 2 * _attention(queries, keys, values)


def _recurrent(inputs: Shape, weights: Shape, recurrent: Shape, *_: Any, **__: Any) -> int:
    """One layer and direction of an LSTM or GRU: every step multiplies its input and its state."""
    return 2 * inputs[0] * inputs[1] * (math.prod(weights) + math.prod(recurrent))


def _multi_head(queries: Shape, keys: Shape, _values: Shape, width: int, *_: Any, **__: Any) -> int:
    """Self-attention with its four projections, in one kernel."""
    rows = queries[0] * queries[1]
    return 8 * rows * width * width + 4 * rows * keys[1] * width


def _encoder_layer(source: Shape, width: int, _heads: int, *rest: Any, **_: Any) -> int:
    """A whole encoder layer in one kernel: attention, and the MLP's two weights."""
    matrices = [shape for shape in rest if isinstance(shape, Sequence) and len(shape) == 2 and shape[0] != 3 * width]
    mlp: int = sum(2 * source[0] * source[1] * shape[0] * shape[1] for shape in matrices[-2:])
    return _multi_head(source, source, source, width) + mlp
