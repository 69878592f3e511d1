"""A Prometheus whose readings are known: it can die, also in the middle of an answer's questions, and learns some readings late."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fleet.servers import say, scripted

METRICS = {
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.5,
    "DCGM_FI_PROF_SM_ACTIVE": 0.8,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.9,
    "DCGM_FI_DEV_SM_CLOCK": 1755.0,
}
_RANGE = re.compile(r'\{__name__="(\w+)"\}\[(\d+)ms\]')


@dataclass
class FakePrometheus:
    """Readings of some GPUs every `step_ms` from `start_ms` on; `alive_for` requests are answered before it dies (None: it lives).

    `late` says by how much (ms) readings of a GPU come later than their time.
    """

    start_ms: int
    now_ms: int
    gpus: int = 2
    step_ms: int = 30_000
    alive_for: int | None = None
    late: Sequence[int] = ()
    asked: list[str] = field(default_factory=list)
    instead: Callable[[BaseHTTPRequestHandler], None] | None = None  # what answers while the server is not itself

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer a request, or hang up."""
        self.asked.append(handler.path)
        if self.instead is not None:
            self.instead(handler)
            return
        if self.alive_for is not None:
            if self.alive_for <= 0:
                handler.close_connection = True
                handler.connection.close()
                return
            self.alive_for -= 1
        url = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path.endswith("/status/buildinfo"):
            say(handler, json.dumps({"status": "success", "data": {"version": "2.42.0"}}))
        elif url.path.endswith("/label/__name__/values"):
            say(handler, json.dumps({"status": "success", "data": [*METRICS, "up"]}))
        elif url.path.endswith("/api/v1/query") and (found := _RANGE.search(query["query"])):
            end = round(float(query["time"]) * 1000)
            say(handler, json.dumps({"status": "success", "data": self._matrix(found[1], end - int(found[2]), end)}))
        else:
            say(handler, "not here", status=404, kind="text/plain")

    def _matrix(self, metric: str, start: int, end: int) -> dict[str, Any]:
        result = [{"metric": self._labels(gpu, metric), "values": [*self._values(gpu, metric, start, end)]} for gpu in range(self.gpus)]
        return {"resultType": "matrix", "result": [one for one in result if one["values"]]}

    def _values(self, gpu: int, metric: str, start: int, end: int) -> Iterator[list[Any]]:
        known = self.now_ms - (self.late[gpu] if gpu < len(self.late) else 0)
        first = max(start, self.start_ms)
        for time in range(first - first % self.step_ms, min(end, known) + 1, self.step_ms):
            if time > start and time > self.start_ms:
                wave = 1 + 0.001 * ((time // self.step_ms + gpu) % 17)
                yield [time / 1000, repr(METRICS[metric] * wave)]

    def _labels(self, gpu: int, metric: str) -> dict[str, str]:
        words = {"gpu": str(gpu), "UUID": f"GPU-{gpu}", "Hostname": "n1", "modelName": "NVIDIA H100 80GB HBM3"}
        return words | {"__name__": metric, "hpc_job": f"job-{gpu // 2}"}


@contextmanager
def fake_prometheus(**words: Any) -> Iterator[tuple[FakePrometheus, str]]:
    """Run one; give it and its URL."""
    fake = FakePrometheus(**words)
    with scripted(fake.answer) as url:
        yield fake, url
