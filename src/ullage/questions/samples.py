"""Telemetry: what a place says, and how full the fleet is that it tells of."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ullage.units import HOUR_MS

if TYPE_CHECKING:
    import pyarrow as pa

    from ullage.reports.fleet import FleetReport
    from ullage.sources.source import Options


def read_samples(
    source: str, *, hours: float | None = None, since: int | None = None, until: int | None = None, options: Options | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield what a place says as record batches of `ullage.tables.SAMPLES`: clean, in SI units, not yet settled.

    `source` is a file, a folder or a URL; `hours` looks back from now, `since` and `until` are ms since 1970. Raises
    UllageError for a place that does not exist or is no telemetry.
    """
    from ullage.sources.source import read_samples as read
    from ullage.sums.ratio_units import settled_batches

    yield from settled_batches(read(source, window_of(options, hours, since, until)))


def fleet(
    source: str | Sequence[str],
    *,
    by: str | None = None,
    hours: float | None = None,
    since: int | None = None,
    until: int | None = None,
    jobs: Sequence[str] = (),
    prices: Mapping[str, float] | None = None,
    gpu: str | None = None,
    options: Options | None = None,
) -> FleetReport:
    """Return how full a fleet is and where the shortfall goes; the command `ullage fleet` prints the same.

    `source` is a file, a folder, a store, a URL, or several; `by` one of `ullage.reports.fleet.KEYS`; `hours` looks back
    from now, `since` and `until` are ms since 1970; `prices` is money per GPU-hour by GPU name ("" for all); `gpu` names the
    GPU where the samples don't. Raises UllageError for what the user can mend.
    """
    from ullage.intake import opened
    from ullage.reports.fleet import Question
    from ullage.reports.fleet import fleet as answer

    options = window_of(options, hours, since, until)
    question = Question(by=by, since=options.since, until=options.until, prices=dict(prices or {}), model=gpu)
    with opened([source] if isinstance(source, str) else source, jobs=jobs, options=options) as taken:
        return taken.marked(answer(taken.samples, taken.jobs, question, taken.problems.lines()))


def window_of(options: Options | None, hours: float | None, since: int | None, until: int | None) -> Options:
    """Return options with the window that is asked for: `hours` back from now, or `since` and `until` in ms since 1970."""
    from ullage.sources.source import Options

    if hours is not None:
        since = int(time.time() * 1000 - hours * HOUR_MS)
    return dataclasses.replace(options or Options(), since=since, until=until)
