"""A running `ullage serve`: the samples of its last minutes, of every device that it follows and the token lets one see.

It is no source of reports: what a service stores, it reports itself.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import urlsplit

import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.sources.http import Client, ServerError
from ullage.sources.parquet import read_parquet
from ullage.sources.source import Deadline, Options, sane_times

HEALTH_PATH, SAMPLES_PATH = "/healthz", "/api/v1/samples.parquet"
SERVICE = "ullage"  # what a service calls itself at HEALTH_PATH
MOST_ROWS = 2_000_000  # ten times what a service gives
ASKING = 3.0  # s for which it is asked who it is
_PAGES = ("/metrics", "/federate")  # paths of exporters' pages


def running_service(url: str, options: Options) -> Client | None:
    """Return what asks the service at a URL, None where none answers there."""
    if not url.startswith(("http://", "https://")) or _path(url).endswith(_PAGES):
        return None
    try:
        asked = replace(options, retries=0, timeout=min(ASKING, options.timeout), deadline=Deadline.after(ASKING))
        said = json.loads(Client(url, asked).get(HEALTH_PATH))
    except (UllageError, ValueError, RecursionError):
        return None
    is_one = isinstance(said, dict) and said.get("service") == SERVICE
    return Client(url, replace(options, retries=0)) if is_one else None  # one that isn't ready is not waited for


def read_service(client: Client, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield record batches of `tables.SAMPLES`. Raises UllageError where the service refuses, or gives what can't be read."""
    file, rows = io.BytesIO(_samples(client)), 0
    for batch in sane_times(read_parquet(file, client.shown, Options(), problems), problems):
        rows += batch.num_rows
        if rows > MOST_ROWS:
            raise UllageError(f"{client.shown} gives more than {MOST_ROWS:,} samples of its last minutes", "is it an `ullage serve`?")
        yield batch


def _samples(client: Client) -> bytes:
    try:
        return client.get(SAMPLES_PATH)
    except ServerError as error:
        if error.status != 503:
            raise
        problem = f"the service at {client.shown} is not ready: {harmless(error.reason) or 'it does not say why'}"
        raise UllageError(problem, f"try again in a minute; {client.shown}/readyz says when it is ready") from error


def require_no_service(url: str, options: Options) -> None:
    """Raise UllageError, which says how to ask it, where a running service answers at a URL: it gives reports, not samples for one."""
    if (client := running_service(url.partition("/api/v1")[0], options)) is not None:
        raise UllageError(
            f"{client.shown} is a running Ullage service, which gives reports and not samples for one",
            f"its report: curl '{client.shown}/api/v1/fleet?form=text' (with a token: -H 'Authorization: Bearer …'); "
            f"its GPUs now: ullage top --source {client.shown}; or name the store or the Prometheus that it reads",
        )


def reader_of(client: Client) -> Callable[[str, Options, Problems], Iterator[pa.RecordBatch]]:
    """Return what reads a service as `read_samples` reads a place: its last minutes, of whatever time they are."""
    return lambda _place, _options, problems: read_service(client, problems)


def _path(url: str) -> str:
    try:
        return urlsplit(url).path.rstrip("/")
    except ValueError:
        return ""
