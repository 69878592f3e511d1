"""The Prometheus API reader against servers that are busy, broken, or not what they should be."""

from __future__ import annotations

import base64
import json
import math
import ssl
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.fleet.servers import free_port, program, say, scripted
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.sources.http import Client, ServerError
from ullage.sources.prometheus import read_server, recognise
from ullage.sources.source import Options, Place, read_samples

SM = "DCGM_FI_PROF_SM_ACTIVE"
T = 1_700_000_000_000  # ms
DAY = 86_400_000


class Script:
    """A Prometheus in miniature whose n-th query answers as told; anything else as a sound server would."""

    def __init__(self, *answers: Callable[[BaseHTTPRequestHandler], None]) -> None:
        self.answers = list(answers)
        self.queries: list[dict[str, list[str]]] = []
        self.headers: list[dict[str, str]] = []

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        self.headers.append({name.lower(): text for name, text in handler.headers.items()})
        if parts.path.endswith("__name__/values"):
            say(handler, json.dumps({"status": "success", "data": [SM, "up"]}))
        elif parts.path.endswith(("/query", "/query_range")):
            self.queries.append(parse_qs(parts.query))
            (self.answers.pop(0) if self.answers else good)(handler)
        else:
            say(handler, "404 page not found", 404, "text/plain")


def good(handler: BaseHTTPRequestHandler) -> None:
    """One reading, at the time that was asked for."""
    asked = parse_qs(urlsplit(handler.path).query)
    value = [float(asked["time"][0]), "0.5"]
    labels = {"__name__": SM, "UUID": "GPU-1", "gpu": "0"}
    say(handler, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [{"metric": labels, "values": [value]}]}}))


def api_error(status: int, kind: str, text: str) -> Callable[[BaseHTTPRequestHandler], None]:
    return lambda handler: say(handler, json.dumps({"status": "error", "errorType": kind, "error": text}), status)


def broken_off(handler: BaseHTTPRequestHandler) -> None:
    """Half an answer, and then nothing."""
    say(handler, '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__na', Content_Length="5000")
    handler.close_connection = True


def ask(script: Script, waits: list[float] | None = None, problems: Problems | None = None, **more: object) -> list[int]:
    """Read half an hour through a script; gives the number of rows of each batch."""
    options = Options(**{"since": T, "until": T + 1_800_000, "timeout": 5.0} | more)  # type: ignore[arg-type]
    with scripted(script) as url:
        client = Client(url, options, sleep=(waits if waits is not None else []).append, chance=lambda: 0.5)
        return [batch.num_rows for batch in read_server(client, options, problems if problems is not None else Problems())]


def test_a_busy_server_is_asked_again_after_longer_and_longer_waits() -> None:
    busy = lambda handler: say(handler, "busy", 503, "text/plain")  # noqa: E731
    waits: list[float] = []
    # half a second, doubled each time, times 1 + chance (here 0.5)
    assert sum(ask(Script(busy, busy, busy), waits)) == 2
    assert waits == [0.75, 1.5, 3.0]


def test_a_server_that_says_when_to_come_back_is_obeyed_within_a_minute() -> None:
    waits: list[float] = []
    ask(Script(lambda h: say(h, "", 429, Retry_After="7"), lambda h: say(h, "", 503, Retry_After="86400")), waits)
    assert waits == [7.0, 60.0]


def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    waits: list[float] = []
    assert sum(ask(Script(broken_off, broken_off), waits)) == 2
    assert len(waits) == 2


def test_a_server_that_stays_broken_is_given_up_after_the_retries() -> None:
    script = Script(*[broken_off] * 9)
    with pytest.raises(UllageError, match="did not answer: the connection broke off"):
        ask(script, retries=2)
    assert len(script.queries) == 3


def test_a_server_that_stops_in_the_middle_tells_what_was_read() -> None:
    # the first chunk is 10 minutes long and answered, the second is not
    options = Options(since=T, until=T + DAY, retries=1, timeout=5)
    with scripted(Script(good, *[broken_off] * 9)) as url:
        batches = read_server(Client(url, options, sleep=lambda _: None), options, Problems())
        assert next(batches).num_rows == 1
        with pytest.raises(UllageError) as caught:
            next(batches)
    assert caught.value.problem.endswith("broke off, after 2023-11-14T22:13:20Z to 2023-11-14T22:23:20Z was read")
    assert caught.value.hint == "what was read is kept; go on with --since 2023-11-14T22:23:20Z"


def test_a_body_shorter_than_it_says_is_never_taken_for_the_whole() -> None:
    with pytest.raises(UllageError, match="not whole"):
        ask(
            Script(
                lambda h: say(
                    h, '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2"]', Content_Length="60"
                )
            )
        )


@pytest.mark.parametrize("page", ["<!DOCTYPE html><html><form>log in</form></html>", " <html></html>"])
def test_a_login_page_is_named(page: str) -> None:
    with pytest.raises(UllageError, match="an HTML page where JSON was expected"):
        ask(Script(lambda h: say(h, page, kind="text/html")))
    with (
        scripted(lambda h: say(h, page, kind="text/html")) as url,
        pytest.raises(UllageError, match="an HTML page where the API's JSON was expected"),
    ):
        list(read_samples(f"prometheus+{url}"))


def test_an_error_of_the_api_is_one_harmless_line() -> None:
    with pytest.raises(UllageError) as caught:
        ask(Script(api_error(500, "internal", "disk\n\x1b[31mfull"), *[api_error(500, "internal", "disk\n\x1b[31mfull")] * 9), retries=1)
    assert caught.value.problem.endswith("refused: internal: disk\\n\\x1b[31mfull")


def test_a_question_that_is_too_large_is_halved() -> None:
    script = Script(
        api_error(422, "execution", "query processing would load too many samples into memory"),
        api_error(503, "timeout", "query timed out"),
    )
    assert sum(ask(script)) >= 3
    selectors = [query["query"][0].split("[")[1] for query in script.queries]
    assert selectors[:3] == ["600000ms]", "300000ms]", "150000ms]"]


def test_a_question_that_is_always_too_large_ends_in_an_error() -> None:
    with pytest.raises(UllageError, match="too many samples"):
        ask(Script(*[api_error(422, "execution", "too many samples")] * 99))


def test_where_range_selectors_are_refused_the_grid_is_asked() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        # readings at T + 7.5 s + 20 s * n, each shown for 5 minutes from then on
        asked = {name: texts[0] for name, texts in parse_qs(urlsplit(handler.path).query).items()}
        if "[" in asked["query"]:
            api_error(400, "bad_data", "range selectors are not supported")(handler)
            return
        start, end, step = (float(asked[name]) for name in ("start", "end", "step"))
        values = []
        for number in range(int((end - start) / step) + 1):
            point = start + number * step
            last = math.floor((point - T / 1000 - 7.5) / 20)
            if last >= 0:
                made = T / 1000 + 7.5 + 20 * last
                values.append([point, repr(made) if "timestamp" in asked["query"] else repr(last % 50 / 100)])
        labels = {"UUID": "GPU-1", "gpu": "0"} | ({} if "timestamp" in asked["query"] else {"__name__": SM})
        say(handler, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [{"metric": labels, "values": values}]}}))

    script, problems = Script(*[answer] * 99), Problems()
    # (1800 - 7.5) / 20 = 89.6: 90 readings
    assert sum(ask(script, problems=problems)) == 90
    assert "refuses range selectors; its readings were found by asking every 10 s" in problems.notes[0]


def test_warnings_of_the_server_are_noted_once() -> None:
    def partly(handler: BaseHTTPRequestHandler) -> None:
        say(handler, '{"status":"success","data":{"resultType":"matrix","result":[]},"warnings":["store 1 is down"]}')

    problems = Problems()
    ask(Script(partly, partly), problems=problems)
    assert [note for note in problems.notes if "store 1" in note] == [problems.notes[0]]


def test_a_server_without_gpu_metrics_is_told_apart_from_one_that_does_not_answer() -> None:
    with (
        scripted(lambda h: say(h, '{"status":"success","data":["up","go_goroutines"]}')) as url,
        pytest.raises(UllageError, match=r"has no GPU metric that Ullage knows between .* \(2 metrics are others\)"),
    ):
        list(read_samples(f"prometheus+{url}"))
    with pytest.raises(UllageError, match=r"did not answer: .*refused"):
        list(read_samples(f"prometheus+http://127.0.0.1:{free_port()}", Options(retries=0)))


def test_a_slow_server_is_given_up_after_the_timeout() -> None:
    with pytest.raises(UllageError, match=r"did not answer: nothing came for 0\.2 s"):
        ask(Script(lambda _: time.sleep(1)), timeout=0.2, retries=0)


def test_credentials_in_the_url_are_sent_and_never_shown() -> None:
    script = Script(*[api_error(401, "", "")] * 9)
    options = Options(since=T, until=T + 60_000, headers={"X-Scope-OrgID": "gpu"})
    with scripted(script) as url, pytest.raises(UllageError) as caught:
        list(read_server(Client(url.replace("http://", "http://ann:s%40fe@"), options), options, Problems()))
    assert {head["authorization"] for head in script.headers} == {"Basic " + base64.b64encode(b"ann:s@fe").decode()}
    assert {head["x-scope-orgid"] for head in script.headers} == {"gpu"}
    assert "ann" not in str(caught.value)
    assert "s%40fe" not in str(caught.value)
    assert "credentials" in caught.value.hint


def test_a_bearer_token_given_as_header_wins_over_the_url() -> None:
    script = Script()
    options = Options(since=T, until=T + 60_000, headers={"Authorization": "Bearer t"})
    with scripted(script) as url:
        list(read_server(Client(url.replace("http://", "http://ann:safe@"), options), options, Problems()))
    assert {head["authorization"] for head in script.headers} == {"Bearer t"}


def test_a_redirect_within_the_server_is_followed_and_one_to_another_is_not() -> None:
    script = Script(lambda h: say(h, "", 302, Location=h.path.replace("/query", "/moved/query")))
    assert sum(ask(script)) == 2
    stranger = Script()
    with scripted(stranger) as other, pytest.raises(UllageError, match=r"redirects to http://127.0.0.1:.*/login"):
        ask(Script(lambda h: say(h, "", 302, Location=f"{other}/login?token=1")), headers={"Authorization": "Bearer t"})
    assert stranger.headers == []


def test_redirects_in_a_circle_end() -> None:
    with scripted(lambda h: say(h, "", 302, Location=h.path)) as url, pytest.raises(ServerError, match="redirects to"):
        Client(url, Options()).get("/api/v1/query")


@pytest.mark.parametrize("url", ["http://", "http://h:99999", "http://[::1", "ftp://h", "http://a b"])
def test_a_url_that_is_none_is_one_clear_error(url: str) -> None:
    with pytest.raises(UllageError):
        Client(url, Options(retries=0)).get("/")


def test_a_header_that_can_not_be_one_is_not_shown() -> None:
    with scripted(good) as url, pytest.raises(UllageError) as caught:
        Client(url, Options(headers={"Authorization": "Bearer s\r\nX: y"})).get("/")
    assert "Bearer" not in str(caught.value)


def test_a_query_in_the_url_goes_with_every_question_and_is_never_shown() -> None:
    script = Script(*[api_error(400, "bad_data", "no")] * 9)
    with scripted(script) as url, pytest.raises(UllageError) as caught:
        list(read_samples(f"prometheus+{url}/api/v1?tenant=gpu&key=s3", Options(since=T, until=T + 60_000)))
    assert script.queries[0]["tenant"] == ["gpu"]
    assert "s3" not in str(caught.value)


def test_a_certificate_is_verified_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = [program("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    make += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(make, check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    hour = Options(since=T, until=T + 600_000, retries=0)
    with scripted(Script(), tls) as url:
        for trust in (False, str(certificate)):
            assert sum(batch.num_rows for batch in read_samples(f"prometheus+{url}", replace(hour, verify_tls=trust))) == 1
        with pytest.raises(UllageError, match=r"the TLS certificate of https://127.0.0.1:.* is not trusted"):
            list(read_samples(f"prometheus+{url}", hour))
        with pytest.raises(UllageError, match=r"the CA file .* can't be used"):
            list(read_samples(f"prometheus+{url}", replace(hour, verify_tls=str(key))))


def test_an_empty_time_range_is_an_error() -> None:
    with pytest.raises(UllageError, match="the time range is empty"):
        list(read_samples("prometheus+http://127.0.0.1:1", Options(since=T, until=T)))


@pytest.mark.parametrize(
    ("status", "body", "score"),
    [(200, '{"status":"success","data":{}}', 2), (401, "", 2), (404, "", 0), (200, "<html></html>", 0), (500, "", 0)],
)
def test_a_plain_url_is_probed_once_and_without_credentials(status: int, body: str, score: int) -> None:
    seen: list[str | None] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers["authorization"])
        say(handler, body, status)

    with scripted(answer) as url:
        assert recognise(Place(url.replace("http://", "http://ann:safe@"))) == score
        assert seen in ([None], [None, None])
        assert recognise(Place(url + "/metrics")) == 0
        assert len(seen) <= 2


def test_recognition_of_what_is_no_url_asks_nobody(tmp_path: Path) -> None:
    assert (
        recognise(Place("http://127.0.0.1:1", tmp_path / "a")) == recognise(Place("nvml://")) == recognise(Place("http://127.0.0.1:1")) == 0
    )
