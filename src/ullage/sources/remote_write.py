"""Prometheus' remote write, protocol 1.0: what one request holds, as labelled readings.

A request is a `WriteRequest` in protocol buffers, packed as one block of snappy. Metadata, exemplars and native histograms are passed over.
Source: Prometheus Remote-Write 1.0 specification; prompb/remote.proto and prompb/types.proto of Prometheus.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa

from ullage.errors import UllageError
from ullage.protobuf import WireError, fields, signed
from ullage.sources.rows.readings import SeriesReadings

LARGEST_PACKED, LARGEST = 4 << 20, 16 << 20  # bytes of a request, and unpacked; Prometheus sends 2,000 samples, some 2 MB unpacked
MOST_PARTS = 1_000_000  # series, labels and samples of a request: a few bytes each, and many times that in memory
_TIMESERIES = 1  # of a WriteRequest
_LABEL, _SAMPLE = 1, 2  # of a TimeSeries
_NAME, _TEXT = 1, 2  # of a Label
_VALUE, _TIME = 1, 2  # of a Sample


class RemoteWriteError(UllageError):
    """A request that is none of remote write 1.0, or is too large: sending it again is of no use."""


def series_of_request(body: bytes) -> SeriesReadings:
    """Return the series of a request as it was sent. Raises RemoteWriteError for what is no such request."""
    found = _Series()
    try:
        for number, value in fields(memoryview(_unpacked(body))):
            if number == _TIMESERIES:
                found.add(_bytes(value))
    except WireError as error:
        raise RemoteWriteError(f"the request can't be read: {error}", "send Prometheus remote write 1.0") from None
    values = np.array(found.values, np.float64)
    values[np.isnan(values)] = np.nan  # the marker of a series that ended is a NaN of another sort, at which arithmetic warns
    return SeriesReadings(found.labels, np.array(found.counts, np.int64), np.array(found.times, np.int64), values)


def _unpacked(body: bytes) -> bytes:
    size = _size_unpacked(body)
    if size > LARGEST:
        raise RemoteWriteError(f"the request has {size:,} bytes unpacked, and may have {LARGEST:,}", "lower max_samples_per_send")
    try:
        return bytes(pa.Codec("snappy").decompress(body, size, asbytes=True)) if size else b""
    except (pa.ArrowException, OSError):
        raise RemoteWriteError("the request is no block of snappy", "send Prometheus remote write 1.0") from None


def _size_unpacked(body: bytes) -> int:
    """Return how many bytes a block of snappy says that it unpacks to: the number that it begins with, in base 128."""
    size = 0
    for shift, byte in zip(range(0, 35, 7), body, strict=False):
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size
    raise RemoteWriteError("the request is no block of snappy", "send Prometheus remote write 1.0")


@dataclass
class _Series:
    """The series of a request so far: labels as JSON, how many samples each has, and their times (ms) and values."""

    labels: list[bytes] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    parts: int = 0

    def add(self, raw: memoryview) -> None:
        """Take in a series."""
        labels, before = dict[str, str](), len(self.times)
        for number, value in self._counted(raw):
            if number == _LABEL:
                name, text = _label(_bytes(value))
                labels[name] = text
            elif number == _SAMPLE:
                time, reading = _sample(_bytes(value))
                self.times.append(time)
                self.values.append(reading)
        self.labels.append(msgspec.json.encode(labels))
        self.counts.append(len(self.times) - before)

    def _counted(self, raw: memoryview) -> Iterator[tuple[int, int | memoryview]]:
        self.parts += 1
        for part in fields(raw):
            self.parts += 1
            if self.parts > MOST_PARTS:
                raise RemoteWriteError(f"the request has more than {MOST_PARTS:,} series, labels and samples", "lower max_samples_per_send")
            yield part


def _label(raw: memoryview) -> tuple[str, str]:
    words = {_NAME: "", _TEXT: ""}
    for number, value in fields(raw):
        if number in words:
            words[number] = str(_bytes(value), "utf-8", "replace")
    return words[_NAME], words[_TEXT]


def _sample(raw: memoryview) -> tuple[int, float]:
    """Return the time (ms) and the value of a sample; what is zero may be left out."""
    time, reading = 0, 0.0
    for number, value in fields(raw):
        if number == _VALUE:
            reading = _double(_bytes(value))
        elif number == _TIME:
            if not isinstance(value, int):
                raise WireError("the time of a sample is no integer")
            time = signed(value)
    return time, reading


def _double(raw: memoryview) -> float:
    if len(raw) != 8:
        raise WireError("the value of a sample is no double")
    found: float = struct.unpack("<d", raw)[0]
    return found


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise WireError("an integer stands where a message or text should be")
    return value
