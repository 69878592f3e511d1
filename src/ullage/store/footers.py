"""What the footers of Parquet files say of their columns: which are empty, have a value in every row, or the same one in all.

Any one fleet reports a few of the columns of `SETTLED`, and reports those always; most fleets are one cluster. A question that knows it
need not look at each sample to find it out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

Value = str | int


@dataclass(frozen=True)
class Footers:
    """Columns without a value in any file, those with a value in every row, and the value of words and whole numbers that never differ."""

    empty: frozenset[str] = frozenset()
    full: frozenset[str] = frozenset()
    same: Mapping[str, Value] = field(default_factory=dict)


def footers_of(files: Sequence[Path]) -> Footers:
    """Return what the footers of files say together.

    What a footer does not say is not claimed; where a footer can't be read nothing is, and whoever asks the file will
    hear why.
    """
    import pyarrow.parquet as pq

    least, most = Counter[str](), Counter[str]()
    held: dict[str, set[Value | None]] = {}
    rows = 0
    try:
        for metadata in map(pq.read_metadata, files):
            rows += metadata.num_rows
            for name, at_least, at_most, values in _columns(metadata):
                least[name] += at_least
                most[name] += at_most
                held.setdefault(name, set()).update(values)
    except (OSError, pa.ArrowException, UnicodeError):
        return Footers()
    full = frozenset(name for name in least if least[name] == rows)
    return Footers(
        frozenset(name for name in most if most[name] == 0),
        full,
        {name: value for name in sorted(full) if len(held[name]) == 1 for value in held[name] if value is not None},
    )


def largest(files: Sequence[Path], name: str) -> int | None:
    """Return the largest whole number that a column has in some files by their footers; None where these don't tell.

    Raises what reading a footer raises, see `footers_of`.
    """
    import pyarrow.parquet as pq

    found = 0
    for metadata in map(pq.read_metadata, files):
        for column, _, at_most, values in _columns(metadata):
            if column != name or not at_most:
                continue
            if any(not isinstance(value, int) for value in values):
                return None
            found = max(found, *(int(value) for value in values if value is not None))
    return found


def holds_only(file: Path, name: str, value: Value) -> bool:
    """Return whether no value of a column in a file is another than this one, by its footer alone; False where that does not tell."""
    import pyarrow.parquet as pq

    try:
        found = [values for column, _, at_most, values in _columns(pq.read_metadata(file)) if column == name and at_most]
    except (OSError, pa.ArrowException, UnicodeError):
        return False
    return all(values == {value} for values in found)


def _columns(metadata: Any) -> Iterator[tuple[str, int, int, set[Value | None]]]:
    """For each column of each row group: its name, how many values it has at least and at most, and its least and largest."""
    for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
        for column in (group.column(position) for position in range(group.num_columns)):
            statistics = column.statistics
            if statistics is not None and statistics.has_null_count:
                values = group.num_rows - statistics.null_count
                yield column.path_in_schema, values, values, _ends(statistics)
            else:
                yield column.path_in_schema, 0, group.num_rows, {None}


def _ends(statistics: Any) -> set[Value | None]:
    """The least and the largest value; None where they are not told, or of a kind of which statistics leave some out (NaN)."""
    if not statistics.has_min_max:
        return {None}
    return {value if isinstance(value, Value) else None for value in (statistics.min, statistics.max)}
