"""Questions to an HTTP server that may be slow, busy, or not what it should be: whole answers, or one clear error.

Failures that may pass (no connection, broken off, 429, 5xx) are tried again, each time after a longer wait with some
chance in it, or after the time that the server asks for. Redirects are followed only within the server, so that
credentials never reach another one.
"""

from __future__ import annotations

import base64
import json
import math
import queue
import random
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urljoin, urlsplit

from ullage.errors import UllageError, UnreadableError, harmless
from ullage.sources.source import LONGER, Options

if TYPE_CHECKING:
    import urllib3

LARGEST = 1024**3  # bytes of one answer; nothing that is asked for comes near
LONGEST_WAIT = 60.0  # seconds; a server that wants more has to be asked another day
_MAY_PASS = {429, 500, 502, 503, 504}
_REDIRECTS = 5
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class ServerError(UnreadableError):
    """A server's refusal. `status` is HTTP's number (0: no answer came), `kind` and `reason` the API's own words."""

    def __init__(self, problem: str, hint: str = "", status: int = 0, kind: str = "", reason: str = "") -> None:
        super().__init__(problem, hint)
        self.status, self.kind, self.reason = status, kind, reason


_Outcome = tuple[bytes, None] | tuple[ServerError, float | None]


@dataclass(frozen=True)
class _Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """Asks one server. `base` is its URL, with `user:password@` and a query for every question if needed.

    `shown` is the URL without both, for messages.

    Its `timeout` is how long a server may say nothing at all, its `deadline` when the asking ends, whatever has come by then.

    `sleep` and `chance` (a number in [0, 1)) are the clock and the dice, replaced in tests.
    """

    def __init__(
        self, base: str, options: Options, sleep: Callable[[float], None] = time.sleep, chance: Callable[[], float] = random.random
    ) -> None:
        parts, credentials = _address(base)
        self._base = parts._replace(query="").geturl().rstrip("/")
        self._query = parse_qsl(parts.query, keep_blank_values=True)
        self.shown = harmless(self._base)
        self._origin = _origin(parts)
        gzip = {} if parts.hostname in _LOOPBACK else {"accept-encoding": "gzip"}
        self._headers = {"user-agent": "ullage", **gzip, **credentials, **{name.lower(): text for name, text in options.headers.items()}}
        self._options, self._sleep, self._chance = options, sleep, chance
        self._pool = _pool(options)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """Return the body of the answer to `GET base/path?query`, decompressed.

        Raises ServerError when it can't be had, after `options.retries` more attempts where waiting may help.
        """
        asked = urlencode([*self._query, *(query or {}).items()])
        url = self._base + path + (f"?{asked}" if asked else "")
        tried = 0
        while True:
            failure, wait = self._in_time(url)
            if isinstance(failure, bytes):
                return failure
            if wait is None or tried >= self._options.retries:
                raise failure
            backoff = min(0.5 * 2**tried * (1 + self._chance()), 30.0)
            pause = min(max(wait, backoff), LONGEST_WAIT)
            if pause >= self._options.deadline.left:
                raise failure
            self._sleep(pause)
            tried += 1

    def _in_time(self, url: str) -> _Outcome:
        """Return what an attempt gives before the deadline.

        A server that drips is never silent, and no timeout of a socket ends it: whoever waits for it is left behind in a thread.
        """
        left = self._options.deadline.left
        late = ServerError(f"{self.shown} had not answered when the deadline passed", LONGER)
        if left == math.inf:
            return self._attempt(url)
        if not left:
            return late, None
        outcomes: queue.SimpleQueue[_Outcome | BaseException] = queue.SimpleQueue()

        def attempt() -> None:
            try:
                outcomes.put(self._attempt(url))
            except BaseException as error:  # whatever it is, it belongs to whoever waits
                outcomes.put(error)

        threading.Thread(target=attempt, daemon=True).start()
        try:
            outcome = outcomes.get(timeout=min(left, threading.TIMEOUT_MAX))
        except queue.Empty:
            return late, None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _attempt(self, url: str) -> _Outcome:
        """Return the body, or an error with the seconds to wait before asking again (None: there is no use)."""
        import urllib3

        try:
            reply = self._ask(url)
        except urllib3.exceptions.SSLError as error:
            problem = f"the TLS certificate of {self.shown} is not trusted ({harmless(str(error.args[0]))})"
            return ServerError(problem, "give the CA file that signed it, or switch the verification off"), None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            return ServerError(f"{self.shown} did not answer: {self._reason(error)}", "is it running, and is this its address?"), 0.0
        except (ValueError, UnicodeError) as error:  # a line feed in a header, a host name that can't be one
            return ServerError(f"{self.shown} can't be asked: {type(error).__name__}", "check the URL and the extra headers"), None
        if 200 <= reply.status < 300:
            return reply.body, None
        refusal = self._refusal(reply)
        # a query that took the server too long will take as long again
        return refusal, _retry_after(reply.headers) if reply.status in _MAY_PASS and refusal.kind != "timeout" else None

    def _ask(self, url: str) -> _Reply:
        """Return the answer, after redirects within the same server."""
        for _ in range(_REDIRECTS):
            reply = self._once(url)
            location = reply.headers.get("location")
            if reply.status not in (301, 302, 303, 307, 308) or location is None:
                return reply
            url = urljoin(url, location)
            if _origin(urlsplit(url)) != self._origin:
                break
        target = harmless(urlsplit(url)._replace(query="", netloc=urlsplit(url).netloc.rsplit("@", 1)[-1]).geturl())
        return _Reply(310, {"location": target}, b"")

    def _once(self, url: str) -> _Reply:
        import urllib3

        limit = self._options.timeout
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)  # the user asked for it
            response = self._pool.request(
                "GET",
                url,
                headers=self._headers,
                timeout=urllib3.Timeout(connect=min(limit, 10.0), read=limit),
                retries=False,
                redirect=False,
                preload_content=False,
            )
        try:
            body = bytearray()
            for piece in response.stream(1 << 20):
                body += piece
                if len(body) > LARGEST:
                    raise UllageError(f"{self.shown} answers with more than {LARGEST:,} bytes", "is it a Prometheus?")
            return _Reply(response.status, {k.lower(): v for k, v in response.headers.items()}, bytes(body))
        finally:
            response.close()  # a connection that was read to its end is back in the pool by then

    def _reason(self, error: Exception) -> str:
        import urllib3

        if isinstance(error, urllib3.exceptions.NameResolutionError):
            return "there is no host of that name"
        if isinstance(error, urllib3.exceptions.NewConnectionError):
            return harmless(str(error).rsplit("] ", 1)[-1].rsplit(": ", 1)[-1].lower())
        if isinstance(error, urllib3.exceptions.TimeoutError):
            return f"nothing came for {self._options.timeout:g} s"
        if isinstance(error, urllib3.exceptions.ProtocolError):
            return "the connection broke off"
        return harmless(f"{type(error).__name__} {error}")

    def _refusal(self, reply: _Reply) -> ServerError:
        """Return the error for an answer that is not a success, in the API's words where it has some."""
        if reply.status == 310:
            place = reply.headers["location"]
            return ServerError(f"{self.shown} redirects to {place}", "a login page? give credentials, or the URL of the API itself", 310)
        kind, reason = api_error(reply.body)
        said = ": ".join(filter(None, (kind, reason))) or f"HTTP status {reply.status}{_page(reply.body)}"
        return ServerError(f"{self.shown} refused: {harmless(said)}", _advice(reply.status), reply.status, kind, reason)


def api_error(body: bytes) -> tuple[str, str]:
    """Return (errorType, error) of a Prometheus API error, the problem that an Ullage service says, two empty words for anything else.

    >>> api_error(b'{"status":"error","errorType":"bad_data","error":"parse error"}')
    ('bad_data', 'parse error')
    >>> api_error(b'{"error":{"problem":"there is no store yet","hint":null}}')
    ('', 'there is no store yet')
    >>> api_error(b"<html>")
    ('', '')
    """
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        return "", ""
    if not isinstance(document, dict):
        return "", ""
    if isinstance(own := document.get("error"), dict):
        return "", str(own.get("problem", ""))
    if document.get("status") != "error":
        return "", ""
    return str(document.get("errorType", "error")), str(document.get("error", ""))


def is_page(body: bytes) -> bool:
    """Return whether an answer is an HTML page, such as a login form.

    >>> is_page(b" <!DOCTYPE html>"), is_page(b"{}")
    (True, False)
    """
    return body.lstrip()[:15].lower().startswith((b"<!doctype", b"<html"))


def _page(body: bytes) -> str:
    return " (an HTML page)" if is_page(body) else ""


def _advice(status: int) -> str:
    if status in (401, 403):
        return "give credentials: a header 'Authorization: Bearer …', or user:password@ in the URL"
    if status == 404:
        return "there is no API under this path; Mimir has it under /prometheus, a VictoriaMetrics cluster under /select/0/prometheus"
    if status == 429:
        return "the server limits how often it may be asked; try later, or a shorter time range"
    return ""


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that `Retry-After` asks for: a number or a date; 0 without it.

    >>> _retry_after({"retry-after": "7"}), _retry_after({"retry-after": "soon"}), _retry_after({})
    (7.0, 0.0, 0.0)
    """
    said = headers.get("retry-after", "").strip()
    if said.isdecimal():
        return float(said)
    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - time.time())
    except (ValueError, TypeError):
        return 0.0


def _address(url: str) -> tuple[SplitResult, dict[str, str]]:
    """Return the URL without user and password, and these as a header for basic authentication."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  (raises for a port that is none)
    except ValueError as error:
        raise UllageError("the URL of the server is malformed", "it should look like http://prometheus:9090") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UllageError(
            f"'{harmless(parts.hostname or url.split('@')[-1])}' is not a URL of a server", "it should look like http://prometheus:9090"
        )
    bare = parts._replace(netloc=parts.netloc.rsplit("@", 1)[-1], fragment="")
    if parts.username is None:
        return bare, {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return bare, {"authorization": "Basic " + base64.b64encode(pair).decode("ascii")}


def _origin(parts: SplitResult) -> tuple[str, str, int]:
    try:
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        port = -1
    return parts.scheme, parts.hostname or "", port


def _pool(options: Options) -> urllib3.PoolManager:
    import urllib3

    if options.verify_tls is False:
        return urllib3.PoolManager(cert_reqs="CERT_NONE", assert_hostname=False)
    if options.verify_tls is True:
        return urllib3.PoolManager()
    try:
        return urllib3.PoolManager(ssl_context=_trusting(options.verify_tls))
    except OSError as error:  # ssl.SSLError is one
        raise UllageError(
            f"the CA file '{options.verify_tls}' can't be used ({error.strerror or error})", "it must hold certificates in PEM form"
        ) from error


def _trusting(authority: str) -> Any:
    import ssl
    from pathlib import Path

    folder = Path(authority).is_dir()
    return ssl.create_default_context(capath=authority if folder else None, cafile=None if folder else authority)
