"""Settled samples asked by Spark: the same Ibis expressions as on DuckDB, on a cluster or through Spark Connect.

Spark reads the store's Parquet files where they lie, each executor some of them, and adds up; what comes of it is small and is gone on
with here. Ibis writes the SQL, and its backend for Spark, which goes through pandas, is not used.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.schema as sch
import pyarrow as pa
from ibis.formats.pyarrow import PyArrowData, PyArrowType

from ullage.errors import UllageError, harmless
from ullage.store.other_engines import postpone_other_engines
from ullage.store.spark_session import SparkAddress, spark_session

postpone_other_engines()

from ibis.backends.sql.compilers.base import SQLGlotCompiler  # noqa: E402
from ibis.backends.sql.compilers.pyspark import PySparkCompiler  # noqa: E402
from ibis.backends.sql.datatypes import PySparkType  # noqa: E402

_PATTERN = re.compile(r"([*?\[\]{}\\])")
# what Spark reads whole numbers without a sign as, which it does not have
_SIGNED = {dt.uint8: dt.int16, dt.uint16: dt.int32, dt.uint32: dt.int64, dt.uint64: dt.Decimal(20, 0)}


class _SignedTypes(PySparkType):  # type: ignore[misc]
    @classmethod
    def from_ibis(cls, dtype: Any) -> Any:
        return super().from_ibis(_SIGNED.get(dtype.copy(nullable=True), dtype))


class _SparkCompiler(PySparkCompiler):  # type: ignore[misc]
    """Ibis's compiler, with types for whole numbers without a sign, and for NaN, which is not null, as on DuckDB."""

    __slots__ = ()
    type_mapper = _SignedTypes

    def visit_NonNullLiteral(self, op: Any, *, value: Any, dtype: Any) -> Any:  # noqa: N802 - Ibis's name
        visit = SQLGlotCompiler.visit_NonNullLiteral if dtype.is_floating() else PySparkCompiler.visit_NonNullLiteral
        return visit(self, op, value=value, dtype=dtype)

    def visit_Field(self, op: Any, *, rel: Any, name: Any) -> Any:  # noqa: N802 - Ibis's name
        return SQLGlotCompiler.visit_Field(self, op, rel=rel, name=name)

    def visit_IsNull(self, op: Any, *, arg: Any) -> Any:  # noqa: N802 - Ibis's name
        return SQLGlotCompiler.visit_IsNull(self, op, arg=arg)

    def visit_NotNull(self, op: Any, *, arg: Any) -> Any:  # noqa: N802 - Ibis's name
        return SQLGlotCompiler.visit_NotNull(self, op, arg=arg)


class SparkOfStores:
    """What Ibis tables over a store's files are asked by, where that is Spark; `name` is Ibis's name of it."""

    name = "pyspark"
    _names = itertools.count()

    def __init__(self, address: SparkAddress) -> None:
        self._address, self._session, self._compiler = address, spark_session(address), _SparkCompiler()
        self._registered: set[str] = set()

    def read_files(self, files: Sequence[Any]) -> Any:
        """Return an Ibis table over Parquet files, whose columns are those of all of them."""
        import pyarrow.parquet as pq

        schemas = [pq.read_schema(file).remove_metadata() for file in files]
        fields = {f.name: _ibis_type(f.type) for f in pa.unify_schemas(schemas, promote_options="permissive")}
        schema = sch.Schema({name: kind for name, kind in fields.items() if kind is not None})
        name = f"ullage_{next(self._names)}"
        with self._refusals_as_errors():
            reader = self._session.read.schema(_schema_as_ddl(schema)).option("recursiveFileLookup", "true")
            # a page that is not as it was written is found by the executor that reads it
            reader = reader.option("parquet.page.verify-checksum.enabled", "true")
            reader.parquet(*map(_literal, files)).createOrReplaceTempView(name)
        return ops.DatabaseTable(name, schema=schema, source=self, namespace=ops.Namespace()).to_expr()

    def compile(self, expr: Any, **_: Any) -> str:
        """Return the SQL of an expression."""
        return str(self._compiler.to_sqlglot(expr.as_table()).sql(dialect=self._compiler.dialect, copy=False))

    def to_pyarrow(self, expr: Any, **_: Any) -> Any:
        """Return the rows of an expression; one over tables in memory alone is asked here."""
        table = expr.as_table()
        if not table.op().find(ops.DatabaseTable):
            return self._here.to_pyarrow(expr)
        with self._refusals_as_errors():
            for node in table.op().find(ops.InMemoryTable):
                self._register(node)
            found = self._session.sql(self.compile(table)).toArrow()
        return expr.__pyarrow_result__(_OfSpark.convert_table(found, table.schema()))

    @cached_property
    def _here(self) -> Any:
        from ullage.store.reading import connection

        return connection()

    def _register(self, node: Any) -> None:
        if node.name not in self._registered:
            self._session.createDataFrame(node.data.to_pyarrow(node.schema)).createOrReplaceTempView(node.name)
            self._registered.add(node.name)

    @contextmanager
    def _refusals_as_errors(self) -> Iterator[None]:
        """Turn what Spark refuses into a UllageError; a question that is wrong is our own fault."""
        from py4j.protocol import Py4JError
        from pyspark.errors import AnalysisException, ParseException, PySparkException

        try:
            yield
        except (PySparkException, Py4JError, OSError) as error:
            ours = isinstance(error, AnalysisException | ParseException)
            if (refusal := _refusal(str(error), self._address.text, ours=ours)) is None:
                raise
            raise refusal from error


class _OfSpark(PyArrowData):  # type: ignore[misc]
    @classmethod
    def convert_column(cls, column: pa.Array, dtype: Any) -> pa.Array:
        return pa.nulls(len(column)) if dtype.is_null() else super().convert_column(column, dtype)


def _literal(file: Any) -> str:
    """Spark reads a name as a pattern: what a pattern means something by, stands for itself behind a backslash."""
    return "file://" + _PATTERN.sub(r"\\\1", str(file))


def _ibis_type(kind: pa.DataType) -> Any:
    """The type of a column; None for one that no sample has."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind):
        return dt.Timestamp("UTC")
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return PyArrowType.to_ibis(kind)
    return dt.string if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None


def _schema_as_ddl(schema: Any) -> str:
    """A schema as Spark's DDL has it."""
    return ", ".join(f"`{name.replace('`', '``')}` {_SignedTypes.from_ibis(kind).sql(dialect='spark')}" for name, kind in schema.items())


def _refusal(words: str, place: str, *, ours: bool) -> UllageError | None:
    """The error that says why Spark did not answer; None where our question is wrong."""
    words = " ".join(words.split())
    if any(sign in words for sign in ("PATH_NOT_FOUND", "FILE_NOT_EXIST", "FileNotFoundException")):
        missing = re.search(r"file:/*(/[^ ,;]*[^ ,;.])", words)
        return UllageError(
            f"Spark at {place} can't see {harmless(missing.group(1)) if missing else 'the files of the store'}",
            "the store must lie under the same path on every machine of the cluster: a shared file system",
        )
    if "checksum" in words:
        return UllageError(
            f"a file of the store is not as it was written: {_cause(words)}",
            "`ullage store info FOLDER --check` names it; bring it back from a backup",
        )
    if any(sign in words for sign in ("maxResultSize", "OutOfMemoryError", "Java heap space")):
        return UllageError(f"Spark at {place} has not enough memory: {_cause(words)}", "ask for a shorter time, or give it more memory")
    return None if ours else UllageError(f"Spark at {place} did not answer: {_cause(words)}", "look at the logs of the cluster")


def _cause(words: str) -> str:
    return harmless(words.rpartition("Caused by: ")[2], 300)
