"""SQL kept by the structure of the question: Ibis takes a tenth of a second to write one, and few of them differ in more than their values.

The structure of an expression is all of it but the names of its tables and the texts, times and large numbers in it, which have numbered
places. Ibis's own compiler writes the SQL of a structure once, with marks in those places; the next expression of that structure has its
own values written there, by the same compiler. What holds an operation that is not in `_OPERATIONS` is compiled as Ibis does it.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from typing import Any

import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.schema as sch
import pyarrow as pa
import sqlglot as sg
import sqlglot.expressions as sge
import xxhash
from ibis.common.collections import FrozenOrderedDict
from ibis.formats.pyarrow import PyArrowData

from ullage.store.other_engines import postpone_other_engines
from ullage.store.templates_on_disk import read_template, write_template

postpone_other_engines()

from ibis.backends.duckdb import Backend  # noqa: E402
from ibis.backends.sql.compilers.duckdb import DuckDBCompiler  # noqa: E402

_MARK = "__ullage_place_"
_PLACE = re.compile(rf'"{_MARK}(\d+)__"')
_LARGE = 10_000  # whole numbers from here on are times and lengths of time; smaller ones are constants of the question
_MOST = 2_000  # templates; a process that asks everything that there is needs some hundreds

# Operations whose SQL does not depend on what a literal among their arguments says, as the compiler's source shows.
_OPERATIONS = frozenset(
    {
        *(ops.Project, ops.Filter, ops.Sort, ops.Aggregate, ops.Distinct, ops.DropColumns, ops.Union, ops.Field, ops.SortKey, ops.Alias),
        *(ops.JoinChain, ops.JoinLink, ops.JoinReference, ops.SelfReference),
        *(ops.DatabaseTable, ops.InMemoryTable, ops.Literal, ops.Cast, ops.TryCast),
        *(ops.Add, ops.Subtract, ops.Multiply, ops.Divide, ops.FloorDivide, ops.Modulus, ops.BitwiseAnd, ops.Least, ops.Greatest),
        *(ops.Equals, ops.NotEquals, ops.Less, ops.LessEqual, ops.Greater, ops.GreaterEqual, ops.And, ops.Or, ops.Not, ops.InValues),
        *(ops.IsNull, ops.NotNull, ops.NullIf, ops.Coalesce, ops.IfElse, ops.SearchedCase),
        *(ops.Sum, ops.Max, ops.Min, ops.CountStar, ops.Count, ops.CountDistinct, ops.IntegerRange, ops.Unnest),
    }
)


@dataclass(frozen=True)
class Structure:
    """What an expression is but for the values in its numbered places, as a digest; and the literals and tables in those places."""

    digest: bytes
    places: tuple[Any, ...]

    @property
    def in_memory(self) -> bool:
        """Whether it asks tables that the engine must be given first."""
        return any(isinstance(node, ops.InMemoryTable) for node in self.places)


class _UnknownOperationError(Exception):
    """The structure holds something whose SQL may depend on its values."""


def structure_of(root: Any) -> Structure | None:
    """Return the structure of an Ibis operation; None where its SQL may depend on the values in it."""
    walk = _Walk()
    try:
        text = "\n".join(walk.entries(root))
    except _UnknownOperationError:
        return None
    return None if _MARK in text else Structure(xxhash.xxh3_128_digest(text.encode("utf-8", "surrogatepass")), tuple(walk.places))


class _Walk:
    """One walk over an expression: the number of each operation met, the places, the numbers of what joins refer to."""

    def __init__(self) -> None:
        self.numbers: dict[Any, str] = {}
        self.places: list[Any] = []
        self.references: dict[Any, int] = {}

    def entries(self, root: Any) -> list[str]:
        """Return a line for each operation, after those of its arguments."""
        entries, numbers, stack = [], self.numbers, [(root, False)]
        while stack:
            node, complete = stack.pop()
            if node in numbers:
                continue
            if not complete:
                stack.append((node, True))
                stack.extend((child, False) for child in node.__children__ if child not in numbers)
                continue
            entries.append(self.entry(node))
            numbers[node] = f"#{len(numbers)}"
        return entries

    def entry(self, node: Any) -> str:
        """Return what one operation is: its kind, and its arguments by their numbers."""
        kind: Any = type(node)
        if kind is ops.Field:  # nearly all of them
            return f"{self.numbers[node.rel]}.{node.name!r}"
        if kind not in _OPERATIONS and not _is_builtin(kind):
            raise _UnknownOperationError
        if kind is ops.Literal and not _has_place(node.value):
            return f"literal {_text(node.dtype)} {_constant(node.value)}"
        if kind is ops.Literal:
            self.places.append(node)
            return f"place {type(node.value).__name__} {_text(node.dtype)}"
        if kind is ops.DatabaseTable or kind is ops.InMemoryTable:
            self.places.append(node)
            return f"table {kind.__name__} {_text(node.schema)}"
        if kind is ops.JoinReference or kind is ops.SelfReference:
            number = self.references.setdefault(node.identifier, len(self.references))
            return f"{kind.__name__} {self.numbers[node.parent]} {number}"
        return f"{_name(kind)} {' '.join([self.argument(argument) for argument in node.__args__])}"

    def argument(self, value: Any) -> str:
        """Return what an argument is: the number of an operation, or something that is part of the structure."""
        if isinstance(value, ops.Node):
            return self.numbers[value]
        if isinstance(value, tuple):
            return f"({','.join([self.argument(each) for each in value])})"
        if isinstance(value, FrozenOrderedDict):
            return f"{{{','.join([f'{name!r}:{self.argument(each)}' for name, each in value.items()])}}}"
        if isinstance(value, frozenset):  # of names, in DropColumns
            return repr(sorted(value))
        if isinstance(value, dt.DataType):
            return _text(value)
        if value is None or isinstance(value, (str, int, float, bool, Enum)):
            return repr(value)
        raise _UnknownOperationError


def _has_place(value: Any) -> bool:
    return isinstance(value, (str, datetime.datetime)) or (type(value) is int and value >= _LARGE)


def _constant(value: Any) -> str:
    """A literal that is part of the structure; one zero is equal to the other, and they are written in two ways."""
    if not (value is None or isinstance(value, (bool, int, float))) or (value == 0 and str(value).startswith("-")):
        raise _UnknownOperationError
    return repr(value)


@lru_cache(4096)
def _text(kind: Any) -> str:
    return repr(tuple(kind.items()) if isinstance(kind, sch.Schema) else kind)


@cache
def _is_builtin(kind: Any) -> bool:
    """Whether an operation is a function of the engine's own."""
    return issubclass(kind, ops.ScalarUDF) and kind.__input_type__ is ops.udf.InputType.BUILTIN


@cache
def _name(kind: Any) -> str:
    if not _is_builtin(kind):
        return str(kind.__name__)
    return f"{kind.__func_name__!r} {kind.__udf_namespace__!r} {kind.dtype!r}"


class _MarkingCompiler(DuckDBCompiler):  # type: ignore[misc]
    """Ibis's compiler, but for marks where values and names of tables would stand."""

    __slots__ = ("marks",)

    def __init__(self, places: tuple[Any, ...]) -> None:
        super().__init__()
        self.marks = {node: f"{_MARK}{number}__" for number, node in enumerate(places)}

    def visit_node(self, op: Any, **arguments: Any) -> Any:
        mark = self.marks.get(op)
        if mark is None:
            return super().visit_node(op, **arguments)
        return sge.column(mark, quoted=True) if isinstance(op, ops.Literal) else sge.table_(mark, quoted=True)


_templates: dict[bytes, tuple[str, ...]] = {}


class DuckDBOfTemplates(Backend):  # type: ignore[misc]
    """Ibis's DuckDB, which writes the SQL of an expression whose structure it has met before without compiling it."""

    def compile(self, expr: Any, /, *, limit: Any = None, params: Any = None, pretty: bool = False) -> str:
        """Return the SQL of an expression, to the letter as Ibis compiles it."""
        structure = None if limit is not None or params or pretty else structure_of(expr.as_table().op())
        if structure is None:
            return str(super().compile(expr, limit=limit, params=params, pretty=pretty))
        return self._written(expr, structure)

    def to_pyarrow(self, expr: Any, /, *, params: Any = None, limit: Any = None, **more: Any) -> Any:
        """Return the rows of an expression; of a table without what Ibis does for others, which loads pandas."""
        structure = (
            structure_of(expr.op()) if isinstance(expr.op(), ops.Relation) and params is None and limit is None and not more else None
        )
        if structure is None:
            return super().to_pyarrow(expr, params=params, limit=limit, **more)
        if structure.in_memory:
            self._register_in_memory_tables(expr)
        table = self.con.sql(self._written(expr, structure)).to_arrow_table()
        return _OfDuckDB.convert_table(table, expr.schema())

    def _written(self, expr: Any, structure: Structure) -> str:
        template = _templates.get(structure.digest)
        if template is None:
            template = read_template(structure.digest) or self._template(expr, structure)
            if len(_templates) >= _MOST:
                _templates.clear()
            _templates[structure.digest] = template
        values = [self._value(node) for node in structure.places]
        return "".join(values[int(part)] if odd % 2 else part for odd, part in enumerate(template))

    def _template(self, expr: Any, structure: Structure) -> tuple[str, ...]:
        """Return the SQL of a structure: text, and between texts the number of a place."""
        query = _MarkingCompiler(structure.places).to_sqlglot(expr.as_table())
        template = tuple(_PLACE.split(query.sql(dialect=self.dialect, copy=False, unsupported_level=sg.ErrorLevel.RAISE)))
        write_template(structure.digest, template)
        return template

    def _value(self, node: Any) -> str:
        arguments = dict(zip(node.__argnames__, node.__args__, strict=True))
        return str(self.compiler.visit_node(node, **arguments).sql(dialect=self.dialect))


class _OfDuckDB(PyArrowData):  # type: ignore[misc]
    """What Ibis's own converter for DuckDB does, in a module that does not load pandas."""

    @classmethod
    def convert_column(cls, column: pa.Array, dtype: Any) -> pa.Array:
        return pa.nulls(len(column)) if dtype.is_null() else super().convert_column(column, dtype)
