"""The service: its first page after a start, its answers to 50 browsers at once, its memory; beside Prometheus' API.

    python benchmarks/serve.py [--store FOLDER | --gpus 1000] [--hours 24] [--browsers 50] [--prometheus-gpus 64] [--quick] [--json FILE]

`ullage serve` runs in a process of its own over a store of a simulated day; requests come over loopback from threads of
this process, each address 50 at once, several times over. "First" is an address that nobody asked before. Prometheus
holds tensor activity and SM clock of the same fleet, and is asked for OFU by host in the same way: a small part of what
the page of hosts says.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

from day import at_rest, simulation
from measure import Figure, Figures, parser
from prometheus_day import NAMES, openmetrics

TARGET = 0.3  # s; the first page of a warm store, with 50 browsers at once
ROUNDS = 20  # requests of each browser for an address


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--store", type=Path, help="a store that is there; default: one that is simulated and kept")
    options.add_argument("--gpus", type=int, default=1000)
    options.add_argument("--hours", type=float, default=24)
    options.add_argument("--browsers", type=int, default=50)
    options.add_argument("--prometheus-gpus", type=int, default=64, help="size to compare with Prometheus at; 0: not at all")
    asked = options.parse_args()
    if asked.quick:
        asked.gpus, asked.hours, asked.browsers, asked.prometheus_gpus = 8, 1, 4, 8
    figures = Figures(asked.json)
    measured(figures, asked.store or at_rest(asked.gpus, asked.hours), asked.browsers, asked.quick)
    if asked.prometheus_gpus:
        beside_prometheus(figures, asked.prometheus_gpus, asked.hours, asked.browsers, asked.quick)


def measured(figures: Figures, store: Path, browsers: int, quick: bool) -> None:
    """Measure the service over a store: the start, each address first and then by all browsers, memory."""
    with tempfile.TemporaryDirectory() as home:
        begin = time.perf_counter()
        with serving(store, Path(home)) as (port, process):
            began = time.perf_counter() - begin
            alive, first = until_there(port, "/")
            at = answers_of(figures, port, process.pid, browsers, quick, (began, alive, first))
        with serving(store, Path(home)) as (port, process):
            figures.add(Figure(f"first page after a start again{at}", timed(port, "/"), "s", target=TARGET))


def until_there(port: int, path: str) -> tuple[float, float]:
    """Return the longest that /healthz took until an address had its answer, and the seconds until it had."""
    begin, alive = time.perf_counter(), 0.0
    while body(port, path, busy=True) == b"":
        alive = max(alive, timed(port, "/healthz"))
        time.sleep(0.1)
    return alive, time.perf_counter() - begin


def answers_of(figures: Figures, port: int, pid: int, browsers: int, quick: bool, start: tuple[float, float, float]) -> str:
    """Measure each address first and then by all browsers, and memory; returns of how many GPUs that was, in words."""
    began, alive, first = start
    fleet = json.loads(body(port, "/api/v1/fleet?since=24h"))
    job, gpus = fleet["groups"][0]["key"] or "", fleet["gpus"]
    at = f", {round(gpus):,} GPUs"
    figures.add(Figure(f"start, until it answers{at}", began, "s"))
    figures.add(Figure(f"first page after the first start of all{at}", first, "s"))
    figures.add(Figure(f"/healthz until then, at most{at}", alive, "s"))
    for path in ("/", "/jobs", "/users", "/hosts", "/trust", f"/job/{quote(job, safe='')}", "/api/v1/fleet?since=24h", "/metrics"):
        _, alone = until_there(port, path)
        name = "/job/ID" if path.startswith("/job/") else path
        if path != "/":
            figures.add(Figure(f"{name}, first{at}", alone, "s"))
        taken = together(lambda path=path: timed(port, path), browsers, 2 if quick else ROUNDS)  # type: ignore[misc]
        target = TARGET if path == "/" else None
        figures.add(Figure(f"{name}, {browsers} browsers, p50{at}", statistics.median(taken), "s", target=target))
        figures.add(Figure(f"{name}, {browsers} browsers, p99{at}", statistics.quantiles(taken, n=100)[98], "s"))
    figures.add(Figure(f"memory, at most{at}", peak(pid) / 1e6, "MB"))
    return at


def beside_prometheus(figures: Figures, gpus: int, hours: float, browsers: int, quick: bool) -> None:
    """Measure OFU by host of one fleet: the service's page, and Prometheus' answer to the query."""
    if not (shutil.which("prometheus") and shutil.which("promtool")):
        print("prometheus and promtool are not installed: no comparison with Prometheus")
        return
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.fleet.servers import prometheus  # starts the installed one, on a free port of this machine

    rounds = 2 if quick else 5
    with tempfile.TemporaryDirectory() as home, serving(at_rest(gpus, hours), Path(home)) as (port, _):
        first = timed(port, "/api/v1/fleet?by=host&since=24h")
        ours = together(lambda: timed(port, "/api/v1/fleet?by=host&since=24h"), browsers, rounds)
    end = simulation(gpus, hours).specification.window[1] / 1000
    query = f"sum by (Hostname) (avg_over_time(({' * '.join(NAMES.values())})[{hours * 3600:.0f}s:30s]))"
    path = f"/api/v1/query?query={quote(query)}&time={end}"
    with tempfile.TemporaryDirectory() as folder, prometheus(Path(folder), history=openmetrics(gpus, hours)) as url:
        other = urlsplit(url).port or 0
        their_first = timed(other, path)
        theirs = together(lambda: timed(other, path), browsers, rounds)
    figures.add(Figure(f"OFU by host, first, {gpus:,} GPUs", first, "s", {"Prometheus": their_first}))
    for name, at in (("p50", 49), ("p99", 98)):
        mine, beside = (statistics.quantiles(taken, n=100)[at] for taken in (ours, theirs))
        figures.add(Figure(f"OFU by host, {browsers} browsers, {name}, {gpus:,} GPUs", mine, "s", {"Prometheus": beside}))


@contextmanager
def serving(store: Path, home: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Run the service over a store, in a process and with a data home; give its port once it answers."""
    settings = home / "ullage.toml"
    settings.write_text('answer_limit = "600s"\n', encoding="utf-8")  # however busy the machine is
    words = [sys.executable, "-m", "ullage", "serve", str(store), "--port", "0", "--log", "json", "--config", str(settings)]
    environment = {**os.environ, "XDG_DATA_HOME": str(home)}
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        said = json.loads(process.stderr.readline())
        drain = ThreadPoolExecutor(1)  # a full pipe would stop the service
        drain.submit(process.stderr.read)
        port = int(said["at"].rpartition(":")[2])
        body(port, "/healthz")
        yield port, process
    finally:
        process.terminate()
        process.wait(60)


def timed(port: int, path: str) -> float:
    """Return the seconds until an address has answered whole."""
    begin = time.perf_counter()
    body(port, path)
    return time.perf_counter() - begin


def body(port: int, path: str, *, busy: bool = False) -> bytes:
    """Return what an address answers; anything but an answer ends the benchmark, or, with `busy`, one that is being made is b""."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if busy and answer.status == 503:
        return b""
    if answer.status != 200:
        sys.exit(f"{path} answered {answer.status}: {content[:300]!r}")
    return content


def together(ask: Callable[[], float], browsers: int, rounds: int) -> list[float]:
    """Return the seconds of each request of several browsers at once."""
    with ThreadPoolExecutor(browsers) as pool:
        return list(pool.map(lambda _: ask(), range(browsers * rounds)))


def peak(pid: int) -> float:
    """Return the most memory that a process has held, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024


if __name__ == "__main__":
    main()
