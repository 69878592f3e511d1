"""The last readings as text exposition, under dcgm-exporter's names and labels, so that its dashboards and alerts work on them.

Beside its fields there are Ullage's own: `ullage_ofu_ratio`, which no exporter gives, and how many devices answer.
Format: Prometheus, "Exposition formats", text 0.0.4.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ullage.live.sampling.watched_device import Watched
from ullage.sources.naming.dcgm_names import EVERY, Name
from ullage.sources.page_server import EXPOSITION, HTML, PLAIN, HttpAnswer, PageServer, bound

OFU = Name("ullage_ofu_ratio", 1, 6, "gauge", "Tensor work over the peak of the GPU, since the reading before.")
ANSWERING = Name("ullage_devices_answering", 1, 0, "gauge", "GPUs and MIG instances of this host whose last reading is fresh.")
INDEX = '<!doctype html><title>ullage sample</title><h1>This machine\'s GPUs</h1><p><a href="/metrics">metrics</a></p>'


class Page:
    """What is served: `show` replaces the devices, `text` writes those whose last reading is not older than `fresh_ms`.

    A reading that is older is left out, so that a driver which stalls leaves a gap and not a level line.
    """

    def __init__(self, fresh_ms: float, now: Callable[[], float] = time.time) -> None:
        self._fresh, self._now = fresh_ms, now
        self._told: dict[tuple[str, str | None], tuple[int, str, dict[str, float]]] = {}

    def show(self, devices: Iterable[Watched]) -> None:
        """Take over the last readings of some devices; those of others stay until they are too old."""
        told = {(d.gpu, d.mig): (d.time, labels(d.row), _values(d)) for d in devices}
        self._told = {**self._told, **told}  # a new one: a request may be reading the old

    def text(self) -> str:
        """Return the page as it is now."""
        now = self._now() * 1000  # what is told of the future was told before the clock was set back
        fresh = [(words, values) for when, words, values in self._told.values() if abs(now - when) <= self._fresh and values]
        lines = list(_metric(ANSWERING, [("", float(len(fresh)))]))
        for field, name in (*EVERY.items(), ("ofu", OFU)):
            lines += _metric(name, [(words, values[field]) for words, values in fresh if field in values])
        return "".join(lines)

    def answer(self, path: str, query: str) -> HttpAnswer:  # noqa: ARG002 - a page has no query
        """Answer a request: /metrics, an index with a link to it, or 404."""
        if path.rstrip("/") == "/metrics":
            return HttpAnswer(200, EXPOSITION, self.text())
        return HttpAnswer(200, HTML, INDEX) if path in ("", "/") else HttpAnswer(404, PLAIN, "not here: ask /metrics\n")


def _values(device: Watched) -> dict[str, float]:
    values = {name: float(device.row[name]) for name in EVERY if device.row.get(name) is not None}
    return values if device.ofu is None else {**values, "ofu": device.ofu}


def _metric(name: Name, told: list[tuple[str, float]]) -> Iterator[str]:
    if told:
        yield f"# HELP {name.name} {name.help}\n# TYPE {name.name} {name.kind}\n"
    for words, value in told:
        number = f"{value * name.factor:.6f}" if name.decimals else str(round(value * name.factor))
        yield f"{name.name}{words and '{' + words + '}'} {number}\n"


def labels(row: Mapping[str, Any]) -> str:
    r"""Return the labels of a sample as dcgm-exporter names them, without braces, values escaped as the format demands.

    >>> labels({"index": 0, "gpu": "GPU-1", "host": 'a"b', "mig": "1g.10gb/7", "job": None})
    'gpu="0",UUID="GPU-1",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7",Hostname="a\\"b"'
    """
    profile, _, instance = (row.get("mig") or "").partition("/")
    named = {
        "gpu": row.get("index"),
        "UUID": row.get("gpu"),
        "modelName": row.get("model"),
        "GPU_I_PROFILE": profile,
        "GPU_I_ID": instance,
        "Hostname": row.get("host"),
        "cluster": row.get("cluster"),
        "hpc_job": row.get("job"),
        "job_user": row.get("user"),
    }
    return ",".join(f'{name}="{escaped(str(value))}"' for name, value in named.items() if value not in (None, ""))


def escaped(value: str) -> str:
    r"""Return a label's value as the format writes it: backslash, quote and line feed are escaped, everything else stands.

    >>> escaped('a\\b "c"\nd')
    'a\\\\b \\"c\\"\\nd'
    """
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def serve(page: Page, address: str, port: int) -> PageServer:
    """Return a server of a page that runs in a thread of its own. Raises UllageError when it can't have the port."""
    with bound(address, port):
        return PageServer((address, port), page.answer).start()
