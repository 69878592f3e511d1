"""What the footers of Parquet files say of their columns: which are empty, and which have a value in every row.

Any one fleet reports a few of the columns of `SETTLED`, and reports those always. A question that knows it need not
look at each sample to find it out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa


def empty_and_full(files: Sequence[Path]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the columns without a value in any of the files, and those with a value in every row of every file.

    What a footer does not say is not claimed; where a footer can't be read nothing is, and whoever asks the file will
    hear why.
    """
    import pyarrow.parquet as pq

    least, most = Counter[str](), Counter[str]()
    rows = 0
    try:
        for metadata in map(pq.read_metadata, files):
            rows += metadata.num_rows
            for name, at_least, at_most in _values(metadata):
                least[name] += at_least
                most[name] += at_most
    except (OSError, pa.ArrowException, UnicodeError):
        return frozenset(), frozenset()
    return frozenset(n for n in most if most[n] == 0), frozenset(n for n in least if least[n] == rows)


def _values(metadata: Any) -> Iterator[tuple[str, int, int]]:
    """For each column of each row group: its name, and how many values it has at least and at most."""
    for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
        for column in (group.column(position) for position in range(group.num_columns)):
            statistics = column.statistics
            if statistics is not None and statistics.has_null_count:
                yield column.path_in_schema, group.num_rows - statistics.null_count, group.num_rows - statistics.null_count
            else:
                yield column.path_in_schema, 0, group.num_rows
