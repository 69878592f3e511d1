"""`ullage.toml`: every setting is typed, and the first mistake is named by its line."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.command_line import ask
from ullage.errors import UllageError
from ullage.service.settings import ServiceSettings, read_settings
from ullage.service.start import access_of
from ullage.units import DAY_MS

DOCS = Path(__file__).parents[2] / "docs" / "serve.md"


def test_the_example_of_the_guide_is_read_and_shows_every_setting(tmp_path: Path) -> None:
    example = DOCS.read_text().split("```toml\n")[1].split("```")[0]
    (tmp_path / "ullage.toml").write_text(example)
    settings = read_settings(tmp_path / "ullage.toml")
    assert settings.words() == {"carbon": "380"} and settings.sources == ("http://prometheus:9090",)
    assert {*tomllib.loads(example)} == {*ServiceSettings.__struct_fields__, "money"}
    assert settings.kept_names() == {"user": 30 * DAY_MS, "name": 90 * DAY_MS}


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("port = 1\nprot = 2", 2, "did you mean 'port'"),
        ("\n\nport = 'x'", 3, "port: expected `int`, got `str`"),
        ("port = 65536", 1, "port: expected `int` <= 65535"),
        ("keep_days = -1", 1, "keep_days"),
        ("host = 'a'\nevery = 'often'", 2, "'often' is not a span of time"),
        ("every = '0.01s'", 1, "too short"),
        ("log = 'xml'", 1, "log: invalid enum value 'xml'"),
        ("jobs = 'a.txt'", 1, "jobs: expected `array`"),
        ("jobs = [1]", 1, "jobs: expected `str`"),
        ("port = 1\nport = 2", 2, "overwrite"),
        ("port =", 1, "nvalid value"),
        ("[defaults]\nby = 'nobody'", 2, "can't group by 'nobody'"),
        ("port = 1\n\n[defaults]\nbye = 'job'", 4, "did you mean"),
        ("[defaults]\nsources = '/etc/passwd'", 2, "has no 'sources'"),
        ("[defaults]\nprice = ['H100=much']", 2, "is not a price"),
        ("port = 1\n[keep_names]\nuser = '86399s'", 3, "'86399s' is too short"),
        ("port = 1\n[keep_names]\nuser = 'long'", 3, "user: 'long' is not a span of time"),
        ("port = 1\n[keep_names]\nhost = '30d'", 2, "keep_names: invalid enum value 'host'"),
        ("[keep_names]\nuser = 30", 1, "keep_names: expected `str`, got `int`"),
        ("port = 1\nprices_file = '/none.toml'", 2, "prices_file: the file of prices /none.toml can't be read"),
        ("[defaults]\nby = 'team'", 2, "no team is known"),
        ("port = 1\n[money]\ncurrency = '12'", 3, "can't be the name of a currency"),
        ("[money]\nkwh_price = 'dear'", 2, "kwh_price: expected a number, got text"),
        ("[[money.prices]]\namount = 1\n[[money.prices]]\namount = -1", 4, "price 2 has the amount -1"),
        ("prices_file = 'x.toml'\n[money]\ncurrency = 'EUR'", 2, "leave one of the two out"),
        ("money = 3", 1, "expected a table, got a number"),
        ("pseudonyms = ['user']\n[money.teams.a]\nusers = ['ann']", 2, "the team 'a' has users, whose names are not stored"),
    ],
)
def test_a_mistake_is_named_by_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    file = tmp_path / "ullage.toml"
    file.write_text(text)
    with pytest.raises(UllageError) as error:
        read_settings(file)
    assert f"{file} line {line}: " in error.value.problem and said in str(error.value), str(error.value)
    checked = ask("serve", "--config", file, "--check")
    assert checked.code == 1 and f"line {line}" in checked.err


def test_a_file_that_is_not_there_or_no_text_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name in ("none.toml", "bytes", "."):
        with pytest.raises(UllageError, match="can't be read"):
            read_settings(tmp_path / name)


def test_options_go_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "ullage.toml").write_text("host = '0.0.0.0'\nport = 0")
    said = ask("serve", "--config", tmp_path / "ullage.toml", "--check")
    assert (said.code, said.out) == (0, f"{tmp_path}/ullage.toml: nothing is wrong\n")
    assert ask("serve", tmp_path, "--config", tmp_path / "ullage.toml", "--every", "x", "--check").code == 1
    refused = ask("serve", tmp_path, "--config", tmp_path / "ullage.toml")
    assert refused.code == 1 and "no token" in refused.err


def test_secrets_come_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ULLAGE_SERVE_TOKEN", raising=False)
    (tmp_path / "token").write_text(" s3cret\n")
    (tmp_path / "headers").write_text("Authorization: Bearer x\nX-Scope-OrgID: a\n")
    settings = ServiceSettings(token_file=str(tmp_path / "token"), header_file=str(tmp_path / "headers"), host="0.0.0.0")
    assert access_of(settings).token == "s3cret"
    assert settings.headers() == {"Authorization": "Bearer x", "X-Scope-OrgID": "a"}
    monkeypatch.setenv("ULLAGE_SERVE_TOKEN", "other")
    assert access_of(settings).token == "other"
    (tmp_path / "token").write_text("\n")
    monkeypatch.delenv("ULLAGE_SERVE_TOKEN")
    with pytest.raises(UllageError, match="holds no secret"):
        access_of(settings)
    with pytest.raises(UllageError, match="can't be read"):
        access_of(ServiceSettings(token_file=str(tmp_path / "none")))


def test_every_mistake_is_told_at_once_by_line(tmp_path: Path) -> None:
    file = tmp_path / "ullage.toml"
    file.write_text("prot = 1\nlog = 'xml'\nport = 9\n\n[defaults]\nbye = 'job'\n")
    said = ask("config", "--check", file)
    assert said.code == 1 and said.out == ""
    assert [line.split(": ")[1] for line in said.err.splitlines() if line.startswith("ullage: ")] == [
        f"{file} line 1", f"{file} line 2", f"{file} line 6"
    ]  # fmt: skip
    assert "did you mean 'port'" in said.err
    file.write_text("port = 9\n")
    assert ask("config", "--check", file).out == f"{file}: nothing is wrong\n"
    assert ask("config", "--check").code == 2


@pytest.mark.parametrize("name", ["token", "api_key", "password", "header"])
def test_a_secret_in_the_settings_is_a_mistake_and_is_not_repeated(tmp_path: Path, name: str) -> None:
    file = tmp_path / "ullage.toml"
    file.write_text(f"{name} = 's3cret'\n")
    said = ask("config", file)
    assert said.code == 1 and "files of their own" in said.err and "s3cret" not in said.err + said.out
    file.write_text("source = ['http://prometheus', 'http://ann:s3cret@prometheus']")
    said = ask("config", file)
    assert said.code == 1 and "a password stands in a URL" in said.err and "s3cret" not in said.err + said.out


def test_settings_are_printed_as_a_file_that_says_the_same_without_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ULLAGE_SERVE_TOKEN", "s3cret")
    example = DOCS.read_text().split("```toml\n")[1].split("```")[0]
    example = "\n".join(line for line in example.splitlines() if not line.startswith(("header_file", "token")))
    (tmp_path / "a.toml").write_text(example.replace('"east"', r'"e\"a\\st\u007f\u0007 ü"'))
    said = ask("config", tmp_path / "a.toml")
    assert (
        said.code == 0
        and "s3cret" not in said.out
        and "# token: hidden, from ULLAGE_SERVE_TOKEN\n# tokens: none\n# header: none\n" in said.out
    )
    (tmp_path / "b.toml").write_text(said.out)
    assert read_settings(tmp_path / "b.toml") == read_settings(tmp_path / "a.toml")
    assert ask("config", tmp_path / "b.toml").out == said.out
    (tmp_path / "c.toml").write_text(ask("config").out)
    assert read_settings(tmp_path / "c.toml") == ServiceSettings()


def test_a_supervisor_hands_over_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ULLAGE_SERVE_TOKEN", raising=False)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert ServiceSettings().token() == "" and ServiceSettings().headers() == {}
    (tmp_path / "token").write_text("s3cret\n")
    (tmp_path / "header").write_text("X-Scope-OrgID: a\n")
    assert ServiceSettings().token() == "s3cret" and ServiceSettings().headers() == {"X-Scope-OrgID": "a"}
    assert f"# token: hidden, from {tmp_path}/token" in ask("config").out
    (tmp_path / "token").write_text("")  # an empty one is none to sign with, and opens no door
    assert ask("config").code == 1 and "holds no secret" in ask("config").err
