"""What deploy/ holds is accepted by the programs that will read it; where one is not installed, its test skips and says so."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tests.fleet.servers import get, program, wait_for
from tests.service.running import small_store
from ullage.cli import cli
from ullage.questions.rules import rules
from ullage.render.rules import printed
from ullage.service.settings import ServiceSettings, checked, read_settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "ullage.service"
COMPOSE = DEPLOY / "compose"
CHART = DEPLOY / "helm" / "ullage"
MOST_EXPOSED = 20  # tenths, of `systemd-analyze security`: what has a port and reaches a Prometheus can't have much less


def run(*words: str | Path, **environment: str) -> str:
    """Return what a program says; it must succeed."""
    told = os.environ | environment
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, timeout=120, env=told)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def beside(name: str) -> str:
    """Return the path of a program that came with a package of Python's, or skip the test."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not installed (pip install 'ullage[deploy]')")
    return found


def settings_of(text: str, folder: Path) -> ServiceSettings:
    file = folder / "ullage.toml"
    file.write_text(text)
    return checked(read_settings(file))


def parsed_command(words: list[str]) -> None:
    """Fail where a command line of ours can't be read; nothing runs."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
    command.make_context(command.name, list(words))


def unit_lines() -> dict[str, str]:
    return dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if re.match(r"\w+=", line))


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    there = tmp_path / "ullage.service"
    there.write_text(UNIT.read_text().replace("/opt/ullage/bin/ullage", "/bin/true"))
    assert run(analyze, "verify", there) == ""  # a warning is said on stderr, with status 0


def test_the_unit_gives_the_service_little_of_the_machine() -> None:
    run(program("systemd-analyze"), "security", "--offline=true", f"--threshold={MOST_EXPOSED}", UNIT)


def test_the_command_of_the_unit_serves_and_ends_well(tmp_path: Path) -> None:
    store = small_store(tmp_path)
    token = tmp_path / "token"
    token.write_text("secret\n")
    text = (UNIT.parent / "ullage.toml").read_text()
    for old, new in {
        '"http://127.0.0.1:9090"': json.dumps(str(store)),
        '"/var/lib/ullage/store"': json.dumps(str(store)),
        '"/run/credentials/ullage.service/token"': json.dumps(str(token)),
        "port = 9748": "port = 0",
    }.items():
        assert old in text
        text = text.replace(old, new)
    settings_of(text, tmp_path)
    words = shlex.split(unit_lines()["ExecStart"])
    assert words[0] == "/opt/ullage/bin/ullage"
    line = [sys.executable, "-m", "ullage", *words[1:]]
    line[line.index("/etc/ullage.toml")] = str(tmp_path / "ullage.toml")
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(line, stdout=output, stderr=output, env=os.environ | {"XDG_DATA_HOME": str(tmp_path)})
    try:
        wait_for(lambda: b'"serving"' in log.read_bytes() or process.poll() is not None, log)
        address = json.loads(log.read_bytes().splitlines()[0])["at"]
        wait_for(lambda: get(f"{address}/healthz") is not None, log)
        assert get(f"{address}/metrics") is None  # it asks for the token
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_the_container_file_has_no_finding() -> None:
    assert run(beside("hadolint"), DEPLOY / "Containerfile") == ""


def test_the_container_file_copies_what_is_there_and_installs_extras_that_are() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    allowed = {line[1:] for line in (DEPLOY / "Containerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {word for line in re.findall(r"^COPY (?!--)(.+)$", text, re.M) for word in line.split()[:-1]}
    assert copied == allowed and all((ROOT / name).exists() for name in copied)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = re.findall(r"/source\[(.+)\]", text)
    assert set(wanted.split(",")) <= set(extras)
    parsed_command(json.loads(re.findall(r"^CMD (.+)$", text, re.M)[0]))


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((COMPOSE / "compose.yaml").read_text()))


def test_docker_compose_accepts_its_file() -> None:
    assert run(beside("docker-compose"), "--file", COMPOSE / "compose.yaml", "config", "--quiet", ULLAGE_SERVE_TOKEN="secret") == ""


def test_every_name_in_compose_is_of_something(compose: dict[str, Any]) -> None:
    for config in compose["configs"].values():
        assert (COMPOSE / config["file"]).is_file()
    for name, service in compose["services"].items():
        assert {one["source"] for one in service.get("configs", ())} <= compose["configs"].keys(), name
        assert set(service.get("secrets", ())) <= compose["secrets"].keys(), name
        assert {one.partition(":")[0] for one in service.get("volumes", ())} <= compose["volumes"].keys(), name
        assert set(service.get("depends_on", ())) <= compose["services"].keys(), name
    build = compose["services"]["ullage"]["build"]
    assert (COMPOSE / build["context"]).resolve() == ROOT and (ROOT / build["dockerfile"]).is_file()
    hosts = set(
        re.findall(
            r"(?:http://|\[\")([\w-]+):\d+", "".join(file.read_text() for file in COMPOSE.rglob("*.y*ml") if file.name != "compose.yaml")
        )
    )
    assert hosts <= compose["services"].keys()


def test_every_command_of_ours_in_compose_can_be_read(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name in ("simulator", "ullage"):
        parsed_command(services[name]["command"])
    (script,) = services["written"]["command"]
    for line in script.splitlines():
        words = shlex.split(line.partition(">")[0])
        assert words[0] == "ullage"
        parsed_command(words[1:])


def test_the_settings_of_compose_can_be_read(tmp_path: Path) -> None:
    assert settings_of((COMPOSE / "ullage.toml").read_text(), tmp_path).source == "http://prometheus:9090"


def test_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    promtool = program("promtool")
    token = tmp_path / "token"
    token.write_text("secret")
    file = tmp_path / "prometheus.yml"
    file.write_text((COMPOSE / "prometheus.yml").read_text().replace("/written/", f"{tmp_path}/").replace("/run/secrets/token", str(token)))
    assert "SUCCESS" in run(promtool, "check", "config", file)


def test_alertmanager_accepts_its_configuration() -> None:
    assert "SUCCESS" in run(program("amtool"), "check-config", COMPOSE / "alertmanager.yml")


# ---- Helm


EVERYTHING = {
    "settings": {"source": "http://prometheus:9090", "keep_days": 400, "hosts": ["a.example", 'b"\\c']},
    "defaults": {"price": ["H100=2.50", "A100=1.25"], "by": "user"},
    "persistence": {"storageClass": "fast"},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "rules": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Ullage"}},
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
            }
        }
    },
    "podLabels": {"team": "hpc"},
    "podAnnotations": {"note": "x: y"},
}


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The chart with rules and dashboards in it, as a person puts them there."""
    helm = pytest.importorskip("helm_python", reason="Helm is not installed (pip install 'ullage[deploy]')")
    folder = tmp_path_factory.mktemp("chart") / "ullage"
    shutil.copytree(CHART, folder)
    (folder / "rules").mkdir()
    (folder / "rules" / "ullage.yaml").write_text(printed(rules()))
    (folder / "dashboards").mkdir()
    (folder / "dashboards" / "fleet.json").write_text('{"title": "{{ not ours }}"}')
    with helm.Chart.load(str(folder)) as loaded:
        yield loaded


def rendered(chart: Any, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the manifests by kind; each must be what its file says it is."""
    texts = [text for name, text in chart.render(values, name="demo", namespace="prod").items() if name.endswith(".yaml")]
    found = [one for text in texts for one in yaml.safe_load_all(text) if one]
    return {("Dashboards" if one["metadata"]["name"].endswith("dashboards") else one["kind"]): one for one in found}


def test_helm_lints_the_chart() -> None:
    helm = pytest.importorskip("helm_python", reason="Helm is not installed (pip install 'ullage[deploy]')")
    found = helm.lint(str(CHART))
    assert found["errors"] == []
    assert [one["error"] for one in found["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["as it is", "everything"])
def test_kubernetes_accepts_what_helm_renders(chart: Any, values: dict[str, Any]) -> None:
    kubernetes = pytest.importorskip("kubernetes_validate", reason="Kubernetes' schemas are not installed (pip install 'ullage[deploy]')")
    found = rendered(chart, values)
    own = {kind for kind in found if kind not in ("ServiceMonitor", "PrometheusRule")}  # the operator's kinds have no schema here
    assert own == {"ConfigMap", "Secret", "Service", "StatefulSet"} | ({"Dashboards"} if values else set())
    for kind in own:
        kubernetes.validate(found[kind], kubernetes.latest_version(), strict=True)


def test_what_helm_renders_fits_together(chart: Any, tmp_path: Path) -> None:
    found = rendered(chart, EVERYTHING)
    settings = settings_of(found["ConfigMap"]["data"]["ullage.toml"], tmp_path)
    assert settings.hosts == EVERYTHING["settings"]["hosts"] and settings.defaults == EVERYTHING["defaults"]  # type: ignore[index]
    assert settings.keep_days == 400
    pod = found["StatefulSet"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    parsed_command(container["args"])
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    named = {one["name"] for one in pod["spec"]["volumes"]} | {
        one["metadata"]["name"] for one in found["StatefulSet"]["spec"]["volumeClaimTemplates"]
    }
    assert mounts.keys() == named
    assert settings.token_file == f"{mounts['token']}/token" and settings.store.startswith(mounts["store"])
    assert container["args"][-1] == f"{mounts['settings']}/ullage.toml"
    assert container["ports"][0]["containerPort"] == settings.port
    selector = found["Service"]["spec"]["selector"]
    assert selector.items() <= pod["metadata"]["labels"].items() and selector == found["StatefulSet"]["spec"]["selector"]["matchLabels"]
    assert (
        selector == found["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
        and selector.items() <= found["Service"]["metadata"]["labels"].items()
    )
    secret = found["Secret"]["metadata"]["name"]
    assert {volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume} == {secret}
    assert found["ServiceMonitor"]["spec"]["endpoints"][0]["authorization"]["credentials"] == {"name": secret, "key": "token"}
    assert len(base64.b64decode(found["Secret"]["data"]["token"])) == 40
    assert found["PrometheusRule"]["spec"] == yaml.safe_load(printed(rules()))
    assert found["Dashboards"]["data"] == {"fleet.json": '{"title": "{{ not ours }}"}'}


def test_a_secret_of_the_user_is_taken_in_place_of_ours(chart: Any) -> None:
    found = rendered(chart, {"token": {"existingSecret": "mine"}})
    assert "Secret" not in found
    volumes = {one["name"]: one for one in found["StatefulSet"]["spec"]["template"]["spec"]["volumes"]}
    assert volumes["token"]["secret"]["secretName"] == "mine"


@pytest.mark.parametrize(
    "values",
    [
        {"settings": {"source": "x", "store": "y"}},
        {"image": {"name": "x"}},
        {"service": {"port": 0}},
        {"unknown": 1},
        {"serviceMonitor": {"interval": "1"}},
    ],
    ids=str,
)
def test_wrong_values_are_refused(chart: Any, values: dict[str, Any]) -> None:
    import helm_python as helm

    with pytest.raises(helm.HelmError):
        chart.render(values, name="demo", namespace="prod")


def test_rules_and_dashboards_that_are_not_there_are_an_error_that_names_the_command() -> None:
    helm = pytest.importorskip("helm_python", reason="Helm is not installed (pip install 'ullage[deploy]')")
    for name, command in (("rules", "`ullage rules > rules/ullage.yaml`"), ("dashboards", "`ullage dashboard --out dashboards`")):
        with helm.Chart.load(str(CHART)) as loaded, pytest.raises(helm.HelmError, match=re.escape(command)):
            loaded.render({name: {"enabled": True}}, name="demo", namespace="prod")
