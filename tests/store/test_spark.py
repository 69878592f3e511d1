"""Spark: the same reports as DuckDB's, to the last number, on a cluster of processes; and one clear error where there is none."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.store.test_rollups import store_of
from ullage.asking.question import QUESTIONS
from ullage.errors import UllageError
from ullage.questions.fleet import fleet
from ullage.store import spark_session
from ullage.store.spark_session import spark_address
from ullage.store.store import Store

CLUSTER = "spark://local-cluster[2,1,512]"
needs_spark = pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None or shutil.which("java") is None, reason="pyspark or Java is not installed"
)


def told(name, **given):
    """What the JSON of a question's answer holds; the commands that it names to go on with repeat the engine, which is left out."""
    QUESTIONS.load()
    question = QUESTIONS[name].question(given)
    report = QUESTIONS[name].answer(question, lambda _: None, "")
    return without_engine(msgspec.json.encode(QUESTIONS[name].describer(question).record(report)), question.engine)


def without_engine(answer, engine):
    """An answer whose commands do not say which engine is asked."""
    return json.loads(answer.decode().replace(f" --engine {shlex.quote(engine)}", ""))


def changing_store(folder):
    """A store of a simulated fleet in which GPUs are sliced, jobs begin, gauges fail and hosts change their names."""
    from ullage.intake import opened
    from ullage.questions.simulate.simulate import simulate

    simulate(gpus=160, hours=9, interval=180, seed=5, changes="all", faults="all", counters=True, out=folder / "simulated")
    with opened([str(folder / "simulated" / "samples")], jobs=[str(folder / "simulated" / "jobs.csv")], store=str(folder / "store")):
        pass
    shutil.rmtree(folder / "store" / "rollups")
    return str(folder / "store")


@pytest.fixture(scope="module")
def changing(tmp_path_factory):
    return changing_store(tmp_path_factory.mktemp("fleet"))


@pytest.mark.full
@needs_spark
@pytest.mark.parametrize(
    "given",
    [
        {"by": "job"},
        {"by": "gpu", "since": "2026-08-10T03:07:11", "until": "2026-08-10T08:20:00", "noise": True},
        {"by": "hour", "where": "model=H100"},
    ],
    ids=["jobs", "window", "where"],
)
def test_a_fleet_on_a_cluster_is_that_of_duckdb_number_by_number(changing, given):
    expected = told("fleet", sources=(changing,), **given)
    assert expected["findings"]
    assert told("fleet", sources=(changing,), engine=CLUSTER, **given) == expected


@pytest.mark.full
@needs_spark
@pytest.mark.parametrize("seed", range(3))
def test_random_fleets_that_change_in_time_are_the_same_on_spark(seed, tmp_path):
    store_of(seed, tmp_path / "store", parts=3, faults=True)
    place = (str(tmp_path / "store"),)
    assert told("fleet", sources=place, engine=CLUSTER) == told("fleet", sources=place)


@pytest.mark.full
@needs_spark
def test_a_job_the_doctor_and_a_waterfall_are_those_of_duckdb(changing):
    jobs = [group["key"] for group in told("fleet", sources=(changing,), by="job")["groups"]]
    job = next(key for key in jobs if key.isdecimal())
    for name, given in (("job", {"id": job}), ("doctor", {}), ("waterfall", {"job": job})):
        assert told(name, sources=(changing,), engine=CLUSTER, **given) == told(name, sources=(changing,), **given), name


@pytest.mark.full
@needs_spark
def test_rollups_made_by_spark_are_those_of_duckdb(tmp_path):
    for engine in ("duckdb", CLUSTER):
        store_of(2, tmp_path / engine[:5], parts=2)
        assert Store.open(tmp_path / engine[:5], engine=engine).roll_up() > 0
    ours, theirs = (sorted((tmp_path / name / "rollups").iterdir()) for name in ("duckd", "spark"))
    assert [path.name for path in ours] == [path.name for path in theirs]
    for one, other in zip(ours, theirs, strict=True):
        left, right = (pq.read_table(path) for path in (one, other))
        keys = [(name, "ascending") for name in left.column_names]
        assert left.schema.equals(right.schema, check_metadata=True)
        assert left.sort_by(keys).equals(right.sort_by(keys)), one.name


def executors(context):
    """The processes of a local cluster's executors."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if context.applicationId in words and any("ExecutorBackend" in word for word in words):
            found.append(int(place.name))
    return found


@pytest.mark.full
@needs_spark
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="executors are found in /proc")
def test_an_executor_that_is_killed_while_it_works_changes_no_number(changing):
    session = spark_session.spark_session(spark_address(CLUSTER))
    tracker = session.sparkContext.statusTracker()
    killed, over = [], threading.Event()

    def kill():
        while not over.wait(0.02):
            working = [stage for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) and info.numActiveTasks]
            if working and len(killed) < 2 and len(pids := [pid for pid in executors(session.sparkContext) if pid not in killed]) == 2:
                os.kill(pids[0], signal.SIGKILL)  # the next one only when the cluster has put another in its place
                killed.append(pids[0])

    watcher = threading.Thread(target=kill)
    watcher.start()
    try:
        found = told("fleet", sources=(changing,), engine=CLUSTER)
    finally:
        over.set()
        watcher.join()
    assert killed
    assert found == told("fleet", sources=(changing,))


@pytest.fixture(scope="module")
def connect():
    """The address of a server of Spark Connect on this machine, with a cluster of its own."""
    home = Path(importlib.util.find_spec("pyspark").origin).parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    conf = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    conf |= {"spark.ui.enabled": "false", "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [home / "bin" / "spark-submit", "--master", "local-cluster[2,1,512]", "--class", server, *words, "spark-internal"]
    env = os.environ | {"PYSPARK_PYTHON": sys.executable}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env) as process:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
        process.terminate()


@pytest.mark.full
@needs_spark
def test_a_fleet_through_connect_is_that_of_duckdb(connect, changing):
    # in a process of its own: one process is either a client of Connect or a driver
    words = [sys.executable, "-m", "ullage", "fleet", "--json"]
    expected = subprocess.run([*words, changing], capture_output=True, check=True).stdout
    found = subprocess.run([*words, changing, "--engine", connect], capture_output=True, check=True).stdout
    assert without_engine(found, connect) == json.loads(expected)


# --- what is wrong is said in one error, in bounded time ---


@pytest.mark.parametrize(
    "engine",
    ["", "spark", "spark://", "spark://host", "spark://host:0", "spark://host:99999", "sc://", "http://host:80", "spark://a:1,b", "DuckDB"],
)
def test_what_names_no_engine_is_refused_with_the_forms_that_do(engine):
    with pytest.raises(UllageError, match="is no engine") as refused:
        spark_address(engine)
    assert "spark://HOST:PORT" in refused.value.hint


def test_spark_is_not_asked_for_what_no_store_holds(tmp_path):
    (tmp_path / "page.prom").write_text("DCGM_FI_PROF_SM_ACTIVE 1\n")
    with pytest.raises(UllageError, match="asks a store") as refused:
        fleet(str(tmp_path / "page.prom"), engine="spark://127.0.0.1:7077")
    assert "--store" in refused.value.hint


def test_without_pyspark_the_error_says_what_to_install(monkeypatch, tmp_path):
    store_of(1, tmp_path / "store")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(UllageError, match=r"pyspark.* is not installed") as refused:
        fleet(str(tmp_path / "store"), engine="spark://127.0.0.1:7077")
    assert refused.value.hint == "pip install 'ullage[spark]'"


@pytest.mark.full
@needs_spark
def test_a_file_that_executors_do_not_find_is_named_and_so_is_a_damaged_one(tmp_path):
    store_of(1, tmp_path / "store")
    store = Store.open(tmp_path / "store", engine=CLUSTER)
    samples = store.samples()
    [part] = [tmp_path / "store" / part.file for part in store.manifest().parts]
    content = part.read_bytes()
    part.rename(tmp_path / "elsewhere")
    with pytest.raises(UllageError, match="can't see .*" + part.name) as refused:
        samples.aggregate(sum=samples.span_ms.sum()).to_pyarrow()
    assert "shared file system" in refused.value.hint
    where = pq.ParquetFile(tmp_path / "elsewhere").metadata.row_group(0)
    [column] = [where.column(at) for at in range(where.num_columns) if where.column(at).path_in_schema == "span_ms"]
    last = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1
    part.write_bytes(content[:last] + bytes([content[last] ^ 1]) + content[last + 1 :])
    with pytest.raises(UllageError, match="not as it was written"):
        samples.aggregate(sum=samples.span_ms.sum()).to_pyarrow()


@needs_spark
def test_without_java_the_error_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    with pytest.raises(UllageError, match="needs Java"):
        spark_session.spark_session(spark_address("spark://local[7]"))


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_an_address_where_nothing_listens_is_refused_at_once(scheme):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and not listening: nobody else gets this port meanwhile
        port = unused.getsockname()[1]
        pytest.importorskip("pyspark", reason="pyspark is not installed")
        with pytest.raises(UllageError, match="nothing accepts a connection"):
            spark_session.spark_session(spark_address(f"{scheme}://127.0.0.1:{port}"))


def test_a_server_that_accepts_and_says_nothing_is_given_up(monkeypatch):
    pytest.importorskip("pyspark.sql.connect.session", reason="Spark Connect's client is not installed", exc_type=ImportError)
    monkeypatch.setattr(spark_session, "ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(UllageError, match="does not answer as Spark Connect: it said nothing"):
            spark_session.spark_session(spark_address(f"sc://127.0.0.1:{port}"))


def test_help_does_not_load_pyspark():
    code = (
        "import sys, ullage.__main__ as m\ntry: m.run_command_line()\nexcept SystemExit: assert not {'pyspark', 'pandas'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code, "fleet", "--help"], check=True, stdout=subprocess.DEVNULL)
