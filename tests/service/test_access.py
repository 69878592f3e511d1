"""Tokens and what each lets one do: both sides of every permission."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.command_line import ask
from tests.service.running import Client, Heard, hour, service, small_store
from ullage.errors import UllageError
from ullage.service.access import Access, read_roles
from ullage.service.pages import PAGES
from ullage.service.served import SERVED, AskedQuestion
from ullage.service.settings import ServiceSettings
from ullage.store.store import Store

ACT, READ, ANN, TEAM = (f"{word}-0123456789abcdef" for word in ("act", "read", "ann", "team"))
TOKENS = f"""# who may do what
act {ACT}
read\t{READ}
read {ANN} user=ann

read {TEAM}  user=nobody or namespace='team a'
"""
WHOLE = ("/doctor", "/watch", "/store/info", "/api/v1/doctor", "/api/v1/watch", "/api/v1/store/info", "/metrics")
PARTS = (
    *("/", "/jobs", "/users", "/hosts", "/trust", "/?by=gpu", "/?against=30m&since=30m", "/?where=not+user=x", "/?noise=1"),
    *("/api/v1/fleet", "/api/v1/fleet?form=csv", "/api/v1/fleet?form=html&by=host", "/api/v1/fleet?form=markdown"),
    *("/map", "/causes", "/causes?by=job", "/api/v1/fleet-map"),
)
FREE = ("/hardware", "/equations", "/api/v1/gpus", "/api/v1/metrics", "/openapi.json", "/healthz", "/readyz")
OTHERS = ("bob", "ml/train-0", "ml%2Ftrain-0", "cyd", "secret-c", "GPU-n2", "GPU-n3")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    place = small_store(tmp_path_factory.mktemp("parted"))
    Store.open(place).append([hour(job="secret-c", user="cyd", host="n3", gpus=1)])
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ULLAGE_SERVE_TOKEN", raising=False)
        patch.setenv("XDG_DATA_HOME", str(place.parent / "home"))
        (place.parent / "tokens").write_text(TOKENS)
        with service(ServiceSettings(source=str(place), tokens_file=str(place.parent / "tokens"), answer_limit="600s")) as asking:
            yield asking


def heard(client: Client, path: str, token: str, method: str = "GET", body: bytes | None = None) -> Heard:
    return client(path, method, {"Authorization": f"Bearer {token}"}, body)


def test_nobody_asks_without_a_token_of_the_file(client: Client) -> None:
    for path in (*WHOLE, *PARTS, "/hardware", "/openapi.json", "/events?page=/"):
        assert client(path).status == 401, path
        assert heard(client, path, ANN[:-1]).status == heard(client, path, "").status == 401, path


@pytest.mark.parametrize("path", [*WHOLE, *PARTS[:2], *FREE, "/job/4711", "/api/v1/job/secret-c"])
def test_who_reads_all_reads_all(client: Client, path: str) -> None:
    assert heard(client, path, READ).status == heard(client, path, ACT).status == 200


def test_only_who_may_act_reports(client: Client) -> None:
    said = b'{"job": "4711", "mfu": 0.41}'
    for token in (READ, ANN, TEAM):
        assert heard(client, "/api/v1/reported", token, "POST", said).status == 403, token
    assert client("/api/v1/reported", "POST", {}, said).status == 401
    assert heard(client, "/api/v1/reported", ACT, "POST", said).status == 200


@pytest.mark.parametrize("path", WHOLE)
def test_what_is_of_the_whole_fleet_is_not_for_who_sees_a_part(client: Client, path: str) -> None:
    said = heard(client, path, ANN)
    assert said.status == 403 and "of the whole fleet" in said.text and "ask with another token" in said.text


def test_every_question_and_page_is_looked_at_here() -> None:
    assert {page.path for page in PAGES} <= {*WHOLE, *PARTS, *FREE}
    assert {f"/api/v1/{one.path}" for one in SERVED.values()} - {"/api/v1/job"} <= {*WHOLE, *PARTS, *FREE}


@pytest.mark.parametrize("path", [*PARTS, *FREE])
def test_who_sees_a_part_sees_nobody_elses_names(client: Client, path: str) -> None:
    said = heard(client, path, ANN)
    assert said.status == 200, said.text
    assert [name for name in OTHERS if name in said.text] == []
    assert path not in PARTS[:4] or "user=ann" in said.text


@pytest.mark.parametrize("where", ["user=bob", "user=bob or user=ann", "not user=ann", "user=*", "user=bob) or (user=bob", "job=secret-c"])
def test_no_words_lead_out_of_a_part(client: Client, where: str) -> None:
    for path in ("/api/v1/fleet", "/", "/users"):
        said = heard(client, f"{path}?where={quote(where)}", ANN)
        assert said.status in (200, 400, 422), said.text
        assert said.status != 200 or "user=ann" in said.text
        assert [name for name in OTHERS if name not in where and name in said.text] == []
    assert heard(client, "/api/v1/fleet?user=bob", ANN).status == 422


def test_a_job_of_others_is_like_one_that_is_not_there(client: Client) -> None:
    assert heard(client, "/job/4711", ANN).status == heard(client, "/api/v1/job/4711", ANN).status == 200
    for job in ("ml%2Ftrain-0", "secret-c", "secret-d"):
        for path in (f"/job/{job}", f"/api/v1/job/{job}", f"/api/v1/job/{job}?form=csv"):
            said = heard(client, path, ANN)
            assert said.status == 404 and "no such job among those" in said.text, path
            assert "bob" not in said.text and "cyd" not in said.text
    assert heard(client, "/api/v1/job/secret-c", ANN).text == heard(client, "/api/v1/job/secret-d", ANN).text
    assert heard(client, "/job/4711", TEAM).status == 404  # nobody's user, and no namespace


def test_streams_are_of_the_part_too(client: Client) -> None:
    def stream(page: str, lines: int) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
        connection.request("GET", f"/events?page={quote(page, safe='')}", headers={"Authorization": f"Bearer {ANN}"})
        answer = connection.getresponse()
        found = b"".join(answer.readline() for _ in range(lines)) if answer.status == 200 else b""
        connection.close()
        return answer.status, found

    assert stream("/doctor", 0)[0] == 403
    status, said = stream("/users", 8)
    assert status == 200 and b"event: headline" in said and b"bob" not in said and b"user=ann" not in said


# --- the file ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("read short", "line 1: a token has at least 16 characters"),
        ("\n# x\nread ", "line 3: a token has at least"),
        (f"write {READ}", "line 1: a line begins with read or act"),
        (f"act {ACT} user=ann", "line 1: who may act acts for the whole fleet"),
        (f"read {ANN} user!=ann", "line 1: a part is some users and namespaces"),
        (f"read {ANN} user=ann and namespace=x", "a part is some users and namespaces"),
        (f"read {ANN} not user=ann", "a part is some users and namespaces"),
        (f"read {ANN} user=''", "a part is some users and namespaces"),
        (f"read {ANN} model=H100", "a part is some users and namespaces"),
        (f"read {ANN} users=ann", "line 1: "),
        (f"read {ANN}\nact {ANN}", "line 2: this token stands there twice"),
        ("# none", "holds no token"),
    ],
)
def test_a_mistake_in_the_file_names_its_line_and_no_token(text: str, said: str) -> None:
    with pytest.raises(UllageError) as error:
        read_roles(text, "tokens")
    assert said in str(error.value) and "0123456789abcdef" not in str(error.value)


def test_an_empty_token_opens_no_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ullage.toml").write_text(f"tokens_file = '{tmp_path}/tokens'")
    (tmp_path / "tokens").write_text("")
    monkeypatch.delenv("ULLAGE_SERVE_TOKEN", raising=False)
    assert "holds no secret" in ask("config", tmp_path / "ullage.toml").err
    (tmp_path / "tokens").write_text(TOKENS)
    assert f"# tokens: hidden, from {tmp_path}/tokens" in ask("config", tmp_path / "ullage.toml").out
    monkeypatch.setenv("ULLAGE_SERVE_TOKEN", " ")
    said = ask("config")
    assert said.code == 1 and "ULLAGE_SERVE_TOKEN is set, and holds no token" in said.err


def test_an_address_of_the_service_is_known_with_and_without_brackets() -> None:
    access = Access(hosts=("fd00::5", "ullage.example"))
    assert access.names("[fd00::5]:80") and access.names("[fd00::5]") and access.names("Ullage.example:9748")
    assert not access.names("[fd00::6]:80") and not access.names("ullage.example.org")


def test_a_role_of_a_name_with_a_star_is_for_that_name_alone() -> None:
    ((_, role),) = read_roles(f"read {ANN} user='*'", "tokens")
    within = role.within_part(AskedQuestion("fleet"))
    assert dict(within.words)["where"] == "user='*'"
    assert role.sees_job({"user": "*"}) and not role.sees_job({"user": "bob"})
