"""A stand-in for nvidia-ml-py that answers from a recording of `gpu/recording.py`, call by call."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict, deque
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
from gpu.recording import FORMAT

from ullage.problems import Problems
from ullage.sources.nvml import watch
from ullage.sources.source import Options

FUNCTION_NOT_FOUND = 13


class Opaque:
    """A handle or a GPM sample: only its number is known."""

    def __init__(self, number):
        self.number = number


class Replay:
    """The module. Each question is answered as it was, the first time as the first time and so on, in whatever order questions come.

    What was never asked, or not so often, is answered as by a driver that lacks the function, and listed in `unanswered`.
    """

    class NVMLError(Exception):
        def __init__(self, value, words=""):
            super().__init__(value)
            self.value, self.words = value, words

        def __str__(self):
            return self.words or f"error {self.value}"

    class c_nvmlGpmMetricsGet_t:
        def __init__(self):
            self.version, self.numMetrics, self.sample1, self.sample2 = 0, 0, None, None
            self.metrics = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(64)]

    def __init__(self, recording):
        assert recording["format"] == FORMAT, recording["format"]
        self.recording, self.unanswered = recording, []
        self._clock = deque(recording["clock"])
        self._objects = {}
        self._replies = defaultdict(deque)
        for name, arguments, reply, _ in recording["calls"]:
            self._replies[name, json.dumps(arguments)].append(reply)

    def __getattr__(self, name):
        if name.startswith("NVML_"):
            try:
                return self.recording["constants"][name]
            except KeyError:
                raise AttributeError(name) from None
        if name.startswith("nvml"):
            return lambda *arguments: self._answer(name, arguments)
        raise AttributeError(name)

    def clock(self):
        return self._clock.popleft()

    def remaining(self):
        """Return how many recorded replies nobody asked for."""
        return sum(len(replies) for replies in self._replies.values())

    def _answer(self, name, arguments):
        request = arguments[0] if name == "nvmlGpmMetricsGet" else None
        asked = [self._plain(a) for a in arguments] if request is None else self._metrics_asked(request)
        waiting = self._replies[name, json.dumps(asked)]
        if not waiting:
            self.unanswered.append((name, asked))
            raise self.NVMLError(FUNCTION_NOT_FOUND)
        reply = waiting.popleft()
        if "error" in reply:
            raise self.NVMLError(reply["error"], self.recording["errors"].get(str(reply["error"]), ""))
        if request is None:
            return self._alive(reply["reply"])
        for metric, (state, value) in zip(request.metrics, reply["reply"], strict=False):
            metric.nvmlReturn, metric.value = state, value
        return request

    def _metrics_asked(self, request):
        ids = [metric.metricId for metric in request.metrics[: request.numMetrics]]
        return [request.version, self._plain(request.sample1), self._plain(request.sample2), ids]

    def _plain(self, value):
        return {"object": value.number} if isinstance(value, Opaque) else value

    def _alive(self, value):
        if isinstance(value, list):
            return [self._alive(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "object" in value:
            return self._objects.setdefault(value["object"], Opaque(value["object"]))
        return SimpleNamespace(**value["fields"]) if "fields" in value else value["bytes"].encode()


def load(path: Path):
    """Return a recording from its file."""
    return json.loads(gzip.decompress(path.read_bytes()))


def replayed(recording):
    """Return the samples that the live reader makes of a recording, and the replay with what was left over."""
    replay, batches = Replay(recording), []
    for session in recording["sessions"]:
        options = Options(watch=session["watch"], interval=session["interval"])
        batches += watch(replay, options, Problems(), recording["host"], replay.clock, lambda _: None)
    return pa.Table.from_batches(batches), replay
