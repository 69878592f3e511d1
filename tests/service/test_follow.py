"""A source that is followed: what came is stored once, whatever dies in between, and pages say what they rest on."""

from __future__ import annotations

import io
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import ask
from tests.fleet.servers import prometheus, say, scripted, wait_for
from tests.seeds import some
from tests.service.fake_prometheus import METRICS, FakePrometheus, fake_prometheus
from tests.service.running import T0, hour, service
from ullage.intake import take
from ullage.problems import Problems
from ullage.service import watermarks
from ullage.service.follow import Follower, FollowPlan
from ullage.service.logs import ServiceLog
from ullage.service.settings import ServiceSettings
from ullage.service.state import FollowedSource
from ullage.service.watermarks import OVERLAP_MS, SourceWatermark
from ullage.sources.source import Options
from ullage.store.store import Store
from ullage.units import HOUR_MS

MINUTE_MS = 60_000


class Followed:
    """A follower whose turns are taken by hand, at the times of a fake server."""

    def __init__(self, url: str, folder: Path, fake: FakePrometheus, others: tuple[str, ...] = (), **more: Any) -> None:
        self.said: list[FollowedSource] = []
        plan = FollowPlan((url, *others), folder / "store", options=Options(retries=0), **more)
        self.follower = Follower(plan, ServiceLog(stream=io.StringIO()), self.said.append, clock=lambda: fake.now_ms / 1000)
        self.store = folder / "store"

    @property
    def state(self) -> FollowedSource:
        return self.follower.state

    def turn(self) -> FollowedSource:
        self.follower.turn()
        return self.state


def rows_of(store: Path) -> list[dict[str, Any]]:
    table = Store.open(store).samples().to_pyarrow().to_pylist()
    return sorted(table, key=lambda row: (row["gpu"], row["time"]))


def whole(url: str, folder: Path, fake: FakePrometheus) -> list[dict[str, Any]]:
    """What one reading of everything gives."""
    store = Store.open(folder / "whole", create=True)
    take(store, [url], None, options=Options(since=fake.start_ms - OVERLAP_MS, until=fake.now_ms), problems=Problems())
    return rows_of(folder / "whole")


def test_what_is_new_is_read_once_a_turn(tmp_path: Path) -> None:
    with fake_prometheus(start_ms=T0, now_ms=T0 + HOUR_MS) as (fake, url):
        followed = Followed(url, tmp_path, fake)
        assert followed.turn().rows == 2 * 120 and followed.state.problem == ""
        fake.now_ms += 5 * MINUTE_MS
        fake.asked.clear()
        assert followed.turn().rows == 2 * 130
        # no more than the five minutes and what may have come late is asked for
        spans = [int(found[1]) for path in fake.asked if (found := re.search(r"%5B(\d+)ms%5D", path))]
        assert sum(spans) == len(METRICS) * (5 * MINUTE_MS + OVERLAP_MS)
        assert rows_of(followed.store) == whole(url, tmp_path, fake)


def test_a_service_that_starts_again_goes_on_where_its_store_ends(tmp_path: Path) -> None:
    with fake_prometheus(start_ms=T0, now_ms=T0 + HOUR_MS) as (fake, url):
        first = Followed(url, tmp_path, fake)
        first.turn()
        first.follower.stop()
        fake.now_ms += HOUR_MS
        again = Followed(url, tmp_path, fake, first_ms=MINUTE_MS)
        assert again.turn().rows == 2 * 120
        assert rows_of(again.store) == whole(url, tmp_path, fake)


def test_a_host_whose_clock_is_ahead_hides_nobodys_samples_from_a_service_that_starts_again(tmp_path: Path) -> None:
    with fake_prometheus(start_ms=T0, now_ms=T0 + HOUR_MS) as (fake, url):
        first = Followed(url, tmp_path, fake)
        first.turn()
        first.follower.stop()
        Store.open(first.store).append([hour(start=120, minutes=180, host="ahead")])  # three hours ahead of the others
        fake.now_ms += HOUR_MS
        again = Followed(url, tmp_path, fake)
        assert again.turn().rows == 2 * 120
        # nor where nobody knows any more how far it was read
        again.follower.stop()
        (first.store / watermarks.NAME).unlink()
        fake.now_ms += HOUR_MS
        last = Followed(url, tmp_path, fake)
        assert last.turn().rows == 2 * 120


@pytest.mark.parametrize("seed", some(range(5_000), quick=20))
def test_every_sample_of_hosts_that_lag_is_asked_for_once_it_is_there(seed: int) -> None:
    # A source as a list of samples: when each is of, and from when on the source has it. No store, no server: only what is asked for.
    rng = random.Random(seed)
    lags = {f"n{number}": rng.choice((0, 20_000, 9 * MINUTE_MS, 25 * MINUTE_MS, HOUR_MS)) for number in range(4)}
    starts = {host: T0 + rng.choice((0, 0, 3, 7)) * HOUR_MS for host in lags}
    pauses = {host: rng.choice((None, T0 + 5 * HOUR_MS)) for host in lags}
    there = [
        (host, time, time + lag)
        for host, lag in lags.items()
        for time in range(starts[host] + 30_000, T0 + 12 * HOUR_MS, 30_000)
        if pauses[host] is None or not pauses[host] < time < pauses[host] + 4 * HOUR_MS
    ]
    missing = set(there)
    now, mark = T0 + rng.choice((1, 2)) * MINUTE_MS, SourceWatermark(T0, T0)
    while now < T0 + 17 * HOUR_MS:
        since = mark.since(now)
        read = [one for one in there if since < one[1] <= now and one[2] <= now]
        missing -= set(read)
        if rng.random() < 0.9:  # else it died before it kept how far it was
            mark = mark.read(now, now)
        now += rng.choice((MINUTE_MS, 5 * MINUTE_MS, 5 * MINUTE_MS, 40 * MINUTE_MS))
    assert missing == set()


def test_once_an_hour_what_is_late_is_asked_for_again() -> None:
    # a minute after it was read whole: ten minutes more
    assert SourceWatermark(T0, T0 - MINUTE_MS).since(T0 + MINUTE_MS) == T0 - OVERLAP_MS
    # an hour after the last time: an hour before that, too
    assert SourceWatermark(T0 + HOUR_MS - 1, T0).since(T0 + HOUR_MS - 1) == T0 + HOUR_MS - 1 - OVERLAP_MS
    assert SourceWatermark(T0 + HOUR_MS, T0).since(T0 + HOUR_MS) == T0 - HOUR_MS
    # after a day's pause the day as well
    assert SourceWatermark(T0, T0 - MINUTE_MS).since(T0 + 24 * HOUR_MS) == T0 - MINUTE_MS - HOUR_MS
    # our own clock was an hour ahead and is set right
    assert SourceWatermark(T0 + HOUR_MS, T0 + HOUR_MS).since(T0) == T0 - OVERLAP_MS


def test_a_source_that_is_gone_keeps_no_other_waiting(tmp_path: Path) -> None:
    with (
        fake_prometheus(start_ms=T0, now_ms=T0 + HOUR_MS, alive_for=0) as (gone, dead),
        fake_prometheus(start_ms=T0, now_ms=T0 + HOUR_MS, gpus=2) as (fake, url),
    ):
        followed = Followed(dead, tmp_path, fake, others=(url,))
        assert followed.turn().problem and Store.open(followed.store).info().rows == 2 * 120
        fake.now_ms += HOUR_MS
        gone.alive_for, gone.now_ms = None, fake.now_ms
        assert followed.turn().problem == ""
        assert Store.open(followed.store).info().rows == 2 * 240  # both tell of the same GPUs


def test_what_is_kept_of_a_source_tells_no_secret(tmp_path: Path) -> None:
    with fake_prometheus(start_ms=T0, now_ms=T0 + HOUR_MS) as (fake, url):
        followed = Followed(url.replace("http://", "http://ann:s3cret@") + "?token=t0ken", tmp_path, fake)
        followed.turn()
        kept = (followed.store / watermarks.NAME).read_text()
        assert "s3cret" not in kept and "t0ken" not in kept and "127.0.0.1" in kept


@pytest.mark.parametrize("seed", some(range(300), quick=1))
def test_whatever_dies_and_comes_back_every_reading_counts_once(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with fake_prometheus(start_ms=T0, now_ms=T0 + 30 * MINUTE_MS, gpus=3, late=(0, 90_000, OVERLAP_MS // 2)) as (fake, url):
        followed = Followed(url, tmp_path, fake)
        for _ in range(rng.randint(3, 8)):
            fake.alive_for = rng.choice((None, None, rng.randint(0, 30)))
            state = followed.turn()
            assert (state.problem == "") == (state.failing_since is None)
            if rng.random() < 0.2:
                followed.follower.stop()
                followed = Followed(url, tmp_path, fake)  # killed, and started again
            fake.now_ms += rng.choice((30_000, 60_000, 7 * MINUTE_MS, HOUR_MS))
        fake.alive_for = None
        assert followed.turn().problem == ""
        fake.now_ms += OVERLAP_MS  # what is late has come
        fake.late = ()
        assert followed.turn().problem == ""
        assert [row["time"] for row in rows_of(followed.store)] == [row["time"] for row in whole(url, tmp_path, fake)]
        assert rows_of(followed.store) == whole(url, tmp_path, fake)


def test_a_server_that_is_gone_is_said_since_when(tmp_path: Path) -> None:
    with fake_prometheus(start_ms=T0, now_ms=T0 + HOUR_MS, alive_for=0) as (fake, url):
        followed = Followed(url, tmp_path, fake)
        first = followed.turn()
        fake.now_ms += 3 * HOUR_MS
        second = followed.turn()
        assert first.failing_since == second.failing_since == (T0 + HOUR_MS) / 1000
        assert (second.failures, second.pulls) == (2, 0) and second.problem
        fake.alive_for = None
        third = followed.turn()
        assert third.failing_since is None and third.rows == 2 * 480


def test_one_process_follows_and_the_next_takes_over(tmp_path: Path) -> None:
    with fake_prometheus(start_ms=T0, now_ms=T0 + HOUR_MS) as (fake, url):
        first, second = Followed(url, tmp_path, fake), Followed(url, tmp_path, fake)
        assert first.turn().writes
        assert not second.turn().writes and second.state.rows == 0
        first.follower.stop()
        fake.now_ms += MINUTE_MS
        assert second.turn().writes and second.state.rows == 2 * 2
        assert not first.turn().writes


def test_pages_say_that_the_database_is_gone_and_catch_up(tmp_path: Path) -> None:
    import time

    now = round(time.time() * 1000)
    with fake_prometheus(start_ms=now - HOUR_MS, now_ms=now, alive_for=0) as (fake, url):
        settings = ServiceSettings(source=url, store=str(tmp_path / "store"), every="0.1s")
        with service(settings) as client:
            wait_for(lambda: "has not been read for" in (client("/readyz").json["because"] or ""))
            assert client("/readyz").status == client("/").status == 503
            assert "has not been read for" in client("/").text
            fake.alive_for = None
            wait_for(lambda: client("/readyz").status == 200)
            page = client("/").text
            assert "has not been read" not in page and "<strong" in page
            before = client("/api/v1/fleet").json["gpu_hours"]
            fake.alive_for = 0
            wait_for(lambda: "has not been read for" in client("/").text)
            assert client("/readyz").status == 200 and "What is shown was read" in client("/").text
            fake.alive_for, fake.now_ms = None, now + 10 * MINUTE_MS  # its clock is ahead: what it holds is what counts
            wait_for(lambda: "has not been read for" not in client("/").text)
            assert client("/api/v1/fleet").json["gpu_hours"] == pytest.approx(before, abs=0.01)


def test_a_folder_is_read_again_when_a_file_appears(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = tmp_path / "samples"
    place.mkdir()
    pq.write_table(pa.Table.from_batches([hour()]), place / "a.parquet")
    with service(ServiceSettings(source=str(place), store=str(tmp_path / "store"), every="0.1s")) as client:
        wait_for(lambda: client("/readyz").status == 200)
        assert client("/api/v1/fleet").json["gpus"] == 4
        pq.write_table(pa.Table.from_batches([hour(host="n2", job="5")]), place / "b.parquet")
        wait_for(lambda: client("/api/v1/fleet").json["gpus"] == 8)
        pulls = client.running.service.state.following.pulls
        wait_for(lambda: client.running.service.state.following.pulls > pulls)
        assert client("/api/v1/store/info").json["rows"] == 2 * 4 * 120


def test_nothing_is_named_and_a_simulated_fleet_says_that_it_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ullage.service import start

    monkeypatch.setattr(start, "DEMO_GPUS", 8)
    monkeypatch.setattr(start, "DEMO_HOURS", 1.0)
    monkeypatch.setattr(start, "nvml_answers", lambda: False)
    with service(ServiceSettings()) as client:
        wait_for(lambda: client("/readyz").status == 200)
        assert "This is a simulated fleet" in client("/").text
        folder = client.running.service.state.store.path
        assert folder.exists()
    assert not folder.exists()


def test_a_real_prometheus_is_followed(tmp_path: Path) -> None:
    lines = [f'{name}{{gpu="0",UUID="GPU-0",Hostname="n1",modelName="NVIDIA H100 80GB HBM3"}} {value}' for name, value in METRICS.items()]
    page = "\n".join(lines) + "\n"
    with scripted(lambda handler: say(handler, page, kind="text/plain; version=0.0.4")) as target:
        (tmp_path / "server").mkdir()
        with prometheus(tmp_path / "server", [target.removeprefix("http://")], interval="1s") as url:
            follower = Follower(FollowPlan((url,), tmp_path / "store"), ServiceLog(stream=io.StringIO()), lambda _: None)

            def rows() -> int:
                follower.turn()
                return Store.open(tmp_path / "store").info().rows if follower.state.pulls else 0

            wait_for(lambda: rows() >= 3)
            wait_for(lambda: rows() >= 5)
            times = [row["time"] for row in rows_of(tmp_path / "store")]
            assert len(times) == len(set(times)) == follower.state.rows
            said = ask("fleet", tmp_path / "store", "--json").json
            assert said["gpus"] == 1 and json.dumps(said)
