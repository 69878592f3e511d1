"""The Prometheus API reader against a real Prometheus and a real VictoriaMetrics."""

from __future__ import annotations

import gzip
import math
import random
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

import ullage.sources.prometheus as module
from tests.fleet.servers import get, prometheus, say, scripted, victoria_metrics, wait_for
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.sources.http import Client, ServerError
from ullage.sources.prometheus import read_server, recognise
from ullage.sources.prometheus_routes import PrometheusRange, Route, export, grid, instant, interval
from ullage.sources.source import Options, Place, read_samples

SM, TENSOR, CLOCK = "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_SM_CLOCK"
FIELD = {SM: "sm_active", TENSOR: "tensor_active", CLOCK: "sm_clock"}
T = 1_700_000_000_000  # ms
DAY = 86_400_000
Readings = dict[tuple[str, int], dict[str, float]]  # (device, ms): field -> value


def written() -> Readings:
    """A day of two devices, every 30 s at their own phase; the second is silent from hour 9 to 10, and reads NaN once."""
    dice = random.Random(7)
    rows: Readings = {}
    for device, phase in (("GPU-a", 125), ("GPU-b", 17_250)):
        for number in range(2880):
            if device == "GPU-b" and 1080 <= number < 1200:
                continue
            row = {SM: round(dice.random(), 6), TENSOR: round(dice.random(), 6), CLOCK: float(dice.randrange(1200, 1981, 15))}
            rows[device, T + phase + 30_000 * number] = row
    rows["GPU-b", T + 17_250][TENSOR] = math.nan
    return rows


def exposition(rows: Readings, stamp: Callable[[int], str], typed: bool) -> str:
    lines = []
    for metric in FIELD:
        if typed:
            lines.append(f"# TYPE {metric} gauge")
        for (device, ms), row in rows.items():
            labels = f'gpu="0",UUID="{device}",Hostname="n1",modelName="NVIDIA H100 80GB HBM3"'
            lines.append(f"{metric}{{{labels}}} {'NaN' if math.isnan(row[metric]) else repr(row[metric])} {stamp(ms)}")
    return "\n".join(lines) + "\n"


def seconds(ms: int) -> str:
    return f"{ms // 1000}.{ms % 1000:03d}"


@pytest.fixture(scope="module")
def old_prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus(tmp_path_factory.mktemp("prometheus"), history=exposition(written(), seconds, typed=True)) as url:
        yield url


@pytest.fixture(scope="module")
def old_victoria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with victoria_metrics(tmp_path_factory.mktemp("victoria"), history=exposition(written(), str, typed=False)) as url:
        yield url


def expected(since: int = T, until: int = T + DAY) -> Readings:
    """What should come back: single precision, Hz, NaN as nothing."""
    import numpy as np

    found: Readings = {}
    for (device, ms), row in written().items():
        if since < ms <= until:
            told = {
                FIELD[name]: float(np.float32(value * (1e6 if name == CLOCK else 1)))
                for name, value in row.items()
                if not math.isnan(value)
            }
            found[device, ms] = told
    return found


def collect(
    url: str, problems: Problems | None = None, route: Route | None = None, since: int = T, until: int = T + DAY, **more: object
) -> Readings:
    options = Options(since=since, until=until, **more)  # type: ignore[arg-type]
    problems = problems if problems is not None else Problems()
    batches = read_server(Client(url, options), options, problems, route) if route else read_samples(url, options, problems)
    found: Readings = {}
    for batch in batches:
        for row in batch.select(["time", "gpu", *FIELD.values()]).to_pylist():
            key = row["gpu"], round(row["time"].timestamp() * 1000)
            assert key not in found, "a reading came twice"
            found[key] = {name: row[name] for name in FIELD.values() if row[name] is not None}
    return found


# -- a day of known readings ------------------------------------------------------------------------------------------


def test_prometheus_gives_back_every_reading_as_it_was_written(old_prometheus: str) -> None:
    assert collect(old_prometheus) == expected()


def test_victoria_metrics_gives_back_every_reading_as_it_was_written(old_victoria: str) -> None:
    assert collect(old_victoria) == expected()


def test_victoria_metrics_gives_the_same_by_range_selectors(old_victoria: str) -> None:
    assert collect(old_victoria, route=instant) == expected()


def test_query_range_finds_the_true_readings_and_fills_no_silence(old_prometheus: str) -> None:
    # four hours around the silent one, asked every 15 s: nothing is carried into the gap, no time is the grid's
    since, until = T + 8 * 3_600_000, T + 12 * 3_600_000
    assert collect(old_prometheus, route=grid(15_000), since=since, until=until) == expected(since, until)


def test_the_interval_is_found_from_the_readings(old_prometheus: str) -> None:
    client = Client(old_prometheus, Options())
    assert interval(client, SM, PrometheusRange(T, T + 3_600_000), Problems()) == 30_000
    assert interval(client, SM, PrometheusRange(T - DAY, T - DAY + 3_600_000), Problems()) == 30_000  # nothing there: DCGM's default


@pytest.mark.parametrize("name", ["old_prometheus", "old_victoria"])
def test_neighbouring_chunks_share_no_reading_and_lose_none(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # chunks of 30 s that begin and end exactly at a reading
    monkeypatch.setattr(module, "FIRST", 30_000)
    monkeypatch.setattr(module, "MOST_READINGS", 1)
    since, until = T + 125, T + 125 + 20 * 30_000
    assert collect(request.getfixturevalue(name), since=since, until=until) == expected(since, until)


def test_chunks_grow_to_what_an_answer_may_hold(old_prometheus: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_READINGS", 240)  # two devices every 30 s: an hour
    words: list[str] = []
    assert collect(old_prometheus, progress=words.append) == expected()
    hours = [float(word.split()[1].split("/")[0]) for word in words if word.startswith(SM)]
    assert words[-1].endswith("/24 h")
    assert 24 <= len(hours) <= 40
    assert hours == sorted(hours)


def test_another_cluster_name_goes_where_the_labels_have_none(old_prometheus: str) -> None:
    options = Options(since=T, until=T + 60_000, cluster="west")
    clusters = {name for batch in read_samples(old_prometheus, options) for name in batch["cluster"].to_pylist()}
    assert clusters == {"west"}


@pytest.mark.parametrize("name", ["old_prometheus", "old_victoria"])
def test_a_time_without_readings_is_an_error_or_a_note(name: str, request: pytest.FixtureRequest) -> None:
    # a server may or may not know that it had no such metric at that time
    problems = Problems()
    try:
        assert collect(request.getfixturevalue(name), problems, since=T - 9 * DAY, until=T - 8 * DAY) == {}
        assert "holds no readings from 2023-11-05T22:13:20Z to 2023-11-06T22:13:20Z" in problems.notes[0]
    except UllageError as error:
        assert "has no GPU metric that Ullage knows between 2023-11-05T22:13:20Z" in error.problem


def test_a_bad_query_is_told_in_the_servers_words(old_prometheus: str) -> None:
    with pytest.raises(ServerError, match=r"refused: bad_data: .*parse error"):
        Client(old_prometheus, Options()).get("/api/v1/query", {"query": "sum("})


def test_a_saved_answer_of_the_real_server_reads_like_the_server(old_prometheus: str, old_victoria: str, tmp_path: Path) -> None:
    until = T + 3_600_000
    asked = Client(old_prometheus, Options()).get(
        "/api/v1/query", {"query": f'{{__name__=~"DCGM.*"}}[{until - T - 1}ms]', "time": seconds(until)}
    )
    exported = Client(old_victoria, Options()).get("/api/v1/export", {"match[]": '{gpu="0"}', "start": seconds(T), "end": seconds(until)})
    for name, body in (("range.json", asked), ("export.jsonl.gz", gzip.compress(exported))):
        (tmp_path / name).write_bytes(body)
        assert collect(str(tmp_path / name)) == expected(T, until)


@pytest.mark.parametrize("name", ["old_prometheus", "old_victoria"])
def test_a_plain_url_of_a_server_is_recognised_and_other_paths_are_not(name: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(name)
    assert (
        recognise(Place(url))
        == recognise(Place(url + "/"))
        == recognise(Place(url + "/api/v1"))
        == recognise(Place("prometheus+" + url))
        == 2
    )
    assert recognise(Place(url + "/metrics")) == recognise(Place(url + "/nowhere/prometheus")) == 0


def test_compressed_answers_are_read(old_prometheus: str) -> None:
    # over loopback nothing is compressed, so it is asked for here
    assert collect(old_prometheus, until=T + 3_600_000, headers={"Accept-Encoding": "gzip"}) == expected(T, T + 3_600_000)


def test_export_is_empty_where_nothing_matches(old_victoria: str) -> None:
    assert list(export(Client(old_victoria, Options()), "nothing", PrometheusRange(T, T + 1000), Problems())) == []


# -- live -------------------------------------------------------------------------------------------------------------


def exporter(handler: BaseHTTPRequestHandler) -> None:
    labels = 'gpu="0",UUID="GPU-live",modelName="NVIDIA H100 80GB HBM3",Hostname="n1",pod="train-0",namespace="ml"'
    say(handler, f"# TYPE {SM} gauge\n{SM}{{{labels}}} 0.5\n{CLOCK}{{{labels}}} 1980\n", kind="text/plain; version=0.0.4")


@pytest.mark.parametrize("start", [prometheus, pytest.param(victoria_metrics, marks=pytest.mark.full)])
def test_what_a_server_scrapes_from_an_exporter_arrives_in_whole_rows(start: Callable[..., object], tmp_path: Path) -> None:
    with scripted(exporter) as page, start(tmp_path, targets=[page.removeprefix("http://")]) as url:  # type: ignore[attr-defined]
        query = f"{url}/api/v1/query?query=count_over_time({SM}[1m])%3E3"
        wait_for(lambda: b"GPU-live" in (get(query) or b""))
        until = round(time.time() * 1000)
        rows: list[dict[str, object]] = []

        def settled() -> bool:
            """VictoriaMetrics shows the series of one scrape some time after it, and not all at once: ask until all are there."""
            rows[:] = [row for batch in read_samples(url, Options(until=until)) for row in batch.to_pylist()]
            return len(rows) >= 3 and all(row["sm_active"] is not None and row["sm_clock"] is not None for row in rows)

        wait_for(settled)
    assert {(row["sm_active"], row["sm_clock"]) for row in rows} == {(0.5, 1.98e9)}
    assert {(row["gpu"], row["host"], row["pod"], row["namespace"], row["job"]) for row in rows} == {
        ("GPU-live", "n1", "train-0", "ml", "ml/train-0")
    }
