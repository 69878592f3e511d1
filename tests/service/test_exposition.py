"""`/metrics`: readable by Prometheus' own tools, gauges equal to the fleet's answer, counters that only grow and add up."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from tests.fleet.servers import program, prometheus, wait_for
from tests.service.running import T0, Client, hour, service, small_store
from ullage.errors import NoSampleError, UllageError
from ullage.service.exposition import MetricFamily, written
from ullage.service.settings import ServiceSettings
from ullage.service.totals import CountedTotals, TotalsBook, due_hours
from ullage.store.store import Store
from ullage.units import HOUR_MS


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(home))
        place = small_store(home)
        Store.open(place).append([hour(start=120, minutes=90), hour(start=120, minutes=90, job="ml/train-0", user="bob", host="n2")])
        with service(ServiceSettings(source=str(place), answer_limit="600s")) as asking:
            served = asking.running.service
            assert served.totals is not None
            served.totals.count(served.state.store.window())  # here and now: the service does the same when it comes to it
            # what the gauges are of is made, however long that takes, so that no scrape waits for it
            asyncio.run(asyncio.wait_for(_answer_of_gauges(asking), 600))
            yield asking


async def _answer_of_gauges(asking: Client) -> None:
    while "ullage_ofu_ratio" not in (await asyncio.to_thread(asking, "/metrics")).text:
        await asyncio.sleep(0.05)


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in openmetrics(text) for one in family.samples}


def test_gauges_are_the_answer_and_counters_its_whole_hours(client: Client) -> None:
    heard = client("/metrics")
    assert heard.status == 200 and heard.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    found, answer = values(heard.text), client("/api/v1/fleet?since=24h").json
    assert found[("ullage_ofu_ratio", ())] == answer["ofu"]
    assert found[("ullage_gpus", ())] == 8
    assert found[("ullage_series", (("verdict", "ok"),))] == answer["trust"]["verdicts"]["ok"]["series"]
    for row in answer["losses"]:
        assert found[("ullage_window_loss_gpu_seconds", (("factor", row["name"]),))] == pytest.approx(row["gpu_hours"] * 3600)
    # samples reach to 2:30, and readings may be ten minutes late: the two hours before count
    counted = client("/api/v1/fleet?until=2026-08-10T02:00:00Z").json
    assert found[("ullage_counted_until_timestamp_seconds", ())] == (T0 + 2 * HOUR_MS) / 1000
    for owner, hours in counted["ledger"].items():
        if owner != "total":
            assert found[("ullage_gpu_seconds_total", (("owner", owner),))] == pytest.approx(hours * 3600)
    for row in counted["losses"]:
        lost, gained = (found[(f"ullage_{word}_gpu_seconds_total", (("factor", row["name"]),))] for word in ("loss", "gain"))
        assert lost - gained == pytest.approx(row["gpu_hours"] * 3600) and min(lost, gained) == 0
    assert found[("ullage_ready", ())] == 1 and found[("ullage_answers_total", ())] > 0
    assert found[("ullage_requests_total", (("status", "200"),))] > 0


def test_both_formats_are_read_by_a_parser_of_others(client: Client) -> None:
    old = client("/metrics", headers={"Accept": "text/plain"})
    assert old.headers["content-type"].startswith("text/plain; version=0.0.4")
    names = {one.name for family in plain(old.text) for one in family.samples}
    new = client("/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"})
    assert names == {one.name for family in openmetrics(new.text) for one in family.samples}
    assert new.text.endswith("# EOF\n") and "# EOF" not in old.text


def test_promtool_finds_nothing(client: Client) -> None:
    done = subprocess.run(
        [program("promtool"), "check", "metrics"], input=client("/metrics", headers={"Accept": "text/plain"}).body, capture_output=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_a_real_prometheus_scrapes_it(client: Client, tmp_path: Path) -> None:
    with prometheus(tmp_path, [f"127.0.0.1:{client.port}"], interval="1s") as url:

        def asked(query: str) -> list[Any]:
            with urllib.request.urlopen(f"{url}/api/v1/query?query={query}") as answer:
                return json.loads(answer.read())["data"]["result"]

        wait_for(lambda: asked("ullage_ofu_ratio") != [])
        assert float(asked("ullage_ofu_ratio")[0]["value"][1]) == client("/api/v1/fleet?since=24h").json["ofu"]
        assert {one["metric"]["owner"] for one in asked("ullage_gpu_seconds_total")} >= {"job", "held_idle", "unknown"}
        assert asked("max_over_time(up[1h])")[0]["value"][1] == "1"


def test_before_there_is_anything_only_the_service_tells_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    place = small_store(tmp_path)
    with service(ServiceSettings(source=str(place))) as client:
        (place / "manifest.json").rename(tmp_path / "away")
        found = values(client("/metrics").text)
        assert found[("ullage_ready", ())] == 0 and not any(name.startswith("ullage_ofu") for name, _ in found)
        (tmp_path / "away").rename(place / "manifest.json")


def test_hostile_labels_stay_in_their_quotes() -> None:
    name = 'a"b\\c\nd\x1b{}='
    text = written([MetricFamily("ullage_x", "gauge", 'says "x"\n', (({"model": name}, 1.0),))])
    found = next(iter(openmetrics(text))).samples[0]
    assert len(text.splitlines()) == 4 and found.value == 1.0 and found.labels["model"].startswith('a"b\\c')


# --- counters ---


def test_an_hour_counts_when_nothing_of_it_can_be_late_any_more() -> None:
    # an hour counts ten minutes after its end, by the samples' own clock
    end = T0 + HOUR_MS + 600_000
    assert due_hours(None, (T0, end - 1)) is None
    assert due_hours(None, (T0, end)) == (T0, T0 + HOUR_MS)
    assert due_hours(T0 + HOUR_MS, (T0, end)) is None
    # a store that lost its older days, or samples of a clock that is behind: nothing is counted again
    assert due_hours(T0 + 5 * HOUR_MS, (T0, end)) is None


@pytest.mark.parametrize("seed", range(20))
def test_counters_never_fall_and_go_on_after_a_restart(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    lost = [{name: rng.uniform(-1, 5) for name in ("clock", "activity")} for _ in range(48)]
    owned = [{"job": rng.uniform(0, 8), "free": rng.uniform(0, 8), "total": 99.0} for _ in range(48)]
    silent = {number for number in range(48) if rng.random() < 0.1}

    def document(since: int, until: int) -> dict[str, Any]:
        hours = range((since - T0) // HOUR_MS, (until - T0) // HOUR_MS)
        known = [number for number in hours if number not in silent]
        if not known:
            raise NoSampleError("there is no sample in the window")
        sums = {name: sum(lost[number][name] for number in known) for name in ("clock", "activity")}
        ledger = {name: sum(owned[number][name] for number in known) for name in ("job", "free", "total")}
        return {"losses": [{"name": name, "gpu_hours": hours} for name, hours in sums.items()], "ledger": ledger}

    book, before, last = TotalsBook(tmp_path / "counted.json", document), CountedTotals(), T0
    while last < T0 + 47 * HOUR_MS:
        last = min(T0 + 47 * HOUR_MS, last + rng.choice((60_000, 40 * 60_000, 3 * HOUR_MS)))
        if rng.random() < 0.2:
            book = TotalsBook(tmp_path / "counted.json", document)
        book.count((T0, last))
        for part in ("owned", "lost", "gained"):
            now = getattr(book.totals, part)
            assert all(now[name] >= value for name, value in getattr(before, part).items())
        before = book.totals
    assert before.until is not None
    counted = [number for number in range((before.until - T0) // HOUR_MS) if number not in silent]
    assert before.owned == pytest.approx({name: 3600 * sum(owned[number][name] for number in counted) for name in ("job", "free")})
    net = {name: before.lost[name] - before.gained[name] for name in before.lost}
    assert net == pytest.approx({name: 3600 * sum(lost[number][name] for number in counted) for name in ("clock", "activity")})


@pytest.mark.parametrize("problem", [UllageError("a part is damaged"), MemoryError(), OSError("a full disk")])
def test_hours_that_can_not_be_read_are_counted_once_they_can(tmp_path: Path, problem: Exception) -> None:
    outcomes: list[Any] = [problem, problem, {"losses": [{"name": "clock", "gpu_hours": 2.0}], "ledger": {"job": 4.0, "total": 4.0}}]

    def document(*_: int) -> dict[str, Any]:
        if isinstance(outcome := outcomes.pop(0), Exception):
            raise outcome
        return outcome

    book, window = TotalsBook(tmp_path / "counted.json", document), (T0, T0 + HOUR_MS + 600_000)
    for failures in (1, 2):
        with pytest.raises(type(problem)):
            book.count(window)
        assert book.failures == failures and book.totals == TotalsBook(tmp_path / "counted.json", document).totals == CountedTotals()
    book.count(window)
    assert book.totals.owned == {"job": 4.0 * 3600} and book.totals.until == T0 + HOUR_MS
    book.count(window)
    assert outcomes == []


def test_a_damaged_part_is_no_hour_without_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    place = small_store(tmp_path)
    Store.open(place).append([hour(start=120, minutes=90)])
    whole = {part: part.read_bytes() for part in (place / "samples").rglob("*.parquet")}
    for part, content in whole.items():
        middle = len(content) // 2
        part.write_bytes(content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :])
    with service(ServiceSettings(source=str(place))) as asking:
        totals, store = asking.running.service.totals, asking.running.service.state.store
        assert totals is not None
        with pytest.raises(UllageError, match="not as it was written"):
            totals.count(store.window())
        assert totals.totals == CountedTotals()
        for part, content in whole.items():
            part.write_bytes(content)
        totals.count(store.window())
        assert totals.totals.owned["job"] > 0


def test_a_damaged_file_of_counters_begins_again(tmp_path: Path) -> None:
    (tmp_path / "counted.json").write_text("{")
    assert TotalsBook(tmp_path / "counted.json", lambda *_: {}).totals == CountedTotals()
