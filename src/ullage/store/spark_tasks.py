"""One task of Spark for each of many inputs, such as the trace of each rank: what `ullage.workers` does on one machine."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.store.spark_session import spark_address, spark_session

Input = TypeVar("Input")
Output = TypeVar("Output")
_COLUMNS = "number long, made binary"


def on_spark(task: Callable[[Input], Output], inputs: Sequence[Input], engine: str) -> list[Output]:
    """Return what a module's function makes of each input, in their order, each made by a task of its own.

    A task whose executor dies is done again on another one. Raises UllageError where Spark can't be had, lacks Ullage or gives up.
    """
    address = spark_address(engine)
    if address is None:
        raise UllageError(f"'{harmless(engine, 80)}' is no Spark", "write spark://HOST:PORT, or sc://HOST:PORT for Spark Connect")
    session = spark_session(address)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        numbers = session.range(0, len(inputs), 1, len(inputs))  # one in each partition
        found = numbers.mapInArrow(_of_partition(task, [pickle.dumps(each) for each in inputs]), _COLUMNS).toArrow()
    except (PySparkException, Py4JError, OSError) as error:
        raise UllageError(f"Spark at {address.text} did not read the files: {_cause(str(error))}", _hint(str(error))) from error
    return [pickle.loads(made.as_py()) for made in found.sort_by("number")["made"]]  # noqa: S301 - by our own function


def _of_partition(task: Callable[[Any], object], sent: Sequence[bytes]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                made = pickle.dumps(task(pickle.loads(sent[number])))  # noqa: S301 - by the driver
                yield pa.record_batch({"number": pa.array([number], pa.int64()), "made": pa.array([made], pa.binary())})

    return make


def _cause(words: str) -> str:
    """The last error that a task's Python names, else why the work was given up."""
    lines = [line.strip() for line in words.splitlines()]
    errors = [line for sign in ("Job aborted", "Error: ") for line in lines if sign in line]
    return harmless(errors[-1] if errors else " ".join(words.split()), 400)


def _hint(words: str) -> str:
    if "No module named 'ullage'" in words:
        return "install Ullage on every machine of the cluster, for the Python that PYSPARK_PYTHON names"
    return "look at the logs of the cluster; the traces must lie under the same path on each of its machines"
