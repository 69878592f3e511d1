"""`ullage top --source http://SERVICE`: what a real service follows, as the command shows it, and only what its token lets one see."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tests.command_line import Said, ask
from tests.fleet.servers import say, scripted, wait_for
from tests.service.running import H100, T0, Client, hour, service, small_store
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.reports.fleet.where import condition_of
from ullage.service.recent_samples import RECENT_MS, RecentSamples, recent_samples, samples_file
from ullage.service.settings import ServiceSettings
from ullage.service.watched import WatchedStore
from ullage.simulate.fleet import fleet
from ullage.simulate.serve import Server, serve
from ullage.simulate.specification import Specification
from ullage.sources import running_service as source
from ullage.sources.running_service import HEALTH_PATH, SAMPLES_PATH, read_service, running_service
from ullage.sources.source import Options
from ullage.store.store import Store
from ullage.tables import SAMPLES, samples

READ, ANN = "read-0123456789abcdef", "ann-0123456789abcdef"


def top(*words: object) -> Said:
    return ask("top", "--once", "--every", "0.1s", *words)


def shown(place: object, *words: object) -> dict[str, Any]:
    """What `ullage top` says of a place, but for what the place is called."""
    said = top("--json", "--source", place, *words)
    assert said.code == 0, said.err
    return said.json | {"place": ""}


@pytest.fixture
def exporter() -> Iterator[Server]:
    now = int(time.time() * 1000)
    plan = Specification(gpus=8, hours=2, interval=3.0, models=((H100, 1.0),), start=now, spread=0)
    server = serve(fleet(plan), 0, speed=30).start()
    try:
        server.page(None)
        yield server
    finally:
        server.stop()


def url_of(client: Client) -> str:
    return f"http://127.0.0.1:{client.port}"


def test_a_service_that_follows_an_exporter_is_shown_as_its_store_is(tmp_path: Path, exporter: Server) -> None:
    settings = ServiceSettings(source=f"http://127.0.0.1:{exporter.port}/metrics", store=str(tmp_path / "store"), every="0.5s")
    with service(settings) as client:
        wait_for(lambda: client("/readyz").status == 200)
        wait_for(lambda: Store.open(tmp_path / "store").samples(["time"]).time.nunique().to_pyarrow().as_py() > 2)
        said = shown(url_of(client))
    last = {row["gpu"]: row for row in sorted(Store.open(tmp_path / "store").samples().to_pyarrow().to_pylist(), key=lambda r: r["time"])}
    assert len(said["devices"]) == len(last) == 8 and said["processes"] == []
    assert {one["gpu"] for one in said["devices"]} == {*last}
    assert all(0 < one["ofu"] <= 1 and one["host"] for one in said["devices"])


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A service of a store that lies still, with tokens of which one is for a part."""
    place = small_store(tmp_path_factory.mktemp("top"))
    (place.parent / "tokens").write_text(f"read {READ}\nread {ANN} user=ann\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ULLAGE_SERVE_TOKEN", raising=False)
        patch.setenv("XDG_DATA_HOME", str(place.parent / "home"))
        with service(ServiceSettings(source=str(place), tokens_file=str(place.parent / "tokens"))) as client:
            yield client


def test_a_store_of_another_time_is_shown_at_its_end_with_the_numbers_of_its_rows(still: Client) -> None:
    said = shown(url_of(still), "--header", f"Authorization: Bearer {READ}")
    # the last five minutes of 30 s; OFU is tensor activity at the H100's tensor clock, both with their small sines
    expected = {}
    for one in (hour(), hour(job="ml/train-0", user="bob", host="n2")):
        rows = [row for row in one.to_pylist() if row["time"].timestamp() * 1000 > T0 + 3_600_000 - RECENT_MS]
        for gpu in {row["gpu"] for row in rows}:
            own = [row["tensor_active"] * row["sm_clock"] / 1.83e9 for row in rows if row["gpu"] == gpu]
            assert len(own) == 10
            expected[gpu] = sum(own) / len(own)
    assert {one["gpu"]: one["mean_ofu"] for one in said["devices"]} == pytest.approx(expected, rel=1e-5)
    assert said["time"] == T0 + 3_600_000 and said["ofu"] == pytest.approx(sum(expected.values()) / len(expected), rel=1e-5)


def test_the_token_may_be_the_password_of_the_address_and_is_never_shown(still: Client) -> None:
    said = top("--source", f"http://x:{READ}@127.0.0.1:{still.port}")
    assert said.code == 0 and READ not in said.out + said.err and f"http://…@127.0.0.1:{still.port}" in said.out


def test_who_sees_a_part_sees_the_devices_of_that_part_alone(still: Client) -> None:
    said = top("--json", "--source", url_of(still), "--header", f"Authorization: Bearer {ANN}")
    assert {(one["user"], one["host"]) for one in said.json["devices"]} == {("ann", "n1")} and "bob" not in said.out
    table = parquet.read_table(io.BytesIO(still(SAMPLES_PATH, headers={"Authorization": f"Bearer {ANN}"}).body))
    assert {*table["user"].to_pylist()} == {"ann"} and b"bob" not in still(SAMPLES_PATH, headers={"Authorization": f"Bearer {ANN}"}).body


@pytest.mark.parametrize("headers", [[], ["--header", "Authorization: Bearer wrong"]])
def test_without_its_token_a_service_says_what_it_wants(still: Client, headers: list[str]) -> None:
    assert still(SAMPLES_PATH).status == 401
    said = top("--source", url_of(still), *headers)
    assert said.code == 1 and "this service wants its token" in said.err and "Authorization: Bearer" in said.err


def test_the_samples_are_those_of_the_table_that_other_readers_take(still: Client, tmp_path: Path) -> None:
    answer = still(SAMPLES_PATH, headers={"Authorization": f"Bearer {READ}"})
    assert answer.status == 200 and answer.headers["content-type"] == "application/vnd.apache.parquet"
    (tmp_path / "recent.parquet").write_bytes(answer.body)
    table = parquet.read_table(tmp_path / "recent.parquet")
    assert table.schema.names == SAMPLES.names and table.num_rows == 2 * 4 * 10
    assert top("--source", tmp_path / "recent.parquet").code == 0
    again = still(SAMPLES_PATH, headers={"Authorization": f"Bearer {READ}", "If-None-Match": answer.headers["etag"]})
    assert again.status == 304 and again.body == b""


def test_a_service_without_samples_yet_says_why(tmp_path: Path) -> None:
    with service(ServiceSettings(source="http://127.0.0.1:9/metrics", store=str(tmp_path / "store"))) as client:
        wait_for(lambda: "has not been read" in client(SAMPLES_PATH).text)
        assert client(SAMPLES_PATH).status == 503
        asked = running_service(url_of(client), Options(retries=0))
        assert asked is not None
        with pytest.raises(UllageError, match=r"has not been read for .* did not answer"):
            list(read_service(asked, Problems()))


@pytest.mark.parametrize("percent", [False, True])
def test_units_that_were_settled_stay_settled(tmp_path: Path, percent: bool) -> None:
    lines = []
    for at in range(20):
        for name, value in (("PROF_PIPE_TENSOR_ACTIVE", 0.6), ("PROF_SM_ACTIVE", 0.9), ("PROF_GR_ENGINE_ACTIVE", 0.95)):
            told = value * (100 if percent else 1)
            lines.append(f'DCGM_FI_{name}{{gpu="0",UUID="GPU-0",Hostname="n1",modelName="{H100}"}} {told} {T0 + 30_000 * at}')
        lines.append(f'DCGM_FI_DEV_SM_CLOCK{{gpu="0",UUID="GPU-0",Hostname="n1",modelName="{H100}"}} 1525 {T0 + 30_000 * at}')
        lines.append(f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-0",Hostname="n1",modelName="{H100}"}} 99 {T0 + 30_000 * at}')
    (tmp_path / "x.prom").write_text("\n".join(lines) + "\n")
    assert ask("fleet", tmp_path / "x.prom", "--store", tmp_path / "store").code == 0
    with service(ServiceSettings(source=str(tmp_path / "store"))) as client:
        [device] = shown(url_of(client))["devices"]
    assert device["tensor_active"] == pytest.approx(0.6) and device["ofu"] == pytest.approx(0.6 * 1525 / 1830)


# -- the file ---------------------------------------------------------------------------------------------------------


def test_a_file_is_made_once_while_the_store_is_as_it_was(tmp_path: Path) -> None:
    recent = RecentSamples(WatchedStore(small_store(tmp_path)))
    whole, part = recent.file(None), recent.file(condition_of("user=ann"))
    assert recent.file(None) is whole and recent.file(condition_of("user=ann")) is part and len(part) < len(whole)
    Store.open(tmp_path / "store").append([hour(start=120, minutes=1, gpus=1)])
    assert recent.file(None) is not whole
    assert parquet.read_table(io.BytesIO(recent.file(None)))["time"].to_pylist()[-1].timestamp() * 1000 == T0 + 3_660_000


@pytest.mark.parametrize(("most", "rows"), [(80, 80), (79, 72), (16, 16), (8, 8), (7, 8), (1, 8)])
def test_of_too_many_samples_the_last_ones_are_given(tmp_path: Path, most: int, rows: int) -> None:
    # 8 GPUs every 30 s: 80 rows in five minutes; fewer are those of a shorter time up to the same moment
    table = recent_samples(WatchedStore(small_store(tmp_path)), None, most)
    times = np.array(table["time"].cast(pa.int64()))
    assert table.num_rows == rows and times.max() == T0 + 3_600_000 and len({*table["gpu"].to_pylist()}) == 8


def test_a_store_whose_only_late_sample_is_ahead_of_the_clock_shows_none(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", create=True)
    store.append([hour(minutes=1)])
    ahead = WatchedStore(store.path, live=True, clock=lambda: T0 / 1000 - 3600)
    assert recent_samples(ahead, None).equals(SAMPLES.empty_table())
    assert parquet.read_table(io.BytesIO(RecentSamples(ahead).file(condition_of("user=ann")))).num_rows == 0


@pytest.mark.parametrize("path", ["", "/", "/api/v1/fleet"])
def test_a_report_on_a_service_says_how_to_ask_it(still: Client, path: str) -> None:
    url = url_of(still)
    for words in ((), ("--header", f"Authorization: Bearer {READ}")):
        said = ask("fleet", f"{url}{path}", *words)
        assert said.code == 1 and f"{url} is a running Ullage service, which gives reports and not samples" in said.err
        assert f"curl '{url}/api/v1/fleet?form=text'" in said.err and f"ullage top --source {url}" in said.err


# -- what is no service -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["[1]", '"ullage"', "{}", '{"service": "other"}', "<html>", "", "[" * 100_000, '{"alive": true}'])
def test_whatever_else_answers_is_no_service(body: str) -> None:
    with scripted(lambda handler: say(handler, body)) as url:
        assert running_service(url, Options()) is None


def test_no_page_of_an_exporter_and_nothing_but_http_is_asked_who_it_is() -> None:
    asked = []
    with scripted(lambda handler: (asked.append(handler.path), say(handler, '{"service": "ullage"}'))[1]) as url:
        for place in (f"{url}/metrics", f"{url}/federate?match[]=x", f"prometheus+{url}", "local", "http://[", "store/"):
            assert running_service(place, Options()) is None
        assert asked == [] and running_service(f"{url}/behind/", Options()) is not None
    assert asked == [f"/behind{HEALTH_PATH}"]


def rows_at(moment: int, count: int = 1) -> bytes:
    table = pa.Table.from_batches([samples({"time": [moment] * count, "gpu": [f"GPU-{n}" for n in range(count)]})])
    return samples_file(table)


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"PAR1", "is a damaged Parquet file"), (b"", "is a damaged Parquet file"), (rows_at(T0, 9), "gives more than 8 samples")],
    ids=["torn", "empty", "too many"],
)
def test_a_service_that_gives_what_is_no_file_of_samples_is_an_error(body: bytes, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MOST_ROWS", 8)

    def answer(handler: Any) -> None:
        say(handler, json.dumps({"service": "ullage"}) if handler.path == HEALTH_PATH else body)

    with scripted(answer) as url:
        said = top("--source", url)
    assert said.code == 1 and words in said.err and "Traceback" not in said.err


def test_times_that_can_not_be_are_left_out() -> None:
    def answer(handler: Any) -> None:
        say(handler, json.dumps({"service": "ullage"}) if handler.path == HEALTH_PATH else rows_at(-5))

    with scripted(answer) as url:
        said = top("--source", url)
    assert said.code == 1 and "no GPU told anything" in said.err


def test_a_service_that_is_not_ready_is_asked_once_and_says_why(tmp_path: Path) -> None:
    asked = list[str]()

    def answer(handler: Any) -> None:
        asked.append(handler.path)
        if handler.path == HEALTH_PATH:
            say(handler, json.dumps({"service": "ullage"}))
        else:
            say(handler, json.dumps({"error": {"problem": "http://prometheus:9090 is being read", "hint": None}}), 503)

    with scripted(answer) as url:
        said = top("--source", url)
        assert said.code == 1 and f"the service at {url} is not ready: http://prometheus:9090 is being read" in said.err
    assert f"try again in a minute; {url}/readyz says when it is ready" in said.err and asked == [HEALTH_PATH, SAMPLES_PATH]
    with service(ServiceSettings(source=str(Store.open(tmp_path / "store", create=True).path))) as client:
        said = top("--source", url_of(client))
    assert said.code == 1 and f"the service at {url_of(client)} is not ready: " in said.err


def test_headers_are_for_servers() -> None:
    said = top("--header", "Authorization: Bearer x")
    assert said.code == 1 and "--header is for a server" in said.err
