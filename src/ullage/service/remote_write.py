"""Samples that a Prometheus sends by itself (remote write): on the disk before the sender is told, and in the store with the next turn.

A request is answered with 204 once its samples lie in a file beside the store, whole; the follower stores them like all that it reads,
and then removes the file. Whatever ends the service in between takes nothing away, and what comes twice counts once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import pyarrow as pa
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.service.pseudonyms import Pseudonyms
from ullage.service.responses import SEND_TOKEN, problem_response, role_of_request
from ullage.service.workers import BesideWorkers
from ullage.sources.remote_write import RemoteWriteError, series_of_request
from ullage.sources.rows.readings import Readings
from ullage.sources.source import Options
from ullage.store.durable import refused, write_whole

FOLDER = "received"  # of the store
MOST_WAITING = 512 << 20  # bytes that wait to be stored: with more, senders are told to come again
MOST_REQUESTS = 16  # that are received at once
RECEIVE_S = 30.0  # that a request may take to come
AGAIN_S = 10  # s after which to send again what can't be taken now
REQUESTS_PER_LABEL_CACHE = 1000  # requests after which labels are read anew: pods come and go, and memory must not grow with them
LEFTOVER_AFTER_S = 3600.0  # after which a file that nobody has gone on writing is a killed process's


class NoRoomError(UllageError):
    """Samples that can't be taken now; later they can."""


class ReceivedSamples:
    """Samples that were sent and are not stored yet: a file a request in a folder of the store. Names are hidden before."""

    def __init__(self, store: Path, cluster: str | None = None, pseudonyms: Pseudonyms | None = None) -> None:
        self.folder = store / FOLDER
        self._cluster, self._pseudonyms = cluster, pseudonyms
        self._requests, self._readings = 0, self._new_readings()

    def keep(self, body: bytes) -> int:
        """Keep the samples of a request, and return how many rows they are. For one thread.

        Raises RemoteWriteError for what is no request, NoRoomError where too much waits to be stored, UllageError where the disk refuses.
        """
        series = series_of_request(body)
        if sum(size for _, size in _files(self.folder)) >= MOST_WAITING:
            raise NoRoomError(f"{MOST_WAITING >> 20} MB of samples wait to be stored", "the service's log says why they are not")
        if self._requests >= REQUESTS_PER_LABEL_CACHE:
            self._requests, self._readings = 0, self._new_readings()
        self._requests += 1
        self._readings.add(series)
        table = pa.Table.from_batches([self._readings.batch()])
        table = table if self._pseudonyms is None else self._pseudonyms.in_table(table)
        if len(table):
            write_whole(self.folder, f"{time.time_ns():020d}-{{hash}}.arrow", lambda file: _write(file, table))
        return len(table)

    def _new_readings(self) -> Readings:
        return Readings(Options(cluster=self._cluster), Problems(), "remote write")


def _write(file: IO[bytes], table: pa.Table) -> None:
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def received_files(store: Path) -> list[Path]:
    """Return the files with samples that wait to be stored, in the order in which they came."""
    return sorted(path for path, _ in _files(store / FOLDER))


def read_received(files: list[Path], damaged: Callable[[Path], None]) -> Iterator[pa.Table]:
    """Yield the samples of some files; one that can't be read is told of, and set aside."""
    for path in files:
        try:
            with pa.OSFile(str(path)) as file:
                table = pa.ipc.open_file(file).read_all()
        except (pa.ArrowException, OSError, ValueError):
            with refused(path.parent):
                path.replace(path.with_suffix(".damaged"))
            damaged(path)
        else:
            yield table


def remove_received(files: list[Path], now: float) -> None:
    """Remove files whose samples are stored, and what killed processes left (times in s since 1970)."""
    for path in files:
        with refused(path.parent):
            path.unlink(missing_ok=True)
    for leftover in files[0].parent.glob(".*.tmp") if files else ():
        with refused(leftover.parent), suppress(FileNotFoundError):  # its writer has come to an end meanwhile
            if leftover.stat().st_mtime < now - LEFTOVER_AFTER_S:
                leftover.unlink()


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files that wait and their sizes (bytes); one that is being removed is none."""
    for path in folder.glob("*.arrow"):
        try:
            yield path, path.stat().st_size
        except FileNotFoundError:
            continue


class RemoteWriteReceiver:
    """Answers requests of remote write: what can't be taken now is 503, which is sent again; what never can is 4xx, which is not."""

    def __init__(self, samples: ReceivedSamples) -> None:
        self.samples, self._receiving = samples, 0
        self._workers = BesideWorkers("remote write", 1)

    async def answer(self, http: HttpRequest) -> Response:
        """Take samples."""
        if not role_of_request(http).acts:
            return problem_response(403, "only who has a token that lets one act may send samples", SEND_TOKEN)
        if not _is_version_1(http):
            return problem_response(415, "samples come as Prometheus remote write 1.0: protocol buffers, packed with snappy", "")
        if self._receiving >= MOST_REQUESTS:
            return _later(f"{MOST_REQUESTS} requests are being received")
        self._receiving += 1
        try:
            async with asyncio.timeout(RECEIVE_S):
                body = await http.body()
            await asyncio.wrap_future(self._workers.begin(lambda: self.samples.keep(body)))
        except TimeoutError:
            return _later(f"the request took longer than {RECEIVE_S:.0f} s to come")
        except RemoteWriteError as error:
            return problem_response(400, error.problem, error.hint)
        except UllageError as error:
            return _later(error.problem, error.hint)
        finally:
            self._receiving -= 1
        return Response(status_code=204)

    def close(self, patience: float) -> bool:
        """Take nothing more, and return whether nothing is being kept any more."""
        return self._workers.close(patience)


def _is_version_1(http: HttpRequest) -> bool:
    """Return whether a request says that it is of protocol 1.0, or nothing that speaks against it."""
    kind, _, parameters = http.headers.get("content-type", "application/x-protobuf").partition(";")
    proto = parameters.partition("proto=")[2].strip().strip('"')
    packing = http.headers.get("content-encoding", "snappy")
    return kind.strip() == "application/x-protobuf" and proto in ("", "prometheus.WriteRequest") and packing == "snappy"


def _later(problem: str, hint: str = "") -> Response:
    return problem_response(503, problem, hint, {"Retry-After": f"{AGAIN_S}"})
