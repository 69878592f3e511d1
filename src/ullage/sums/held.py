"""What an Ibis table says of its columns before it is asked, so that sums over what no exporter wrote cost nothing.

The store says it in the expression: a column without a value is the literal null, and a column that always has one is of
a type that can't be null. Of tables from elsewhere nothing is known, and everything is asked.
"""

from __future__ import annotations

from typing import Any


def empty(samples: Any, name: str) -> bool:
    """Return whether a column is known to be null in every row."""
    return same_everywhere(samples, name) and constant_of(samples, name) is None


def same_everywhere(samples: Any, name: str) -> bool:
    """Return whether a column is known to have the same value, or none, in every row: `constant_of` has it."""
    return _literal(samples, name) is not None


def constant_of(samples: Any, name: str) -> Any:
    """Return the value that a column is known to have in every row; None where it has none, or nothing is known."""
    literal = _literal(samples, name)
    return None if literal is None else literal.value


def _literal(samples: Any, name: str) -> Any:
    import ibis.expr.operations as ops

    relation = samples.op()
    while name in relation.values:  # a table in a database has none: its columns come from nowhere
        value = relation.values[name]
        if not isinstance(value, ops.Field):
            return value if isinstance(value, ops.Literal) else None
        relation, name = value.rel, value.name
    return None


def full(samples: Any, name: str) -> bool:
    """Return whether a column is known to have a value in every row."""
    return not samples[name].type().nullable


def known(samples: Any, *names: str) -> Any:
    """Return where all of these columns have a value: a condition, or True or False where it is so in every row.

    >>> import ibis
    >>> table = ibis.table({"always": "!float64", "sometimes": "float64"}, name="table").mutate(never=ibis.null("float64"))
    >>> known(table, "always"), known(table, "always", "never"), known(table, "sometimes", "never")
    (True, False, False)
    >>> known(table, "always", "sometimes").equals(table.sometimes.notnull())
    True
    """
    import ibis

    if any(empty(samples, name) for name in names):
        return False
    asked = [samples[name].notnull() for name in names if not full(samples, name)]
    return ibis.and_(*asked) if asked else True
