"""Fields whose names a store does not keep: pseudonyms stand there, and a name by itself is refused, whoever brings it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ullage.errors import UllageError, harmless
from ullage.job_names import separate_names
from ullage.store.manifest import StoreFolder
from ullage.store.old_names import NO_LONGER_KNOWN

NAME = "pseudonyms.json"
LETTERS = 12  # of a pseudonym, 60 bits: of a million names two are the same once in two million stores


def hidden_fields(folder: Path) -> tuple[str, ...]:
    """Return the fields whose names a store does not keep. Raises UllageError for a file that says nothing."""
    try:
        return msgspec.json.decode((folder / NAME).read_bytes(), type=tuple[str, ...])
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = f"the store's list of fields with pseudonyms, {folder / NAME}, is damaged ({harmless(str(error))})"
        raise UllageError(problem, "bring it back from a backup, or remove it: the service that fills the store writes it anew") from error


def hide_names(folder: StoreFolder, fields: Iterable[str]) -> None:
    """Keep that names of some fields are not kept from now on. The caller holds the lock."""
    known = hidden_fields(folder.path)
    hidden = tuple(sorted({*known, *fields}))

    def write(into: IO[bytes]) -> None:
        into.write(msgspec.json.encode(hidden))

    if hidden != known:
        folder.write_whole(NAME, write, "pseudonyms")


def refuse_names(store: str, table: pa.Table | pa.RecordBatch, fields: Iterable[str]) -> None:
    """Raise UllageError where samples or job records have a name in one of some fields, and no pseudonym."""
    for field in fields:
        if field in table.schema.names and not all(is_pseudonym(field, word) for word in pc.unique(table[field]).to_pylist() if word):
            raise UllageError(
                f"the store '{harmless(store)}' keeps pseudonyms instead of names of {field}, and this would store names",
                "let the service that fills the store read it (docs/serve.md, Names that are not kept), or choose another --store",
            )


def is_pseudonym(field: str, word: str) -> bool:
    """Return whether a word of a field's column is of pseudonyms alone; what says that a name is no longer known counts as one.

    >>> is_pseudonym("user", "user-dfm7ccyaq7y5"), is_pseudonym("user", "ann"), is_pseudonym("job", "user-dfm7ccyaq7y5")
    (True, False, False)
    """
    form = re.compile(rf"{re.escape(field)}-[a-z2-7]{{{LETTERS}}}")
    return all(name == NO_LONGER_KNOWN or form.fullmatch(name) for name in separate_names(word))
