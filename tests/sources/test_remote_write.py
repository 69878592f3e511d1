"""Requests of Prometheus' remote write: read back as written, and whatever else comes is refused."""

from __future__ import annotations

import json
import random

import numpy as np
import pyarrow as pa
import pytest

from tests.seeds import some
from ullage.protobuf import double, message, number, string, varint
from ullage.sources import remote_write
from ullage.sources.remote_write import LARGEST, RemoteWriteError, series_of_request

Series = tuple[dict[str, str], list[tuple[int, float]]]


def packed(body: bytes) -> bytes:
    """A block of snappy."""
    return bytes(pa.Codec("snappy").compress(body, asbytes=True))


def written(series: list[Series], *others: bytes) -> bytes:
    """A request as Prometheus writes it: fields that are zero are left out."""
    parts = []
    for labels, samples in series:
        words = [message(1, string(1, name), string(2, text)) for name, text in labels.items()]
        points = [message(2, double(1, value) if value else b"", number(2, time) if time else b"") for time, value in samples]
        parts.append(message(1, *words, *points))
    return b"".join([*parts, *others])


def drawn(draw: random.Random) -> list[Series]:
    names = ["__name__", "gpu", "UUID", "Hostname", "Ω", 'quo"te', ""]
    texts = ["", "DCGM_FI_DEV_SM_CLOCK", "n1", "\x00\n", "Ω" * 50, '"']
    values = [0.0, 1.5, -3e300, float("inf"), 1410.0]
    return [
        (
            {name: draw.choice(texts) for name in draw.sample(names, draw.randint(0, len(names)))},
            [(draw.choice([0, 1, 1_786_320_000_000, -5]), draw.choice(values)) for _ in range(draw.randint(0, 5))],
        )
        for _ in range(draw.randint(0, 8))
    ]


@pytest.mark.parametrize("seed", some(range(200), 20))
def test_what_was_written_is_read_whatever_stands_between(seed: int) -> None:
    series = drawn(random.Random(seed))
    metadata, newer = message(3, number(1, 2), string(2, "help")), message(15, b"later")
    found = series_of_request(packed(written(series, metadata, newer)))
    assert [json.loads(labels) for labels in found.labels] == [labels for labels, _ in series]
    assert found.counts.tolist() == [len(samples) for _, samples in series]
    points = [point for _, samples in series for point in samples]
    assert list(zip(found.times.tolist(), found.values.tolist(), strict=True)) == points


def test_no_number_stays_none() -> None:
    assert np.isnan(series_of_request(packed(written([({"a": "b"}, [(1, float("nan"))])]))).values).all()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff" * 5,
        b"\xff" * 20,
        b"plain text, not packed",
        packed(b"\x0a\x05x"),  # a series that is longer than the request
        packed(number(1, 7)),
        packed(message(1, message(2, number(1, 7)))),  # a value that is an integer
        packed(message(1, message(2, string(1, "four")))),
        packed(message(1, message(2, double(2, 1.0)))),  # a time that is a double
        packed(message(1, number(1, 7))),
        packed(written([({"a": "b"}, [(1, 1.0)])]))[:-2],
    ],
)
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteWriteError, match=r"snappy|can't be read|unpacked"):
        series_of_request(body)


@pytest.mark.parametrize("seed", some(range(1000), 100))
def test_no_damage_does_more_than_raise_our_error(seed: int) -> None:
    draw = random.Random(seed)
    plain = bytearray(written(drawn(draw)) or b"x")
    for _ in range(draw.randint(1, 4)):
        plain[draw.randrange(len(plain))] = draw.randrange(256)
    body = bytearray(packed(bytes(plain)))
    if seed % 2:
        body[draw.randrange(len(body))] = draw.randrange(256)
    try:
        series_of_request(bytes(body))
    except RemoteWriteError as error:
        assert error.problem and error.hint


@pytest.mark.parametrize(("size", "fits"), [(LARGEST, True), (LARGEST + 1, False)])
def test_a_request_unpacks_to_so_much_at_most(size: int, fits: bool) -> None:
    head = varint(9 << 3 | 2) + varint(size - 5)  # one field that is passed over
    body = head + bytes(size - len(head))
    assert len(body) == size and len(head) == 5
    if fits:
        assert series_of_request(packed(body)).labels == []
    else:
        with pytest.raises(RemoteWriteError, match=r"16,777,217 bytes unpacked"):
            series_of_request(packed(body))
    with pytest.raises(RemoteWriteError, match="no block of snappy"):  # that says it is large, and is not
        series_of_request(varint(LARGEST) + b"\x00x")


@pytest.mark.parametrize(("parts", "fits"), [(9, True), (10, False)])
def test_a_request_has_so_many_parts_at_most(parts: int, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_write, "MOST_PARTS", 9)
    body = packed(written([({}, [(1, 1.0)] * (parts - 1))]))  # a series, and its samples
    if fits:
        assert series_of_request(body).counts.tolist() == [8]
    else:
        with pytest.raises(RemoteWriteError, match="more than 9 series, labels and samples"):
            series_of_request(body)
