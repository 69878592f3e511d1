"""What has not changed is not sent again, and what is sent is packed for who can unpack it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest

from tests.service.running import Client, service, small_store
from ullage.service import packing
from ullage.service.packing import SMALLEST, AnswerPacker, names_digest
from ullage.service.settings import ServiceSettings

GZIP = {"Accept-Encoding": "gzip"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with service(ServiceSettings(source=str(small_store(tmp_path_factory.mktemp("packed"))), answer_limit="600s")) as asking:
        yield asking


@pytest.mark.parametrize("path", ["/", "/jobs", "/hardware", "/api/v1/fleet", "/api/v1/fleet?form=csv", "/openapi.json"])
def test_who_can_unpack_gets_the_same_answer_smaller(client: Client, path: str) -> None:
    plain, packed = client(path), client(path, headers=GZIP)
    assert "content-encoding" not in plain.headers and plain.headers["vary"] == "Accept-Encoding"
    if len(plain.body) < SMALLEST:
        assert packed.body == plain.body
        return
    assert packed.headers["content-encoding"] == "gzip" and packed.headers["etag"] == plain.headers["etag"]
    assert gzip.decompress(packed.body) == plain.body and len(packed.body) < len(plain.body) / 2


@pytest.mark.parametrize("path", ["/", "/api/v1/fleet", "/openapi.json"])
def test_who_has_an_answer_already_gets_it_no_second_time(client: Client, path: str) -> None:
    first = client(path)
    again = client(path, headers={"If-None-Match": first.headers["etag"], **GZIP})
    assert again.status == 304 and again.body == b"" and again.headers["etag"] == first.headers["etag"]
    # a browser takes these in place of the headers it kept
    for name in ("content-security-policy", "cache-control", "x-frame-options"):
        assert again.headers[name] == first.headers[name]
    assert client(path, headers={"If-None-Match": '"another", W/"one"'}).status == 200


def test_other_forms_have_other_etags_and_what_is_hidden_stays_so(client: Client) -> None:
    tags = [client(f"/api/v1/fleet?form={form}").headers["etag"] for form in ("json", "csv", "markdown", "text", "html")]
    assert len(set(tags)) == len(tags)
    # an error has no ETag, so that nobody keeps it in an answer's place
    assert client("/api/v1/job/nobody", headers={"If-None-Match": "*"}).status == 404


@pytest.mark.parametrize(("length", "coding"), [(SMALLEST - 1, None), (SMALLEST, "gzip")])
def test_what_is_small_is_not_packed(length: int, coding: str | None) -> None:
    made = AnswerPacker().response(b"x" * length, "text/plain", {}, {"accept-encoding": "gzip"})
    assert made.headers.get("content-encoding") == coding


def test_what_was_packed_is_kept_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counting(body: bytes, level: int, *, mtime: int) -> bytes:
        calls.append((level, mtime))
        return body

    monkeypatch.setattr(packing.gzip, "compress", counting)
    monkeypatch.setattr(packing, "KEPT_BYTES", 2 * SMALLEST)
    packer, asked = AnswerPacker(), {"accept-encoding": "gzip"}
    for letter in (b"a", b"b", b"a", b"c", b"a", b"b"):  # a and b are kept; c drives b out, the one that was used longest ago
        packer.response(letter * SMALLEST, "text/plain", {}, asked)
    assert len(calls) == 4


def test_an_etag_is_named_whole() -> None:
    assert names_digest('W/"ab"', "ab") and not names_digest('W/"abc"', "ab") and not names_digest("ab", "ab")
