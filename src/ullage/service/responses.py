"""What handlers of requests share: answers in JSON, what a problem looks like, and what a request may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ullage.errors import NoSuchNameError, UllageError
from ullage.service.access import ROLE, GivenRole
from ullage.service.settings import TOKEN
from ullage.views.json_text import json_text

KINDS = {
    "html": "text/html; charset=utf-8",
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "markdown": "text/markdown; charset=utf-8",
    "text": "text/plain; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
SEND_TOKEN = f"give the service a token in {TOKEN}, and send it as 'Authorization: Bearer TOKEN'"


def problem_response(status: int, problem: str, hint: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return what is wrong, and what to do about it, as JSON."""
    return json_response({"error": {"problem": problem, "hint": hint or None}}, status, headers)


def json_response(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return plain data as JSON."""
    return Response(json_text(data), status, headers=dict(headers or {}), media_type=KINDS["json"])


def role_of_request(http: HttpRequest) -> GivenRole:
    """Return what a request may do: the guard has put it there, or let nobody pass."""
    role: GivenRole = http.scope[ROLE]
    return role


def status_of_error(error: UllageError) -> int:
    """Return the HTTP status that an error is answered with."""
    kinds: tuple[tuple[type[UllageError], int], ...] = ((NotAllowedError, 403), (BadRequestError, 400), (NoSuchNameError, 404))
    return next((status for kind, status in kinds if isinstance(error, kind)), 422)


class NotAllowedError(UllageError):
    """A request for more than its token lets one see."""


class BadRequestError(UllageError):
    """A request that asks nothing that can be answered, whatever is read."""
