"""Sampled program counters at rest: an Arrow table with what was measured how, and the machine code that they point into.

A file of them is Parquet, with the facts as JSON in its metadata (key `ullage_pc_samples`). Machine code lies in a folder beside it,
`NAME.cubins/CRC.cubin`, so that a recording of a GPU node can be read on another machine.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ullage.checked_parquet import opened, write_table
from ullage.errors import UllageError, harmless

KEY = b"ullage_pc_samples"
ROWS = 50_000_000  # of a file: what has more is no recording of ours
SHARE = 1 << 31  # bytes of samples unpacked that a file may have
CUBINS = 4096  # files in the folder beside it
LARGEST = 256 << 20  # bytes of one cubin
ALL = 2 << 30  # bytes of all of them
MOST = float(1 << 62)  # samples in all: sums of more run over

_NAME = pa.dictionary(pa.int32(), pa.string())
# `context` counts the contexts that were sampled, from 0; `cubin` is CUPTI's CRC of the machine code; `pc` bytes from the function's
# start; `correlation` 0 in continuous mode and before CUDA 12.4; `reason` as CUPTI names it.
SAMPLES = pa.schema(
    [
        ("context", pa.uint32()), ("range", pa.uint64()), ("cubin", pa.uint64()), ("function_index", pa.uint32()), ("function", _NAME),
        ("pc", pa.uint64()), ("correlation", pa.uint32()), ("reason_index", pa.uint32()), ("reason", _NAME), ("samples", pa.uint64()),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """How samples were taken. None is "not told".

    `cycles` from one sample to the next; `clock` of the SMs in Hz; `total` samples as CUPTI counted them, of which `dropped` were lost in
    the hardware and `other` fell on kernels of the driver's own; `full` is how often the hardware's buffer overflowed; `unread` how many
    modules were unloaded before their samples could be read; `problems` what failed on the way.
    """

    chip: str | None = None
    release: str | None = None
    mode: str | None = None
    cycles: int | None = None
    clock: float | None = None
    total: int | None = None
    dropped: int | None = None
    other: int | None = None
    full: int = 0
    unread: int = 0
    reasons: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class PcSamples:
    """Samples as a table of `SAMPLES`, the facts, and machine code by CRC."""

    table: pa.Table
    facts: Facts = Facts()
    cubins: Mapping[int, bytes] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the Parquet file, and beside it the cubins that its samples point into; raises UllageError where it can't."""
        table = self.table.cast(SAMPLES).replace_schema_metadata({KEY: json.dumps(dataclasses.asdict(self.facts))})
        wanted = set(table["cubin"].unique().to_pylist())
        part = path.with_name(f".{path.name}.part")
        try:
            write_table(table, part)
            part.replace(path)
            for crc, code in self.cubins.items():
                if crc in wanted:
                    _folder(path).mkdir(exist_ok=True)
                    (_folder(path) / f"{crc:016x}.cubin").write_bytes(code)
        except OSError as error:
            problem = f"{harmless(str(path))} can't be written: {error.strerror or harmless(str(error))}"
            raise UllageError(problem, "name a file in a folder that exists and is yours") from error
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def read(path: Path) -> PcSamples:
    """Return the samples of a file that `PcSamples.write` made, with the cubins beside it.

    Raises UllageError for a file that is missing, damaged, of another kind, or unreasonably large.
    """
    try:
        with path.open("rb") as raw, opened(raw) as file:
            _refuse(path, file)
            table = file.read(columns=SAMPLES.names).cast(SAMPLES)
            facts = _facts(json.loads((file.schema_arrow.metadata or {})[KEY]))
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise UllageError(f"{harmless(str(path))} can't be read: {error.strerror}", _MADE) from error
        said = harmless(str(error).splitlines()[0] if str(error) else type(error).__name__, 160)
        raise UllageError(f"{harmless(str(path))} holds no samples that can be read: {said}", _MADE) from error
    if any(table[name].null_count for name in SAMPLES.names):
        raise UllageError(f"{harmless(str(path))} lacks values in its columns", _MADE)
    if np.sum(table["samples"].to_numpy(), dtype=float) > MOST:
        raise UllageError(f"{harmless(str(path))} counts more samples than any recording", _MADE)
    return PcSamples(table.replace_schema_metadata(None), facts, dict(_cubins(path, set(table["cubin"].unique().to_pylist()))))


_MADE = "give a Parquet file that `PcSampling.result().write(…)` made"


def holds_samples(path: Path) -> bool:
    """Return whether a file is Parquet that `PcSamples.write` made, by its footer alone."""
    try:
        with path.open("rb") as raw, opened(raw) as file:
            return KEY in (file.schema_arrow.metadata or {})
    except (pa.ArrowException, OSError):
        return False


def _refuse(path: Path, file: Any) -> None:
    """Refuse, before anything is unpacked, what is not of our making or would fill the memory."""
    if KEY not in (file.schema_arrow.metadata or {}):
        raise UllageError(f"{harmless(str(path))} is a Parquet file, but not of sampled program counters", _MADE)
    heavy = sum(file.metadata.row_group(n).total_byte_size for n in range(file.metadata.num_row_groups))
    if file.metadata.num_rows > ROWS or heavy > SHARE:
        raise UllageError(f"{harmless(str(path))} says that it holds {file.metadata.num_rows:,} rows, more than any recording", _MADE)


def _facts(told: Any) -> Facts:
    """Return facts from JSON; a key that is not known, or of another type, is left out."""
    if not isinstance(told, dict):
        return Facts()
    found: dict[str, Any] = {}
    for name in ("chip", "release", "mode"):
        found[name] = told[name] if isinstance(told.get(name), str) else None
    for name in ("cycles", "total", "dropped", "other"):
        found[name] = told[name] if _count(told.get(name)) else None
    found |= {name: told[name] for name in ("full", "unread") if _count(told.get(name))}
    clock = told.get("clock")
    found["clock"] = float(clock) if isinstance(clock, int | float) and not isinstance(clock, bool) and 0 < clock < 1e12 else None
    for name in ("reasons", "problems"):
        listed = told.get(name)
        found[name] = tuple(str(one) for one in listed[:1000]) if isinstance(listed, list) else ()
    return Facts(**found)


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _folder(path: Path) -> Path:
    return path.with_name(f"{path.stem}.cubins")


def _cubins(path: Path, wanted: Container[int]) -> Iterator[tuple[int, bytes]]:
    """Yield (CRC, machine code) of the files beside a recording that are named as ours, are pointed into, and are no larger than can be."""
    room = ALL
    for place in _beside(_folder(path)):
        named = re.fullmatch(r"([0-9a-f]{16})\.cubin", place.name)
        if not named or int(named[1], 16) not in wanted:
            continue
        with suppress(OSError):  # the report does without
            size = place.stat().st_size
            if place.is_file() and not place.is_symlink() and size <= min(LARGEST, room):
                yield int(named[1], 16), place.read_bytes()
                room -= size


def _beside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())[:CUBINS]
    except OSError:
        return []


def gathered(parts: list[pa.Table]) -> pa.Table:
    """Return samples of many readings as one table: the counts of one place and reason added up, in a settled order."""
    keys = [name for name in SAMPLES.names if name != "samples"]
    whole = pa.concat_tables([SAMPLES.empty_table(), *parts]).unify_dictionaries()
    plain = whole.cast(pa.schema([(one.name, pa.string() if one.type == _NAME else one.type) for one in SAMPLES]))
    summed = plain.group_by(keys).aggregate([("samples", "sum")]).rename_columns([*keys, "samples"])
    return summed.sort_by([(key, "ascending") for key in keys]).cast(SAMPLES)
