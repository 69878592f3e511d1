"""What nobody would ask, asked by Schemathesis: whatever a request says, the service has an answer and never fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed
from hypothesis import strategies as st

from tests.seeds import some
from tests.service.running import Client, service, small_store
from ullage.service.settings import ServiceSettings

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed: the API was not asked what nobody would")
TOKEN = {"Authorization": "Bearer s3cret"}
ADDRESSES = ("/api/v1/fleet", "/api/v1/job/{id}", "/api/v1/gpus", "/api/v1/metrics", "/api/v1/doctor", "/api/v1/store/info")
QUICK = "/api/v1/gpus"  # it reads no store
POSTED = ("/api/v1/reported", "/api/v1/alerts/acknowledge", "/api/v1/alerts/profile", "/api/v1/silences")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    place = small_store(tmp_path_factory.mktemp("hostile"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ULLAGE_SERVE_TOKEN", "s3cret")
        patch.setenv("XDG_DATA_HOME", str(place.parent / "home"))
        with service(ServiceSettings(source=str(place), answer_limit="600s", alert_every="24h")) as asking:
            yield asking


@pytest.fixture(scope="module")
def described(client: Client) -> Any:
    return schemathesis.openapi.from_dict(client("/openapi.json", headers=TOKEN).json)


def asked(client: Client, described: Any, path: str, method: str, examples: int, seed: int) -> set[int]:
    """Ask one address what its description allows and what it does not; return the statuses that came back."""
    operation, seen = described[path][method], set[int]()
    modes = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode))

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(case=modes)
    def ask(case: Any) -> None:
        answer = case.call(base_url=f"http://127.0.0.1:{client.port}", headers=TOKEN, timeout=600)
        seen.add(answer.status_code)
        assert answer.status_code < 500, (case.as_curl_command(), answer.text[:500])
        if answer.headers.get("content-type", [""])[0].startswith("application/json") and answer.status_code >= 400:
            assert answer.json()["error"]["problem"]

    with_seed(seed)(ask)()
    return seen


@pytest.mark.parametrize("seed", some(range(10), quick=1))
@pytest.mark.parametrize("path", [path if path == QUICK else pytest.param(path, marks=pytest.mark.full) for path in ADDRESSES])
def test_no_question_makes_the_service_fail(client: Client, described: Any, path: str, seed: int) -> None:
    assert asked(client, described, path, "GET", 20, seed) - {200, 400, 404, 405, 413, 421, 422} == set()


@pytest.mark.parametrize("seed", some(range(20), quick=1))
@pytest.mark.parametrize("path", POSTED)
def test_nothing_posted_makes_the_service_fail(client: Client, described: Any, path: str, seed: int) -> None:
    assert asked(client, described, path, "POST", 30, seed) - {200, 400, 401, 403, 404, 405, 413, 415, 422} == set()


def test_nothing_of_all_that_was_a_mistake_of_ours(client: Client) -> None:
    assert "failure" not in client.log.getvalue() and client.running.service.book.failed == 0
