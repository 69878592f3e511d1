"""Sums that do not depend on the order in which they are added: whole numbers of a small step.

An engine adds in the order in which its threads come to the rows, and doubles added in another order differ in their last digits. Whole
numbers do not. So what is added up over samples is counted in steps, far below what any exporter resolves, and the sum is a double
only in the end: asked twice, in whatever order files come, a question has the same answer to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# A sample speaks for a day at most (2^26.4 ms; see `sums.windows`), and what it adds must fit into 63 bits: the steps leave room for
# activities of 300, clocks of 100 GHz and a power of 400 kW, and are a 1e-10 part of a second of 1 %.
ACTIVITY_STEP = 2.0**-28  # ms
POWER_STEP = 2.0**-18  # W ms
POWER_SQUARE_STEP = 2.0**-6  # W^2 ms
CLOCK_STEP = 1.0  # Hz ms
CYCLE_STEP = 2.0**-8
WHOLE = "decimal(38, 0)"  # sums of steps may need more than 64 bits
RATE_STEP = 1024.0  # B/s ms: about a byte


@dataclass(frozen=True)
class Steps:
    """A quantity per sample (an Ibis expression, or None where no sample has it) that is added up in whole steps."""

    value: Any
    step: float


def added(value: Any, engine: str) -> Any:
    """Return the sum of whole numbers, or of `Steps` as a number of steps, for an engine by Ibis's name of it."""
    if not isinstance(value, Steps):
        return value.sum()
    steps = value.value if value.step == 1 else value.value * (1 / value.step)
    if engine == "pyspark":
        # DuckDB rounds where Spark cuts off, and adds 64 bits up in 128, as Spark does only with decimals
        return _rounded()(steps).try_cast("int64").cast("decimal(38, 0)").sum()
    return steps.try_cast("int64").sum()  # what fits no 63 bits is no reading, and must not refuse the whole question


@cache
def _rounded() -> Any:
    """The engine's own function: the nearest whole number, the even one of two."""
    import ibis

    @ibis.udf.scalar.builtin(name="rint", signature=(("float64",), "float64"))
    def rounded(value):  # type: ignore[no-untyped-def]
        ...

    return rounded


def from_steps(table: Any, sums: Mapping[str, Any]) -> Any:
    """Return a table of sums with those of `Steps` as doubles in their unit."""
    return table.mutate(**{name: table[name].cast("float64") * value.step for name, value in sums.items() if isinstance(value, Steps)})


# --- sums in whole steps as Arrow tables, which may be kept and added to others ---

_STEP = b"step"
_NUMBERS = pa.decimal128(38, 0)


def with_steps(table: pa.Table, steps: Mapping[str, float]) -> pa.Table:
    """Return a table whose columns of steps say in their metadata what a step is, in their unit."""
    fields = [field.with_metadata({_STEP: repr(steps[field.name])}) if field.name in steps else field for field in table.schema]
    return table.cast(pa.schema(fields)).replace_schema_metadata(None)


def in_units(table: pa.Table) -> pa.Table:
    """Return a table with its columns of steps as doubles in their unit; other whole numbers are 64 bits wide.

    >>> steps = pa.table({"x_sum": pa.array([3, 8], pa.decimal128(38, 0))})
    >>> in_units(with_steps(steps, {"x_sum": 0.25}))["x_sum"].to_pylist()
    [0.75, 2.0]
    """
    return pa.table({field.name: _in_unit(table[field.name], field) for field in table.schema})


def _in_unit(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if not pa.types.is_decimal(field.type):
        return column
    step = (field.metadata or {}).get(_STEP)
    return column.cast(pa.int64()) if step is None else pc.multiply(column.cast(pa.float64()), float(step))


def added_up(table: pa.Table, keys: Sequence[str], how: Mapping[str, str] | None = None) -> pa.Table:
    """Return a table in whole steps with a row per `keys`: exact sums, or the "min" or "max" of the columns that `how` names.

    >>> steps = pa.table({"gpu": ["a", "b", "a"], "x": pa.array([1, 2, 3], pa.decimal128(38, 0))})
    >>> [[row["gpu"], int(row["x"])] for row in added_up(steps, ["gpu"]).to_pylist()]
    [['a', 4], ['b', 2]]
    """
    names = {name: (how or {}).get(name, "sum") for name in table.column_names if name not in keys}
    words = {name: _in_order(table[name]) for name in names if pa.types.is_string(table.schema.field(name).type)}
    places = table.select(list(keys)).combine_chunks()  # exact sums: the order of threads does not matter
    for name in names:
        places = places.append_column(name, words[name][0] if name in words else table[name])
    found = places.group_by(list(keys)).aggregate(list(names.items()))
    plain = {name: found[name] for name in keys} | {name: found[f"{name}_{what}"] for name, what in names.items()}
    plain |= {name: ordered.take(plain[name].combine_chunks()) for name, (_, ordered) in words.items()}
    fields = [
        pa.field(name, _NUMBERS if names.get(name) == "sum" else table.schema.field(name).type, metadata=table.schema.field(name).metadata)
        for name in table.column_names
    ]
    return pa.table([plain[field.name].cast(field.type) for field in fields], schema=pa.schema(fields))


def _in_order(column: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Return each word's place in the alphabet of the column's words, and those words: Arrow compares numbers sooner than words."""
    ordered = pc.unique(column.drop_null()).sort()
    return pc.index_in(column, value_set=ordered).combine_chunks(), ordered


def negative(table: pa.Table) -> pa.Table:
    """Return a table in whole steps with every number taken the other way, for what is to be left out of a sum."""

    def other(name: str) -> pa.ChunkedArray:
        column = table[name]
        return pc.negate(column) if pa.types.is_decimal(column.type) else column

    return pa.table([other(name) for name in table.column_names], schema=table.schema)
