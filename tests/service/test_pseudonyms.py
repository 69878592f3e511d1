"""Names that are not kept: no file of the store, no page and no document has them, and every sum is as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import ullage
from tests.fleet.servers import wait_for
from tests.seeds import some
from tests.service.running import hour, service
from ullage.errors import UllageError
from ullage.intake import take
from ullage.job_names import joined_names
from ullage.problems import Problems
from ullage.reports.fleet.where import condition_of
from ullage.service.pseudonyms import Pseudonyms, pseudonyms_of
from ullage.service.settings import PSEUDONYM_KEY, ServiceSettings, checked, read_settings
from ullage.service.start import access_of
from ullage.simulate.fleet import Specification
from ullage.simulate.fleet import fleet as simulated
from ullage.sources.source import Options
from ullage.store.hidden_names import hidden_fields
from ullage.store.old_names import NO_LONGER_KNOWN
from ullage.store.store import Store
from ullage.tables import JOBS

KEY = "0123456789abcdef"
ALL = Pseudonyms(KEY.encode(), ("user", "job", "name"))


def test_a_name_has_one_pseudonym_by_field_and_key() -> None:
    assert ALL.of("user", "ann") == ALL.of("user", "ann") != ALL.of("user", "bob")
    assert ALL.of("user", "ann")[5:] != ALL.of("name", "ann")[5:]
    assert ALL.of("user", "ann") != Pseudonyms(b"fedcba9876543210", ("user",)).of("user", "ann")
    assert KEY not in repr(ALL)


def test_several_names_in_a_word_have_a_pseudonym_each() -> None:
    word = ALL.of_word("job", r"7,ml\,x")
    assert sorted(word.split(",")) == sorted([ALL.of("job", "7"), ALL.of("job", "ml,x")]) and ALL.of_word("job", "") == ""


def test_of_what_was_stored_before_only_names_are_replaced() -> None:
    bob = ALL.of("user", "bob")
    stored = pa.table({"user": [bob, "ann", f"ann,{bob}", NO_LONGER_KNOWN, r"a\,b", "", None]})
    found = ALL.in_stored_table(stored)
    assert found["user"].to_pylist() == [
        bob,
        ALL.of("user", "ann"),
        joined_names([bob, ALL.of("user", "ann")]),
        NO_LONGER_KNOWN,
        ALL.of("user", "a,b"),
        "",
        None,
    ]
    assert ALL.in_stored_table(found).equals(found)
    assert ALL.of_word("user", bob) != bob  # a new name is replaced, whatever it looks like


def test_columns_keep_their_kind_and_what_is_not_known() -> None:
    words = pa.array(["ann", None, "ann", ""]).dictionary_encode()
    found = ALL.in_table(pa.table({"user": words, "host": pa.array(["ann"] * 4), "name": pa.nulls(4, pa.string())}))
    assert found["user"].to_pylist() == [ALL.of("user", "ann"), None, ALL.of("user", "ann"), ""]
    assert found["user"].type == words.type and found["host"].to_pylist() == ["ann"] * 4 and found["name"].null_count == 4
    assert ALL.in_table(pa.table({"user": pa.chunked_array([], pa.string())}))["user"].to_pylist() == []


def kept_key(field: str, key: str) -> str:
    """What a row is called where names of a field have pseudonyms; one of several clusters begins with its own."""
    cluster, separator, name = key.rpartition("/")
    return key if not field or key.startswith("no ") else f"{cluster}{separator}{ALL.of_word(field, name)}"


@pytest.mark.parametrize("seed", some(range(100), quick=1))
def test_every_sum_is_as_it_was_and_no_name_is_kept(tmp_path: Path, seed: int) -> None:
    made = simulated(Specification(gpus=24, hours=0.5, seed=seed, changes=("all",), outcomes=True))
    records = made.jobs()
    parquet.write_table(pa.Table.from_batches([*made.batches()]), tmp_path / "samples.parquet")
    stores = {}
    for name, hidden in (("plain", None), ("hidden", ALL)):
        store = stores[name] = Store.open(tmp_path / name, create=True)
        told = records.select(JOBS.names).cast(JOBS)
        renamed: Any = (lambda table: table) if hidden is None else hidden.in_table
        take(store, [str(tmp_path / "samples.parquet")], renamed(told), options=Options(), problems=Problems(), renamed=renamed)
    for by, field in (("user", "user"), ("job", "job"), ("host", "")):
        plain, hidden_one = (ullage.fleet(str(tmp_path / name), by=by).json() for name in ("plain", "hidden"))
        assert (plain["ofu"], plain["ledger"], plain["losses"]) == (hidden_one["ofu"], hidden_one["ledger"], hidden_one["losses"])
        hours = ({row["key"]: row["gpu_hours"] for row in one["groups"]} for one in (plain, hidden_one))
        assert {kept_key(field, key): value for key, value in next(hours).items()} == next(hours)
        text = json.dumps(hidden_one)
        names = {str(name) for column in ("user", "name") for name in records[column].to_pylist() if name}
        assert not [name for name in names if f'"{name}"' in text or f" {name} " in text]
    for file in (tmp_path / "hidden").rglob("*.parquet"):
        table = parquet.read_table(file)
        for column in {"user", "job", "name"} & {*table.column_names}:
            words = {word for word in table[column].cast(pa.string()).to_pylist() if word}
            assert all(part.startswith(f"{column}-") for word in words for part in word.split(",")), (file, column)


def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **more: Any) -> ServiceSettings:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ULLAGE_SERVE_TOKEN", raising=False)
    monkeypatch.setenv(PSEUDONYM_KEY, KEY)
    (tmp_path / "in").mkdir()
    for number, table in enumerate([hour(minutes=5), hour(minutes=5, job="secret-job", user="bob", host="n2")]):
        parquet.write_table(pa.Table.from_batches([table]), tmp_path / "in" / f"{number}.parquet")
    places = [str(file) for file in sorted((tmp_path / "in").iterdir())]
    return ServiceSettings(source=places, store=str(tmp_path / "store"), pseudonyms=["user", "job"], answer_limit="600s", **more)


def test_a_service_shows_pseudonyms_alone_and_roles_and_reports_go_by_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokens").write_text("act 0123456789abcdef-act\nread 0123456789abcdef-ann user=ann\n")
    settings = followed(tmp_path, monkeypatch, tokens_file=str(tmp_path / "tokens"))
    hidden = settings.hidden_names()
    assert hidden is not None
    with service(settings) as client:
        act, ann = ({"Authorization": f"Bearer 0123456789abcdef-{name}"} for name in ("act", "ann"))
        wait_for(lambda: client("/readyz").status == 200)
        wait_for(lambda: len(client("/api/v1/fleet?by=user", headers=act).json["groups"]) == 2)
        for path in ("/", "/jobs", "/users", "/causes", "/api/v1/fleet?by=job", "/metrics"):
            heard = client(path, headers=act)
            assert heard.status == 200 and "secret-job" not in heard.text and ">ann<" not in heard.text and '"ann"' not in heard.text, path
        groups = client("/api/v1/fleet?by=user", headers=ann).json["groups"]
        assert [row["key"] for row in groups] == [hidden.of("user", "ann")]
        said = client("/api/v1/reported", "POST", act, b'{"job": "secret-job", "mfu": 0.4}')
        assert said.status == 200
        kept = hidden.of("job", "secret-job")
        assert Store.open(tmp_path / "store").jobs()["job"].to_pylist() == [kept]
        assert "secret-job" not in client.log.getvalue()
        assert hidden_fields(tmp_path / "store") == ("job", "user")  # so that no command brings names


@pytest.mark.parametrize(("key", "says"), [(None, "need a key"), ("", "need a key"), ("   ", "need a key"), ("short", "fewer than 16")])
def test_a_key_that_protects_nothing_is_refused(key: str | None, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PSEUDONYM_KEY, raising=False)
    if key is not None:
        monkeypatch.setenv(PSEUDONYM_KEY, key)
    with pytest.raises(UllageError, match=says):
        ServiceSettings(pseudonyms=["user"]).hidden_names()
    assert ServiceSettings().hidden_names() is None


def test_a_key_comes_from_a_file_and_its_length_is_tested_on_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PSEUDONYM_KEY, raising=False)
    (tmp_path / "key").write_text(f"{KEY}\n")
    found = ServiceSettings(pseudonyms=["user"], pseudonym_key_file=str(tmp_path / "key")).hidden_names()
    assert found == Pseudonyms(KEY.encode(), ("user",)) and pseudonyms_of("x" * 16, ["job"]) is not None
    (tmp_path / "key").write_text("")
    with pytest.raises(UllageError, match="holds no secret"):
        ServiceSettings(pseudonyms=["user"], pseudonym_key_file=str(tmp_path / "key")).hidden_names()
    (tmp_path / "ullage.toml").write_text('pseudonyms = ["host"]\n')
    with pytest.raises(UllageError, match="line 1: pseudonyms"):
        read_settings(tmp_path / "ullage.toml")


def test_what_could_not_be_hidden_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PSEUDONYM_KEY, KEY)
    Store.open(tmp_path / "store", create=True)
    with (
        pytest.raises(UllageError, match="has its names already"),
        service(ServiceSettings(source=str(tmp_path / "store"), pseudonyms=["user"])),
    ):
        pass
    with (
        pytest.raises(UllageError, match="theirs to remove"),
        service(ServiceSettings(source=str(tmp_path / "store"), keep_names={"user": "30d"})),
    ):
        pass
    (tmp_path / "tokens").write_text("read 0123456789abcdef user=a*\n")
    with pytest.raises(UllageError, match="is a pattern"):
        access_of(ServiceSettings(pseudonyms=["user"], tokens_file=str(tmp_path / "tokens")))
    assert str(ALL.in_condition(condition_of("user=ann or namespace=x"))) == f"user={ALL.of('user', 'ann')} or namespace=x"


def test_a_condition_on_nobody_stays_one_on_nobody() -> None:
    hidden = Pseudonyms(b"a key of 16 bytes", ("user",))
    assert str(hidden.in_condition(condition_of('not user=""'))) == str(condition_of('not user=""'))
    assert str(hidden.in_condition(condition_of("user=ann"))) != str(condition_of("user=ann"))


@pytest.mark.parametrize(("hidden", "refused"), [([], False), (["namespace"], False), (["user"], True), (["job", "user"], True)])
def test_a_team_of_users_whose_names_are_not_stored_is_refused(tmp_path: Path, hidden: list[str], refused: bool) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('[[prices]]\namount = 2.0\n[teams.vision]\nusers = ["ann"]\n')
    asked = ServiceSettings(prices_file=str(prices), pseudonyms=hidden)
    if refused:
        with pytest.raises(UllageError, match="the team 'vision' has users, whose names are not stored"):
            checked(asked)
    else:
        assert checked(asked) == asked
