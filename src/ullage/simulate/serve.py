"""A simulated fleet behind HTTP, as its dcgm-exporters would serve it, so that a real Prometheus can scrape it.

`/metrics` is the whole fleet, `/node0001/metrics` (or `/metrics?host=node0001`) one host. The page at a time is the
simulation's page at that time; after the end of the window it begins again, and counters then start anew.
"""

from __future__ import annotations

import functools
import html
import time
import urllib.parse
from collections.abc import Callable

from ullage.simulate.exposition import HostPages, pages
from ullage.simulate.fleet import Simulation
from ullage.simulate.specification import host_name
from ullage.sources.page_server import EXPOSITION, HTML, PLAIN, HttpAnswer, PageServer, bound

KEPT_HOSTS = 128  # hosts whose readings stay in memory: about 3 MB each for a day at 30 s


class Server(PageServer):
    """A running server of a fleet: `page` gives the text of a host (None: of all)."""

    def __init__(self, address: tuple[str, int], page: Callable[[str | None], str | None], hosts: list[str]) -> None:
        super().__init__(address, self._answer)
        self.page = page
        self.hosts = hosts

    def _answer(self, path: str, query: str) -> HttpAnswer:
        """Answer with a page, the index, or 404."""
        parts = [urllib.parse.unquote(part) for part in path.split("/") if part]
        asked = urllib.parse.parse_qs(query).get("host", [None])[0]
        if not parts:
            return HttpAnswer(200, HTML, _index(self.hosts))
        page = None
        if parts[-1] == "metrics" and len(parts) <= 2:
            page = self.page(parts[0] if len(parts) == 2 else asked)
        if page is None:
            return HttpAnswer(404, PLAIN, "not here: ask /metrics, or /node0001/metrics for one host\n")
        return HttpAnswer(200, EXPOSITION, page)


def serve(
    simulation: Simulation,
    port: int,
    clock: Callable[[], float] = time.time,
    *,
    speed: float = 1.0,
    address: str = "127.0.0.1",
    new_names: bool = False,
) -> Server:
    """Return a server of a fleet's pages, bound to `port` (0: any that is free) and not yet running.

    `clock` gives seconds since 1970; at the start of the specification's window it shows the first page, and it runs `speed`
    times as fast from there. Raises UllageError when the port is taken.
    """
    page = pager(simulation, clock, speed=speed, new_names=new_names)
    with bound(address, port):
        return Server((address, port), page, [host_name(host) for host in range(simulation.specification.hosts)])


def pager(
    simulation: Simulation, clock: Callable[[], float], *, speed: float = 1.0, new_names: bool = False
) -> Callable[[str | None], str | None]:
    """Return a function from a host's name (None: all hosts) to its page now, or None for a host that is not there."""
    start, end = simulation.specification.window
    names = {host_name(host): host for host in range(simulation.specification.hosts)}
    jobs, places = [job.name for job in simulation.records], simulation.plan.names_of_places

    @functools.lru_cache(maxsize=KEPT_HOSTS)
    def of_host(host: int) -> HostPages:
        return pages(simulation.specification, simulation.host(host), jobs, new_names=new_names, places=places)

    def page(name: str | None) -> str | None:
        now = start + round((clock() * 1000 - start) * speed) % (end - start)
        if name is not None:
            return _one(of_host(names[name]), now) if name in names else None
        return _all([of_host(host) for host in names.values()], now)

    return page


def _one(host: HostPages, now: int) -> str:
    return host.page(host.window_at(now))


def _all(hosts: list[HostPages], now: int) -> str:
    """Return one page of many hosts: the format wants a metric's lines together, under one pair of comments."""
    parts: dict[str, list[str]] = {}
    for host in hosts:
        for head, body in host.groups(host.window_at(now)):
            parts.setdefault(head, []).append(body)
    return "".join(head + "".join(bodies) for head, bodies in parts.items())


def _index(hosts: list[str]) -> str:
    links = "".join(f'<li><a href="/{html.escape(host)}/metrics">{html.escape(host)}</a></li>' for host in hosts)
    return f'<!doctype html><title>simulated fleet</title><h1>A simulated fleet</h1><p><a href="/metrics">all hosts</a></p><ul>{links}</ul>'
