"""The alerts of `ullage rules`: each fires when it should and not before, and its command can be pasted whatever a label holds."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.command_line import ask
from tests.fleet.servers import program
from tests.rules.evaluation import GivenSeries, PromtoolInput
from ullage.questions.rules import rules

H100 = "NVIDIA H100 80GB HBM3"
METRICS = {
    "tensor": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "sm": "DCGM_FI_PROF_SM_ACTIVE",
    "clock": "DCGM_FI_DEV_SM_CLOCK",
    "ecc": "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "throttle": "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
}
MINUTE = 60


def gpu(index: int, count: int, job: str = "7", model: str = H100, host: str = "n1", **readings: object) -> list[GivenSeries]:
    """A GPU that says the same at every scrape, or what a list says."""
    labels = {"gpu": str(index), "UUID": f"GPU-{host}-{index}", "Hostname": host, "modelName": model, **({"hpc_job": job} if job else {})}
    values = {name: [str(one) for one in value] if isinstance(value, list) else [str(value)] * count for name, value in readings.items()}
    return [GivenSeries(METRICS[name], labels, value) for name, value in values.items()]


def fired(folder: Path, series: list[GivenSeries], alert: str, label: str, *minutes: int) -> list[set[str]]:
    """Return of what an alert fires at some minutes, by the value of a label."""
    moments, asked = [minute * MINUTE for minute in minutes], f'ALERTS{{alertstate="firing", alertname="{alert}"}}'
    found = PromtoolInput(folder, str(rules(gpus=[H100])), series).evaluate([asked], moments)
    return [{dict(labels)[label] for labels in found[asked, at]} for at in moments]


def test_a_gpu_that_is_busier_and_does_less_in_that_time_is_a_straggler(tmp_path: Path) -> None:
    # the others do 0.3 / 0.6 = 0.5 in a busy hour
    given = {
        "slow": (0.3, 0.72),  # 0.42, below 0.9 x 0.5, and 1.2 times as busy
        "more work": (0.34, 0.72),  # 0.47
        "hardly busier": (0.25, 0.684),  # 1.14 times
    }
    series = []
    for job, (tensor, sm) in given.items():
        series += [one for index in range(3) for one in gpu(index, 25, job, host=job, tensor=0.3, sm=0.6, clock=1830)]
        series += gpu(3, 25, job, host=job, tensor=tensor, sm=sm, clock=1830)
    pair = [
        *gpu(0, 25, "pair", host="pair", tensor=0.3, sm=0.6, clock=1830),
        *gpu(1, 25, "pair", host="pair", tensor=0.3, sm=0.72, clock=1830),
    ]
    # of two GPUs nobody can say which one is slow
    assert fired(tmp_path, [*series, *pair], "UllageStraggler", "job_id", 9, 11) == [set(), {"slow"}]


def test_an_idle_tenth_of_a_job_is_told_after_a_quarter_of_an_hour(tmp_path: Path) -> None:
    series = gpu(20, 32, job="", tensor=0.0, clock=1830)  # nobody holds it
    for job, busy, level in (("idle", 9, 0.004), ("does something", 9, 0.006), ("an eleventh", 10, 0.004)):
        series += [one for index in range(busy) for one in gpu(index, 32, job, host=job, tensor=0.3, clock=1830)]
        series += gpu(busy, 32, job, host=job, tensor=level, clock=1830)
    assert fired(tmp_path, series, "UllageHeldIdle", "job_id", 14, 15) == [set(), {"idle"}]


def test_heat_and_a_brake_are_told_and_a_power_cap_is_not(tmp_path: Path) -> None:
    series = [one for at, bits in enumerate((0x20, 0x80, 0x4, 0x1)) for one in gpu(at, 34, tensor=0.3, clock=1830, throttle=bits)]
    assert fired(tmp_path, series, "UllageThrottled", "gpu", 14, 16) == [set(), {"0", "1"}]


def test_an_error_that_is_new_is_told_and_an_old_one_is_not(tmp_path: Path) -> None:
    series = [*gpu(0, 40, tensor=0.3, clock=1830, ecc=[0] * 20 + [1] * 20), *gpu(1, 40, tensor=0.3, clock=1830, ecc=3)]
    assert fired(tmp_path, series, "UllageSickGpu", "gpu", 9, 11) == [set(), {"0"}]


def test_readings_that_contradict_each_other_are_told(tmp_path: Path) -> None:
    # whole percents may differ by less
    series = [*gpu(0, 32, host="n1", tensor=0.56, sm=0.5, clock=1830), *gpu(0, 32, host="n2", tensor=0.54, sm=0.5, clock=1830)]
    assert fired(tmp_path, series, "UllageTelemetryFaulty", "host", 14, 15) == [set(), {"n1"}]


def test_a_model_that_nobody_knows_is_told(tmp_path: Path) -> None:
    series = [*gpu(0, 124, model="Mystery 9", tensor=0.5, clock=1000), *gpu(1, 124, tensor=0.5, clock=1000)]
    assert fired(tmp_path, series, "UllageUnknownModel", "model", 59, 61) == [set(), {"Mystery 9"}]


@pytest.mark.full
def test_ofu_that_fell_by_more_than_a_quarter_within_a_week_is_told(tmp_path: Path) -> None:
    text, hour = str(rules(gpus=[H100], interval=300)), 3600 // 300
    for after, alerts in ((0.29, {"UllageClusterOfuDropped"}), (0.31, set())):
        levels = [0.4] * (7 * 24 * hour) + [after] * (8 * hour)
        # a little noise: a gauge that stands still is another alert
        series = gpu(0, len(levels), tensor=[level + 1e-5 * (at % 7) for at, level in enumerate(levels)], clock=1830)
        at = 3600 * (7 * 24 + 7)
        firing = 'ALERTS{alertstate="firing"}'
        found = PromtoolInput(tmp_path, text, series, step=300, interval=300).evaluate([firing], [at])[firing, at]
        assert {dict(labels)["alertname"] for labels in found} == alerts


@pytest.mark.parametrize(
    "words",
    [
        ("--dialect", "dcgm-both", "--no-alerts", "--interval", "1.5s", "--gpu", H100),
        pytest.param((), marks=pytest.mark.full),
        pytest.param(
            (
                "--gpu",
                "H200",
                "--job-label",
                "namespace/pod",
                "--user-label",
                "pod_user",
                "--dialect",
                "dcgm-base-units",
                "--interval",
                "15s",
            ),
            marks=pytest.mark.full,
        ),
    ],
)
def test_the_unit_tests_that_it_prints_pass_and_fail_when_a_rule_is_another(words: tuple[str, ...], tmp_path: Path) -> None:
    text, tests = ask("rules", *words), ask("rules", *words, "--tests")
    assert text.code == tests.code == 0
    (tmp_path / "tests.yml").write_text(tests.out)

    def run(content: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "ullage.rules.yml").write_text(content)
        command = [program("promtool"), "test", "rules", str(tmp_path / "tests.yml")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = run(text.out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert run(text.out.replace("<= 5000", "<= 9e99").replace("<= 5e9", "<= 9e99")).returncode == 1  # sentinels pass for clocks


def test_the_command_of_an_alert_can_be_pasted_whatever_the_job_is_called(tmp_path: Path) -> None:
    jobs = ["4711", "a'; rm -rf / #", 'say "hi" $(id) `id`', "back\\slash", "{{ .Labels }}"]
    (tmp_path / "rules.yml").write_text(str(rules(gpus=[H100])))
    series = [one for index, job in enumerate(jobs) for one in gpu(index, 34, job=job, tensor=0.0, clock=1830)]
    given = [{"series": one.selector, "values": " ".join(one.values)} for one in series]
    asked = {"eval_time": "16m", "alertname": "UllageHeldIdle", "exp_alerts": []}
    test = {"interval": "30s", "input_series": given, "alert_rule_test": [asked]}
    (tmp_path / "test.json").write_text(json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": "30s", "tests": [test]}))
    done = subprocess.run([program("promtool"), "test", "rules", str(tmp_path / "test.json")], capture_output=True, text=True, check=False)
    found = re.findall(r'command="((?:[^"\\]|\\.)*)"', done.stdout + done.stderr)
    commands = [shlex.split(json.loads(f'"{one}"')) for one in found]
    assert sorted(commands) == sorted(["ullage", "job", job, "http://localhost:9090"] for job in jobs), done.stdout + done.stderr


@pytest.mark.parametrize("server", ["http://p:9090 ; rm", "http://p/'", "{{ 1 }}", "p:9090"])
def test_an_address_that_would_mean_something_to_a_shell_is_refused(server: str) -> None:
    said = ask("rules", "--server", server)
    assert said.code == 1
    assert "is not an address" in said.err
