"""A simulated fleet of two clusters with hostile names, scraped by a real Prometheus that evaluates our rules every second."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.dashboards.grafana import Server
from tests.fleet.servers import free_port, program, running, say, scripted, wait_for
from tests.service.running import hour, service, small_store
from ullage.service.settings import ServiceSettings
from ullage.simulate.fleet import fleet
from ullage.simulate.serve import pager
from ullage.simulate.specification import Specification
from ullage.store.store import Store

HOSTILE = ('q"uote', "back\\slash", "$dollar ${job_id} $1", "a|b.*(c)[d]{e}+?^", "apostrophe's", "comma, brace}", "日本", "slash/ed")
BACKTICK = "tick`ed"  # can't be chosen
SCRAPES = 7


def fleet_pages() -> Callable[[], str]:
    """Return what gives the page of the fleet, half a minute later each time.

    Slurm's jobs are in the east, pods in the west; two of each eight GPUs have a job each. The first GPU of each host says what can't be:
    that tensor pipes work where no SM does.
    """
    simulation = fleet(Specification(gpus=32, hours=2, seed=3))
    now = [simulation.specification.window[0] / 1000 + 1800]
    page = pager(simulation, lambda: now[0])

    def named(line: str) -> str:
        gpu, host = (int(re.findall(rf'{label}="\D*(\d+)"', line)[0]) for label in ("gpu", "Hostname"))
        job = ((*HOSTILE, BACKTICK)[(host * 8 + gpu) // 2 % 9] if "hpc_job" in line else "").replace("\\", "\\\\").replace('"', '\\"')
        names = f'hpc_job="{job}"' if host < 3 else f'exported_namespace="{job}",exported_pod="{job}-0"'
        more = f',{names},owner="{job}"' if job else ""
        line = re.sub(r',hpc_job="[^"]*"', "", line)
        if gpu == 0 and line.startswith("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"):
            line = f"{line[: line.rindex('}') + 1]} 0.93"
        return line.replace("}", f',cluster="{"east" if host < 3 else "west"}"{more}}}', 1)

    def next_page() -> str:
        now[0] += 30
        return "\n".join(named(line) if "{" in line else line for line in (page(None) or "").splitlines()) + "\n"

    return next_page


@contextmanager
def counted_service(folder: Path) -> Iterator[str]:
    """Give the place of a service whose gauges and counters are there."""
    store = small_store(folder)
    idle = dict.fromkeys(("tensor_active", "sm_active", "gr_active", "gpu_util"), 0.0)
    Store.open(store).append([hour(start=120, minutes=90), hour(start=120, minutes=90, job="idle", host="n3", **idle)])
    with service(ServiceSettings(source=str(store), answer_limit="600s")) as client:
        served = client.running.service
        assert served.totals is not None
        served.totals.count(served.state.store.window())
        wait_for(lambda: "ullage_ofu_ratio" in client("/metrics").text)
        yield f"127.0.0.1:{client.port}"


@contextmanager
def watched_fleet(folder: Path) -> Iterator[Server]:
    """Give a Prometheus that has seen the fleet and the service for some scrapes, and has evaluated the rules as often."""
    binary, page, scrapes = program("prometheus"), fleet_pages(), itertools.count(1)
    scraped = [0]

    def answer(handler: BaseHTTPRequestHandler) -> None:
        say(handler, page(), kind="text/plain; version=0.0.4")
        scraped[0] = next(scrapes)

    rules = folder / "ullage.rules.yml"
    rules.write_text(rules_text())
    with scripted(answer) as exporter, counted_service(folder) as served:
        config, log, url = folder / "prometheus.yml", folder / "prometheus.log", f"http://127.0.0.1:{free_port()}"
        config.write_text(CONFIG.format(rules=rules, exporter=exporter.removeprefix("http://"), served=served))
        command = [binary, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", "--log.level=warn"]
        with running([*command, f"--web.listen-address={url.removeprefix('http://')}"], log):
            wait_for(lambda: scraped[0] >= SCRAPES, log)
            end = time.time()
            yield Server(url, end, end - SCRAPES + 2)


CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: ['{rules}']
scrape_configs:
  - job_name: dcgm
    honor_labels: true
    static_configs: [{{targets: ['{exporter}']}}]
  - job_name: ullage
    static_configs: [{{targets: ['{served}']}}]
"""


def rules_text() -> str:
    from ullage.questions.rules import rules
    from ullage.render.rules import printed

    return printed(rules(interval="1s", user_label="owner"))
