"""Three ways to raw readings of one metric in a window of time, from what speaks Prometheus' HTTP API.

- `export`: VictoriaMetrics' own, raw by nature.
- `instant`: an instant query with a range selector gives the stored readings with their true times and no look-back.
- `grid`: where range selectors are refused, `query_range` of the metric and of `timestamp(metric)`. The second tells
  which reading each point of the grid shows, so that a value carried forward (for up to 5 minutes) is not a reading.

A window is (start, end], in ms since 1970. Range selectors include the left end in Prometheus 2 and exclude it in 3
(https://prometheus.io/docs/prometheus/latest/migration/, "Range selectors and lookback exclude samples coinciding
with the left boundary"): what lies outside is dropped here, so that neighbouring windows never share a reading.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.sources.http import Client, ServerError, is_page
from ullage.sources.prometheus_json import PrometheusAnswer, blocks, heed
from ullage.sources.rows.readings import SeriesReadings, label_set

Ints = npt.NDArray[np.int64]

MOST_POINTS = 11_000  # of one series in one query_range (Prometheus, web/api/v1: "exceeded maximum resolution")
INTERVAL = 30_000  # ms; dcgm-exporter's default collection interval
_TOO_MUCH = re.compile(r"too many|too much|exceed|limit|too large|too long|timed out|timeout", re.IGNORECASE)


@dataclass(frozen=True)
class PrometheusRange:
    """A time range (start, end] in ms."""

    start: int
    end: int


Route = Callable[[Client, str, PrometheusRange, Problems], Iterator[SeriesReadings]]


def export(client: Client, metric: str, window: PrometheusRange, problems: Problems) -> Iterator[SeriesReadings]:
    """Yield the raw readings of a metric by VictoriaMetrics' `/api/v1/export`."""
    query = {"match[]": selector(metric), "start": _seconds(window.start), "end": _seconds(window.end)}
    yield from _within(_answer(client, "/api/v1/export", query, problems), window)


def instant(client: Client, metric: str, window: PrometheusRange, problems: Problems) -> Iterator[SeriesReadings]:
    """Yield the raw readings of a metric by an instant query with a range selector."""
    query = {"query": f"{selector(metric)}[{window.end - window.start}ms]", "time": _seconds(window.end)}
    yield from _within(_answer(client, "/api/v1/query", query, problems), window)


def grid(step: int) -> Route:
    """Return the route by `query_range` with a step in ms: at most half the scrape interval, or readings are missed."""

    def route(client: Client, metric: str, window: PrometheusRange, problems: Problems) -> Iterator[SeriesReadings]:
        ask = {"start": _seconds(window.start), "end": _seconds(window.end + step), "step": _seconds(step)}
        stamps = {}
        for block in _answer(client, "/api/v1/query_range", ask | {"query": f"timestamp({selector(metric)})"}, problems):
            for labels, times, seconds in _apart(block):
                stamps[_key(labels)] = (times, np.rint(seconds * 1000).astype(np.int64))
        for block in _answer(client, "/api/v1/query_range", ask | {"query": selector(metric)}, problems):
            yield from _within(_at_true_times(block, stamps), window)

    return route


def interval(client: Client, metric: str, window: PrometheusRange, problems: Problems) -> int:
    """Return the time between a metric's readings, in ms: the median over the window's last 10 minutes, or 30 s."""
    start = max(window.start, window.end - 600_000)
    ask = {"query": f"timestamp({selector(metric)})", "start": _seconds(start), "end": _seconds(window.end), "step": "1"}
    gaps = [
        np.diff(np.unique(seconds)) for block in _answer(client, "/api/v1/query_range", ask, problems) for _, _, seconds in _apart(block)
    ]
    seen = np.concatenate(gaps) if gaps else np.zeros(0)
    return max(1000, round(float(np.median(seen)) * 1000)) if len(seen) else INTERVAL


def too_much(error: UllageError) -> bool:
    """Return whether a server refused because a question was too large, so that half of it may pass."""
    if not isinstance(error, ServerError):
        return False
    return error.kind == "timeout" or error.status == 413 or (error.status in (400, 422) and bool(_TOO_MUCH.search(error.reason)))


def refuses_ranges(error: UllageError) -> bool:
    """Return whether a server understood the question and does not answer that kind."""
    return isinstance(error, ServerError) and error.status in (400, 405, 422, 501) and not too_much(error)


def selector(metric: str) -> str:
    """Return a metric's selector; quoted, since names may hold any character from Prometheus 3 on.

    >>> selector("DCGM_FI_DEV_SM_CLOCK")
    '{__name__="DCGM_FI_DEV_SM_CLOCK"}'
    """
    escaped = metric.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{__name__="{escaped}"}}'


def _answer(client: Client, path: str, query: dict[str, str], problems: Problems) -> Iterator[SeriesReadings]:
    """Yield an answer's readings; raises ServerError where it is not a whole and good one."""
    body = client.get(path, query)
    if is_page(body):
        raise ServerError(
            f"{client.shown} answered with an HTML page where JSON was expected", "a login page? give credentials, or the API's own URL"
        )
    answer = PrometheusAnswer()
    yield from blocks(io.BytesIO(body).read, answer, problems, client.shown)
    heed(answer, problems, client.shown)
    if answer.errors:
        raise ServerError(f"{client.shown} refused: {answer.errors[0]}", status=200)
    silent = not body.strip() and path == "/api/v1/export"  # no series, no lines
    if not answer.whole or not (answer.series or body.startswith(b"{") or silent):
        start = harmless(body[:60].decode("utf-8", "replace"))
        raise ServerError(
            f"{client.shown} gave an answer that is not whole ({len(body):,} bytes, it begins with {start!r})", "is it a Prometheus?"
        )


def _within(found: Iterator[SeriesReadings], window: PrometheusRange) -> Iterator[SeriesReadings]:
    """Yield the readings inside the window."""
    for block in found:
        inside = (block.times > window.start) & (block.times <= window.end)
        if inside.all():
            yield block
            continue
        owner = np.repeat(np.arange(len(block.counts)), block.counts)
        counts = np.bincount(owner[inside], minlength=len(block.counts))
        yield SeriesReadings(block.labels, counts, block.times[inside], block.values[inside])


def _apart(block: SeriesReadings) -> Iterator[tuple[bytes, Ints, npt.NDArray[np.float64]]]:
    """Yield (labels, times, values) of each series."""
    ends = np.cumsum(block.counts)
    for labels, end, count in zip(block.labels, ends.tolist(), block.counts.tolist(), strict=True):
        yield labels, block.times[end - count : end], block.values[end - count : end]


def _key(raw: bytes) -> frozenset[tuple[str, str]]:
    """Return what tells series of one metric apart: `timestamp()` drops the name."""
    return frozenset((name, text) for name, text in (label_set(raw) or {}).items() if name != "__name__")


def _at_true_times(block: SeriesReadings, stamps: dict[frozenset[tuple[str, str]], tuple[Ints, Ints]]) -> Iterator[SeriesReadings]:
    """Yield the readings at the times when they were made, each once, instead of the grid's."""
    labels, counts, times, values = [], [], [np.zeros(0, np.int64)], [np.zeros(0)]
    for raw, points, shown in _apart(block):
        grid_points, made = stamps.get(_key(raw), (points[:0], points[:0]))
        _, left, right = np.intersect1d(points, grid_points, assume_unique=True, return_indices=True)
        true, first = np.unique(made[right], return_index=True)
        labels.append(raw)
        counts.append(len(true))
        times.append(true)
        values.append(shown[left][first])
    yield SeriesReadings(labels, np.array(counts, np.int64), np.concatenate(times), np.concatenate(values))


def _seconds(ms: int) -> str:
    """Return ms as the API wants it: seconds with three decimals.

    >>> _seconds(1_700_000_000_123)
    '1700000000.123'
    """
    return f"{ms // 1000}.{ms % 1000:03d}"
