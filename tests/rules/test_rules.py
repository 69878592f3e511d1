"""`ullage rules`: the file is one that Prometheus takes, and what its engine records is what the metrics say."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import ullage
from tests.command_line import ask
from tests.fleet.servers import program
from tests.rules.evaluation import GivenSeries, PromtoolInput
from ullage.questions.rules import rules
from ullage.rules.query import number
from ullage.rules.series import LEVELS

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
TENSOR, CLOCK, ENGINE = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
TWO = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB")


def gpu(index: int, model: str = H100, **more: str) -> dict[str, str]:
    return {"gpu": str(index), "UUID": f"GPU-{index}", "Hostname": "n1", "modelName": model, **more}


@pytest.mark.parametrize("words", [(), ("--gpu", H100, "--dialect", "dcgm-both", "--user-label", "job_user"), ("--job-label", "job_id")])
def test_prometheus_takes_the_file(words: tuple[str, ...], tmp_path: Path) -> None:
    promtool, place = program("promtool"), tmp_path / "rules.yml"
    said = ask("rules", *words)
    assert (said.code, said.err) == (0, "")
    place.write_text(said.out)
    done = subprocess.run([promtool, "check", "rules", str(place)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "SUCCESS" in done.stdout
    assert ask("rules", *words, "--out", tmp_path / "again.yml").code == 0
    written = (tmp_path / "again.yml").read_text().partition("\n")[2]  # the first line is the command
    assert written == said.out.partition("\n")[2]


def test_the_file_lists_what_it_records() -> None:
    file = rules(gpus=[H100])
    names = [one.name for one in file.distinct_series]
    assert {f"{level}:ullage_ofu:ratio" for level in (*LEVELS, "gpu")} <= set(names)
    known = {*names, *(rule.name for rule in file.groups[0].rules)}
    seen: set[str] = set()
    for one in file.series:  # a rule reads what was recorded before it, or the constants
        assert one.query.reads <= seen | {rule.name for rule in file.groups[0].rules}, one.name
        seen.add(one.name)
    record = json.loads(ask("rules", "--gpu", H100, "--json").out)
    assert [one["name"] for one in record["series"]] == names
    assert {rule["name"] for rule in record["rules"] if not rule["alert"]} == known
    assert str(file).startswith("# ullage rules\n")


def test_ofu_of_a_job_on_two_models_is_the_mean_of_products(tmp_path: Path) -> None:
    # H100: 0.5 x 915 / 1830 = 0.25; A100: 0.5 x 1410 / 1410 = 0.5; the third GPU's clock is no number and counts in no mean
    series = [
        *(GivenSeries(TENSOR, gpu(index, model, hpc_job="7"), ["0.5"]) for index, model in ((0, H100), (1, A100), (2, A100))),
        GivenSeries(CLOCK, gpu(0, H100, hpc_job="7"), ["915"]),
        GivenSeries(CLOCK, gpu(1, A100, hpc_job="7"), ["1410"]),
        GivenSeries(CLOCK, gpu(2, A100, hpc_job="7"), ["2147483632"]),
    ]
    found = PromtoolInput(tmp_path, str(rules(gpus=TWO)), series).evaluate(
        ["job:ullage_ofu:ratio", "job:ullage_measured_gpus:sum", "fleet:ullage_owned_gpus:sum", "model:ullage_ofu:ratio"], [0]
    )
    assert found["job:ullage_ofu:ratio", 0] == {frozenset({("job_id", "7")}): 0.375}
    assert found["job:ullage_measured_gpus:sum", 0] == {frozenset({("job_id", "7")}): 2}
    assert found["fleet:ullage_owned_gpus:sum", 0] == {frozenset({("owner", "job")}): 3}
    assert found["model:ullage_ofu:ratio", 0] == {frozenset({("model", H100)}): 0.25, frozenset({("model", A100)}): 0.5}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"gpus": ["H1000"]}, "no GPU is called 'H1000'"),
        ({"metrics": "sm_clock"}, "'sm_clock' is not FIELD=METRIC"),
        ({"metrics": "sm_clock=DCGM_FI_DEV_GPU_TEMP"}, "'DCGM_FI_DEV_GPU_TEMP' is temperature, not sm_clock"),
        ({"metrics": "clock=my_clock"}, "'clock' is not a field of the telemetry"),
        ({"job_labels": ["a-b"]}, "'a-b' is not the name of a label"),
        ({"interval": "0.5"}, "--interval 0.5 is too short"),
    ],
)
def test_what_cannot_be_named_is_refused(words: dict[str, object], says: str) -> None:
    with pytest.raises(ullage.UllageError, match=says):
        rules(**words)


@pytest.mark.parametrize("value", [1.83e9, 0.005, 132.0, 1 / 3, 63015384615.38461, 4.5e11, 1e-6, 0.0, 2.0**62, 12345.0, 100000.0])
def test_a_number_is_written_to_the_last_digit(value: float) -> None:
    assert float(number(value)) == value
