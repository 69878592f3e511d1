"""AcmeTrace's layout: a folder with one CSV per metric, in it a column `Time` and a column per GPU ("10.140.0.131-0").

Source: InternLM/AcmeTrace, `README.md`, `data/utils.py` (`dcgm_metric_header`: the files' names) and
`data/generate_utilization_pkl.ipynb` (ACTIVE and OCCUPANCY are published in percent, times with a zone; a file may be
split as `GPU_UTIL-2023-07.csv`). Hu et al., "Characterization of Large Language Model Development in the
Datacenter", NSDI 2024.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from ullage.compressed import head as first_bytes
from ullage.errors import UllageError, UnreadableError
from ullage.problems import Problems
from ullage.sources import clock
from ullage.sources.delimited import blocks, first_lines, head
from ullage.sources.naming.columns import is_time, meaning
from ullage.sources.naming.fields import Alias, Floats, is_sentinel
from ullage.sources.naming.labels import device_name
from ullage.sources.rows.tabular import TableReading, matrix, numbers, within
from ullage.sources.source import Options, Place, source
from ullage.tables import FIELDS

_STEM = re.compile(r"(?P<metric>[A-Za-z_0-9]+?)(?:-20\d\d-[^.]*)?\.csv(?:\.(?:gz|bz2|xz))?", re.IGNORECASE)
_DEVICE = re.compile(r"(?P<host>.+?)[-:/_](?P<index>\d{1,3})")
_LEAST = 1.1  # a ratio does not pass this; percent of a whole fleet does


def recognise(place: Place) -> int:
    """Return 2 for a folder (or a folder of such folders, one a cluster) that holds a metric's CSV with a column per GPU."""
    return 2 if place.path is not None and place.path.is_dir() and any(_is_metric(path) for path in _files(place.path)) else 0


@source("acmetrace", recognise=recognise, reads="a folder of one CSV per metric with a column per GPU (AcmeTrace)", folder=True)
def read(place: Place, options: Options, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield partial samples, one field at a time; they come together when samples are settled.

    The device is 'cluster/host/index'. Where the folder holds several folders of metrics, each is a cluster by its name.
    """
    files = [path for path in _files(place.path or Path(place.name)) if _is_metric(path)]
    others = [path for path in _files(place.path or Path(place.name)) if path not in files]
    problems.drop("files of metrics that Ullage does not keep", len(others), others[0].name if others else "")
    folders = {path.parent for path in files}
    for number, path in enumerate(files, 1):
        cluster = path.parent.name if len(folders) > 1 else options.cluster
        options.progress(f"{path.name}: file {number} of {len(files)}")
        try:
            yield from _metric(path, cluster, options, problems)
        except UnreadableError as error:
            problems.cut_short("files that could not be read to the end", error.problem)
        except UllageError as error:  # whole, and of no use
            problems.drop("files that could not be read to the end", where=error.problem)


def _files(folder: Path) -> list[Path]:
    """Return the CSV files of a folder and of the folders in it, in a stable order."""
    return sorted(path for pattern in ("*", "*/*") for path in folder.glob(pattern) if path.is_file() and _STEM.fullmatch(path.name))


def _is_metric(path: Path) -> bool:
    """Return whether the file's name is a field and its columns are a time and devices."""
    if _alias(path) is None:
        return False
    try:
        first = head(first_bytes(path))
    except UllageError:
        return False
    if first is None or len(first.names) < 2 or not is_time(first.names[0]):
        return False
    devices = [name for name in first.names[1:-1] or first.names[1:] if _DEVICE.fullmatch(name)]
    return 2 * len(devices) > len(first.names) - 2 and not any(meaning(name) for name in first.names[1:])


def _alias(path: Path) -> Alias | None:
    match = _STEM.fullmatch(path.name)
    alias = meaning(match["metric"]) if match else None
    return _percent(alias) if alias is not None and match is not None else None


def _percent(alias: Alias) -> Alias:
    """The published files hold every share in percent, also those that the exporter gives as a ratio."""
    return replace(alias, unit="%") if FIELDS[alias.field].kind == "ratio" else alias


def _metric(path: Path, cluster: str | None, options: Options, problems: Problems) -> Iterator[pa.RecordBatch]:
    alias, place = _alias(path), Place(str(path), path, first_bytes(path))
    first = head(first_lines(place))
    if alias is None or first is None:
        return
    devices = {at: found for at, name in enumerate(first.names[1:], 1) if (found := _DEVICE.fullmatch(name)) is not None}
    problems.drop("columns that name no GPU", len(first.names) - 1 - len(devices), path.name)
    reading = TableReading(path.name, path.name, options, problems, first.lines)
    codes = [reading.devices.code(_who(found["host"], int(found["index"]), cluster)) for found in devices.values()]
    settled = False
    with place.open() as file:
        for block in blocks(file, first, (0, *devices), reading, texts=(0,)):
            times, valid = clock.milliseconds(block["0"], problems, path.name)
            reading.drop(~valid, "rows whose time can't be read")
            values = [numbers(block[str(at)], reading) for at in devices]
            if not settled:
                alias, settled = _settled(alias, values, reading), True
            yield from matrix(times, valid & within(times, options), [alias] * len(values), codes, values, reading)
            reading.line += block.num_rows


def _settled(alias: Alias, values: list[Floats], reading: TableReading) -> Alias:
    """Return the alias with the unit that the first block of a fleet's values shows: percent, or a ratio after all."""
    if alias.unit != "%":
        return alias
    cells = np.concatenate(values)
    highest = np.fmax.reduce(cells[~is_sentinel(cells, alias)], initial=0.0)
    if not 0 < highest <= _LEAST or alias.field == "gpu_util":
        return alias
    reading.problems.note(f"{reading.where} holds ratios, not percent as AcmeTrace publishes; settled by magnitude")
    return replace(alias, unit="1")


def _who(host: str, index: int, cluster: str | None) -> dict[str, str | int | None]:
    return {"cluster": cluster, "host": host, "index": index, "gpu": device_name(cluster, host, index)}
