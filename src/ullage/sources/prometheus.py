"""A Prometheus HTTP API (Prometheus, VictoriaMetrics, Thanos, Mimir): raw readings of every known field, by time.

The window is read in chunks of time, all fields of a chunk together, so that memory stays bounded whatever the fleet.
The first chunk is short; each next one is as long as what the last one held allows.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa

from ullage.errors import UllageError, UnreadableError
from ullage.problems import Problems
from ullage.sources.http import Client, ServerError
from ullage.sources.naming.fields import possible
from ullage.sources.prometheus_routes import MOST_POINTS, PrometheusRange, Route, export, grid, instant, interval, refuses_ranges, too_much
from ullage.sources.rows.readings import Readings
from ullage.sources.source import Deadline, Options, Place, source
from ullage.units import DAY_MS, HOUR_MS

FIRST = 10 * 60_000  # ms; the first chunk
SHORTEST, LONGEST = 1_000, DAY_MS  # ms; chunks
MOST_READINGS = 500_000  # of one metric in one answer: some 15 MB of JSON
MOST_HELD = 4_000_000  # of all metrics in one chunk
_API_PATH = re.compile(r"(/api/v1)?/?|.*/(prometheus|prom|promql|api/prom)(/api/v1)?/?")


def recognise(place: Place) -> int:
    """Return 2 for `prometheus+http(s)://…`, and for an http(s) URL without a page's path whose API answers."""
    if place.url is None:
        return 0
    if place.url.startswith(("prometheus+http://", "prometheus+https://")):
        return 2
    if not place.url.startswith(("http://", "https://")):
        return 0
    try:
        path = urlsplit(place.url).path
    except ValueError:
        return 0
    return 2 if _API_PATH.fullmatch(path) and _answers(place.url) else 0


def _answers(url: str) -> bool:
    """Ask once, for at most 3 s, and without credentials: this decides who reads, and the reader verifies the server."""
    asked = Options(timeout=3, retries=0, verify_tls=False, deadline=Deadline.after(3))
    bare = urlsplit(url)
    bare = bare._replace(netloc=bare.netloc.rsplit("@", 1)[-1])
    try:
        client = Client(base(bare.geturl()), asked)
    except UllageError:
        return False
    for path, query in (("/api/v1/status/buildinfo", {}), ("/api/v1/query", {"query": "1"})):
        try:
            if b'"status"' in client.get(path, query)[:1000]:
                return True
        except ServerError as error:
            if error.status in (401, 403):
                return True  # who asks for credentials at this path is no exporter's page
            if error.status == 0:
                return False
    return False


def base(name: str) -> str:
    """Return the URL that API paths are put behind.

    >>> base("prometheus+https://mimir.example/prometheus/api/v1/"), base("http://thanos.example?dedup=true")
    ('https://mimir.example/prometheus', 'http://thanos.example?dedup=true')
    """
    path, mark, query = name.removeprefix("prometheus+").partition("?")
    return path.rstrip("/").removesuffix("/api/v1") + mark + query


@source(
    "prometheus",
    recognise=recognise,
    reads="a Prometheus HTTP API (Prometheus, VictoriaMetrics, Thanos, Mimir): http://host:9090",
    history=True,
)
def read(place: Place, options: Options, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield a batch of wide rows for each chunk of (since, until]; without these, of the last 24 hours.

    Raises UllageError when the server can't be asked or holds no field that Ullage knows. When it stops answering
    on the way, the error says up to where it was read; the batches before it stand.
    """
    yield from read_server(Client(base(place.name), options), options, problems)


def read_server(client: Client, options: Options, problems: Problems, route: Route | None = None) -> Iterator[pa.RecordBatch]:
    """Do what `read` does, through a client at hand, and by one route (default: the best that the server offers)."""
    window = _window(options)
    metrics = _metrics(client, window)
    asking = _Asking(client, metrics, window, problems, route or _best(client, metrics[0], window))
    readings = Readings(replace(options, since=window.start, until=window.end), problems, client.shown)
    found = False
    while asking.start < window.end:
        if not _chunk(asking, readings, options):
            continue
        if readings.size:
            found = True
            yield readings.batch()
    if not found:
        problems.note(f"{client.shown} holds no readings from {_moment(window.start)} to {_moment(window.end)}")


@dataclass
class _Asking:
    """Where a long question stands: what is read up to `start`, and how long the next chunk should be."""

    client: Client
    metrics: list[str]
    window: PrometheusRange
    problems: Problems
    route: Route
    start: int = field(init=False)
    length: int = FIRST
    longest: int = LONGEST

    def __post_init__(self) -> None:
        self.start = self.window.start

    def longer(self, heaviest: int, held: int) -> None:
        """Move on by a chunk that held so many readings (of one metric, of all), and size the next by it."""
        self.start = min(self.start + self.length, self.window.end)
        fits = min(MOST_READINGS / max(heaviest, 1), MOST_HELD / max(held, 1))
        self.length = int(max(SHORTEST, min(self.length * min(fits, 8.0), self.longest)))

    def shorter(self) -> bool:
        """Halve the chunk after the server found it too large; False when it can't be shorter."""
        self.longest = self.length = min(self.length, self.window.end - self.start) // 2
        return self.length >= SHORTEST

    def by_grid(self) -> None:
        """Change over to `query_range`, at half the interval at which the metrics are read."""
        step = max(1000, interval(self.client, self.metrics[0], self.window, self.problems) // 2)
        self.route = grid(step)
        self.longest = (MOST_POINTS - 2) * step
        self.length = min(self.length, self.longest)
        self.problems.note(f"{self.client.shown} refuses range selectors; its readings were found by asking every {step / 1000:g} s")


def _chunk(asking: _Asking, readings: Readings, options: Options) -> bool:
    """Read all metrics of the next chunk; False when it has to be asked again, shorter or by another route."""
    window = PrometheusRange(asking.start, min(asking.start + asking.length, asking.window.end))
    heaviest = 0
    try:
        for metric in asking.metrics:
            options.progress(f"{metric} {_hours(asking.start - asking.window.start)}/{_hours(asking.window.end - asking.window.start)} h")
            before = readings.size
            for block in asking.route(asking.client, metric, window, asking.problems):
                readings.add(block)
            heaviest = max(heaviest, readings.size - before)
    except UllageError as error:
        readings.forget()
        if too_much(error) and asking.shorter():
            return False
        if refuses_ranges(error) and asking.route is instant:
            asking.by_grid()
            return False
        raise _broken_off(asking, error) from error
    asking.longer(heaviest, readings.size)
    return True


def _broken_off(asking: _Asking, error: UllageError) -> UllageError:
    if asking.start == asking.window.start:
        return error
    read_until = _moment(asking.start)
    return UnreadableError(
        f"{error.problem}, after {_moment(asking.window.start)} to {read_until} was read",
        f"what was read is kept; go on with --since {read_until}",
        asking.start,
    )


def _window(options: Options) -> PrometheusRange:
    """Return the time that is asked for: the last 24 hours where the options don't say."""
    now = options.now() if options.now else round(time.time() * 1000)
    until = now if options.until is None else options.until
    since = until - DAY_MS if options.since is None else options.since
    if since >= until:
        raise UllageError(
            f"the time range is empty: from {_moment(since)} to {_moment(until)}", "--since must lie before --until, and before now"
        )
    return PrometheusRange(since, until)


class _Names(msgspec.Struct):
    data: list[str]


def _metrics(client: Client, window: PrometheusRange) -> list[str]:
    """Return the metrics of the server that are fields Ullage knows, sorted.

    All names are asked for (some thousands at most): a `match[]` would make the server look at every series.
    """
    path = "/api/v1/label/__name__/values"
    try:
        body = client.get(path, {"start": str(window.start // 1000), "end": str(window.end // 1000 + 1)})
    except ServerError as error:
        if error.status not in (400, 422):
            raise
        body = client.get(path)
    try:
        names = msgspec.json.decode(body, type=_Names).data
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        page = "an HTML page" if body.lstrip()[:1] == b"<" else "something else"
        problem = f"{client.shown} answered with {page} where the API's JSON was expected"
        raise UllageError(problem, "a login page, or not a Prometheus? give credentials, or the API's own URL") from error
    metrics = sorted(name for name in set(names) if possible(name))
    if not metrics:
        period = f"between {_moment(window.start)} and {_moment(window.end)}"
        problem = f"{client.shown} has no GPU metric that Ullage knows {period} ({len(names):,} metrics are others)"
        raise UllageError(problem, "is dcgm-exporter scraped into it, and was it then? --since and --until choose the time")
    return metrics


def _best(client: Client, metric: str, window: PrometheusRange) -> Route:
    """Return the export route where the server has one (VictoriaMetrics), else instant queries."""
    try:
        # one second of one metric is enough to learn it
        for _ in export(client, metric, PrometheusRange(window.end - 1000, window.end), Problems()):
            pass
    except ServerError as error:
        if error.status == 0:
            raise
        return instant
    return export


def _hours(ms: int) -> str:
    """Return hours without needless decimals.

    >>> _hours(3 * HOUR_MS), _hours(24 * HOUR_MS + HOUR_MS // 6)
    ('3', '24.2')
    """
    return f"{ms / HOUR_MS:.1f}".removesuffix(".0")


def _moment(ms: int) -> str:
    """Return a time as the command line takes it.

    >>> _moment(1_700_000_000_000)
    '2023-11-14T22:13:20Z'
    """
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
