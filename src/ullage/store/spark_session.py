"""Where Spark is, and a session there: one of a process, found or refused in bounded time."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from ullage.errors import UllageError, harmless

DUCKDB = "duckdb"
CONNECT_S = 10.0  # how long a master may take to accept a connection
ANSWER_S = 60.0  # how long a server of Spark Connect may take for its first answer
EXECUTORS_S = 60.0  # how long a cluster may take to give the first executor
_FORMS = "write duckdb, spark://HOST:PORT, spark://local-cluster[WORKERS,CORES,MB], or sc://HOST:PORT for Spark Connect"
_LOCAL = re.compile(r"local(\[(\d+|\*)\])?|local-cluster\[(\d+),(\d+),(\d+)\]")
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")


@dataclass(frozen=True)
class SparkAddress:
    """Where Spark is: a `cluster` with its master, this machine (`local`), or a server of Spark `connect`."""

    kind: Literal["cluster", "local", "connect"]
    master: str
    text: str

    @property
    def servers(self) -> list[tuple[str, int]]:
        """The hosts and ports that may be asked."""
        if self.kind == "local":
            return []
        found = [one.partition("/")[0].partition(";")[0].rpartition(":") for one in self.text.partition("://")[2].split(",")]
        return [(host.strip("[]"), int(port)) for host, _, port in found]


def spark_address(engine: str) -> SparkAddress | None:
    """Return the Spark that an engine's name names; None for DuckDB. Raises UllageError for what names none.

    >>> spark_address("spark://node-1:7077").kind, spark_address("spark://local-cluster[2,1,1024]").master, spark_address("duckdb")
    ('cluster', 'local-cluster[2,1,1024]', None)
    >>> spark_address("spark://a:7077,b:7077").servers
    [('a', 7077), ('b', 7077)]
    """
    if engine == DUCKDB:
        return None
    kind, _, rest = engine.partition("://")
    if kind == "spark" and _LOCAL.fullmatch(rest):
        return SparkAddress("local", rest, engine)
    if kind == "spark" and rest and all(_is_server(one) for one in rest.split(",")):
        return SparkAddress("cluster", engine, engine)
    if kind == "sc" and _is_server(re.split(r"[/;]", rest)[0]):
        return SparkAddress("connect", engine, engine)
    raise UllageError(f"'{harmless(engine, 80)}' is no engine", _FORMS)


def _is_server(text: str) -> bool:
    found = _SERVER.fullmatch(text)
    return found is not None and 0 < int(found.group(1)) < 65_536


class _Pyspark:
    """What asking Spark needs to have installed."""

    @contextmanager
    def needed(self) -> Iterator[None]:
        """Turn the lack of it into a UllageError."""
        try:
            yield
        except ImportError as error:
            raise UllageError(f"Spark can't be asked: {error.name or error} is not installed", "pip install 'ullage[spark]'") from error


PYSPARK = _Pyspark()


@cache
def spark_session(address: SparkAddress) -> Any:
    """Return the session at an address; it ends with the process.

    Raises UllageError where pyspark or Java is missing, and where the address does not answer in bounded time.
    """
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)  # which nothing here goes through
    with PYSPARK.needed():
        import pyspark.sql  # noqa: F401
    if address.servers and not any(_answers(*server) for server in address.servers):
        raise UllageError(f"there is no Spark at {address.text}: nothing accepts a connection", "look at the address, and whether it runs")
    session = _connect_session(address) if address.kind == "connect" else _classic(address)
    atexit.register(session.stop)
    session.conf.set("spark.sql.ansi.enabled", "true")  # what fits no type is an error, not another number
    return session


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), CONNECT_S):
            return True
    except OSError:
        return False


def _connect_session(address: SparkAddress) -> Any:
    with PYSPARK.needed():
        from pyspark.errors import PySparkException
        from pyspark.sql.connect.session import SparkSession
    found: list[Any] = []

    def ask() -> None:
        try:
            session = SparkSession.builder.remote(address.text).create()
            session.version  # noqa: B018 - the first question to the server
            found.append(session)
        except (PySparkException, OSError) as error:
            found.append(error)

    asking = threading.Thread(target=ask, daemon=True)  # its client asks a server that is silent again for many minutes
    asking.start()
    asking.join(ANSWER_S)
    if not found or isinstance(found[0], Exception):
        why = harmless(str(found[0]), 300) if found else f"it said nothing for {ANSWER_S:.0f} s"
        raise UllageError(f"{address.text} does not answer as Spark Connect: {why}", _FORMS)
    return found[0]


def _classic(address: SparkAddress) -> Any:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    running = SparkContext._active_spark_context
    if running is not None:
        if running.master != address.master:
            raise UllageError(f"this process has a Spark already, at {running.master}", "ask that one, or ask from another process")
        return SparkSession(running)
    java = shutil.which(str(Path(os.environ["JAVA_HOME"]) / "bin" / "java") if "JAVA_HOME" in os.environ else "java")
    if java is None:
        raise UllageError("Spark needs Java, and there is none", "install a Java runtime of version 17 or later, or set JAVA_HOME")
    conf = SparkConf(loadDefaults=False).setMaster(address.master).setAppName("ullage")
    conf.setAll(list(_settings(address).items()))
    with tempfile.TemporaryFile() as said:  # what the JVM logs: nobody's answer, but the reason when it does not start
        try:
            gateway = launch_gateway(conf, {"stderr": said, "stdout": said})
            context = SparkContext(conf=conf, gateway=gateway)
        except Exception as error:  # what Python, the gateway or Spark itself raised
            raise _not_started(address, said, error) from error
    if address.kind == "local" and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable  # the workers' Python is this one, which has Ullage
    if address.master.startswith("local["):
        return SparkSession(context)
    if not _has_executors(context):
        context.stop()
        raise UllageError(
            f"the cluster at {address.text} gave no executor within {EXECUTORS_S:.0f} s", "look whether it has workers with free cores"
        )
    return SparkSession(context)


def _not_started(address: SparkAddress, said: Any, error: Exception) -> UllageError:
    said.seek(0)
    lines = [line for line in said.read().decode(errors="replace").splitlines() if "Exception" in line or "ERROR" in line]
    return UllageError(
        f"Spark at {address.text} did not start: {harmless(lines[-1] if lines else str(error), 300)}", "look at its logs, and its version"
    )


def _settings(address: SparkAddress) -> dict[str, str]:
    """What a session is told; the rest is as SPARK_CONF_DIR and PYSPARK_SUBMIT_ARGS say."""
    said = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC"}
    if address.kind != "local":
        return said
    said |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    sizes = _LOCAL.fullmatch(address.master)
    workers, cores, memory = sizes.groups()[2:] if sizes else (None, None, None)
    if workers and cores:
        said |= {"spark.executor.memory": f"{memory}m", "spark.sql.shuffle.partitions": str(2 * int(workers) * int(cores))}
    return said


def _has_executors(context: Any) -> bool:
    """Whether an executor is there before the time is over; the driver itself is counted with them."""
    deadline = time.monotonic() + EXECUTORS_S
    while time.monotonic() < deadline:
        if len(context._jsc.sc().statusTracker().getExecutorInfos()) > 1:
            return True
        time.sleep(0.1)
    return False
