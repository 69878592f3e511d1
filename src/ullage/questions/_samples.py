"""Telemetry: what a place says."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ullage.units import HOUR_MS

if TYPE_CHECKING:
    import pyarrow as pa

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


def window_of(options: Options | None, hours: float | None, since: int | None, until: int | None) -> Options:
    """Return options with the window that is asked for: `hours` back from now, or `since` and `until` in ms since 1970."""
    from ullage.sources.source import Options

    if hours is not None:
        since = int(time.time() * 1000 - hours * HOUR_MS)
    return dataclasses.replace(options or Options(), since=since, until=until)
