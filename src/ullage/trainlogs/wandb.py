"""The file of a run of Weights & Biases (`run-*.wandb`), as it lies in its folder, and in that of a run without a network.

It begins with ":W&B" and a version; then blocks of 32 KiB as LevelDB's log has them: a checksum (CRC-32 of the kind and the
data), a length, and a kind that says whether the data is a whole record or a part of one. A record is a protobuf message
(wandb_internal.proto), of which a History has the metrics of one `log`, each as JSON.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from ullage.compressed import opened
from ullage.problems import Problems
from ullage.protobuf import WireError, fields, signed
from ullage.trainlogs.points import MetricPoint, milliseconds, tracker

_MAGIC: Final = b":W&B\xe1\xbe"
_HEADER: Final = 7
_BLOCK: Final = 32 << 10
_WHOLE, _FIRST, _LAST = 1, 2, 4  # and 3: a part between the first and the last
_LARGEST: Final = 64 << 20
# Of a Record, a HistoryRecord, its items and its step: the numbers of the fields read here
_HISTORY, _ITEM, _STEP, _STEP_NUMBER = 2, 1, 2, 1
_KEY, _NESTED_KEY, _INTEGER, _NUMBER, _JSON = 1, 2, 5, 6, 16


def recognise(path: Path, start: bytes) -> bool:
    """Return whether a file begins as a run's does, or a folder is that of one run."""
    return next(_run_files(path), None) is not None if path.is_dir() else start.startswith(_MAGIC)


@tracker("wandb", recognise=recognise, reads="Weights & Biases' run files (run-*.wandb, also of runs offline)")
def read(path: Path, problems: Problems) -> Iterator[MetricPoint]:
    """Yield the numbers of every `log`; the runs of a folder are called as their own folders are."""
    for file in _run_files(path) if path.is_dir() else [path]:
        run = file.parent.name if path.is_dir() and file.parent != path else ""
        with opened(file) as raw:
            for number, data in enumerate(_records(raw, problems, file.name), 1):
                try:
                    yield from _history(memoryview(data), run, number)
                except (WireError, UnicodeDecodeError, struct.error):
                    problems.drop("records that can't be read", where=f"{file.name} record {number:,}")
                    problems.cut(f"{file.name} has records that can't be read")


def _run_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a run's folder, or of the runs in the folder `wandb`."""
    for pattern in ("run-*.wandb", "*run-*/run-*.wandb"):
        yield from sorted(file for file in folder.glob(pattern) if file.is_file() and not file.parent.is_symlink())


def _records(file: IO[bytes], problems: Problems, where: str) -> Iterator[bytes]:
    """Yield whole records. A wrong checksum costs what is left of its block: the next one begins anew."""
    begun: bytes | None = None
    for number, block in enumerate(iter(lambda: file.read(_BLOCK), b""), 1):
        at = _HEADER if number == 1 else 0
        while (left := len(block) - at) > 0:
            crc, size, kind = struct.unpack_from("<IHB", block, at) if left >= _HEADER else (0, _BLOCK, 0)
            data = block[at + _HEADER : at + _HEADER + size]
            if len(data) < size and len(block) < _BLOCK:
                return problems.cut_short("last records that end early", f"{where} block {number:,}")
            if zlib.crc32(data, zlib.crc32(bytes([kind]))) != crc:
                if any(block[at:]):  # zeros fill a block in which no record fits
                    problems.cut_short("blocks with a wrong checksum", f"{where} block {number:,}")
                    begun = None
                break
            at += _HEADER + size
            begun = data if kind in (_WHOLE, _FIRST) else None if begun is None else begun + data
            if begun is not None and kind in (_WHOLE, _LAST):
                yield begun
            if kind in (_WHOLE, _LAST) or (begun is not None and len(begun) > _LARGEST):
                begun = None
    if begun is not None:
        problems.cut_short("last records that end early", where)


def _history(record: memoryview, run: str, number: int) -> Iterator[MetricPoint]:
    """Yield the metrics of a record that is a History."""
    for name, history in fields(record):
        if name != _HISTORY or isinstance(history, int):
            continue
        values: dict[str, float] = {}
        step: int | None = 0
        for part, value in fields(history):
            if part == _ITEM and not isinstance(value, int):
                key, found = _item(value)
                if found is not None:
                    values[key] = found
            elif part == _STEP and not isinstance(value, int):
                step = next((signed(one) for field, one in fields(value) if field == _STEP_NUMBER and isinstance(one, int)), 0)
        time = milliseconds(values.pop("_timestamp")) if "_timestamp" in values else None
        for key, found in values.items():
            yield MetricPoint(key, found, step, time, run, number)


def _item(item: memoryview) -> tuple[str, float | None]:
    """Return a metric's name and its number; None for what is no number."""
    keys, value = [], None
    for name, raw in fields(item):
        if name == _INTEGER and isinstance(raw, int):
            value = float(signed(raw))
        elif isinstance(raw, int):
            continue
        elif name in (_KEY, _NESTED_KEY):
            keys.append(bytes(raw).decode())
        elif name == _NUMBER:
            value = struct.unpack("<d", raw)[0]
        elif name == _JSON and len(raw) <= 100:
            value = _from_json(bytes(raw))
    return "/".join(keys), value


def _from_json(text: bytes) -> float | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if isinstance(found, str) and found in ("NaN", "Infinity", "-Infinity"):
        return float(found)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None
