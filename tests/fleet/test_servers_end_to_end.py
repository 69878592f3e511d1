"""The whole way on real servers: our simulator's exporters, a Prometheus or a VictoriaMetrics that scrapes them, and `ullage fleet`.

What must come out is worked out here from what the server itself says it holds, or from the simulation's answer key.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
import urllib.parse
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.fleet.servers import get, prometheus, victoria_metrics, wait_for
from ullage.simulate.exposition import pages
from ullage.simulate.fleet import Simulation, Specification, fleet
from ullage.simulate.serve import Server, serve

TENSOR, CLOCK = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_SM_CLOCK"
H100 = "NVIDIA H100 80GB HBM3"
SERVERS = pytest.mark.parametrize("start", [prometheus, pytest.param(victoria_metrics, marks=pytest.mark.full)])


def ullage(*words: str) -> dict:
    """Run the command as a user does, and return its JSON."""
    done = subprocess.run([sys.executable, "-m", "ullage", *words, "--json"], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


# -- live -----------------------------------------------------------------------------------------------------------------


@contextmanager
def exporters(interval: float = 3.0, speed: float = 30, **more: object) -> Iterator[Server]:
    """8 H100s behind HTTP, thirty times as fast as the clock on the wall: each scrape a second later is another page."""
    now = int(time.time() * 1000)
    specification = Specification(gpus=8, hours=2, interval=interval, models=((H100, 1.0),), start=now, spread=0, **more)  # type: ignore[arg-type]
    server = serve(fleet(specification), 0, speed=speed).start()
    try:
        server.page(None)  # the first page takes a while to simulate
        yield server
    finally:
        server.stop()


@contextmanager
def remembering(server: Server) -> Iterator[list[tuple[float, str]]]:
    """The pages that a server has given out, each with its moment."""
    served: list[tuple[float, str]] = []
    page = server.page

    def remembered(host: str | None) -> str | None:
        served.append((time.time(), page(host) or ""))
        return served[-1][1]

    server.page = remembered
    yield served


def values(text: str, metric: str) -> dict[str, str]:
    """What a page says of a metric: {GPU: value}."""
    return dict(re.findall(rf'^{metric}{{gpu="\d+",UUID="([^"]+)".*}} (\S+)$', text, re.M))


def mean_of_products(series: dict[str, dict[float, tuple[float, float]]], until: float = math.inf) -> float:
    """OFU of {GPU: {second: (tensor activity, MHz)}}: each reading weighs the time since the one before, the first the median of these.

    The first reading after `until` weighs what lies before it, later ones nothing.
    """
    products, weights = [], []
    for readings in series.values():
        times = np.array(sorted(readings))
        starts = np.concatenate([[times[0] - np.median(np.diff(times))], times[:-1]])
        products += [readings[t][0] * readings[t][1] / 1830 for t in times]
        weights += np.maximum(np.minimum(times, until) - starts, 0).tolist()
    return float(np.average(products, weights=weights))


def held(url: str, metric: str, until: float) -> dict[str, dict[float, float]]:
    """What the server holds of a metric: {GPU: {second: value}}."""
    query = urllib.parse.urlencode({"query": f"{metric}[1h]", "time": f"{until:.3f}"})
    answer = json.loads(get(f"{url}/api/v1/query?{query}") or b"{}")
    return {one["metric"]["UUID"]: {t: float(value) for t, value in one["values"]} for one in answer["data"]["result"]}


def later(series: dict[str, dict[float, float]], than: float) -> int:
    """How many readings each GPU has after a moment, at least."""
    return min((sum(t > than for t in points) for points in series.values()), default=0)


@SERVERS
def test_a_server_that_scrapes_the_simulator_gives_the_ofu_of_what_it_scraped(start: Callable[..., object], tmp_path: Path) -> None:
    with exporters() as server, start(tmp_path, targets=[f"127.0.0.1:{server.port}"]) as url:  # type: ignore[attr-defined]
        query = urllib.parse.urlencode({"query": f"min(count_over_time({CLOCK}[10m])) > 4"})
        wait_for(lambda: b'"value"' in (get(f"{url}/api/v1/query?{query}") or b""))
        until = round(time.time(), 3)
        # VictoriaMetrics shows a scrape some time after it, so two later ones must stand there before what came until then is settled
        wait_for(lambda: all(later(held(url, metric, time.time()), until) > 1 for metric in (TENSOR, CLOCK)))
        answer = ullage("fleet", url, "--since", "1h", "--until", f"{until:.3f}")
        tensor, clock = held(url, TENSOR, time.time()), held(url, CLOCK, until + 60)
        everyone = ullage("fleet", url, "--since", "1h")
    readings = {gpu: {t: (value, clock[gpu][t]) for t, value in points.items()} for gpu, points in tensor.items()}
    assert len(readings) == 8 and min(sum(t <= until for t in points) for points in readings.values()) > 4
    assert len({pair for points in readings.values() for pair in points.values()}) > 20  # the pages did change
    assert answer["ofu_all"] == pytest.approx(mean_of_products(readings, until), rel=1e-5)
    assert answer["gpus"] == 8
    assert everyone["gpu_hours"] >= answer["gpu_hours"] > 8 * 4 / 3600
    assert {group["key"] for group in answer["groups"]} <= {"no job"} | {group["key"] for group in everyone["groups"]}


def test_a_host_that_is_watched_gives_the_ofu_of_the_pages_it_served() -> None:
    with exporters() as server, remembering(server) as served:
        answer = ullage("fleet", f"http://127.0.0.1:{server.port}/metrics", "--watch", "3s", "--every", "1s")
    assert len(served) == 4  # now, and after each second
    readings: dict[str, dict[float, tuple[float, float]]] = defaultdict(dict)
    for when, text in served:
        found = {name: values(text, name) for name in (TENSOR, CLOCK)}
        for gpu, value in found[TENSOR].items():
            readings[gpu][when] = (float(value), float(found[CLOCK][gpu]))
    assert answer["gpus"] == len(readings) == 8
    # the moments are ours and not Ullage's, some milliseconds apart
    assert answer["ofu_all"] == pytest.approx(mean_of_products(readings), rel=0.01)
    assert answer["gpu_hours"] == pytest.approx(8 * 4 / 3600, rel=0.1)


def test_cycle_counters_that_are_watched_give_the_exact_ofu() -> None:
    cycles = "DCGM_FI_PROF_MMA_CYCLES_ACTIVE_TOTAL"
    with exporters(counters=True, interval=0.5, speed=1) as server, remembering(server) as served:
        answer = ullage("fleet", f"http://127.0.0.1:{server.port}/metrics", "--watch", "3s", "--every", "1s")
    first, last = ({gpu: float(value) for gpu, value in values(text, cycles).items()} for text in (served[0][1], served[-1][1]))
    exact = sum(last[gpu] - first[gpu] for gpu in first) / len(first) / (served[-1][0] - served[0][0]) / 1830e6
    # of the first page no growth is known: it stands for the fourth second, by its gauges
    tensor, clock = (values(served[0][1], name) for name in (TENSOR, CLOCK))
    sampled = sum(float(tensor[gpu]) * float(clock[gpu]) for gpu in tensor) / len(tensor) / 1830
    assert (answer["method"], round(answer["exact_share"], 2)) == ("mixed", 0.75)
    assert answer["ofu"] == pytest.approx((3 * exact + sampled) / 4, rel=0.01)


# -- history ---------------------------------------------------------------------------------------------------------------


def history(simulation: Simulation, stamp: Callable[[int], str]) -> str:
    """All pages of a simulation as one text, metric by metric, each line with its time as `stamp` writes ms."""
    jobs = [job.name for job in simulation.records]
    lines: dict[str, list[str]] = defaultdict(list)
    for host in range(simulation.specification.hosts):
        given = simulation.host(host)
        page = pages(simulation.specification, given, jobs)
        for window, moment in enumerate(given.times[1:].tolist()):
            holders = [page.holders(row, window) for row in range(len(page.labels))]
            for field, name in page.names.items():
                if name.kind == "gauge":
                    for number, labels in zip(page.texts(field, np.s_[:, window]), holders, strict=True):
                        lines[name.name] += [f"{name.name}{{{text}}} {number} {stamp(moment)}" for text in labels]
    return "".join(f"# TYPE {name} gauge\n" + "\n".join(found) + "\n" for name, found in lines.items())


def day(gpus: int, hours: float) -> Simulation:
    return fleet(
        Specification(gpus=gpus, hours=hours, seed=11, models=((H100, 1.0),), faults=("shared", "stuck", "stale", "held_idle", "straggler"))
    )


def seconds(ms: int) -> str:
    return f"{ms // 1000}.{ms % 1000:03d}"


def check(url: str, simulation: Simulation) -> None:
    """Compare what a server's history comes to with the simulation's answer key."""
    key = simulation.answers
    start, end = simulation.specification.window
    window = ["--since", seconds(start), "--until", seconds(end + 10_000)]  # hosts begin up to 5 s later
    answer = ullage("fleet", url, *window)
    whole = key["fleet"]
    assert answer["ofu"] == pytest.approx(whole["trusted_ofu"], abs=1e-4)
    assert answer["ofu_all"] == pytest.approx(whole["sampled_ofu"], abs=1e-4)
    assert answer["gpu_hours"] == pytest.approx(whole["gpu_hours"], rel=1e-3)
    chain = {name: answer["tree"][name] for name in whole["trusted_chain"]}
    assert chain == pytest.approx(whole["trusted_chain"], abs=2e-3)
    groups = {group["key"]: group for group in answer["groups"]}
    for job, planted in key["jobs"].items():
        if planted["trusted_ofu"] is not None:
            assert groups[job]["ofu"] == pytest.approx(planted["trusted_ofu"], abs=1e-4), job
    planted = {gpu: word for gpu, word in key["faults"].items() if word != "ok"}
    assert {finding["gpu"]: finding["verdict"] for finding in answer["trust"]["findings"]} == planted
    # a sample of a host's first interval stands for 30 s, some of it before the window
    hours = {owner: spent / 3_600_000 for owner, spent in key["ledger"].items()}
    assert answer["ledger"] == pytest.approx(hours, abs=simulation.specification.gpus * 45 / 3600)


def test_a_morning_in_prometheus_gives_the_known_answers(tmp_path: Path) -> None:
    simulation = day(16, 6)
    with prometheus(tmp_path, history=history(simulation, seconds)) as url:
        check(url, simulation)


def test_a_morning_in_victoria_metrics_gives_the_known_answers(tmp_path: Path) -> None:
    simulation = day(16, 6)
    with victoria_metrics(tmp_path, history=history(simulation, str)) as url:
        check(url, simulation)


@pytest.mark.full
def test_a_day_of_64_gpus_in_prometheus_gives_the_known_answers(tmp_path: Path) -> None:
    simulation = day(64, 24)
    with prometheus(tmp_path, history=history(simulation, seconds)) as url:
        check(url, simulation)
