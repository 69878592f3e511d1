"""The operator in which a call begins, against a search through all operators."""

from __future__ import annotations

import numpy as np
import pytest

from tests.seeds import some
from ullage.traces.kineto.part import NOT_KNOWN, KinetoPart
from ullage.traces.kineto.products import _in_calls

Row = tuple[int, int, int, int, int]  # process, thread, start, end, and its code or correlation


def innermost(call: Row, operators: list[Row]) -> int:
    """The code of the operator on the call's thread that began last, the shorter one of two, if the call begins before its end."""
    process, thread, start, _, _ = call
    before = [operator for operator in operators if operator[:2] == (process, thread) and operator[2] <= start]
    last = max(before, key=lambda operator: (operator[2], -operator[3]), default=None)
    return last[4] if last is not None and start <= last[3] else NOT_KNOWN


@pytest.mark.parametrize("seed", some(range(400), 60))
def test_a_call_belongs_to_the_operator_that_began_last_on_its_thread(seed: int) -> None:
    draw = np.random.default_rng(seed)

    def rows(count: int, values: list[int]) -> list[Row]:
        begun = draw.permutation(90)[:count].tolist() if seed % 2 else draw.integers(0, 90, count).tolist()
        return [
            (*draw.integers(-1, 3, 2).tolist(), t, t + int(draw.integers(0, 40)), value) for t, value in zip(begun, values, strict=True)
        ]

    codes = draw.permutation(30)[: draw.integers(0, 30)].tolist()
    operators = list({row[:4]: row for row in rows(len(codes), codes)}.values())
    calls = rows(count := int(draw.integers(0, 60)), list(range(count)))
    cuts = sorted(draw.integers(0, count + 1, 3).tolist())
    parts = [part(calls[a:b], seed) for a, b in zip([0, *cuts], [*cuts, count], strict=True)]
    columns = np.array(operators, np.int64).reshape(-1, 5).T
    found = _in_calls(dict(zip(("process", "thread", "start", "end"), columns, strict=False)), columns[4].astype(np.int32), parts)
    assert found.of(np.arange(count)).tolist() == [innermost(call, operators) for call in calls]


def part(calls: list[Row], seed: int) -> KinetoPart:
    process, thread, start, end, correlation = np.array(calls, np.int64).reshape(-1, 5).T
    narrow = np.int32 if seed % 3 else np.int64
    return KinetoPart("api", start, end, {"process": process.astype(narrow), "thread": thread.astype(narrow), "correlation": correlation})
