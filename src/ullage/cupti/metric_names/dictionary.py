"""The dictionary of counter metrics: what each chip counts, by the name that CUPTI has for it, in every release from 12.0 on.

The data (`data/metrics.parquet`) are what each release's own libnvperf_host answered, without a GPU, to `tools/cupti_dictionary.py`;
`provenance` says which library that was. The profiler host of 12.9 to 13.1, which replaces that interface, lists the same names. A chip
is called as CUPTI calls it ("GH100"). NVIDIA's descriptions aren't in it: a library that is installed tells them (`ullage cupti
describe`).

A metric's `kind` is `counter` (collected as `NAME.sum`, `.avg`, `.sum.per_second`, …), `ratio` (`NAME.ratio`, `.pct`) or `throughput`
(`NAME.avg.pct_of_peak_sustained_elapsed`, …). Its unit is that of the sum of a counter, of a `.ratio`, of a throughput's share;
"unknown" where the library itself doesn't say.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from ullage.checked_parquet import opened
from ullage.errors import UllageError, did_you_mean, harmless

Kind = Literal["counter", "ratio", "throughput"]
FILE = "metrics.parquet"
COLUMNS = ["name", "kind", "unit", "hardware"]


@dataclass(frozen=True)
class DictionaryMetric:
    """A metric of a chip: its name without sub-metric, kind, unit, and the hardware unit that counts it."""

    name: str
    kind: Kind
    unit: str
    hardware: str


@dataclass(frozen=True)
class Origin:
    """Where a release's answers come from: the wheel, the library in it, and how it was asked."""

    release: str
    package: str
    version: str
    library: str
    sha256: str
    asked: str


def provenance() -> tuple[Origin, ...]:
    """Return where the dictionary comes from, a library a release, oldest first."""
    return tuple(Origin(**origin) for origin in json.loads(_file().schema_arrow.metadata[b"provenance"]))


@functools.cache
def releases(chip: str | None = None) -> tuple[str, ...]:
    """Return the releases that the dictionary knows, or those that know a chip; oldest first.

    >>> releases()[0], releases("GB100")[0]
    ('12.0', '12.8')
    """
    known = tuple(origin.release for origin in provenance())
    if chip is None:
        return known
    held = functools.reduce(int.__or__, pc.unique(_file().read([called(chip)]).column(0)).to_pylist())
    return tuple(release for bit, release in enumerate(known) if held >> bit & 1)


@functools.cache
def chips(release: str | None = None) -> tuple[str, ...]:
    """Return the chips that a release's library knows; without a release, all that any of them knew.

    >>> "GB100" in chips("12.0"), "GB100" in chips("13.1"), "GV100" in chips("13.5"), "GV100" in chips()
    (False, True, False, True)
    """
    every = tuple(name for name in _file().schema_arrow.names if name not in COLUMNS)
    if release is None:
        return every
    known = _release(release)
    return tuple(chip for chip in every if known in releases(chip))


def table(chip: str, release: str | None = None) -> pa.Table:
    """Return a chip's metrics as a table of `COLUMNS`, by name; of the newest release that knows the chip when none is given.

    Raises UllageError for a chip or release that isn't known, with the ones that are.
    """
    name = called(chip)
    held = releases(name)
    asked = held[-1] if release is None else _release(release)
    if asked not in held:
        raise UllageError(f"CUPTI {asked} doesn't know the chip {name}", f"it is in {held[0]} to {held[-1]}")
    rows = _file().read([*COLUMNS, name])
    bit = pa.scalar(1 << releases().index(asked), pa.uint32())
    return rows.filter(pc.not_equal(pc.bit_wise_and(rows[name], bit), 0)).select(COLUMNS)


@functools.lru_cache(maxsize=8)
def metrics(chip: str, release: str | None = None) -> tuple[DictionaryMetric, ...]:
    """Return a chip's metrics, by name; see `table`."""
    return tuple(DictionaryMetric(*row) for row in zip(*(table(chip, release)[name].to_pylist() for name in COLUMNS), strict=True))


@functools.lru_cache(maxsize=8)
def _by_name(chip: str, release: str | None) -> dict[str, DictionaryMetric]:
    return {metric.name: metric for metric in metrics(chip, release)}


def has(name: str, chip: str, release: str | None = None) -> bool:
    """Return whether a chip has a metric, whose name may have a sub-metric."""
    return base(name) in _by_name(chip, release)


def base(name: str) -> str:
    """Return a metric's name without its sub-metrics. The names of the triage sets have dots of their own before "__".

    >>> base("dram__bytes_read.sum.per_second"), base("TPC.TriageCompute.sm__cycles_active.avg")
    ('dram__bytes_read', 'TPC.TriageCompute.sm__cycles_active')
    """
    set_, mark, rest = name.partition("__")
    return set_ + mark + rest.partition(".")[0]


def called(chip: str) -> str:
    """Return a chip's name as CUPTI writes it, from any case; raises UllageError, with the nearest names, for none.

    >>> called("gh100")
    'GH100'
    """
    known = {name.casefold(): name for name in chips()}
    if chip.casefold() not in known:
        raise UllageError(f"CUPTI has no chip '{harmless(chip)}'", did_you_mean(chip, known.values(), "ullage cupti chips"))
    return known[chip.casefold()]


def _release(name: str) -> str:
    if name in releases():
        return name
    raise UllageError(f"the dictionary has no CUPTI '{harmless(name)}'", f"it has {', '.join(releases())}")


@functools.cache
def _file() -> Any:
    return opened(pa.BufferReader(resources.files("ullage.cupti").joinpath("data", FILE).read_bytes()))
