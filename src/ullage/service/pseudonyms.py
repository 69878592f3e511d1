"""Names that the service does not keep: a keyed hash stands in their place before anything is stored.

At intake, and not on the way out: what is not kept can't be told by any page, document, log, backup or mistake. Sums are the same.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from ullage.errors import UllageError
from ullage.job_names import joined_names, plain_name, separate_names
from ullage.reports.fleet.where import Condition, FieldTest, FleetFilter
from ullage.store.hidden_names import LETTERS, is_pseudonym

HIDDEN = ("user", "namespace", "job", "name", "pod", "container")  # fields that may have pseudonyms; a job's name stands in its records
SHORTEST_KEY = 16  # characters: a shorter key can be guessed, and names with it


@dataclass(frozen=True)
class Pseudonyms:
    """The names of some `fields`, each replaced by what only who has the `key` can make of it: the same for the same name."""

    key: bytes
    fields: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<pseudonyms of {', '.join(self.fields)}>"

    def of(self, field: str, name: str) -> str:
        """Return the pseudonym of one name.

        >>> Pseudonyms(b"a key of 16 bytes", ("user",)).of("user", "ann")
        'user-dfm7ccyaq7y5'
        """
        found = hmac.new(self.key, f"{field}\0{name}".encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
        return f"{field}-{base64.b32encode(found).decode().lower()[:LETTERS]}"

    def of_word(self, field: str, word: str) -> str:
        """Return what stands for a word of a column, which may be of several names."""
        return joined_names([self.of(field, plain_name(name)) for name in separate_names(word)]) if word else word

    def of_stored_word(self, field: str, word: str) -> str:
        """Return what stands for a word that was kept before, with names or without: a pseudonym, or what looks like one, stays."""
        return joined_names(name if is_pseudonym(field, name) else self.of_word(field, name) for name in separate_names(word))

    def in_table(self, table: pa.Table) -> pa.Table:
        """Return samples or job records that are new with pseudonyms in place of names."""
        return self._replaced(table, self.of_word)

    def in_stored_table(self, table: pa.Table) -> pa.Table:
        """Return samples or job records that were kept before, with names or without, with pseudonyms alone."""
        return self._replaced(table, self.of_stored_word)

    def in_condition(self, condition: Condition) -> Condition:
        """Return a condition on names as it is on what is kept of them. Raises UllageError for a pattern: a pseudonym fits none."""
        if isinstance(condition, FleetFilter):
            return replace(condition, parts=tuple(self.in_condition(part) for part in condition.parts))
        if not isinstance(condition, FieldTest) or condition.field not in self.fields or not condition.value:
            return condition  # nobody's name has no pseudonym
        if condition.glob:
            raise UllageError(f"{condition} is a pattern, and names of {condition.field} are not kept", "write out each name")
        return replace(condition, value=self.of(condition.field, condition.value))

    def _replaced(self, table: pa.Table, of_word: Callable[[str, str], str]) -> pa.Table:
        for place, column in enumerate(table.schema):
            if column.name in self.fields:
                table = table.set_column(place, column, _each_word(table[column.name], partial(of_word, column.name)))
        return table


def _each_word(words: pa.ChunkedArray, of_word: Callable[[str], str]) -> pa.ChunkedArray:
    kind = words.type
    chunks = words.cast(kind.value_type).chunks if pa.types.is_dictionary(kind) else words.chunks
    distinct: Iterable[str | None] = pa.chunked_array(chunks, pa.string()).unique().to_pylist()
    known = {word: of_word(word) for word in distinct if word is not None}
    made = [pa.array([None if one is None else known[one] for one in chunk.to_pylist()], pa.string()) for chunk in chunks]
    return pa.chunked_array(made, pa.string()).cast(kind)


def pseudonyms_of(key: str, fields: Iterable[str]) -> Pseudonyms | None:
    """Return the pseudonyms that settings ask for; None for no fields. Raises UllageError for a key that protects nothing."""
    fields = tuple(fields)
    if not fields:
        return None
    if len(key) < SHORTEST_KEY:
        problem = "pseudonyms need a key" if not key else f"the key of pseudonyms has fewer than {SHORTEST_KEY} characters"
        raise UllageError(problem, "openssl rand -hex 32 makes one; put it into the file of `pseudonym_key_file`")
    return Pseudonyms(key.encode(), fields)
