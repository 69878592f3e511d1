"""Real servers for tests, on free loopback ports and in folders of the test: Prometheus, VictoriaMetrics, and a scripted one.

Each is a context manager that gives the URL and always ends what it started.
"""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

START_LIMIT = 60.0  # seconds that a server may take to answer


def program(*names: str) -> str:
    """Return the path of an installed program, or skip the test."""
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    pytest.skip(f"{' or '.join(names)} is not installed")


def free_port() -> int:
    """Return a loopback port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def prometheus(
    folder: Path, targets: Sequence[str] = (), history: str | Sequence[str] = "", interval: str = "1s", more: str = ""
) -> Iterator[str]:
    """Run a Prometheus that scrapes `targets` (host:port) and already holds `history` (OpenMetrics texts); give its URL.

    `more` stands at the end of its settings (YAML).
    """
    binary = program("prometheus")
    data = folder / "prometheus"
    data.mkdir()
    for text in _texts(history):  # one by one: promtool reads the whole of a text again for each two hours of it
        _backfill(folder, data, text)
    lines = [f"global: {{scrape_interval: {interval}, scrape_timeout: {interval}}}", "scrape_configs:"]
    lines += ["  - job_name: dcgm", f"    static_configs: [{{targets: {[*targets]!r}}}]"] if targets else ["  []"]
    config = folder / "prometheus.yml"
    config.write_text("\n".join([*lines, more]) + "\n")
    port = free_port()
    command = [binary, f"--config.file={config}", f"--storage.tsdb.path={data}", "--storage.tsdb.retention.time=100y"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    with running(command, folder / "prometheus.log"):
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: get(f"{url}/-/ready") is not None, folder / "prometheus.log")
        yield url


def _texts(history: str | Sequence[str]) -> Sequence[str]:
    return history if not isinstance(history, str) else [history] if history else []


def _backfill(folder: Path, data: Path, history: str) -> None:
    text = folder / "history.om"
    text.write_text(history + "# EOF\n")
    promtool = program("promtool")
    made = subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(text), str(data)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr


@contextmanager
def victoria_metrics(folder: Path, targets: Sequence[str] = (), history: str | Sequence[str] = "", interval: str = "1s") -> Iterator[str]:
    """Run a VictoriaMetrics that scrapes `targets` and already holds `history` (exposition texts with ms); give its URL."""
    binary = program("victoria-metrics", "victoria-metrics-prod")
    port = free_port()
    config = folder / "scrape.yml"
    jobs = [{"job_name": "dcgm", "static_configs": [{"targets": [*targets]}]}] if targets else []
    config.write_text(f"{{global: {{scrape_interval: {interval}}}, scrape_configs: {jobs!r}}}\n")
    command = [binary, f"-httpListenAddr=127.0.0.1:{port}", f"-storageDataPath={folder / 'victoria'}", "-retentionPeriod=100y"]
    command += [f"-promscrape.config={config}", "-loggerLevel=WARN", "-search.latencyOffset=0s"]
    with running(command, folder / "victoria.log"):
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: get(f"{url}/health") is not None, folder / "victoria.log")
        for text in _texts(history):
            request = urllib.request.Request(f"{url}/api/v1/import/prometheus", data=text.encode(), method="POST")
            urllib.request.urlopen(request, timeout=30).close()
        if history:
            get(f"{url}/internal/force_flush", timeout=START_LIMIT)  # what was taken in becomes visible at once
        yield url


@contextmanager
def running(command: list[str], log: Path) -> Iterator[None]:
    """Run a program whose output goes to a log, and end it."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def get(url: str, timeout: float = 5) -> bytes | None:
    """Return the body of a good answer, None for any other."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return bytes(answer.read())
    except (urllib.error.URLError, OSError):
        return None


def wait_for(ready: Callable[[], bool], log: Path | None = None, limit: float = START_LIMIT) -> None:
    """Return once `ready` holds; fail with the end of the log when it does not within `limit` seconds."""
    end = time.monotonic() + limit
    while not ready():
        if time.monotonic() > end:
            tail = log.read_text(errors="replace")[-2000:] if log and log.exists() else ""
            pytest.fail(f"not ready within {limit:g} s\n{tail}")
        time.sleep(0.1)


Answerer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def scripted(answer: Answerer, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Run an HTTP (or HTTPS) server whose GET is answered by a function of the request's handler; give its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def say(handler: BaseHTTPRequestHandler, body: bytes | str, status: int = 200, kind: str = "application/json", **headers: str) -> None:
    """Answer a request; an underscore in a header's name stands for a hyphen. `Content_Length` may be given wrong."""
    data = body.encode() if isinstance(body, str) else body
    told = {"Content-Type": kind, "Content-Length": str(len(data))} | {name.replace("_", "-"): text for name, text in headers.items()}
    handler.send_response(status)
    for name, text in told.items():
        handler.send_header(name, text)
    handler.end_headers()
    handler.wfile.write(data)
