"""The OpenAPI document of the service: its addresses from the questions, its answers' schemas from the types that declare them."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import msgspec

import ullage
from ullage.alerts.measured_fix import MeasuredFix
from ullage.alerts.problem import Problem
from ullage.asking.remote import field_schema
from ullage.render.documents import schema
from ullage.service.alerting import Acknowledged, AttachedProfile, Silenced
from ullage.service.reported import ReportedSpeed
from ullage.service.responses import KINDS
from ullage.service.served import FORMS, SERVED, ServedQuestion
from ullage.sources.running_service import SAMPLES_PATH
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
def openapi_document(alerts: bool = False, uploads: bool = False, remote_write: bool = False) -> str:
    """Return the document, OpenAPI 3.1, of a service that raises `alerts`, takes `uploads` and samples by `remote_write`, or not."""
    parts: dict[str, Any] = {"Problem": _PROBLEM}
    paths = {_path(one): {"get": _operation(one, parts)} for one in SERVED.values()} | (_alert_paths(parts) if alerts else {})
    paths |= _OWN | (_UPLOADS if uploads else {}) | (_REMOTE_WRITE if remote_write else {})
    return json_text(
        {
            "openapi": "3.1.0",
            "info": {"title": "Ullage", "version": ullage.__version__, "description": "How far GPUs fall short of full."},
            "paths": paths | {"/api/v1/reported": {"post": _reported(parts)}},
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
    wrong = {"400": "It says nothing.", "403": "The token is missing.", "503": "It can't be kept now."}
    return _posted("reported", "What a job says of itself", ReportedSpeed, "It is kept.", wrong, parts)


def _alert_paths(parts: dict[str, Any]) -> dict[str, Any]:
    parts["Alerts"] = _ALERTS
    parts |= {name: one for name, one in _PARTS_OF_PROBLEM.items() if name != "Problem"}
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Alerts"}}}
    answers = {"200": {"description": "All.", "content": content}, "403": _problem("The token is for a part of the fleet.")}
    read = {"operationId": "alerts", "summary": "Alerts, and silences", "responses": answers}
    wrong = {"400": "It says nothing.", "403": "The token is missing."}
    acknowledged = _posted("acknowledge", "That somebody looks after an alert", Acknowledged, "It is kept.", wrong, parts)
    acknowledged["responses"]["404"] = _problem("No such alert is open.")
    attached = _posted("attach_profile", "That a profile came for an alert", AttachedProfile, "It is kept.", wrong, parts)
    attached["responses"]["404"] = _problem("There is no such alert.")
    silenced = _posted("silence", "That nobody is to be told for a while", Silenced, "Its number.", wrong, parts)
    return {
        "/api/v1/alerts": {"get": read},
        "/api/v1/alerts/acknowledge": {"post": acknowledged},
        "/api/v1/alerts/profile": {"post": attached},
        "/api/v1/silences": {"post": silenced},
    }


def _posted(name: str, summary: str, kind: type, kept: str, wrong: dict[str, str], parts: dict[str, Any]) -> dict[str, Any]:
    """Return the operation that takes a body of a kind, whose schema is added to the components; it needs a token that lets one act."""
    parts[kind.__name__] = msgspec.json.schema(kind)["$defs"][kind.__name__]
    body = {"required": True, "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}}
    answers = {"200": {"description": kept, "content": {"application/json": {}}}}
    return {
        "operationId": name,
        "summary": summary,
        "security": [{"token": []}],
        "requestBody": body,
        "responses": answers | {status: _problem(why) for status, why in wrong.items()},
    }


_WORD, _TIME = {"type": ["string", "null"]}, {"type": ["string", "null"], "description": "ISO 8601, UTC"}
_PARTS_OF_PROBLEM = msgspec.json.schema_components([Problem, MeasuredFix], ref_template="#/components/schemas/{name}")[1]
_ALERTS = {
    "type": "object",
    "required": ["alerts", "silences"],
    "properties": {
        "alerts": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["key", "state", "owner", "gpu_hours", "silenced"],
                "properties": {
                    "key": {"type": "string"},
                    "state": {"enum": ["pending", "open", "resolved"]},
                    **dict.fromkeys(("first_seen", "last_seen", "opened", "resolved"), _TIME),
                    **dict.fromkeys(("acknowledged_by", "note"), _WORD),
                    "silenced": {"type": "boolean"},
                    "fix": {"anyOf": [{"type": "null"}, {"$ref": "#/components/schemas/MeasuredFix"}]},
                    "profiles": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["profile", "by", "at", "note", "next"],
                            "properties": {key: {"type": "string"} for key in ("profile", "by", "at", "note", "next")},
                        },
                    },
                    **_PARTS_OF_PROBLEM["Problem"]["properties"],
                },
            },
        },
        "silences": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["number", "until", "by"],
                "properties": {"number": {"type": "integer"}, "until": _TIME, **dict.fromkeys(("owner", "kind", "by", "note"), _WORD)},
            },
        },
    },
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


_SENT_PROFILE = {
    "operationId": "upload",
    "summary": "A profile, for its report",
    "security": [{"token": []}],
    "requestBody": {"required": True, "content": {"application/octet-stream": {}}},
    "responses": {
        "200": {"description": "Where the report is: id, page, document.", "content": {"application/json": {"schema": {"type": "object"}}}},
        **{
            status: _problem(why)
            for status, why in {
                "403": "The token is missing.",
                "404": "This service takes no profiles.",
                "413": "It is too large.",
                "415": "It does not come as application/octet-stream.",
                "422": "It can't be read, or not within the limits of an upload.",
                "503": "Others wait.",
            }.items()
        },
    },
}
_UPLOADS = {"/api/v1/uploads": {"post": _SENT_PROFILE}}
_SENT_SAMPLES = {
    "operationId": "remote_write",
    "summary": "Samples, as Prometheus remote write 1.0",
    "security": [{"token": []}],
    "requestBody": {"required": True, "content": {"application/x-protobuf": {}}},
    "responses": {
        "204": {"description": "They are kept."},
        **{
            status: _problem(why)
            for status, why in {
                "400": "It is no remote write.",
                "403": "The token is missing.",
                "413": "It is too large.",
                "415": "It is of another protocol than 1.0.",
                "503": "It can't be taken now: send it again.",
            }.items()
        },
    },
}
_REMOTE_WRITE = {"/api/v1/write": {"post": _SENT_SAMPLES}}
_OWN = {
    "/healthz": _plain("Whether the process serves", "application/json", {"200": "It does."}),
    "/readyz": _plain("Whether there is an answer", "application/json", {"200": "There is.", "503": "There is none yet, and why."}),
    "/metrics": _plain("How full the fleet is, for a Prometheus", "application/openmetrics-text", {"200": "OpenMetrics 1.0."}),
    SAMPLES_PATH: _plain(
        "The samples of the last five minutes that the token lets one see",
        KINDS["parquet"],
        {"200": "A Parquet file, with the fields of `ullage metrics --fields`.", "503": "There is none yet, and why."},
    ),
    "/openapi.json": _plain("This document", "application/json", {"200": "The document."}),
}
