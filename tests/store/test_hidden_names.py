"""A store whose names are pseudonyms refuses names, whoever brings them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tests.command_line import ask
from tests.service.running import hour
from tests.store.test_store import records
from ullage.errors import UllageError
from ullage.service.pseudonyms import Pseudonyms
from ullage.store.hidden_names import NAME, hidden_fields, is_pseudonym
from ullage.store.old_names import NO_LONGER_KNOWN
from ullage.store.store import Store

HIDDEN = Pseudonyms(b"0123456789abcdef", ("user", "job"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.open(tmp_path / "store", create=True)
    made.hide_names(HIDDEN.fields)
    return made


def test_what_stands_for_names_is_stored_and_names_are_refused(store: Store) -> None:
    rows = pa.Table.from_batches([hour(minutes=5, user="ann")])
    assert store.append(HIDDEN.in_table(rows)).rows_new > 0
    before = store.manifest()
    with pytest.raises(UllageError, match=r"keeps pseudonyms instead of names of (user|job)"):
        store.append(rows)
    with pytest.raises(UllageError, match="instead of names of job"):
        store.append(Pseudonyms(HIDDEN.key, ("user",)).in_table(rows))
    assert store.manifest() == before


def test_job_records_are_refused_likewise(store: Store) -> None:
    plain = records({"job": "7", "host": "n1", "user": "ann", "name": "train"})
    with pytest.raises(UllageError, match="keeps pseudonyms"):
        store.add_jobs(plain)
    assert store.add_jobs(HIDDEN.in_table(plain)) == 1
    assert store.jobs()["name"].to_pylist() == ["train"]  # which is kept


def test_job_records_of_before_are_stored_without_names_once_they_are_hidden(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", create=True)
    store.add_jobs(records({"job": "7", "host": "n1", "user": "ann"}, {"job": HIDDEN.of("job", "7"), "host": "n1", "mfu": 0.4}))
    store.hide_names(HIDDEN.fields, HIDDEN.in_stored_table)
    (row,) = store.jobs().to_pylist()  # both are of one job
    assert (row["job"], row["user"], row["mfu"]) == (HIDDEN.of("job", "7"), HIDDEN.of("user", "ann"), 0.4)
    assert hidden_fields(store.path) == ("job", "user")


def test_rows_that_are_left_out_of_a_table_do_not_count(store: Store) -> None:
    rows = pa.table({"user": pa.array(["ann", HIDDEN.of("user", "bob")]).dictionary_encode()})
    whole = pa.Table.from_batches([hour(minutes=1)])
    hidden = HIDDEN.in_table(whole)
    place = hidden.schema.get_field_index("user")
    words = pa.DictionaryArray.from_arrays(pa.array([1] * len(hidden), pa.int32()), rows["user"].combine_chunks().dictionary)
    store.append(hidden.set_column(place, hidden.schema.field("user"), words.cast(hidden.schema.field("user").type)))


@pytest.mark.parametrize(
    ("word", "fits"),
    [
        ("user-dfm7ccyaq7y5", True),
        ("user-dfm7ccyaq7y5,user-aaaaaaaaaaaa", True),
        (NO_LONGER_KNOWN, True),
        (f"{NO_LONGER_KNOWN},user-dfm7ccyaq7y5", True),
        (f"{NO_LONGER_KNOWN},ann", False),
        ("user-dfm7ccyaq7y5,ann", False),
        ("user-dfm7ccyaq7y", False),
        ("user-dfm7ccyaq7y55", False),
        ("user-DFM7CCYAQ7Y5", False),
        ("user-dfm7ccyaq7y5\n", False),
        ("job-dfm7ccyaq7y5", False),
    ],
)
def test_only_a_pseudonym_of_the_field_is_one(word: str, fits: bool) -> None:
    assert is_pseudonym("user", word) == fits


def test_fields_are_added_and_never_taken_away(store: Store) -> None:
    store.hide_names(("name",))
    store.hide_names(())
    assert hidden_fields(store.path) == ("job", "name", "user")
    assert hidden_fields(store.path / "nowhere") == ()


def test_a_damaged_list_lets_nothing_in(store: Store) -> None:
    (store.path / NAME).write_text("[")
    with pytest.raises(UllageError, match=r"pseudonyms\.json, is damaged"):
        store.append(pa.Table.from_batches([hour(minutes=1)]))


def test_a_command_that_would_store_names_says_so(store: Store, tmp_path: Path) -> None:
    parquet.write_table(pa.Table.from_batches([hour(minutes=5)]), tmp_path / "samples.parquet")
    said = ask("fleet", str(tmp_path / "samples.parquet"), "--store", str(store.path))
    assert said.code == 1 and "keeps pseudonyms instead of names of" in said.err and "Traceback" not in said.err
    assert store.window() is None
