"""Counter values from images of counter data: the library evaluates, on this machine or any other where it can be asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.cupti.counters.host import Host, Use
from ullage.cupti.counters.images import CounterImage
from ullage.cupti.counters.structures import room
from ullage.cupti.library import Library
from ullage.errors import UllageError


@dataclass(frozen=True)
class Values:
    """What was counted: a row a range, a column a metric; NaN is what the library could not compute."""

    ranges: tuple[str, ...]
    metrics: tuple[str, ...]
    values: npt.NDArray[np.float64]

    def row(self, index: int) -> dict[str, float]:
        """Return the metrics of one range by name; what could not be computed is left out."""
        found = zip(self.metrics, self.values[index].tolist(), strict=True)
        return {name: value for name, value in found if value == value}

    def table(self) -> pa.Table:
        """Return a table with a row a range: `range`, then a column a metric, null where there is no value."""
        columns = {name: pa.array(self.values[:, index], from_pandas=True) for index, name in enumerate(self.metrics)}
        return pa.table({"range": pa.array(self.ranges, pa.string()), **columns})


def evaluate(image: CounterImage, library: Library, metrics: Sequence[str] = ()) -> Values:
    """Return the values of an image that was kept; `metrics` may be others of the same counters (`.avg` of what was taken as `.sum`).

    Raises UllageError for an image of a newer CUPTI than the library, and where the library can't be asked on this machine.
    """
    if image.version is not None and library.version is not None and image.version > library.version:
        raise UllageError(
            f"the counter data are of CUPTI {image.version}, and this library is {library.version}", "evaluate with one as new as that"
        )
    wanted = tuple(metrics) or image.metrics
    held = room(len(image.data))
    held[:] = image.data
    with Host(library, image.chip, Use.RANGES if image.use == "range" else Use.SAMPLING) as host:
        host.config(image.metrics)  # as it was when the data were collected
        values = host.evaluate(held, len(image.data), image.rows, wanted)
    names = image.ranges if image.use == "range" else tuple(str(index) for index in range(image.rows))
    return Values(names, wanted, values)


def evaluated(host: Host, data: Any, size: int, ranges: Sequence[str], metrics: Sequence[str]) -> Values:
    """Return the values of counter data that lie in memory, by the host that planned their collection."""
    return Values(tuple(ranges), tuple(metrics), host.evaluate(data, size, len(ranges), metrics))
