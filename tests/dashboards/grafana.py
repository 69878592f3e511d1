"""What Grafana does with a dashboard, as far as it matters to a query: variables and spans put into it, as its documentation says."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Values = Mapping[str, str | list[str]]  # what is chosen; a list where several may be; "$__all" is everything
SPANS = {"__range": "8s", "__rate_interval": "4s", "__interval": "1s"}


def escaped_as_regex(value: str) -> str:
    """As `${name:regex}` has it."""
    return re.sub(r"[\\^$*+?.()|\[\]{}/]", r"\\\g<0>", value)


def formatted(value: str | list[str], form: str) -> str:
    if form == "raw":
        assert isinstance(value, str)
        return value
    if form == "regex":
        if value == "$__all":
            return ".*"
        values = [value] if isinstance(value, str) else value
        return escaped_as_regex(values[0]) if len(values) == 1 else f"({'|'.join(map(escaped_as_regex, values))})"
    assert form == ""
    return str(value)


def filled(text: str, chosen: Values) -> str:
    """Put variables and spans into a text, in one pass: what stands in a value is not looked at again."""

    def value(found: re.Match[str]) -> str:
        name, form = (found[1] or found[3]), found[2] or ""
        if name in SPANS:
            return SPANS[name]
        return formatted(chosen[name], form)

    return re.sub(r"\$\{(\w+)(?::(\w+))?\}|\$(\w+)", value, text)


@dataclass(frozen=True)
class Server:
    """A Prometheus, asked at one time and over the time before it."""

    url: str
    end: float
    start: float

    def get(self, path: str, **words: str | float) -> Any:
        request = urllib.request.Request(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(words)}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            found = json.load(error)
        assert found["status"] == "success", (words, found)
        assert not found.get("warnings"), (words, found["warnings"])
        return found["data"]

    def asked(self, target: Mapping[str, Any], chosen: Values) -> list[dict[str, Any]]:
        """Return the series that a panel's query gives."""
        query = filled(target["expr"], chosen)
        if target.get("instant"):
            return list(self.get("query", query=query, time=self.end)["result"])
        return list(self.get("query_range", query=query, start=self.start, end=self.end, step=1)["result"])

    def options(self, variable: Mapping[str, Any], chosen: Values) -> list[str]:
        """Return what a variable offers."""
        query = filled(variable["query"]["query"], chosen)
        found = re.fullmatch(r"label_values\((.+), ([a-zA-Z_]\w*)\)", query, re.S)
        assert found is not None, query
        values = self.get(f"label/{found[2]}/values", **{"match[]": found[1], "start": self.start, "end": self.end})
        kept = re.fullmatch(r"/(.*)/", variable["regex"])
        assert kept is not None
        return sorted(value for value in values if re.fullmatch(kept[1], value))


def variables(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(dashboard["templating"]["list"])


def panels(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def targets(dashboard: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield panel, target


def links(dashboard: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each address that a column of a table leads to, with its panel."""
    for panel in panels(dashboard):
        for override in panel["fieldConfig"].get("overrides", ()):
            for one in override["properties"]:
                if one["id"] == "links":
                    yield from ((panel, link["url"]) for link in one["value"])
