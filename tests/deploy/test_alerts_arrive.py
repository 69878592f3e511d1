"""From an exporter's page to a message: the files of deploy/compose, a real Prometheus, a real Alertmanager, and who is told."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.fleet.servers import free_port, program, running, say, scripted, wait_for
from ullage.questions.rules import rules
from ullage.render.rules import printed

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose"
HEALTHY = 3  # scrapes before the GPU tells of a fault
PAGE = {
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.4,
    "DCGM_FI_PROF_SM_ACTIVE": 0.7,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.9,
    "DCGM_FI_DEV_SM_CLOCK": 1500,
}


def pages() -> Callable[[], str]:
    """Return what gives the page of one GPU, which falls off its bus (Xid 79) after some scrapes."""
    labels = 'gpu="3",UUID="GPU-1",Hostname="node-7",modelName="NVIDIA H100 80GB HBM3",hpc_job="4711"'
    scrapes = itertools.count()

    def page() -> str:
        told = PAGE | {"DCGM_FI_DEV_XID_ERRORS": 79 if next(scrapes) >= HEALTHY else 0}
        return "".join(f"{name}{{{labels}}} {value}\n" for name, value in told.items())

    return page


@contextmanager
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Give the address of somebody who is told, and what they were told."""
    told: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", told
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def changed(name: str, folder: Path, changes: Mapping[str, str]) -> Path:
    """Return a file of deploy/compose with other addresses and shorter waits; each must be in it."""
    text = (COMPOSE / name).read_text()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    file = folder / name
    file.write_text(text)
    return file


def test_an_alert_of_the_rules_reaches_who_is_named_in_alertmanager(tmp_path: Path) -> None:
    prometheus, alertmanager, page = program("prometheus"), program("prometheus-alertmanager", "alertmanager"), pages()
    (tmp_path / "ullage.rules.yaml").write_text(printed(rules(interval="1s")))
    (tmp_path / "token").write_text("secret")
    alerts, database = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"

    def answer(handler: BaseHTTPRequestHandler) -> None:
        say(handler, page(), kind="text/plain; version=0.0.4")

    with scripted(answer) as exporter, receiver() as (address, told):
        settings = changed("alertmanager.yml", tmp_path, {"http://127.0.0.1:5001/": address, "group_wait: 30s": "group_wait: 0s"})
        places = {"simulator:9400": exporter.removeprefix("http://"), "alertmanager:9093": alerts, "ullage:9748": database}
        files = {"/written/": f"{tmp_path}/", "/run/secrets/token": str(tmp_path / "token"), "interval: 30s": "interval: 1s"}
        config = changed("prometheus.yml", tmp_path, places | files)
        first = [alertmanager, f"--config.file={settings}", f"--storage.path={tmp_path / 'alerts'}", "--cluster.listen-address="]
        second = [prometheus, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}", "--log.level=warn"]
        with (
            running([*first, f"--web.listen-address={alerts}"], tmp_path / "alertmanager.log"),
            running([*second, f"--web.listen-address={database}"], tmp_path / "prometheus.log"),
        ):
            wait_for(lambda: any(one["commonLabels"].get("alertname") == "UllageSickGpu" for one in told), tmp_path / "prometheus.log")
    (message,) = [one for one in told if one["commonLabels"].get("alertname") == "UllageSickGpu"]
    (alert,) = message["alerts"]
    assert (message["receiver"], alert["status"], alert["labels"]["severity"]) == ("team", "firing", "critical")
    assert {name: alert["labels"][name] for name in ("host", "gpu", "uuid")} == {"host": "node-7", "gpu": "3", "uuid": "GPU-1"}
    assert "GPU 3 of node-7" in alert["annotations"]["summary"] and "node-7" in str(alert["annotations"])
