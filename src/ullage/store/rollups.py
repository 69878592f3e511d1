"""Roll-ups: what a fleet's report adds up over a part's samples, kept beside the part, so that nobody adds it up again.

Sums are in whole steps (`ullage.sums.exact`), which add up exactly: a report from roll-ups and one from the samples are equal to the
last bit. A roll-up is derived and may go at any time. It names the part and the algorithm that it was made by: one of another
algorithm, one that is damaged and one that is missing are made anew, and until then the samples themselves are asked.

rollups/part-<hash>.states.parquet   sums by state of a device (`sums.devices.STATE`)
rollups/part-<hash>.gauges.parquet   what the gauges of a device say of each other (`sums.gauges`)
rollups/part-<hash>.course.parquet   sums by 5 minutes and kind of GPU (`sums.devices.time_steps`)
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from ullage.checked_parquet import opened, write_table
from ullage.store.manifest import ROLLUPS, StoreFolder, StorePart
from ullage.store.reading import SPARK, settled_table
from ullage.sums.devices import time_steps
from ullage.sums.gauges import device_and_gauge_steps

COURSE_MS = 300_000  # the time that a row of the course is of: any longer time that a report shows is some of these
_MADE_BY = ("sums.devices", "sums.gauges", "sums.exact", "sums.held", "sums.ledger", "field", "tables")
_TABLES = ("states", "gauges", "course")


@dataclass(frozen=True)
class RollUp:
    """The sums of one part in whole steps; `start` (ms) is when the first of its samples begins to speak."""

    states: pa.Table
    gauges: pa.Table
    course: pa.Table

    @property
    def start(self) -> int:
        """The time (ms) from which on a sample of the part speaks."""
        return int(pc.min(self.states["start_ms"]).as_py())


@dataclass(frozen=True)
class RolledSums:
    """The roll-ups of those parts of a store that lie whole within a window, and the samples of the others (None: there are none)."""

    rolled: Sequence[RollUp]
    rest: Any


@cache
def algorithm() -> str:
    """Return a digest of the code that adds samples up: sums that other code made are not taken for its own."""
    found = hashlib.sha256()
    for name in _MADE_BY:
        spec = importlib.util.find_spec(f"ullage.{name}")
        if spec is not None and spec.origin is not None:
            found.update(Path(spec.origin).read_bytes())
    return found.hexdigest()[:16]


def roll_up(folder: StoreFolder, connection: Any, part: StorePart) -> RollUp:
    """Add up a part's samples and keep what was found beside it; returns it. Raises UllageError for a damaged part or a full disk."""
    if connection.name != SPARK:  # which looks at what it reads itself
        folder.verify([part])
    samples = settled_table(connection, [folder.at(part.file)], None, None, None)
    states, gauges = device_and_gauge_steps(samples)
    made = RollUp(states, gauges, time_steps(samples, bucket_ms=COURSE_MS))
    for name in _TABLES:
        table = getattr(made, name).replace_schema_metadata({"part": part.sha256, "algorithm": algorithm()})

        def write(file: IO[bytes], table: pa.Table = table) -> None:
            write_table(table, file, compression="zstd", store_schema=True)

        folder.write_whole(place_of(part, name), write, "rollup")
    return made


def place_of(part: StorePart, name: str) -> str:
    """Return where a table of a part's roll-up lies, within the store."""
    return f"{ROLLUPS}/{Path(part.file).stem}.{name}.parquet"


def files_of(file: str) -> set[str]:
    """Return the names within the store of what may be rolled up of a part's file."""
    return {f"{ROLLUPS}/{Path(file).stem}.{name}.parquet" for name in _TABLES}


def is_rolled(folder: StoreFolder, part: StorePart) -> bool:
    """Return whether a part has a roll-up of this algorithm, by its footers alone."""
    return all(_of_part(folder, part, name) for name in _TABLES)


def read_rollup(folder: StoreFolder, part: StorePart) -> RollUp | None:
    """Return the roll-up of a part; None where there is none of this algorithm, or it is damaged."""
    tables = []
    for name in _TABLES:
        try:
            with opened(folder.at(place_of(part, name))) as file:
                if not _fits(file.schema_arrow, part):
                    return None
                tables.append(file.read())
        except (OSError, pa.ArrowException, UnicodeError):
            return None
    return RollUp(*tables)


def _of_part(folder: StoreFolder, part: StorePart, name: str) -> bool:
    import pyarrow.parquet as pq

    try:
        return _fits(pq.read_schema(folder.at(place_of(part, name))), part)
    except (OSError, pa.ArrowException, UnicodeError):
        return False


def _fits(schema: pa.Schema, part: StorePart) -> bool:
    found = schema.metadata or {}
    return bool(found.get(b"part") == part.sha256.encode() and found.get(b"algorithm") == algorithm().encode())
