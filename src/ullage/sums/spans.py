"""Samples cut where something about their GPU begins or ends that they do not tell of: its life, or a fault of its gauges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from ullage.sums.devices import milliseconds_of, part

Span = tuple[int, int]  # ms since 1970
EVER = 253_402_300_000_000  # ms; the end of the year 9999: beyond every time


def joined_spans(spans: Iterable[Span], apart: int = 0) -> tuple[Span, ...]:
    """Return the union of some spans, in order; those at most `apart` from each other become one.

    >>> joined_spans([(5, 7), (0, 2), (1, 3), (3, 3)]), joined_spans([(0, 2), (4, 6)], apart=2)
    (((0, 3), (5, 7)), ((0, 6),))
    """
    found: list[Span] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if found and start <= found[-1][1] + apart:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return tuple(found)


def length(spans: Iterable[Span]) -> int:
    """Return how long some spans are together (ms); what several of them cover counts once."""
    return sum(end - start for start, end in joined_spans(spans))


def cut_at_spans(samples: Any, spans: Mapping[str, Iterable[Span]], name: str) -> Any:
    """Return the samples (an Ibis table) of the GPUs that are in `spans`, with a column `name`: whether it lies in one of them.

    A sample that reaches over an edge is a row on either side, by the time that it has there, and its counters' growth likewise.
    """
    import ibis

    table = ibis.memtable(_table([piece for gpu, own in spans.items() for piece in _pieces(gpu, joined_spans(own))], name))
    end = milliseconds_of(samples.time)
    own = samples.filter(samples.gpu.isin(list(spans))).mutate(_start=end - samples.span_ms, _end=end)
    # a sample that stands for no time belongs where it lies
    inside = (table._from < own._end) & ((table._to > own._start) | (table._to >= own._end))
    found = own.join(table, [own.gpu.cast("string") == table._gpu, inside])
    start, end = ibis.greatest(found._start, found._from), ibis.least(found._end, found._to)
    return part(found, start, end, time=ibis.least(found.time, found._until)).select(*samples.columns, name)


def samples_in_spans(samples: Any, spans: Mapping[str, Iterable[Span]], *, inside: bool = True) -> Any:
    """Return the samples (an Ibis table), those of the GPUs in `spans` only as far as they lie inside (or outside) of a GPU's own."""
    if not spans:
        return samples
    cut = cut_at_spans(samples, spans, "inside")
    chosen = cut.filter(cut.inside if inside else ~cut.inside).drop("inside")
    others = samples.filter(~samples.gpu.isin(list(spans)))
    # pieces of samples have a part of their counters' growth, which is no whole number
    kinds = {name: kind.copy(nullable=True) for name, kind in chosen.schema().items()}
    return others.cast(kinds).union(chosen.cast(kinds))


def _table(pieces: Sequence[tuple[str, int, int, bool]], name: str) -> pa.Table:
    gpu, start, end, inside = (list(column) for column in zip(*pieces, strict=True)) if pieces else ([], [], [], [])
    until = pa.array(end, pa.int64()).cast(pa.timestamp("ms", "UTC"))
    words = pa.array(gpu, pa.string())
    return pa.table(
        {
            "_gpu": words,
            "_from": pa.array(start, pa.int64()),
            "_to": pa.array(end, pa.int64()),
            "_until": until,
            name: pa.array(inside, pa.bool_()),
        }
    )


def _pieces(gpu: str, spans: tuple[Span, ...]) -> list[tuple[str, int, int, bool]]:
    """Return all of time in pieces: those in the spans, and those between."""
    edges = [-EVER, *(edge for span in spans for edge in span), EVER]
    return [(gpu, start, end, place % 2 == 1) for place, (start, end) in enumerate(pairwise(edges))]
