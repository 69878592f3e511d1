"""What an operator of a PyTorch profile asked for, by its recorded input shapes, put to the kernels that it launched: a matrix product,
attention, or bytes to move.

A kernel names its operator by "External id". Profiles of before 2024 have the kernel's correlation there instead: then the operator is
the one that the call of this correlation lies in, on the same thread. Shapes are recorded with `record_shapes=True`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ullage.product import CONVOLUTION, GROUPED, LARGEST, Product, joined_elements, joined_word, moved_bytes, moved_word
from ullage.traces.kineto import attention as kineto_attention
from ullage.traces.kineto import moved as kineto_moved
from ullage.traces.kineto.convolutions import convolved, grouped, is_convolution, kernels_of
from ullage.traces.kineto.event import NOTHING, Operands, value
from ullage.traces.kineto.kernels import SEVERAL, settled
from ullage.traces.kineto.part import NOT_KNOWN, CodedWords, KinetoPart, NumberCodes, Numbers, Times, distinct, numbers, shared, words
from ullage.traces.kineto.timed import TimedEvents

# operator: where its two matrices stand among the inputs
_OPERANDS = {
    "aten::mm": (0, 1),
    "aten::bmm": (0, 1),
    "aten::linear": (0, 1),
    "aten::_int_mm": (0, 1),
    "aten::_scaled_mm": (0, 1),
    "aten::_scaled_mm_v2": (0, 1),
    "aten::addmm": (1, 2),
    "aten::_addmm_activation": (1, 2),
    "aten::baddbmm": (1, 2),
}
_LONGEST = 10_000  # bytes of the shapes of a product's operator, and far more than any has
_GROUPED = ("aten::_grouped_mm", "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2")
_CAT = "aten::cat"
_PRECISIONS = {
    "float": "fp32", "double": "fp64", "half": "fp16", "bfloat16": "bf16", "signed char": "int8", "char": "int8",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "float8_e4m3fnuz": "fp8", "float8_e5m2fnuz": "fp8", "float4_e2m1fn_x2": "fp4",
}  # fmt: skip
_ITEMS_LAUNCHED = ("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel")  # HIP: "global work size … specified in work-items"

Codes = npt.NDArray[np.int32]


def asked(operators: TimedEvents) -> KinetoPart | None:
    """Return the operators of a chunk whose work is known, each with what it asked for as a word; None where there are none."""
    wanted = operators.name.are(_is_known)
    if not wanted.any():
        return None
    rows = operators.where(wanted)
    given: list[Operands] = rows.args
    works = [_work(name) for name in rows.name.words]
    said = [works[code].said(one) for code, one in zip(rows.name.codes.tolist(), given, strict=True)]
    found = {
        "process": rows.process,
        "thread": rows.thread,
        "external": numbers([one.older if one.external is None else one.external for one in given]),
    }
    return KinetoPart("operator", rows.start, rows.end, found, {"product": words(said, {})})


def _multiplies(operator: str) -> bool:
    return operator in _OPERANDS or operator in _GROUPED or is_convolution(operator)


def _is_known(operator: str) -> bool:
    return operator == _CAT or kineto_moved.tells_bytes(operator) or operator in kineto_attention.OPERATORS or _multiplies(operator)


@dataclass(frozen=True)
class _Work:
    """How an operator tells what it asked for: `word` of the texts of its arguments that its kind of work depends on (`of`), and what is
    known where no shapes are recorded (`unsaid`), or `endless` ones."""

    operator: str
    word: Callable[..., str | None]
    of: Callable[[Operands], tuple[msgspec.Raw, ...]]
    unsaid: str | None
    endless: str | None = None

    def said(self, given: Operands) -> str | None:
        """Return what the operator asked for as a word."""
        if given.dims is NOTHING:
            return self.unsaid
        texts = [bytes(text) for text in self.of(given)]
        return self.word(self.operator, *texts) if len(texts[0]) < _LONGEST else self.endless


@lru_cache(maxsize=4096)
def _work(operator: str) -> _Work:
    if operator in _GROUPED:
        return _Work(operator, _grouped, attrgetter("dims", "types"), GROUPED, GROUPED)
    if is_convolution(operator):
        return _Work(operator, _convolved, attrgetter("dims", "types", "concrete"), CONVOLUTION, CONVOLUTION)
    if operator == _CAT:
        return _Work(operator, _joined_tensors, lambda given: (given.dims,), None)
    if kineto_moved.tells_bytes(operator):
        return _Work(operator, _moved, attrgetter("dims", "types", "strides"), None)
    if operator in kineto_attention.OPERATORS:
        return _Work(operator, _attended, attrgetter("dims", "types", "concrete"), None)
    return _Work(operator, _multiplied, attrgetter("dims", "types"), None)


@lru_cache(maxsize=4096)
def _multiplied(operator: str, dims: bytes, types: bytes) -> str | None:
    found = asked_by(operator, value(dims), value(types))
    return None if found is None else found.word


@lru_cache(maxsize=4096)
def _grouped(operator: str, dims: bytes, types: bytes) -> str:
    found = grouped(value(dims), value(types), _PRECISIONS) if operator == "aten::_grouped_mm" else None
    return GROUPED if found is None else found.word


@lru_cache(maxsize=4096)
def _convolved(operator: str, dims: bytes, types: bytes, concrete: bytes) -> str:
    """Return a convolution's word; where it is known, with the number of kernels that multiply for it, behind a `SEVERAL` sign."""
    given = value(concrete)
    found, count = convolved(operator, value(dims), value(types), given), kernels_of(operator, given)
    return CONVOLUTION if found is None or not count else f"{found.word}{SEVERAL}{count}"


@lru_cache(maxsize=4096)
def _joined_tensors(_: str, dims: bytes) -> str | None:
    found = kineto_moved.joined(value(dims))
    return None if found is None else joined_word(found)


@lru_cache(maxsize=4096)
def _moved(operator: str, dims: bytes, types: bytes, strides: bytes) -> str | None:
    found = kineto_moved.bytes_by(operator, value(dims), value(types), value(strides))
    return None if found is None else moved_word(found)


@lru_cache(maxsize=4096)
def _attended(operator: str, dims: bytes, types: bytes, concrete: bytes) -> str | None:
    named = value(types)
    kinds = {_kind(one) for one in named if one} if isinstance(named, list) else set()
    precision = next((_PRECISIONS[kind] for kind in sorted(kinds) if kind in _PRECISIONS and kind != "float"), "")
    found = kineto_attention.attention_by(operator, value(dims), value(concrete), precision)
    return None if found is None else found.word


def _kind(named: object) -> str:
    return str(named).lower().removeprefix("c10::")


def asked_by(operator: str, dims: Any, types: Any) -> Product | None:
    """Return the product of an operator's inputs, None where they are not recorded, fit no product, or are complex numbers.

    >>> asked_by("aten::addmm", [[2816], [8944, 1024], [1024, 2816]], ["c10::BFloat16"] * 3).word
    '1x8944x2816x1024 bf16'
    >>> asked_by("aten::linear", [[4, 8, 64], [32, 64]], ["float", "float"]).word
    '1x32x32x64 fp32'
    >>> asked_by("aten::mm", [[4, 5], [6, 7]], []) is None
    True
    """
    first, second = _OPERANDS[operator]
    if not isinstance(dims, list) or len(dims) <= second or not (_sizes(dims[first]) and _sizes(dims[second])):
        return None
    a, b = dims[first], dims[second]
    kind = _kind(types[first]) if isinstance(types, list) and len(types) > first else ""
    if operator == "aten::linear" and len(b) == 2:
        a, b = [int(np.prod(a[:-1], dtype=object)), a[-1]], b[::-1]
    if "complex" in kind or not len(a) == len(b) in (2, 3) or a[-1] != b[-2] or a[:-2] != b[:-2]:
        return None
    packed = 2 if kind == "float4_e2m1fn_x2" else 1  # two numbers in each element
    return Product(a[0] if len(a) == 3 else 1, a[-2], b[-1], packed * a[-1], _PRECISIONS.get(kind, ""))


def _sizes(dims: object) -> bool:
    return isinstance(dims, list) and 2 <= len(dims) <= 8 and all(isinstance(size, int) and 0 < size < LARGEST for size in dims)


class OperatorProducts:
    """What a file's operators asked for, by their "External id" and by the correlation of the calls that lie in them."""

    def __init__(self, operators: Sequence[KinetoPart], parts: Sequence[KinetoPart]) -> None:
        known: dict[str, int] = {}
        codes = [shared(part.words["product"], known) for part in operators]
        self._words = list(known)
        self._operators, self._calls = _joined(operators, ("process", "thread", "external")), [part for part in parts if part.kind == "api"]
        self._code = np.concatenate([*codes, np.zeros(0, np.int32)])

    @cached_property
    def _is_moved(self) -> npt.NDArray[np.bool_]:
        """Which words say bytes; False in the last place, where `NOT_KNOWN` looks."""
        known = (moved_bytes(word) is not None or joined_elements(word) is not None for word in self._words)
        return np.array([*known, False], bool)

    @cached_property
    def _by_external(self) -> NumberCodes:
        known = self._operators["external"] > 0
        return NumberCodes(self._operators["external"][known], self._code[known])

    @cached_property
    def _by_call(self) -> NumberCodes:
        """By time alone: without operators of bytes, which lie within others, and of which nobody could tell several kernels' parts."""
        kept = ~self._is_moved[self._code]
        operators = {name: values[kept] for name, values in self._operators.items()}
        return _in_calls(operators, self._code[kept], self._calls)

    def tell(self, part: KinetoPart) -> KinetoPart:
        """Return rows of kernels as they are yielded: the number of the operator is replaced by the product that it asked for."""
        if "external" not in part.numbers:
            return part
        external, correlation = part.numbers["external"], part.numbers["correlation"]
        part = replace(part, numbers={name: values for name, values in part.numbers.items() if name != "external"})
        if not self._words:
            return part
        older = (external < 0).all() or np.mean(external == correlation) > 0.5
        codes = self._by_call.of(correlation) if older else self._by_external.of(external)
        codes = np.where(self._is_moved[codes] & ~_is_alone(external), NOT_KNOWN, codes).astype(np.int32)
        if (codes < 0).all():
            return part
        whose = np.full_like(external, NOT_KNOWN) if older else external
        return replace(part, words={**part.words, "product": settled(CodedWords(codes, self._words), part.words["name"], whose)})


def _is_alone(operators: npt.NDArray[np.signedinteger[Any]]) -> npt.NDArray[np.bool_]:
    """Return which kernels are the only one of their operator: several share the bytes that it has to move, and nobody tells how."""
    order = np.argsort(operators, kind="stable")
    ranked = operators[order]
    same = np.concatenate(([False], ranked[1:] == ranked[:-1], [False]))
    alone = np.zeros(len(operators), bool)
    alone[order] = ~(same[1:] | same[:-1])
    return alone


def _joined(parts: Sequence[KinetoPart], names: Sequence[str]) -> Numbers:
    """Return columns of several parts, each as one."""
    columns: Numbers = {name: np.concatenate([*(part.numbers[name] for part in parts), np.zeros(0, np.int64)]) for name in names}
    columns["start"] = np.concatenate([*(part.start for part in parts), np.zeros(0, np.int64)])
    columns["end"] = np.concatenate([*(part.end for part in parts), np.zeros(0, np.int64)])
    return columns


def _in_calls(operators: Numbers, code: Codes, calls: Sequence[KinetoPart]) -> NumberCodes:
    """Return what was asked for by the correlations of the calls that begin within an operator: the one that began last.

    The calls, of which a file has millions, are looked up a part at a time."""
    lanes = _Lanes(operators["process"], operators["thread"])
    order = np.lexsort((-operators["end"], operators["start"], lanes.own))
    lane, start, end, code = lanes.own[order], operators["start"][order], operators["end"][order], code[order]
    moments = distinct(start)
    # a lane and the place of a moment among all moments, as one number that sorts as the two
    places = lane * (len(moments) + 1) + np.searchsorted(moments, start, side="right")
    found = [(np.zeros(0, np.int64),) * 3]
    for part in calls if len(start) else ():
        theirs = lanes.of(part.numbers["process"], part.numbers["thread"])
        place = theirs * (len(moments) + 1) + np.searchsorted(moments, part.start, side="right")
        last = np.maximum(np.searchsorted(places, place, side="right") - 1, 0)
        within = np.flatnonzero((theirs >= 0) & (lane[last] == theirs) & (start[last] <= part.start) & (part.start <= end[last]))
        found.append((last[within], part.start[within], part.numbers["correlation"][within]))
    asked, begun, correlation = (np.concatenate(column) for column in zip(*found, strict=True))
    in_time = np.lexsort((begun, lane[asked]))
    return NumberCodes(correlation[in_time], code[asked[in_time]])


class _Lanes:
    """The threads of some rows, by whole numbers that sort as process and thread do; `own` has that of each of these rows."""

    def __init__(self, process: Times, thread: Times) -> None:
        self._processes, self._threads = distinct(process), distinct(thread)
        places, _ = self._place(process, thread)
        self._places, self.own = np.unique(places, return_inverse=True)

    def of(self, process: npt.NDArray[np.signedinteger[Any]], thread: npt.NDArray[np.signedinteger[Any]]) -> Times:
        """Return the number of each thread, -1 for one that none of the rows is on."""
        place, known = self._place(process, thread)
        found = np.searchsorted(self._places, place)
        found[found == len(self._places)] = 0
        return np.where(known & (self._places[found] == place), found, -1)

    def _place(
        self, process: npt.NDArray[np.signedinteger[Any]], thread: npt.NDArray[np.signedinteger[Any]]
    ) -> tuple[Times, npt.NDArray[np.bool_]]:
        first, second = np.searchsorted(self._processes, process), np.searchsorted(self._threads, thread)
        first[first == len(self._processes)] = 0
        second[second == len(self._threads)] = 0
        return first * len(self._threads) + second, (self._processes[first] == process) & (self._threads[second] == thread)


def in_blocks(parts: Sequence[KinetoPart]) -> None:
    """Count grids in blocks where HIP was given them in work items: of the kernels that such a call launched."""
    items = [_correlations(part) for part in parts if part.kind == "api"]
    launched = np.unique(np.concatenate([*items, np.zeros(0, np.int64)]))
    for part in parts if len(launched) else ():
        if "blocks" in part.numbers:
            blocks, threads = part.numbers["blocks"], np.maximum(part.numbers["threads"], 1)
            given = np.isin(part.numbers["correlation"], launched) & (blocks >= 0)
            part.numbers["blocks"] = np.where(given, -(-blocks // threads), blocks)


def _correlations(calls: KinetoPart) -> Times:
    named = np.array([*(word in _ITEMS_LAUNCHED for word in calls.words["name"].words), False], bool)
    found: Times = calls.numbers["correlation"][named[calls.words["name"].codes]]
    return found
