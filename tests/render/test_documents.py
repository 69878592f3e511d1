"""Documents as JSON: declared as types, filled from reports, published as schemas."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import json
import sys
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import jsonschema
import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from msgspec import UNSET, UnsetType, field

import ullage
from tests.documents import breaches
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.render.documents import KINDS, broken_promises, declared, schema
from ullage.views.declared import At, Document, Made, Moment, Seconds, Words, filled, plain_data
from ullage.views.declared import _readers as readers_of

ROOT = Path(__file__).parents[2]


@dataclass
class Inner:
    name: str = ""
    time: int = 1_500


@dataclass
class Report:
    value: float = 0.5
    inner: Inner | None = None
    rows: tuple[Inner, ...] = (Inner("a"), Inner("b", 3_000))
    by: dict[str, Inner] = dataclasses.field(default_factory=dict)
    at: int = 1_786_363_200_000


class InnerDocument(Document):
    """A row."""

    name: Words
    time: Seconds = field(name="time_s")


class ReportDocument(Document):
    """A report."""

    value: float
    inner: InnerDocument | None
    inner_time: Annotated[Seconds | None, At("inner.time")]
    rows: list[InnerDocument]
    count: Annotated[int, At("rows"), Made(len)]
    by: dict[str, InnerDocument]
    at: Moment
    more: int | UnsetType = UNSET


def test_a_document_is_filled_from_attributes_by_its_declaration():
    rows = [{"name": "a", "time_s": 1.5e-6}, {"name": "b", "time_s": 3e-6}]
    plain = {"value": 0.5, "inner": None, "inner_time": None, "rows": rows, "count": 2, "by": {}, "at": "2026-08-10T12:00:00Z"}
    assert plain_data(ReportDocument, Report(by={})) == plain
    found = plain_data(ReportDocument, Report(inner=Inner(), by={"x": Inner("c")}), value=np.float64(2), count=np.int64(7), more=1)
    assert found["inner"] == {"name": None, "time_s": 1.5e-6} and found["inner_time"] == 1.5e-6 and found["by"]["x"]["name"] == "c"
    assert (found["value"], found["count"], found["more"]) == (2.0, 7, 1) and type(found["value"]) is float and type(found["count"]) is int


def test_what_a_report_lacks_is_a_mistake_unless_it_may_be_missing():
    with pytest.raises(AttributeError, match="name"):
        filled(InnerDocument, Report())


class OtherDocument(Document):
    """Another row."""

    name: str


class EitherDocument(Document):
    """One or the other."""

    inner: InnerDocument | OtherDocument


class InnerOrWordsDocument(Document):
    """A row, or words for it, or nothing."""

    inner: InnerDocument | str | None


@pytest.mark.parametrize(("value", "made"), [("words", "words"), (None, None), (Inner("a"), {"name": "a", "time_s": 1.5e-6})])
def test_a_value_of_a_plain_type_of_a_union_is_taken_as_it_is(value, made):
    assert plain_data(InnerOrWordsDocument, Report(inner=value)) == {"inner": made}


def test_a_union_of_two_types_that_are_filled_is_a_mistake_and_not_filled_as_the_first():
    with pytest.raises(TypeError, match="nothing tells which of"):
        filled(EitherDocument, Report(inner=Inner("a")))
    with pytest.raises(TypeError, match="nothing tells which of"):
        filled(EitherDocument, Report())


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_of_a_kind_has_one_way_to_be_filled(kind):
    declared_types, seen = [declared(kind)], set()
    while declared_types:
        one = declared_types.pop()
        if one not in seen and issubclass(one, Document):
            seen.add(one)
            readers_of(one)
            hints = [field.type for field in msgspec.structs.fields(one)]
            declared_types += [found for hint in hints for found in documents_in(hint)]


def documents_in(hint):
    if isinstance(hint, type) and issubclass(hint, Document):
        return [hint]
    return [found for part in typing.get_args(hint) for found in documents_in(part)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_has_a_schema_that_is_one_and_is_published(kind):
    made = schema(kind)
    jsonschema.Draft202012Validator.check_schema(made)
    assert [*made["properties"]][:2] == ["schema", "version"] and made["description"]
    page = ROOT / "docs" / "schemas" / f"ullage.{kind}-{made['title'].rpartition('/')[2]}.json"
    published, made = json.loads(page.read_text(encoding="utf-8")), json.loads(json.dumps(made))
    assert broken_promises(published, made) == [], "readers would break: raise the number of the kind in ullage/views/document.py"
    assert published == made, "something came: `make docs` prints the schemas anew"


def test_nothing_else_is_published():
    assert len([*(ROOT / "docs" / "schemas").iterdir()]) == len(KINDS)


def test_every_kind_of_view_and_document_in_the_code_is_declared():
    found = set()
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "src" / "ullage").rglob("*.py")]
    for text in [one for one in texts if "View(" in one or "document(" in one or "document_text(" in one]:
        for call in ast.walk(ast.parse(text)):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("View", "document", "document_text"):
                given = [one.value for one in call.keywords if one.arg == "kind"] or call.args[:1]
                found |= {one.value for one in given if isinstance(one, ast.Constant)}
    # why there is no answer is told in words alone; alerts and where to drop a profile are no answers to a question
    assert found - set(KINDS) - {"error", "alerts", "upload"} == set()
    assert set(KINDS) - found <= {"audit-mistakes"}


def test_the_command_prints_schemas_and_lists_them():
    assert json.loads(CliRunner().invoke(cli, ["schema", "fleet"]).output) == schema("fleet")
    assert len(CliRunner().invoke(cli, ["schema"]).output.splitlines()) == len(KINDS) + 1
    with pytest.raises(UllageError, match="no document is of the kind 'flet'"):
        declared("flet")


def test_python_returns_a_document_that_follows_its_schema():
    data = ullage.gemm(1000, 3000, 500, gpu="H100 SXM").json()
    assert data["schema"] == "ullage.gemm/1" and breaches(data) == []
    assert breaches(data | {"m": "1000", "more": 1}) != []


# --- what a new number is needed for ---


def made(**keys):
    parts = {"Part": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}
    return {"type": "object", "properties": keys, "required": [*keys], "$defs": parts}


NULL, PART = {"type": "null"}, {"$ref": "#/$defs/Part"}
NUMBER, INTEGER, TEXT = ({"type": name} for name in ("number", "integer", "string"))


@pytest.mark.parametrize(
    ("before", "after", "broken"),
    [
        (made(x=NUMBER), made(x=NUMBER, y=TEXT), []),
        (made(x=NUMBER), made(x=INTEGER), []),
        (made(x={"anyOf": [NUMBER, NULL]}), made(x=NUMBER), []),
        (made(x=NUMBER), made(y=NUMBER), ["x went"]),
        (made(x=INTEGER), made(x=NUMBER), ["x: ['number'] came"]),
        (made(x=NUMBER), made(x={"anyOf": [NUMBER, NULL]}), ["x: ['null'] came"]),
        (made(x=NUMBER), made(x=NUMBER) | {"required": []}, ["x may be missing"]),
        (made(x=PART), made(x=PART) | {"$defs": {"Part": {"type": "object", "properties": {}}}}, ["x.a went"]),
        (made(x={"type": "array", "items": PART}), made(x={"type": "array", "items": TEXT}), ["x[]: ['string'] came", "x[].a went"]),
        (made(x={"anyOf": [PART, NULL]}), made(x={"anyOf": [made(), NULL]}), ["x.a went"]),
        (made(x={"type": "object", "additionalProperties": NUMBER}), made(x={"type": "object", "additionalProperties": TEXT}),
         ["x[]: ['string'] came"]),
    ],
)  # fmt: skip
def test_what_breaks_readers_is_told(before, after, broken):
    assert broken_promises(before, after) == broken


def test_a_schema_that_breaks_readers_is_not_published_under_its_number(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    sys.modules.pop("schema_files", None)
    schema_files = importlib.import_module("schema_files")
    assert json.loads(schema_files.schema_page("gemm")) == schema("gemm")
    less = schema("gemm")
    del less["properties"]["tile"]
    monkeypatch.setattr(schema_files, "schema", lambda _: less)
    with pytest.raises(SystemExit, match=r"ullage.gemm/1 would break readers \(tile went\)"):
        schema_files.schema_page("gemm")
