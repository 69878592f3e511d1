"""TensorBoard's event files (`events.out.tfevents.*`), and the folder of a run or of several.

A file is a sequence of TFRecords: the length of the data (8 bytes) and its checksum, the data and its checksum. The data is
an Event (tensorflow/core/util/event.proto) whose Summary holds a number (TensorFlow 1, tensorboardX, PyTorch) or a tensor of
one element (TensorFlow 2). After a wrong checksum of a length nobody knows where the next record begins; one of the data
costs its record alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Final

from ullage.compressed import opened
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.protobuf import WireError, fields, signed
from ullage.trainlogs.points import MetricPoint, milliseconds, tracker

_VERSION: Final = b"brain.Event:"
_LARGEST: Final = 1 << 20  # bytes of a record with scalars; images and graphs are larger, and are skipped
_FILES: Final = 1000
_DEPTH: Final = 3  # folders below the one that is named
# Of an Event, a Summary, its Value and a TensorProto: the numbers of the fields read here
_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_VALUE, _TAG, _SIMPLE, _TENSOR = 1, 1, 2, 8
_DTYPE, _CONTENT = 1, 4
_TYPES: Final = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10)}  # dtype -> one element's form, and the field it may stand in


def _table() -> list[int]:
    """Return the table of CRC-32C (Castagnoli), byte by byte."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC: Final = _table()


def masked_crc(data: bytes | memoryview) -> int:
    """Return TFRecord's checksum: CRC-32C, rotated and with a constant added.

    >>> hex(masked_crc(b"123456789"))  # the CRC-32C of these digits is E3069283
    '0xc78ab0e5'
    """
    crc = 0xFFFF_FFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFF_FFFF
    return ((crc >> 15 | crc << 17) + 0xA282_EAD8) & 0xFFFF_FFFF


def recognise(path: Path, start: bytes) -> bool:
    """Return whether a file begins with an event that names its version, or a folder holds such files."""
    if path.is_dir():
        return next(_event_files(path), None) is not None
    if len(start) < 12:
        return False
    size, crc = struct.unpack_from("<QI", start)
    return bool(size < 256 and masked_crc(start[:8]) == crc and _VERSION in start[12 : 12 + size])


@tracker("tensorboard", recognise=recognise, reads="TensorBoard event files (events.out.tfevents.*), and a folder with them")
def read(path: Path, problems: Problems) -> Iterator[MetricPoint]:
    """Yield every scalar; the runs of a folder are its subfolders with event files."""
    if path.is_dir():
        for file in islice(_event_files(path), _FILES):
            run = file.parent.relative_to(path).as_posix()
            yield from _points(file, problems, "" if run == "." else run)
    else:
        yield from _points(path, problems, "")


def _event_files(folder: Path) -> Iterator[Path]:
    """Yield the event files of a folder and of those below it."""
    for depth in range(_DEPTH + 1):
        yield from sorted(file for file in folder.glob("*/" * depth + "*tfevents*") if file.is_file())


def _points(path: Path, problems: Problems, run: str) -> Iterator[MetricPoint]:
    where = path.name
    with opened(path) as file:
        for number, data in _records(file, problems, where):
            try:
                yield from _scalars(data, run, number, str(path))
            except (WireError, struct.error, UnicodeDecodeError):
                problems.drop("event records that are not events", where=f"{where} record {number:,}")
                problems.cut(f"{where} has records that are not events")


def _records(file: IO[bytes], problems: Problems, where: str) -> Iterator[tuple[int, memoryview]]:
    """Yield the number and the data of each record that is whole."""
    number = 0
    try:
        while start := file.read(12):
            number += 1
            place = f"{where} record {number:,}"
            if len(start) < 12:
                return problems.cut_short("last records that end early", place)
            size, crc = struct.unpack("<QI", start)
            if masked_crc(start[:8]) != crc:
                return problems.cut_short("ends of event files behind a length with a wrong checksum", place)
            if size > _LARGEST:
                if not _skipped(file, size + 4):
                    return problems.cut_short("last records that end early", place)
                continue
            data = file.read(size + 4)
            if len(data) < size + 4:
                return problems.cut_short("last records that end early", place)
            if masked_crc(memoryview(data)[:size]) != struct.unpack_from("<I", data, size)[0]:
                problems.drop("event records with a wrong checksum", where=place)
                problems.cut(f"{where} has event records with a wrong checksum")
                continue
            yield number, memoryview(data)[:size]
    except UllageError as error:  # a compressed file that is damaged
        problems.note(f"{where} ended early, and what came before is used: {error.problem}")
        problems.cut(f"{where} ended early: {error.problem}")


def _skipped(file: IO[bytes], size: int) -> bool:
    """Pass over so many bytes; return whether there were as many."""
    while size > 0:
        part = file.read(min(size, _LARGEST))
        if not part:
            return False
        size -= len(part)
    return True


def _scalars(data: memoryview, run: str, number: int, file: str) -> Iterator[MetricPoint]:
    time, step, summaries = None, 0, []
    for name, value in fields(data):
        if name == _WALL_TIME and not isinstance(value, int):
            time = milliseconds(struct.unpack("<d", value)[0])
        elif name == _STEP and isinstance(value, int):
            step = signed(value)
        elif name == _SUMMARY and not isinstance(value, int):
            summaries.append(value)
    for summary in summaries:
        for name, value in fields(summary):
            if name == _VALUE and not isinstance(value, int):
                tag, scalar = _value(value)
                if tag and scalar is not None:
                    yield MetricPoint(tag, scalar, step, time, run, number, file)


def _value(raw: memoryview) -> tuple[str, float | None]:
    """Return the tag of a summary's value and the number that it is; None for what is no number."""
    tag, scalar = "", None
    for name, value in fields(raw):
        if isinstance(value, int):
            continue
        if name == _TAG:
            tag = bytes(value).decode()
        elif name == _SIMPLE:
            scalar = struct.unpack("<f", value)[0]
        elif name == _TENSOR:
            scalar = _element(value)
    return tag, scalar


def _element(tensor: memoryview) -> float | None:
    """Return the only element of a tensor; None where it has several, or is no number."""
    parts = list(fields(tensor))
    dtype = next((value for name, value in parts if name == _DTYPE), None)
    if not isinstance(dtype, int) or dtype not in _TYPES:
        return None
    form, where = _TYPES[dtype]
    found: list[float] = []
    for name, value in parts:
        if name == where and isinstance(value, int):
            found.append(signed(value))
        elif name == where and dtype in (3, 9):  # packed integers are of base 128
            found += [signed(one) for one in _packed(value)]  # type: ignore[arg-type]
        elif name in (where, _CONTENT) and len(value) == struct.calcsize(form):  # type: ignore[arg-type]
            found += struct.unpack(form, value)  # type: ignore[arg-type]
    return float(found[0]) if len(found) == 1 else None


def _packed(raw: memoryview) -> Iterator[int]:
    """Yield the integers of a packed field: as they were one field each."""
    value = shift = 0
    for byte in raw:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value & 0xFFFF_FFFF_FFFF_FFFF
            value = shift = 0
        elif shift > 63:
            raise WireError("a number is too long")
