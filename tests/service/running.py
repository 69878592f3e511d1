"""A service that runs in a thread of its own, on a free loopback port, and what it answers."""

from __future__ import annotations

import http.client
import io
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.fleet.servers import wait_for
from ullage.service.logs import ServiceLog
from ullage.service.server import RunningService, listening_socket
from ullage.service.settings import ServiceSettings
from ullage.service.start import running_service
from ullage.store.store import Store
from ullage.tables import samples

T0 = 1_786_320_000_000  # 2026-08-10T00:00:00Z
H100 = "NVIDIA H100 80GB HBM3"


@dataclass(frozen=True)
class Heard:
    """What came back: the status, the headers (names in lower case), the body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Client:
    """Asks one service."""

    port: int
    running: RunningService
    log: io.StringIO

    def __call__(self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None) -> Heard:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {**(headers or {})})
            answer = connection.getresponse()
            return Heard(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()


@contextmanager
def service(settings: ServiceSettings) -> Iterator[Client]:
    """Run a service; give what asks it."""
    said = io.StringIO()
    with listening_socket("127.0.0.1", 0) as listening:
        running = running_service(settings, ServiceLog("json", said))
        running.service.patience = 600.0  # a test waits for its page, however busy the machine is
        thread = threading.Thread(target=running.run, args=(listening,))
        thread.start()
        try:
            wait_for(lambda: running.server.started)
            yield Client(listening.getsockname()[1], running, said)
        finally:
            running.stop()
            thread.join(30)
            assert running.close(patience=60)


def hour(
    start: int = 0, minutes: int = 60, *, job: str = "4711", user: str = "ann", host: str = "n1", gpus: int = 4, **gauges_of: float
) -> Any:
    """Samples of some GPUs of one host every 30 s: half of the time a tensor pipe works, at the H100's tensor clock."""
    times = np.arange(start + 1, start + 2 * minutes + 1) * 30_000 + T0
    rows = len(times) * gpus
    words = {"host": host, "model": H100, "job": job, "user": user}
    gauges = {"tensor_active": 0.5, "sm_active": 0.8, "gr_active": 0.9, "gpu_util": 0.95, "sm_clock": 1.83e9, "power": 500.0} | gauges_of
    return samples(
        {
            "time": np.tile(times, gpus),
            "gpu": [f"GPU-{host}-{gpu}" for gpu in range(gpus) for _ in times],
            "index": np.repeat(np.arange(gpus, dtype=np.int16), len(times)),
            **{name: [word] * rows for name, word in words.items()},
            **{name: np.full(rows, value) + 0.01 * value * np.sin(np.arange(rows)) for name, value in gauges.items()},
        }
    )


def small_store(folder: Path) -> Path:
    """A store with two jobs of two users on two hosts, an hour of it."""
    store = Store.open(folder / "store", create=True)
    store.append([hour(), hour(job="ml/train-0", user="bob", host="n2")])
    return folder / "store"
