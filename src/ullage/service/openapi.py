"""The OpenAPI document of the service: its addresses from the questions, its answers' schemas from the types that declare them."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import msgspec

import ullage
from ullage.asking.remote import field_schema
from ullage.render.documents import schema
from ullage.service.reported import ReportedSpeed
from ullage.service.served import FORMS, SERVED, ServedQuestion
from ullage.views.json_text import json_text

_FORM = {"type": "string", "enum": list(FORMS), "default": "json", "description": "Form of the answer; csv is one table."}
_ONLY = {"type": "string", "description": "With csv, markdown or text: only this table of the answer, with all its rows."}
_WRONG = {
    "400": "The address asks nothing that can be answered.",
    "404": "There is nothing of that name.",
    "422": "There is no such answer.",
    "503": "There is no answer yet.",
}


@cache
def openapi_document() -> str:
    """Return the document, OpenAPI 3.1."""
    parts: dict[str, Any] = {"Problem": _PROBLEM}
    paths = {_path(one): {"get": _operation(one, parts)} for one in SERVED.values()}
    return json_text(
        {
            "openapi": "3.1.0",
            "info": {"title": "Ullage", "version": ullage.__version__, "description": "How far GPUs fall short of full."},
            "paths": paths | _OWN | {"/api/v1/reported": {"post": _reported(parts)}},
            "components": {"schemas": parts, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        }
    )


def _path(served: ServedQuestion) -> str:
    return f"/api/v1/{served.path}" + ("/{id}" if served.name == "job" else "")


def _operation(served: ServedQuestion, parts: dict[str, Any]) -> dict[str, Any]:
    kinds = [_component(kind, parts) for kind in served.kinds]
    said = inspect.getdoc(served.question.asked) or ""
    parameters = [
        {"name": one.name, "in": "path" if one.name == "id" else "query", "required": one.name == "id", "schema": field_schema(one)}
        for one in served.fields
    ]
    words = [{"name": name, "in": "query", "schema": shape} for name, shape in (("form", _FORM), ("only", _ONLY))]
    body = {"schema": kinds[0] if len(kinds) == 1 else {"anyOf": kinds}}
    content = {"application/json": body} | {
        kind: {"schema": {"type": "string"}} for kind in ("text/html", "text/csv", "text/markdown", "text/plain")
    }
    return {
        "operationId": served.question.function_name,
        "summary": said.partition("\n")[0],
        "description": said,
        "parameters": [*parameters, *words],
        "responses": {"200": {"description": "The answer.", "content": content}}
        | {status: _problem(why) for status, why in _WRONG.items()},
    }


def _component(kind: str, parts: dict[str, Any]) -> dict[str, str]:
    """Add the schema of a kind of document to the components, and return the reference to it."""
    made = schema(kind)
    for name, part in made.pop("$defs", {}).items():
        parts[f"{kind}.{name}"] = _renamed(part, kind)
    made.pop("$schema")
    parts[kind] = _renamed(made, kind)
    return {"$ref": f"#/components/schemas/{kind}"}


def _renamed(part: Any, kind: str) -> Any:
    """Return a schema whose references lead to the components."""
    if isinstance(part, list):
        return [_renamed(one, kind) for one in part]
    if not isinstance(part, dict):
        return part
    found = {name: _renamed(one, kind) for name, one in part.items()}
    if isinstance(found.get("$ref"), str):
        found["$ref"] = found["$ref"].replace("#/$defs/", f"#/components/schemas/{kind}.")
    return found


def _problem(why: str) -> dict[str, Any]:
    return {"description": why, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}


def _reported(parts: dict[str, Any]) -> dict[str, Any]:
    made = msgspec.json.schema(ReportedSpeed)
    parts["ReportedSpeed"] = made["$defs"]["ReportedSpeed"]
    body = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ReportedSpeed"}}}}
    wrong = {"400": "It says nothing.", "403": "The token is missing.", "503": "It can't be kept now."}
    answers = {"200": {"description": "It is kept.", "content": {"application/json": {}}}} | {
        status: _problem(why) for status, why in wrong.items()
    }
    return {
        "operationId": "reported",
        "summary": "What a job says of itself",
        "security": [{"token": []}],
        "requestBody": body,
        "responses": answers,
    }


_PROBLEM = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["problem", "hint"],
            "properties": {"problem": {"type": "string"}, "hint": {"type": ["string", "null"]}},
        }
    },
}


def _plain(summary: str, media: str, statuses: dict[str, str]) -> dict[str, Any]:
    answers = {status: {"description": why, "content": {media: {}}} for status, why in statuses.items()}
    return {"get": {"summary": summary, "responses": answers}}


_OWN = {
    "/healthz": _plain("Whether the process serves", "application/json", {"200": "It does."}),
    "/readyz": _plain("Whether there is an answer", "application/json", {"200": "There is.", "503": "There is none yet, and why."}),
    "/metrics": _plain("How full the fleet is, for a Prometheus", "application/openmetrics-text", {"200": "OpenMetrics 1.0."}),
    "/openapi.json": _plain("This document", "application/json", {"200": "The document."}),
}
