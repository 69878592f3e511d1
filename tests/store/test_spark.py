"""Spark: the same reports as DuckDB's, to the last number, on a cluster of processes; and one clear error where there is none."""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
import sys

import msgspec
import pytest

from tests.store.test_rollups import store_of
from ullage.asking.question import QUESTIONS
from ullage.errors import UllageError
from ullage.questions.fleet import fleet
from ullage.store import spark_session
from ullage.store.spark_session import spark_address

CLUSTER = "spark://local-cluster[2,1,512]"
needs_spark = pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None or shutil.which("java") is None, reason="pyspark or Java is not installed"
)


def told(name, **given):
    """What the JSON of a question's answer holds."""
    QUESTIONS.load()
    question = QUESTIONS[name].question(given)
    report = QUESTIONS[name].answer(question, lambda _: None, "")
    return json.loads(msgspec.json.encode(QUESTIONS[name].describer(question).record(report)))


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


def test_help_does_not_load_pyspark():
    import subprocess

    code = (
        "import sys, ullage.__main__ as m\ntry: m.run_command_line()\nexcept SystemExit: assert not {'pyspark', 'pandas'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code, "fleet", "--help"], check=True, stdout=subprocess.DEVNULL)
