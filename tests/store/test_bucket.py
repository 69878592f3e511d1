"""A store on object storage is the store in a folder: the same rows, one writer after the other, whole whatever ends a writer."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fleet.servers import say, scripted
from tests.seeds import some
from tests.store.test_store import HOUR, content, every_30_s, made, on_disk, plain, records
from ullage.errors import UllageError
from ullage.intake import opened
from ullage.service.logs import ServiceLog
from ullage.service.settings import ServiceSettings
from ullage.service.start import running_service
from ullage.store.bucket import REPLACED, YOUNG_MS
from ullage.store.manifest import NAME, ChangedMeanwhileError, Manifest
from ullage.store.store import Store
from ullage.tables import Flag

URL = "s3://metrics/fleet/store"
POINTS = ("part written", "part renamed", "tails written", "tails renamed", "manifest written", "manifest renamed")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ullage" / "stores"


@pytest.fixture
def objects() -> Any:
    return pytest.importorskip("obstore.store").MemoryStore()


def cached(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*.parquet"))


def pieces(count: int) -> list[Any]:
    """Samples that overlap: each piece has GPUs of its own, and half of its times in common with the next one."""
    return [made(every_30_s(n * HOUR // 2, n * HOUR // 2 + HOUR), ("a", f"g{n}")) for n in range(count)]


def said(store: Store) -> list[dict[str, Any]]:
    """All rows without what the order of delivery may leave: flags of arrival, and the span of each device's first sample."""
    rows, seen = plain(content(store), Flag.REORDERED | Flag.COPIED), set[str]()
    for row in rows:
        row["span_ms"] = row["span_ms"] if row["gpu"] in seen else 0
        seen.add(row["gpu"])
    return rows


# --- the same as in a folder ---


def test_it_is_the_store_in_a_folder(tmp_path: Path, objects: Any) -> None:
    there, here = Store.open(URL, create=True, objects=objects), Store.open(tmp_path / "store", create=True)
    jobs = records({"job": "7", "host": "n1", "start": 0})
    for store in (there, here):
        assert [store.append(piece).rows_new for piece in pieces(4)] == [240, 180, 180, 180]
        assert (store.add_jobs(jobs), store.roll_up()) == (1, len(store.manifest().parts))
    again = Store.open(URL, objects=objects)
    assert content(again).equals(content(here))
    assert (again.name, again.window(), again.jobs().equals(here.jobs())) == (URL, here.window(), True)
    assert (again.info().rows, again.info().bytes, again.info().parts) == (here.info().rows, here.info().bytes, here.info().parts)
    assert [part.sha256 for part in again.manifest().parts] == [part.sha256 for part in here.manifest().parts]
    assert again.rolled() is not None
    again.verify()


def test_a_report_asks_the_address(objects: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(URL, create=True, objects=objects).append(made(every_30_s(0, HOUR)))
    monkeypatch.setattr("obstore.store.from_url", lambda *_, **__: objects)
    with opened([URL]) as intake:
        assert intake.samples.count().to_pyarrow().as_py() == 120
    with opened([URL], store=None) as intake:
        assert intake.problems.complete


def test_only_parts_of_the_window_are_brought_and_none_twice(cache: Path, objects: Any) -> None:
    day = 24 * HOUR
    writer = Store.open(URL, create=True, objects=objects)
    for number in range(3):
        writer.append(made(every_30_s(number * day, number * day + HOUR)))
    for file in cached(cache):
        file.unlink()
    first = writer.manifest().parts[0]
    reader = Store.open(URL, objects=objects)
    assert reader.samples(until=first.last).count().to_pyarrow().as_py() == first.rows
    assert [file.name for file in cached(cache)] == [Path(first.file).name]
    objects.delete(first.file)
    assert reader.samples(until=first.last).count().to_pyarrow().as_py() == first.rows  # from here


def test_what_a_disk_changed_here_is_brought_anew_and_what_is_changed_there_is_named(cache: Path, objects: Any) -> None:
    Store.open(URL, create=True, objects=objects).append(made(every_30_s(0, HOUR)))
    part = Store.open(URL, objects=objects).manifest().parts[0]
    (mine,) = (file for file in cached(cache) if file.parent.name.startswith("day="))
    sound = mine.read_bytes()
    mine.write_bytes(sound[:100] + bytes([sound[100] ^ 1]) + sound[101:])
    assert len(on_disk(Store.open(URL, objects=objects))) == 120
    objects.put(part.file, sound[:100] + bytes([sound[100] ^ 1]) + sound[101:])
    mine.unlink()
    with pytest.raises(UllageError, match=f"{URL}/{part.file} is not as it was written"):
        on_disk(Store.open(URL, objects=objects))
    objects.delete(part.file)
    with pytest.raises(UllageError, match=f"{URL}/{part.file} is missing"):
        Store.open(URL, objects=objects)


# --- several writers ---


@pytest.mark.parametrize("writers", some([3, 2, 4, 6, 8], 1))
def test_writers_at_the_same_time_lose_nothing(tmp_path: Path, objects: Any, writers: int) -> None:
    Store.open(URL, create=True, objects=objects)
    together, failures = threading.Barrier(writers), list[BaseException]()

    def write(number: int) -> None:
        try:
            store = Store.open(URL, objects=objects)
            together.wait()
            for piece in pieces(2 * writers)[number::writers]:
                store.append(piece)
            store.add_jobs(records({"job": str(number), "host": "n1", "start": 0}))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    one = Store.open(tmp_path / "store", create=True)
    for piece in pieces(2 * writers):
        one.append(piece)
    found = Store.open(URL, objects=objects)
    assert said(found) == said(one)
    assert found.jobs()["job"].to_pylist() == [str(number) for number in range(writers)]


def test_a_writer_whose_manifest_is_old_reads_the_new_one_first(objects: Any) -> None:
    first = Store.open(URL, create=True, objects=objects)
    waiting = Store.open(URL, objects=objects)

    def between(point: str) -> None:
        if point == "manifest written" and not done:
            done.append(first.append(made(every_30_s(0, HOUR), ("b",))).rows_new)

    done: list[int] = []
    late = Store.open(URL, objects=objects, hook=between)
    assert late.append(made(every_30_s(0, HOUR), ("a",))).rows_new == 120 and done == [120]
    assert len(on_disk(waiting)) == 240


def test_who_never_comes_first_gives_up_with_an_error(objects: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ullage.store.manifest.TURNS", 2)
    other = Store.open(URL, create=True, objects=objects)
    turns = iter(range(100))

    def between(point: str) -> None:
        if point == "manifest written":
            other.append(made([next(turns) * 30_000], ("b",)))

    late = Store.open(URL, objects=objects, hook=between)
    with pytest.raises(ChangedMeanwhileError, match=f"{URL}/{NAME} was changed by another process"):
        late.append(made(every_30_s(0, HOUR), ("a",)))
    assert {row["gpu"] for row in on_disk(Store.open(URL, objects=objects))} == {"b"}


def test_two_that_begin_a_store_begin_one(objects: Any) -> None:
    stores = [Store.open(URL, create=True, objects=objects) for _ in range(2)]
    for number, store in enumerate(stores):
        store.append(made([0], (f"g{number}",)))
    assert len(on_disk(stores[0])) == 2


class KilledError(BaseException):
    """A process that ends at once."""


@pytest.mark.parametrize("point", POINTS)
def test_a_writer_that_is_killed_leaves_a_whole_store(objects: Any, point: str) -> None:
    Store.open(URL, create=True, objects=objects).append(made(every_30_s(0, HOUR)))

    def kill(at: str) -> None:
        if at == point:
            raise KilledError

    with pytest.raises(KilledError):
        Store.open(URL, objects=objects, hook=kill).append(made(every_30_s(HOUR, 2 * HOUR)))
    left = Store.open(URL, objects=objects)
    left.verify()
    assert len(on_disk(left)) == (240 if point == "manifest renamed" else 120)
    left.append(made(every_30_s(HOUR, 2 * HOUR)))
    assert len(on_disk(left)) == 240


# --- upkeep ---


class Aged:
    """Object storage whose files say that they are older than they are."""

    def __init__(self, objects: Any, by_ms: float) -> None:
        self._objects, self._by = objects, by_ms / 1000

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)

    def list(self, folder: str | None) -> Iterator[list[dict[str, Any]]]:
        for some_files in self._objects.list(folder):
            times = [datetime.fromtimestamp(file["last_modified"].timestamp() - self._by, UTC) for file in some_files]
            yield [{**file, "last_modified": at} for file, at in zip(some_files, times, strict=True)]


@pytest.mark.parametrize(("age", "removed"), [(YOUNG_MS - 60_000, False), (YOUNG_MS + 60_000, True)])
def test_files_that_are_not_listed_go_when_they_are_a_day_old(objects: Any, age: float, removed: bool) -> None:
    store = Store.open(URL, create=True, objects=Aged(objects, age))
    store.append(made(every_30_s(0, HOUR)))
    objects.put("samples/day=2024-10-04/part-0000000000000000.parquet", b"of a writer that was killed")
    kept = store.compact()
    assert kept.files_removed == int(removed)
    left = {file["path"] for some_files in objects.list("samples") for file in some_files}
    assert ("samples/day=2024-10-04/part-0000000000000000.parquet" in left) != removed
    assert store.manifest().parts[0].file in left
    store.verify()


def test_compaction_and_retention_are_those_of_a_folder(tmp_path: Path, objects: Any) -> None:
    day, rows = 24 * HOUR, []
    for store in (Store.open(URL, create=True, objects=objects), Store.open(tmp_path / "store", create=True)):
        for number in range(6):
            store.append(made(every_30_s(number * day // 2, number * day // 2 + HOUR)))
        compacted, retained = store.compact(), store.retain(1)
        assert (compacted.parts_before, compacted.parts_after, retained.parts_after) == (6, 3, 2)
        rows.append(content(store))
    assert rows[0].equals(rows[1])


# --- what is refused ---


@pytest.mark.parametrize(
    "url", ["s3://", "s3:///store", "s3://bucket//store", "s3://key:secret@bucket/store", "s3://bucket/a?b", "s3://a b/c"]
)
def test_an_address_that_names_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(UllageError, match="is no address of a store"):
        Store.open(url)


def test_an_address_without_a_store_and_one_with_other_files_are_told(objects: Any) -> None:
    with pytest.raises(UllageError, match=f"there is no store at '{URL}'"):
        Store.open(URL, objects=objects)
    objects.put("thesis.tex", b"mine")
    with pytest.raises(UllageError, match=r"holds other files \(thesis.tex\) and no store"):
        Store.open(URL, create=True, objects=objects)
    assert bytes(objects.get("thesis.tex").bytes()) == b"mine"


@pytest.mark.parametrize("setting", [{"source": URL}, {"source": "local", "store": URL}])
def test_a_service_says_that_its_store_is_a_folder(setting: dict[str, str]) -> None:
    with pytest.raises(UllageError, match="is on object storage"):
        running_service(ServiceSettings(**setting), ServiceLog())


@pytest.mark.parametrize(("status", "said"), [(403, "access is denied"), (500, "can't be reached")])
def test_a_server_that_refuses_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, status: int, said: str) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setattr("ullage.store.bucket._RETRIES", {"max_retries": 1})
    with scripted(lambda handler: say(handler, "<Error><Code>\x1b[31mNo</Code></Error>", status)) as url:
        for name, value in {"ENDPOINT_URL": url, "ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "hidden", "REGION": "r"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        with pytest.raises(UllageError, match=said) as refused:
            Store.open(URL)
    assert URL in str(refused.value) and "hidden" not in str(refused.value) and "\x1b" not in str(refused.value)


@pytest.mark.parametrize("fault", ["answers with 500", "hangs up"])
def test_a_server_that_fails_now_and_then_is_asked_again(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    pytest.importorskip("obstore")
    asked: Counter[str] = Counter()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked[handler.path] += 1
        if asked[handler.path] < 3:
            if fault == "hangs up":
                handler.connection.shutdown(socket.SHUT_RDWR)
            else:
                say(handler, "<Error/>", 500)
        elif "list-type=2" in handler.path:
            say(handler, "<ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>")
        elif handler.path.endswith(NAME):
            say(handler, msgspec.json.encode(Manifest()), ETag='"1"', Last_Modified="Thu, 26 Nov 2026 10:00:00 GMT")
        else:
            say(handler, "<Error/>", 404)

    with scripted(answer) as url:
        for name, value in {"ENDPOINT_URL": url, "ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "s", "REGION": "r"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        assert Store.open(URL).manifest() == Manifest()
    assert min(asked.values()) == 3


# --- a server that speaks S3 ---


@pytest.fixture
def s3_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Moto's server, in a process of its own, with an empty bucket."""
    pytest.importorskip("obstore")
    pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    code = (
        "import time\nfrom moto.server import ThreadedMotoServer\nserver = ThreadedMotoServer('127.0.0.1', 0)\nserver.start()\n"
        "print('at', *server.get_host_and_port(), flush=True)\ntime.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        _, host, port = next(line for line in server.stdout if line.startswith("at ")).split()
        for name, value in {
            "ENDPOINT_URL": f"http://{host}:{port}",
            "ACCESS_KEY_ID": "k",
            "SECRET_ACCESS_KEY": "s",
            "REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        boto3.client("s3", endpoint_url=f"http://{host}:{port}").create_bucket(Bucket="metrics")
        yield f"http://{host}:{port}"
        server.kill()


@pytest.mark.full
def test_on_a_server_writers_at_the_same_time_lose_nothing_and_kills_neither(tmp_path: Path, s3_server: str) -> None:
    Store.open(URL, create=True)
    code = (
        "import sys\nfrom tests.store.test_bucket import URL, pieces\nfrom ullage.store.store import Store\n"
        "store = Store.open(URL)\nfor piece in pieces(8)[int(sys.argv[1])::4]: store.append(piece)"
    )

    def start(number: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", code, str(number)])

    running = [start(number) for number in range(4)]
    time.sleep(3)
    running[0].kill()
    assert [process.wait() for process in running][1:] == [0, 0, 0]
    assert start(0).wait() == 0  # once more what the killed one was to do
    one = Store.open(tmp_path / "store", create=True)
    for piece in pieces(8):
        one.append(piece)
    found = Store.open(URL)
    found.verify()
    assert said(found) == said(one)
    assert {*REPLACED} >= {path.name for path in found.path.iterdir()}
