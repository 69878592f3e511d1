"""The settings of the service: one file in TOML, whose mistakes are named by line; what the command line says goes before it.

Secrets never stand in it: a token and HTTP headers come from the environment, files of their own, or a supervisor's credentials.
"""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from ullage.alerts.outlets import mail_route
from ullage.askable import read_headers
from ullage.errors import UllageError, did_you_mean, harmless, public
from ullage.reports.fleet.price_file import SECTION, PriceFileError, read_price_table
from ullage.reports.fleet.prices import PriceTable
from ullage.service.access import GivenRole, read_roles
from ullage.service.pseudonyms import Pseudonyms, pseudonyms_of
from ullage.service.served import ReadPlace, request_of
from ullage.toml_lines import line_of, syntax_mistake
from ullage.written_values import expanded_path, seconds

TOKEN, HEADER, PSEUDONYM_KEY = "ULLAGE_SERVE_TOKEN", "ULLAGE_SERVE_HEADER", "ULLAGE_SERVE_PSEUDONYM_KEY"  # variables of the environment
_TABLES = ("keep_names", "defaults")  # settings with words of their own
_SPANS = ("every", "first", "timeout", "answer_limit")
_SECRET = re.compile(r"token|password|secret|header|key", re.IGNORECASE)
SHORTEST_KEPT = 86_400.0  # s for which a name is kept: a store forgets whole days
SHORTEST = 0.1  # s; below, a sampler's readings are not valid


class ServiceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the service is told: what it reads, where it listens, how it answers. Spans are written as 90s, 15m, 24h."""

    source: str | list[str] = ""
    store: str = ""
    jobs: list[str] = msgspec.field(default_factory=list)
    prices_file: str = ""
    every: str = "60s"
    first: str = "24h"
    keep_days: Annotated[int, msgspec.Meta(ge=0)] = 0
    cluster: str = ""
    time_zone: str = ""
    timeout: str = "30s"
    ca: str = ""
    header_file: str = ""
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 9748
    hosts: list[str] = msgspec.field(default_factory=list)
    token_file: str = ""
    tokens_file: str = ""
    answer_limit: str = "60s"
    alert_every: str = ""
    alert_file: str = ""
    weekly_folder: str = ""
    weekly_mail: list[str] = msgspec.field(default_factory=list)
    pseudonyms: list[Literal["user", "namespace", "job", "name", "pod", "container"]] = msgspec.field(default_factory=list)
    pseudonym_key_file: str = ""
    keep_names: dict[Literal["user", "namespace", "name", "pod", "container"], str] = msgspec.field(default_factory=dict)
    uploads: Literal["", "on", "off"] = ""
    remote_write: bool = False
    log: Literal["text", "json"] = "text"
    defaults: dict[str, str | int | float | bool | list[str]] = msgspec.field(default_factory=dict)

    @property
    def sources(self) -> tuple[str, ...]:
        """What is read; nothing: this machine, or a simulated fleet."""
        return tuple([self.source] if isinstance(self.source, str) else self.source) if self.source else ()

    @property
    def prices(self) -> Path | None:
        """The file of prices; None where money is not spoken of, or in the words of `defaults` alone."""
        return expanded_path(self.prices_file).absolute() if self.prices_file else None

    def words(self) -> dict[str, Any]:
        """Return the words that every question has unless a request says others."""
        return dict(request_of("fleet", _pairs(self.defaults)).words)

    def kept_names(self) -> dict[str, int]:
        """Return for how long names of a field are kept (ms), of the fields whose names are not kept for good."""
        return {name: round(seconds(span) * 1000) for name, span in self.keep_names.items()}

    def token(self) -> str:
        """Return the token, "" for none. Raises UllageError for a file that can't be read or is empty."""
        found = os.environ.get(TOKEN, "").strip()
        if TOKEN in os.environ and not found:
            raise UllageError(f"{TOKEN} is set, and holds no token", "put a token into it, or unset it")
        place = self.token_file or _credential("token")
        return found or (_secret(place) if place else "")

    def roles(self) -> tuple[tuple[str, GivenRole], ...]:
        """Return further tokens and what each lets one do. Raises UllageError that names the line of a mistake in their file."""
        place = self.tokens_file or _credential("tokens")
        return read_roles(_secret(place), place) if place else ()

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers for the source: 'NAME: VALUE', a line each."""
        place = self.header_file or _credential("header")
        said = os.environ.get(HEADER, "") or (_secret(place) if place else "")
        return read_headers(tuple(line for line in said.splitlines() if line.strip()), "--header", 0.0)

    def hidden_names(self) -> Pseudonyms | None:
        """Return which names are not kept, and the key of what stands for them. Raises UllageError for one that protects nothing."""
        place = self.pseudonym_key_file or _credential("pseudonym_key")
        key = os.environ.get(PSEUDONYM_KEY, "").strip() or (_secret(place) if place and self.pseudonyms else "")
        return pseudonyms_of(key, self.pseudonyms)


def settings_text(settings: ServiceSettings) -> str:
    """Return settings as a file that says the same, and where the secrets come from, but no secret."""
    lines = [f"{name} = {_toml(getattr(settings, name))}" for name in settings.__struct_fields__ if name not in _TABLES]
    files = {
        "token": (settings.token_file, TOKEN),
        "tokens": (settings.tokens_file, ""),
        "header": (settings.header_file, HEADER),
        "pseudonym_key": (settings.pseudonym_key_file, PSEUDONYM_KEY),
    }
    for what, (place, variable) in files.items():
        origin = variable if variable and os.environ.get(variable, "").strip() else place or _credential(what)
        lines.append(f"# {what}: {f'hidden, from {harmless(origin)}' if origin else 'none'}")
    for table in _TABLES:
        lines += ["", f"[{table}]", *(f"{_toml(word)} = {_toml(value)}" for word, value in getattr(settings, table).items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    text = public(value) if isinstance(value, str) else value  # of a URL, no password and no query
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _credential(name: str) -> str:
    """Return the file of a credential that systemd or another supervisor hands over (LoadCredential); "" where there is none."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY", "")
    return str(Path(folder) / name) if folder and (Path(folder) / name).is_file() else ""


def _pairs(words: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, str(one)) for name, value in words.items() for one in (value if isinstance(value, list) else [value])]


def _secret(place: str) -> str:
    try:
        found = expanded_path(place).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UllageError(
            f"the file '{harmless(place)}' with a secret can't be read: {error}", "make it readable for this user alone"
        ) from None
    if not found:
        raise UllageError(f"the file '{harmless(place)}' holds no secret", "put one into it, in a line")
    return found


def read_settings(file: str | Path) -> ServiceSettings:
    """Return the settings of a file. Raises UllageError that names the line of the first mistake."""
    settings, mistakes = settings_and_mistakes(file)
    if mistakes:
        raise mistakes[0]
    return settings


def settings_and_mistakes(file: str | Path) -> tuple[ServiceSettings, list[UllageError]]:
    """Return the settings of a file that can be read, and every mistake in it, by line. Raises UllageError for what is no TOML."""
    path = expanded_path(file)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UllageError(f"the settings '{harmless(str(file))}' can't be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line, problem = syntax_mistake(error, text)
        raise UllageError(f"{_at(path, line)}: {harmless(problem)}", "TOML: toml.io") from None
    said, found = _with_money(path, text, said) if SECTION in said else (said, [])
    good = dict[str, Any]()
    for name, value in said.items():
        try:
            _check_secret(name, value)
            teams = {"prices_file": good.get("prices_file", "")} if name == "defaults" else {}  # which `by = "team"` needs
            good |= {name: getattr(checked(msgspec.structs.replace(_typed(name, value), **teams)), name)}
        except _SettingError as error:
            found.append(_by_line(error, path, text))
    settings = ServiceSettings(**good)
    if not found:  # each is right by itself, and all together?
        try:
            checked(settings, prices_in=SECTION if settings.prices_file == str(path) else "prices_file")
        except _SettingError as error:
            found.append(_by_line(error, path, text))
    return settings, [error for _, error in sorted(found, key=lambda one: one[0])]


def _by_line(error: _SettingError, path: Path, text: str) -> tuple[int, UllageError]:
    line = line_of(text, error.name)
    return line or 0, UllageError(f"{_at(path, line)}: {error.problem}", error.hint)


def _with_money(path: Path, text: str, said: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[int, UllageError]]]:
    """Return what is `said` with the file itself as that of the prices in place of its section of money, and what is wrong in that."""
    others = {name: value for name, value in said.items() if name not in (SECTION, "prices_file")}
    line = line_of(text, SECTION) or 0
    try:
        if said.get("prices_file"):
            problem = f"{_at(path, line)}: prices stand in [{SECTION}] and in the file of `prices_file`"
            raise PriceFileError(problem, "leave one of the two out", line)
        read_price_table(str(path))
    except PriceFileError as error:
        return others, [(error.line or line, error)]
    return {"prices_file": str(path), **others}, []


def _check_secret(name: str, value: Any) -> None:
    if name not in ServiceSettings.__struct_fields__:
        hint = did_you_mean(name, ServiceSettings.__struct_fields__, "docs/serve.md")
        if _SECRET.search(name):
            hint = f"secrets stand in {TOKEN} and {HEADER}, or in files of their own: `token_file`, `header_file`"
        raise _SettingError(name, UllageError(f"there is no setting '{harmless(name, 60)}'", hint), named=True)
    for place in value if isinstance(value, list) else [value]:
        if name == "source" and isinstance(place, str) and urlsplit(place).password is not None:
            hint = "a line 'Authorization: Basic …' in the file of `header_file` says the same"
            raise _SettingError(name, UllageError("a password stands in a URL", hint))


def _typed(name: str, value: Any) -> ServiceSettings:
    try:
        return msgspec.convert({name: value}, ServiceSettings)
    except msgspec.ValidationError as error:
        problem = str(error).partition(" - at `")[0]
        raise _SettingError(name, UllageError(harmless(problem[:1].lower() + problem[1:]), "docs/serve.md lists all")) from None


class _SettingError(UllageError):
    """A value that a setting can't have."""

    def __init__(self, name: str, error: UllageError, *, named: bool = False) -> None:
        super().__init__(error.problem if named else f"{name}: {error.problem}", error.hint)
        self.name = name


def checked(settings: ServiceSettings, prices_in: str = "prices_file") -> ServiceSettings:
    """Return settings whose every value can be read as it will be. Raises UllageError for the first that can't.

    `prices_in` is what a mistake in the file of prices is said to stand in.
    """
    for name in (*_SPANS, *(["alert_every"] if settings.alert_every else [])):
        with _naming(name):
            if seconds(getattr(settings, name)) < SHORTEST:
                raise UllageError(f"'{harmless(getattr(settings, name))}' is too short", f"{SHORTEST:g} s is the least")
    for field, span in settings.keep_names.items():
        with _naming(field):
            if seconds(span) < SHORTEST_KEPT:
                raise UllageError(f"'{harmless(span)}' is too short", "1d is the least")
    for route in settings.weekly_mail:
        with _naming("weekly_mail"):
            mail_route(route)
    with _naming(prices_in):
        if settings.prices is not None:
            _refuse_unknown_team_members(settings, read_price_table(str(settings.prices)))
    for word, value in settings.defaults.items():
        with _naming(word):
            request_of("fleet", _pairs({word: value})).asked(ReadPlace(prices=str(settings.prices or "")), 0)
    return settings


def _refuse_unknown_team_members(settings: ServiceSettings, table: PriceTable) -> None:
    """Refuse teams of users or namespaces whose names are not stored: all their hours would be nobody's."""
    for team, members in table.teams.items():
        for field, names in (("user", members.users), ("namespace", members.namespaces)):
            if names and field in settings.pseudonyms:
                hint = f"leave {field} out of `pseudonyms`, or the {field}s out of the team"
                raise UllageError(f"the team '{harmless(team, 60)}' has {field}s, whose names are not stored", hint)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except UllageError as error:
        raise _SettingError(name, error) from None


def _at(path: Path, line: int | None) -> str:
    return f"{harmless(str(path))}{'' if line is None else f' line {line}'}"
