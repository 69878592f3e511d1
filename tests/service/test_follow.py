"""A source that is followed: what came is stored once, whatever dies in between, and pages say what they rest on."""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import random
import re
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tests.command_line import ask
from tests.fleet.servers import prometheus, say, scripted, wait_for
from tests.seeds import some
from tests.service.fake_prometheus import METRICS, FakePrometheus, fake_prometheus
from tests.service.running import T0, hour, service
from ullage.intake import take
from ullage.problems import Problems
from ullage.service import watermarks
from ullage.service.follow import HELD_MS, Follower, FollowPlan
from ullage.service.logs import ServiceLog
from ullage.service.pseudonyms import Pseudonyms
from ullage.service.settings import ServiceSettings
from ullage.service.state import FollowedSource, ServiceState
from ullage.service.watched import WatchedStore
from ullage.service.watermarks import OVERLAP_MS, SourceWatermark
from ullage.sources.source import Options
from ullage.store.old_names import NO_LONGER_KNOWN
from ullage.store.store import Store
from ullage.tables import Flag
from ullage.units import DAY_MS, HOUR_MS

MINUTE_MS = 60_000


class Followed:
    """A follower whose turns are taken by hand, at the times of a fake server."""

    def __init__(self, url: str, folder: Path, fake: FakePrometheus, others: tuple[str, ...] = (), **more: Any) -> None:
        self.said: list[FollowedSource] = []
        more.setdefault("first_ms", 6 * HOUR_MS)
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


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without what says in which order they came."""
    return [row | {"flags": row["flags"] & ~Flag.REORDERED} for row in rows]


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


def test_a_clock_that_is_set_back_an_hour_keeps_no_turn_waiting_and_loses_nothing(tmp_path: Path) -> None:
    with fake_prometheus(start_ms=T0, now_ms=T0 + 2 * HOUR_MS) as (fake, url):
        followed = Followed(url, tmp_path, fake, every=0.01)

        def said(state: FollowedSource) -> None:
            if state.pulls > followed.follower.state.pulls or state.pulls == len(jumps):
                return
            fake.now_ms += jumps[state.pulls]

        jumps = (MINUTE_MS, -HOUR_MS, MINUTE_MS, HOUR_MS + 5 * MINUTE_MS, MINUTE_MS)
        followed.follower._say = said
        followed.follower.start()
        wait_for(lambda: followed.state.pulls >= 6)  # an hour would be waited for otherwise
        assert followed.follower.stop(60)
        again = Followed(url, tmp_path, fake)
        assert again.turn().problem == ""
        assert plain(rows_of(again.store)) == whole(url, tmp_path, fake)


def test_a_server_that_drips_ends_a_turn_and_what_it_has_is_read_when_it_is_well_again(tmp_path: Path) -> None:
    ended = threading.Event()
    with fake_prometheus(start_ms=T0, now_ms=T0 + HOUR_MS) as (fake, url):

        def drip(handler: Any) -> None:
            handler.send_response(200)
            handler.send_header("Content-Length", "1000000")
            handler.end_headers()
            while not ended.wait(0.01):  # never silent for as long as a timeout
                handler.wfile.write(b" ")
                handler.wfile.flush()

        fake.instead = drip
        followed = Followed(url, tmp_path, fake, turn_s=0.3)
        assert "had not answered when the deadline passed" in followed.turn().problem
        ended.set()
        fake.instead = None
        assert followed.turn().problem == ""
        assert rows_of(followed.store) == whole(url, tmp_path, fake)


WRONG = {
    "a page of a proxy": (200, "<html>Bad gateway</html>"),
    "an error": (500, '{"status":"error","errorType":"internal","error":"disk"}'),
    "half an answer": (200, '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"DCGM'),
    "no metrics": (200, '{"status":"success","data":[]}'),
    "no samples": (200, '{"status":"success","data":{"resultType":"matrix","result":[]}}'),
    "another kind": (200, '{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}'),
    "nothing": (200, ""),
    "a number": (200, "1e999"),
}
QUICKLY = (("no samples", False), ("half an answer", False))


@pytest.mark.parametrize(
    ("wrong", "everywhere"),
    [pytest.param(*both, marks=[] if both in QUICKLY else pytest.mark.full) for both in itertools.product(WRONG, (False, True))],
)
def test_a_server_that_is_wrong_for_an_hour_is_caught_up_with(tmp_path: Path, wrong: str, everywhere: bool) -> None:
    with fake_prometheus(start_ms=T0, now_ms=T0 + 20 * MINUTE_MS) as (fake, url):
        followed = Followed(url, tmp_path, fake)
        followed.turn()
        status, body = WRONG[wrong]

        def answer(handler: Any) -> None:
            if everywhere or "/api/v1/query" in handler.path:
                say(handler, body, status=status)
            else:
                replace(fake, instead=None).answer(handler)

        for _ in range(4):
            fake.now_ms += 15 * MINUTE_MS
            fake.instead = answer
            followed.turn()
        fake.instead = None
        fake.now_ms += MINUTE_MS
        assert followed.turn().problem == ""
        assert plain(rows_of(followed.store)) == whole(url, tmp_path, fake)


def test_counters_wait_for_every_source_and_for_one_that_is_gone_six_hours(tmp_path: Path) -> None:
    with (
        fake_prometheus(start_ms=T0, now_ms=T0 + HOUR_MS) as (fake, url),
        fake_prometheus(start_ms=T0, now_ms=T0 + HOUR_MS, alive_for=0) as (gone, dead),
    ):
        followed = Followed(url, tmp_path, fake, others=(dead,))
        fake.now_ms = T0 + 2 * HOUR_MS
        assert followed.turn().problem
        assert followed.state.read_until == T0 + 2 * HOUR_MS - HELD_MS  # nothing was read of the other one
        gone.alive_for, gone.now_ms = None, fake.now_ms
        assert followed.turn().read_until == T0 + 2 * HOUR_MS
        gone.alive_for = 0
        fake.now_ms += 5 * HOUR_MS
        assert followed.turn().read_until == T0 + 2 * HOUR_MS
        fake.now_ms += 5 * HOUR_MS
        assert followed.turn().read_until == fake.now_ms - HELD_MS
        # samples of a host whose clock is ahead end no hour that others have not come to
        Store.open(followed.store).append([hour(start=24 * 60, minutes=60, host="ahead")])
        state = ServiceState(WatchedStore(followed.store), followed.state)
        assert state.window_read() == (T0 + 30_000, fake.now_ms - HELD_MS)


def test_many_small_parts_are_merged_by_a_service_that_never_lives_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ullage.service.follow.MANY_PARTS", 3)
    with fake_prometheus(start_ms=T0, now_ms=T0 + 10 * MINUTE_MS) as (fake, url):
        counts = []
        for _ in range(4):
            followed = Followed(url, tmp_path, fake)
            followed.turn()
            followed.follower.stop()
            fake.now_ms += MINUTE_MS
            counts.append(len(Store.open(followed.store).manifest().parts))
        assert counts == [1, 2, 1, 2]


@pytest.mark.parametrize("seed", some(range(100), quick=1))
def test_a_disk_that_refuses_at_any_moment_loses_nothing_and_counts_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng, real, left = random.Random(seed), os.fsync, [0]

    def fsync(descriptor: int) -> None:
        left[0] -= 1
        if left[0] == 0:  # at this moment, and not at the next one
            code = rng.choice((errno.EIO, errno.ENOSPC, errno.EDQUOT))
            raise OSError(code, os.strerror(code))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with fake_prometheus(start_ms=T0, now_ms=T0 + 10 * MINUTE_MS, gpus=1) as (fake, url):
        followed, refusals = Followed(url, tmp_path, fake, first_ms=HOUR_MS), 0
        for _ in range(5):
            left[0] = rng.randint(1, 20)
            problem = followed.turn().problem
            refusals += bool(problem)
            assert not problem or "nothing more can be stored in" in problem
            fake.now_ms += 5 * MINUTE_MS
        left[0] = 0
        assert followed.turn().problem == ""
        assert refusals and plain(rows_of(followed.store)) == whole(url, tmp_path, fake)


def test_a_second_instance_says_so_once_and_that_it_is_the_one_once_it_is(tmp_path: Path) -> None:
    with fake_prometheus(start_ms=T0, now_ms=T0 + 10 * MINUTE_MS) as (fake, url):
        first, second = Followed(url, tmp_path, fake, first_ms=HOUR_MS), Followed(url, tmp_path, fake, first_ms=HOUR_MS)
        said = io.StringIO()
        second.follower.log = ServiceLog(stream=said)
        first.turn()
        second.turn()
        second.turn()
        assert said.getvalue().count("another instance fills this store") == 1
        first.follower.stop()
        second.turn()
        assert said.getvalue().count("this instance fills the store") == 1 and second.state.writes


SACCT = """#!/bin/sh
echo "$TZ $*" >> '{folder}/asked'
[ ! -e '{folder}/broken' ] || {{ echo 'slurmdbd: Connection refused' >&2; exit 1; }}
echo 'JobIDRaw|JobID|JobName|User|Cluster|State|Submit|Start|End|NodeList|AllocTRES|AdminComment'
echo 'job-0|job-0|train|ann|east|RUNNING|2026-08-10T00:00:00|2026-08-10T00:00:00|Unknown|n1|gres/gpu=2|'
"""


def exporter_page(stopped: list[bool], scraped: list[str], handler: Any) -> None:
    scraped.append(handler.path)
    page = 'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",Hostname="n1"} 0.4\nDCGM_FI_DEV_SM_CLOCK{gpu="0",Hostname="n1"} 1830\n'
    say(handler, page if handler.path.rstrip("/") in ("", "/metrics") and not stopped else "", 500 if stopped else 200, "text/plain")


@pytest.mark.parametrize("path", ["", "/metrics"])
def test_an_exporter_is_scraped_once_a_turn_however_long_it_was_not_read(tmp_path: Path, path: str) -> None:
    stopped, scraped, now = list[bool](), list[str](), [T0 / 1000]
    with scripted(partial(exporter_page, stopped, scraped)) as url:
        plan = FollowPlan((url + path,), tmp_path / "store", options=Options(retries=0, now=lambda: round(now[0] * 1000)))
        follower = Follower(plan, ServiceLog(stream=io.StringIO()), lambda _: None, clock=lambda: now[0])
        for stops in (False, False, True, False):
            scraped.clear()
            stopped[:] = [True] if stops else []
            follower.turn()
            assert [where for where in scraped if where in ("/", "/metrics")] == [path or "/"]
            assert bool(follower.state.problem) == stops
            now[0] += 24 * 3600
        assert follower.state.rows == len(rows_of(tmp_path / "store")) == 3


def test_slurm_is_asked_for_jobs_every_five_minutes_and_keeps_no_samples_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sacct").write_text(SACCT.format(folder=folder))
    (folder / "sacct").chmod(0o755)
    (folder / "broken").touch()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    with fake_prometheus(start_ms=T0, now_ms=T0 + 10 * MINUTE_MS) as (fake, url):
        followed = Followed(url, tmp_path, fake, jobs=("sacct",), first_ms=HOUR_MS)
        passed = [0.0]
        followed.follower._accounting.passed = lambda: passed[0]
        assert "sacct ended with 1: slurmdbd: Connection refused" in followed.turn().problem
        assert Store.open(followed.store).info().rows == 2 * 20
        (folder / "broken").unlink()
        for minutes, times in ((1, 1), (5, 2), (9, 2), (10, 3)):
            fake.now_ms, passed[0] = T0 + (10 + minutes) * MINUTE_MS, minutes * 60.0
            assert followed.turn().problem == ""
            asked = (folder / "asked").read_text().splitlines()
            assert len(asked) == times
        # the hour before the first answer that is asked for, by our clock; then an hour before the last answer; all in UTC
        assert [line.split("--starttime=")[1].split()[0] for line in asked] == [
            "2026-08-09T23:10:00", "2026-08-09T23:15:00", "2026-08-09T23:15:00"
        ]  # fmt: skip
        assert all(line.startswith("UTC --allusers --allocations --duplicates --parsable2 ") for line in asked)
        assert Store.open(followed.store).jobs().to_pylist()[0]["user"] == "ann"
    assert ServiceSettings(jobs=["sacct"]).jobs == ["sacct"]


def test_job_records_that_are_gone_keep_no_samples_waiting(tmp_path: Path) -> None:
    with fake_prometheus(start_ms=T0, now_ms=T0 + 10 * MINUTE_MS) as (fake, url):
        followed = Followed(url, tmp_path, fake, jobs=(str(tmp_path / "gone.txt"),), first_ms=HOUR_MS)
        assert "there is no file or folder" in followed.turn().problem
        assert Store.open(followed.store).info().rows == 2 * 20


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
            wait_for(lambda: "has not been read" not in client("/").text)  # it says so until all of it was read
            assert client("/readyz").status == 200 and "<strong" in client("/").text
            before = client("/api/v1/fleet").json["gpu_hours"]
            fake.alive_for = 0
            wait_for(lambda: "has not been read for" in client("/").text)
            assert client("/readyz").status == 200 and "What is shown was read" in client("/").text
            fake.alive_for, fake.now_ms = None, now + 10 * MINUTE_MS  # its clock is ahead: what it holds is what counts
            wait_for(lambda: "has not been read for" not in client("/").text)
            after = client("/api/v1/fleet").json["gpu_hours"]
            new = 2 * (round(time.time() * 1000) // 30_000 - now // 30_000)  # samples of the half minutes that passed meanwhile, at most
            assert before - 0.01 <= after <= before + new / 120 + 0.01


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
    from ullage.service import demonstration, start

    monkeypatch.setattr(demonstration, "GPUS", 8)
    monkeypatch.setattr(demonstration, "HOURS", 1.0)
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


def missed(followed: Followed, fake: FakePrometheus, now_ms: int) -> None:
    """Let a service follow until now while the first GPU's readings come three hours late: of them it sees none."""
    for hours in (2, 1, 0):
        fake.now_ms = now_ms - hours * HOUR_MS
        followed.turn()
    assert {row["gpu"] for row in rows_of(followed.store)} == {"GPU-1"}


def test_what_came_too_late_is_read_by_hand_into_the_store_that_is_followed(tmp_path: Path) -> None:
    now = round(time.time()) // 30 * 30_000  # what the command's own 48 hours count back from
    with fake_prometheus(start_ms=now - 4 * HOUR_MS, now_ms=now, late=(3 * HOUR_MS,)) as (fake, url):
        followed = Followed(url, tmp_path, fake)
        missed(followed, fake, now)
        version = WatchedStore(followed.store).version()
        said = ask("fleet", url, "--since", "48h", "--store", followed.store)
        assert said.code == 0, said.err
        assert plain(rows_of(followed.store)) == plain(whole(url, tmp_path, fake)) and WatchedStore(followed.store).version() != version
        rows = followed.state.rows
        assert followed.turn().rows == rows and plain(rows_of(followed.store)) == plain(rows_of(tmp_path / "whole"))


def test_a_service_without_its_marks_reads_again_what_came_too_late_and_hides_names_as_ever(tmp_path: Path) -> None:
    hidden = Pseudonyms(b"0123456789abcdef", ("job",))
    now = T0 + 4 * HOUR_MS
    with fake_prometheus(start_ms=now - 4 * HOUR_MS, now_ms=now, late=(3 * HOUR_MS,)) as (fake, url):
        followed = Followed(url, tmp_path, fake, pseudonyms=hidden)
        missed(followed, fake, now)
        followed.follower.stop()
        (followed.store / watermarks.NAME).unlink()
        again = Followed(url, tmp_path, fake, pseudonyms=hidden, first_ms=48 * HOUR_MS)
        again.turn()
        expected = [row | {"job": hidden.of("job", row["job"])} for row in whole(url, tmp_path, fake)]
        assert plain(rows_of(again.store)) == plain(expected)


def test_names_are_stored_for_so_many_days_and_not_again_when_they_come_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ullage.service.follow.MANY_PARTS", 1)
    (tmp_path / "in").mkdir()
    records = tmp_path / "jobs.csv"
    records.write_text("job,user,name,start,end\n4711,ann,run of ann,2026-08-10T00:00:00Z,2026-08-10T00:05:00Z\n")
    plan = FollowPlan((str(tmp_path / "in"),), tmp_path / "store", jobs=(str(records),), keep_names={"user": DAY_MS, "name": DAY_MS})
    follower = Follower(plan, ServiceLog(stream=io.StringIO()), lambda _: None, clock=lambda: T0 / 1000 + 864_000)

    def names_after(**words: Any) -> set[str]:
        file = tmp_path / "in" / f"{len(list((tmp_path / 'in').iterdir()))}.parquet"
        parquet.write_table(pa.Table.from_batches([hour(minutes=5, **words)]), file)
        follower.turn()
        assert follower.state.problem == ""
        store = Store.open(tmp_path / "store")
        return {row["user"] for row in rows_of(store.path)} | {row["name"] for row in store.jobs().to_pylist()}

    assert names_after() == {"ann", "run of ann"}
    assert names_after(start=3 * 2880, user="bob", host="n2", job="4712") == {NO_LONGER_KNOWN, "bob"}
    monkeypatch.setattr("ullage.service.follow.MANY_PARTS", 1000)
    assert names_after(start=100, user="eve", host="n3", job="4713") == {NO_LONGER_KNOWN, "bob"}


@pytest.mark.parametrize(("ahead_ms", "said"), [(HOUR_MS, False), (HOUR_MS + 1, True)])
def test_pages_say_that_a_sample_is_later_than_now(tmp_path: Path, ahead_ms: int, said: bool) -> None:
    store = Store.open(tmp_path / "store", create=True)
    store.append([hour(minutes=5)])
    window = store.window()
    assert window is not None
    for live in (True, False):  # a store that lies still may be of a simulated fleet
        state = ServiceState(WatchedStore(store.path, live=live), clock=lambda: (window[1] - ahead_ms) / 1000)
        assert any("later than now" in doubt for doubt in state.page_state().doubts) == (said and live)
