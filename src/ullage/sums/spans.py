"""Samples cut where something about their GPU begins or ends that they do not tell of: its life, or a fault of its gauges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from ullage.sums.devices import milliseconds_of, part

Span = tuple[int, int]  # ms since 1970
Whose = str | tuple[str, str | None]  # a GPU with all of its instances, or one device: its GPU and its instance (None: the whole GPU)
Spans = Mapping[str, Iterable[Span]] | Mapping[Whose, Iterable[Span]]
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


def gpus_of(spans: Spans) -> list[str]:
    """Return the GPUs that something is said of, sorted.

    >>> gpus_of({("b", "1g.10gb/7"): [(0, 1)], ("b", None): [(0, 1)], "a": [(0, 1)]})
    ['a', 'b']
    """
    return sorted({whose if isinstance(whose, str) else whose[0] for whose in spans})


def cut_at_spans(samples: Any, spans: Spans, name: str) -> Any:
    """Return the samples (an Ibis table) of the GPUs that are in `spans`, with a column `name`: whether it lies in one of its own.

    Of a GPU of which only some devices are in `spans` the others lie in none. A sample that reaches over an edge is a row on either
    side, by the time that it has there, and its counters' growth likewise.
    """
    import ibis

    table = ibis.memtable(_table([piece for whose, own in spans.items() for piece in _pieces(whose, joined_spans(own))], name))
    end = milliseconds_of(samples.time)
    own = samples.filter(samples.gpu.isin(gpus_of(spans))).mutate(_start=end - samples.span_ms, _end=end)
    # a sample that stands for no time belongs where it lies
    inside = (table._from < own._end) & ((table._to > own._start) | (table._to >= own._end))
    theirs = table._all | (own.mig.cast("string").fill_null("") == table._mig)
    found = own.left_join(table, [own.gpu.cast("string") == table._gpu, theirs, inside])
    found = found.mutate(**{name: found[name].fill_null(False), "_from": found._from.fill_null(-EVER), "_to": found._to.fill_null(EVER)})
    start, end = ibis.greatest(found._start, found._from), ibis.least(found._end, found._to)
    until = found._until.fill_null(found.time)
    return part(found, start, end, time=ibis.least(found.time, until)).select(*samples.columns, name)


def samples_in_spans(samples: Any, spans: Spans, *, inside: bool = True) -> Any:
    """Return the samples (an Ibis table), those of the GPUs in `spans` only as far as they lie inside (or outside) of their own."""
    if not spans:
        return samples
    cut = cut_at_spans(samples, spans, "inside")
    chosen = cut.filter(cut.inside if inside else ~cut.inside).drop("inside")
    others = samples.filter(~samples.gpu.isin(gpus_of(spans)))
    # pieces of samples have a part of their counters' growth, which is no whole number
    kinds = {name: kind.copy(nullable=True) for name, kind in chosen.schema().items()}
    return others.cast(kinds).union(chosen.cast(kinds))


Piece = tuple[str, str, bool, int, int, bool]  # GPU, instance ("": none), whether all of them, from, to, inside


def _table(pieces: Sequence[Piece], name: str) -> pa.Table:
    gpu, mig, everyone, start, end, inside = (list(column) for column in zip(*pieces, strict=True)) if pieces else ([] for _ in range(6))
    until = pa.array(end, pa.int64()).cast(pa.timestamp("ms", "UTC"))
    return pa.table(
        {
            "_gpu": pa.array(gpu, pa.string()),
            "_mig": pa.array(mig, pa.string()),
            "_all": pa.array(everyone, pa.bool_()),
            "_from": pa.array(start, pa.int64()),
            "_to": pa.array(end, pa.int64()),
            "_until": until,
            name: pa.array(inside, pa.bool_()),
        }
    )


def _pieces(whose: Whose, spans: tuple[Span, ...]) -> list[Piece]:
    """Return all of time in pieces: those in the spans, and those between."""
    gpu, mig, everyone = (whose, "", True) if isinstance(whose, str) else (whose[0], whose[1] or "", False)
    edges = [-EVER, *(edge for span in spans for edge in span), EVER]
    return [(gpu, mig, everyone, start, end, place % 2 == 1) for place, (start, end) in enumerate(pairwise(edges))]
