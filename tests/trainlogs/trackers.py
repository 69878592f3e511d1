"""Files as metrics trackers write them, made here by hand: slow, short, and sharing nothing with what reads them."""

from __future__ import annotations

import json
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from ullage.protobuf import double, message, number, string

Points = Sequence[tuple[int, float, dict[str, float]]]  # step, seconds since 1970, metrics


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of bytes, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def tfrecord(data: bytes) -> bytes:
    size = struct.pack("<Q", len(data))
    return size + masked(size) + data + masked(data)


def simple(tag: str, value: float) -> bytes:
    """Return a Summary's value as TensorFlow 1 and PyTorch write it."""
    return string(1, tag) + bytes([2 << 3 | 5]) + struct.pack("<f", value)


def tensor(tag: str, value: float, dtype: int = 1) -> bytes:
    """Return a Summary's value as TensorFlow 2 writes it: a tensor with one element."""
    form, field = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7)}[dtype]
    packed = number(0, int(value))[1:] if dtype == 3 else struct.pack(form, value)
    return string(1, tag) + message(8, number(1, dtype) + message(2, b"") + message(field, packed))


def event(step: int, seconds: float, values: Iterable[bytes]) -> bytes:
    return tfrecord(double(1, seconds) + number(2, step) + message(5, b"".join(message(1, value) for value in values)))


def event_file(points: Points, form=simple) -> list[bytes]:
    """Return the records of an event file, one value each."""
    records = [tfrecord(double(1, 1.7e9) + string(3, "brain.Event:2"))]
    return records + [event(step, at, [form(tag, value)]) for step, at, metrics in points for tag, value in metrics.items()]


def wandb_file(points: Points) -> bytes:
    """Return a run's file: a header's record, and a History for each step."""
    records = [number(1, 1) + message(25, b"\x0a\x0616.0.1")]
    for place, (step, at, metrics) in enumerate(points):
        values = {**metrics, "_step": step, "_timestamp": at, "note": "hello"}
        items = b"".join(message(1, string(2, name) + string(16, json.dumps(value))) for name, value in values.items())
        records.append(number(1, place + 2) + message(2, items + message(2, number(1, step))))
    out = bytearray(b":W&B\xe1\xbe\x00")
    for record in records:
        begun = False
        while True:
            left = (32 << 10) - len(out) % (32 << 10)
            if left < 7:
                out += bytes(left)
                continue
            part, record = record[: left - 7], record[left - 7 :]
            kind = (3 if record else 4) if begun else (2 if record else 1)
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            begun = True
            if not record:
                break
    return bytes(out)


def mlflow_run(folder: Path, points: Points, name: str = "big", run: str = "0a1b") -> Path:
    """Write the folder of a run below `folder/7/`, and return it."""
    at = folder / "7" / run
    (at / "metrics").mkdir(parents=True)
    (folder / "7" / "meta.yaml").write_text("experiment_id: '7'\n")
    (at / "meta.yaml").write_text(f"lifecycle_stage: active\nrun_id: {run}\nrun_name: {name}\n")
    for step, seconds, metrics in points:
        for tag, value in metrics.items():
            file = at / "metrics" / tag
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a") as lines:
                lines.write(f"{round(seconds * 1000)} {value!r} {step}\n")
    return at


def mlflow_database(path: Path, runs: dict[str, Points]) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE runs (run_uuid TEXT, name TEXT, lifecycle_stage TEXT)")
        database.execute("CREATE TABLE metrics (key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan BOOLEAN)")
        for place, (name, points) in enumerate(runs.items()):
            database.execute("INSERT INTO runs VALUES (?, ?, 'active')", (f"id{place}", name))
            rows = [(tag, value, round(at * 1000), f"id{place}", step) for step, at, metrics in points for tag, value in metrics.items()]
            database.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, 0)", rows)
    return path


def trackio_database(path: Path, runs: dict[str, Points], *, ids: bool = True) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            f"CREATE TABLE metrics (id INTEGER PRIMARY KEY, {'run_id TEXT,' if ids else ''} timestamp, run_name, step, metrics)"
        )
        for name, points in runs.items():
            for step, at, metrics in points:
                values = {"timestamp": iso(at), "run_name": name, "step": step, "metrics": json.dumps(metrics).encode()}
                values |= {"run_id": f"id of {name}"} if ids else {}
                marks = ", ".join("?" * len(values))
                database.execute(f"INSERT INTO metrics ({', '.join(values)}) VALUES ({marks})", list(values.values()))
    return path


def iso(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat()
