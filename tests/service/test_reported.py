"""What a job reports of itself over HTTP stands beside its OFU, and only who has the token may say it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import ask
from tests.fleet.servers import wait_for
from tests.service.running import Client, service, small_store
from ullage.service.settings import ServiceSettings

TOKEN = {"Authorization": "Bearer s3cret"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_store(tmp_path_factory.mktemp("reported"))


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[Client]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ULLAGE_SERVE_TOKEN", "s3cret")
        patch.setenv("XDG_DATA_HOME", str(place.parent / "home"))
        with service(ServiceSettings(source=str(place))) as asking:
            yield asking


def post(client: Client, said: object, **headers: str) -> tuple[int, str]:
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    heard = client("/api/v1/reported", "POST", {**TOKEN, **headers}, body)
    return heard.status, heard.text


def test_the_last_report_of_a_job_stands_beside_its_ofu(client: Client, place: Path) -> None:
    assert post(client, {"job": "4711", "mfu": 0.9})[0] == 200
    assert post(client, {"job": "4711", "mfu": 0.41})[0] == 200
    wait_for(lambda: client("/api/v1/fleet", headers=TOKEN).headers["ullage-current"] == "true")
    found = client("/api/v1/fleet", headers=TOKEN).json["agreement"]
    assert [(row["job"], row["mfu"]) for row in found["most_divergent"]] == [("4711", 0.41)]
    command = client("/api/v1/fleet", headers=TOKEN).json["command"]
    assert found == ask(*shlex.split(command)[1:], "--json").json["agreement"]
    of_job = client("/api/v1/job/4711", headers=TOKEN).json
    assert of_job["reported"] == found["most_divergent"]
    assert re.search(r"MFU 41.0\u2009?.?%, 18\u2009?.?% below its OFU of 50.0", client("/job/4711", headers=TOKEN).text)
    assert "What jobs report" in client("/", headers=TOKEN).text


def test_tokens_a_second_are_flops_when_it_is_said_of_how_many(client: Client) -> None:
    # 1,000 tokens/s of 4e11 FLOPs on 4 GPUs: 1e14 FLOP/s a GPU, of the H100's 989.4e12
    said = {"job": "ml/train-0", "tokens_per_second": 1000, "flops_per_token": 4e11, "gpus": 4}
    assert post(client, said)[0] == 200
    wait_for(lambda: client("/api/v1/fleet", headers=TOKEN).headers["ullage-current"] == "true")
    found = {row["job"]: row["mfu"] for row in client("/api/v1/fleet", headers=TOKEN).json["agreement"]["most_divergent"]}
    assert found["ml/train-0"] == pytest.approx(1e14 / 989.4e12, rel=1e-3)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        {"job": "", "mfu": 0.4},
        {"job": "x" * 257, "mfu": 0.4},
        {"job": 4711, "mfu": 0.4},
        {"mfu": 0.4},
        {"job": "1"},
        {"job": "1", "mfu": 0},
        {"job": "1", "mfu": -0.1},
        {"job": "1", "mfu": 41},
        {"job": "1", "mfu": "0.4"},
        {"job": "1", "mfu": 0.4, "more": 1},
        {"job": "1", "tokens_per_second": 10},
        {"job": "1", "tokens_per_second": 10, "flops_per_token": 1e9, "gpus": 0},
        {"job": "1", "tokens_per_second": 10, "flops_per_token": 1e9, "gpus": 4, "flops_per_gpu": 1e9},
        b'{"job": "1", "mfu": NaN}',
        b'{"job": "1", "flops_per_gpu": 1e999}',
    ],
)
def test_what_says_nothing_is_refused(client: Client, said: object) -> None:
    status, text = post(client, said)
    assert status == 400 and json.loads(text)["error"]["problem"], text


def test_a_name_is_kept_as_a_name(client: Client, place: Path) -> None:
    from ullage.store.store import Store

    hostile = "a,b\"><script>\x00'; DROP TABLE jobs; ../../x"
    assert post(client, {"job": hostile, "mfu": 0.2})[0] == 200
    assert client("/", headers=TOKEN).status == 200
    assert Store.open(client.running.service.state.store.kept_reports).jobs().num_rows >= 1 and not (place.parent / "x").exists()


def test_a_demonstration_whose_store_was_served_can_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ullage.demo import demo

    monkeypatch.setenv("ULLAGE_SERVE_TOKEN", "s3cret")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    demo(tmp_path / "demo", gpus=8, hours=0.25, seed=1, progress=lambda _: None)
    with service(ServiceSettings(source=str(tmp_path / "demo" / "store"))) as asking:
        assert post(asking, {"job": "4711", "mfu": 0.41})[0] == 200
        assert asking("/", headers=TOKEN).status == 200
    demo(tmp_path / "demo", gpus=8, hours=0.25, seed=1, progress=lambda _: None)


def test_nobody_reports_without_the_token(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"job": "4711", "mfu": 0.99}'
    assert client("/api/v1/reported", "POST", {"Authorization": "Bearer other"}, body).status == 401
    assert client("/api/v1/reported", "GET", TOKEN).status == 405
    assert client("/api/v1/reported", "POST", TOKEN, b"x" * 70_000).status == 413
    monkeypatch.delenv("ULLAGE_SERVE_TOKEN", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    with service(ServiceSettings(source=str(small_store(tmp_path)))) as open_to_all:
        heard = open_to_all("/api/v1/reported", "POST", {}, body)
        assert heard.status == 403 and "ULLAGE_SERVE_TOKEN" in heard.text
        assert open_to_all("/api/v1/reported", "POST", TOKEN, body).status == 403
