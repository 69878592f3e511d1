"""The audit of a fleet's reported MFUs: it finds what the simulator plants, and flags nothing else."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import ullage
from ullage.asking.step import words_of_section
from ullage.audit.configs import ConfigFolder
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.reports.audit.fleet import FleetAudit
from ullage.simulate.configs import CONFIGS, taken_for, write
from ullage.simulate.faults import MISTAKES
from ullage.simulate.schedule import FAMILIES

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TINY = {
    "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 10,
}  # fmt: skip


def seeds():
    spec = importlib.util.spec_from_file_location("audit_seeds", BENCHMARKS / "audit_seeds.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit_seeds"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def run(*words: str, code: int = 0) -> str:
    outcome = CliRunner().invoke(cli, list(words))
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit | UllageError):
        raise outcome.exception
    assert (1 if isinstance(outcome.exception, UllageError) else outcome.exit_code) == code, outcome.output
    return outcome.stdout


def test_over_ten_seeds_every_planted_job_is_named_and_no_other():
    total = seeds().score(range(10))
    assert (total.precision, total.recall) == (1, 1), total.wrong
    assert total.named == total.planted > 20
    assert total.audited > 80 and total.left_out < 25


@pytest.mark.full
def test_over_two_hundred_seeds_every_planted_job_is_named_and_no_other():
    total = seeds().score(range(200))
    assert (total.precision, total.recall, total.named) == (1, 1, total.planted), total.wrong


# --- the models of the simulated jobs ---


def test_every_family_has_a_configuration_of_its_size():
    assert set(CONFIGS) == set(FAMILIES)
    for family, fields in CONFIGS.items():
        step = dict(fields["step"])
        report = ullage.flops({k: v for k, v in fields.items() if k != "step"}, **step)
        assert report.training > 10**15 and report.notes == (), family


@pytest.mark.parametrize("mistake", ["latent_moe", "hybrid"])
def test_the_factor_that_is_planted_follows_from_the_configuration(mistake):
    factor, family = MISTAKES[mistake]
    true, taken = dict(CONFIGS[family]), dict(taken_for(mistake) or {})
    step, _ = true.pop("step"), taken.pop("step")
    counted, right = ullage.flops(taken, **step).training, ullage.flops(true, **step).training
    # 54.27 / 18.45 = 2.942 and 24.51 / 15.56 = 1.575 (OFU paper, section V-C)
    assert counted / right == pytest.approx({"latent_moe": 54.27 / 18.45, "hybrid": 24.51 / 15.56}[mistake], abs=2e-3)
    assert factor == pytest.approx(counted / right, abs=0.006)


def test_the_recomputation_that_is_planted_is_the_whole_forward_pass():
    fields = dict(CONFIGS[MISTAKES["recomputation"][1]])
    report = ullage.flops(fields, **fields.pop("step"))
    assert report.training / (report.training + report.forward) == MISTAKES["recomputation"][0] == 0.75
    assert taken_for("recomputation") is None


# --- the command, on what the simulator writes ---


@pytest.fixture(scope="module")
def simulated(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("fleet") / "f"
    planted = [word for name in MISTAKES for word in ("--fault", name)]
    run("simulate", "--gpus", "64", "--hours", "6", "--interval", "60", "--seed", "5", "--out", str(folder), *planted)
    return folder


def test_the_command_finds_the_planted_jobs_and_flags_no_other(simulated, tmp_path):
    words = ["audit", "mfu", "--fleet", str(simulated / "samples"), "--jobs", str(simulated / "jobs.csv"), "--configs"]
    words.append(str(simulated / "configs"))
    answer = json.loads(run(*words, "--json", code=3))
    key = json.loads((simulated / "answers.json").read_text())["reported"]
    apart = {job["job"]: job for job in answer["jobs"] if not job["agrees"]}
    assert {job: told["mistake"] for job, told in key.items() if told["mistake"]} == {
        job: {"moe-16b-pretrain": "latent_moe", "hybrid-8b-pretrain": "hybrid", "world-model-8b": "recomputation"}[found["name"]]
        for job, found in apart.items()
    }
    assert {found["name"]: found["explanations"][0]["mistakes"][0]["name"] for found in apart.values()} == {
        "moe-16b-pretrain": "experts_at_full_width",
        "hybrid-8b-pretrain": "hybrid_as_dense",
        "world-model-8b": "recomputation_runs",
    }
    assert {found["name"]: found["verdict"] for found in apart.values()}["world-model-8b"] == "explained"
    assert (answer["wrong"], answer["unexplained"], answer["explained"]) == (2, 0, 1)
    assert answer["audited"] + len(answer["left_out"]) == len(key)
    text = run(*words, code=3)
    assert text.startswith(f"2 of {answer['audited']} reported MFUs are wrong; 1 differs from OFU for a reason that makes neither wrong; ")
    for job in apart:
        assert sum(line.startswith(job) for line in text.splitlines()) == 1
    run(*words, "--out", str(tmp_path / "audit.json"), code=3)
    assert json.loads((tmp_path / "audit.json").read_text()) == answer


def test_a_job_that_reports_and_was_not_measured_is_left_out_with_the_reason(simulated, tmp_path):
    write(tmp_path / "configs")
    lines = (simulated / "jobs.csv").read_text().rstrip("\n").split("\n")
    nowhere = lines[1].split(",")
    nowhere[lines[0].split(",").index("gpus")] = "nowhere:0"
    nowhere[0], nowhere[-1] = "unseen", "0.4"
    (tmp_path / "jobs.csv").write_text("\n".join([*lines, ",".join(nowhere)]) + "\n")
    words = ["--fleet", str(simulated / "samples"), "--jobs", str(tmp_path / "jobs.csv"), "--configs", str(tmp_path / "configs")]
    answer = json.loads(run("audit", "mfu", *words, "--json", code=3))
    assert {"job": "unseen", "reason": "no telemetry of its own can be trusted, or there is none"} in answer["left_out"]


def test_what_was_left_out_is_told_in_few_lines():
    left = [(f"job{i}", "it was observed for less than 30 min") for i in range(5)] + [(f"odd{i}", f"reason {i}") for i in range(12)]
    said = str(FleetAudit((), tuple(left), ())).splitlines()
    assert "  5 jobs: it was observed for less than 30 min (job0, job1, job2, …)" in said
    assert "  1 job: reason 0 (odd0)" in said
    assert said[-1] == "  3 jobs for 3 more reasons; the JSON form has them all"


def test_a_step_may_name_the_framework_that_reported(tmp_path):
    (tmp_path / "job.json").write_text(json.dumps({**TINY, "step": {"batch": 1, "seq": 64, "imitate": "verl"}}))
    assert ConfigFolder(tmp_path, words_of_section).get("job").step["imitate"] == "verl"


def test_a_job_without_a_configuration_is_left_out_with_the_reason(simulated, tmp_path):
    folder = tmp_path / "configs"
    write(folder)
    (folder / "llama-8b-pretrain.json").unlink()
    (folder / "llama-70b-pretrain.json").write_text('{"model_type": "nobody"}')
    (folder / "evaluation.json").write_text("no JSON")
    words = ["--fleet", str(simulated / "samples"), "--jobs", str(simulated / "jobs.csv"), "--configs", str(folder)]
    answer = json.loads(run("audit", "mfu", *words, "--json", code=3))
    reasons = {left["reason"] for left in answer["left_out"]}
    names = {job["name"] for job in answer["jobs"]}
    assert not names & {"llama-8b-pretrain", "llama-70b-pretrain", "evaluation"} and "moe-16b-pretrain" in names
    said = (
        "--configs has no file that is called by",
        "no formula for the architecture 'nobody'",
        "evaluation.json is not JSON",
        "it was observed for less",
    )
    assert reasons and all(any(words in reason for words in said) for reason in reasons)


def test_words_that_do_not_go_together_are_refused(simulated, tmp_path):
    run("audit", "mfu", "--fleet", str(simulated / "samples"), code=2)
    run("audit", "mfu", "--fleet", str(simulated / "samples"), "--configs", str(simulated / "configs"), "--ofu", "30", code=2)
    run("audit", "mfu", "--fleet", str(simulated / "samples"), "--configs", str(tmp_path / "none"), code=1)
    (tmp_path / "empty").mkdir()
    run("audit", "mfu", "--fleet", str(simulated / "samples"), "--configs", str(tmp_path / "empty"), code=1)


def test_a_fleet_in_which_nobody_reports_says_so(simulated):
    answer = run("audit", "mfu", "--fleet", str(simulated / "samples"), "--configs", str(simulated / "configs"))
    assert answer.startswith("no reported MFU could be audited\n")
    assert "note: no job of this fleet reports an MFU" in answer


# --- the folder of configurations ---


def test_a_step_lies_in_the_configuration_or_beside_it(tmp_path):
    (tmp_path / "inside.json").write_text(json.dumps({**TINY, "step": {"batch": 2, "seq": 4, "recompute": "attention.scores"}}))
    (tmp_path / "beside.json").write_text(json.dumps(TINY))
    (tmp_path / "beside.step.json").write_text('{"seqlens": [4, 2], "layout": {"dp": 2}, "freeze": "embedding"}')
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").write_text(json.dumps(TINY))
    folder = ConfigFolder(tmp_path, words_of_section)
    assert set(folder.files) == {"inside", "beside", "folder"}
    inside, beside, whole = (folder.get(name) for name in ("inside", "beside", "folder"))
    assert inside is not None and beside is not None and whole is not None
    assert inside.step == {"batch": 2, "seq": 4, "recompute": ("attention.scores",)} and "step" not in inside.config.values
    assert beside.step == {"seqlens": [4, 2], "layout": {"dp": 2}, "freeze": ("embedding",)}
    assert whole.step == {}
    # a job's own comes before that of its name
    assert folder.get("beside", "inside") is beside and folder.get("100001", "inside") is inside and folder.get("x", None) is None


@pytest.mark.parametrize(
    "step",
    [
        {"sequence": 4},
        {"seq": "four"},
        {"seq": 4.5},
        {"seq": True},
        {"seqlens": [1, "2"]},
        {"latent": 64},
        {"image": [384, 384]},
        {"recompute": 1},
        {"attention": "half"},
        {"layout": {"dp": "8"}},
        {"layout": [8]},
        {"forward_only": "yes"},
        {"precision": 16},
        [1],
        "batch",
    ],
)
def test_a_step_that_makes_no_sense_names_the_word_and_the_file(tmp_path, step):
    (tmp_path / "odd.json").write_text(json.dumps({**TINY, "step": step}))
    with pytest.raises(UllageError, match=r"odd\.json"):
        ConfigFolder(tmp_path, words_of_section).get("odd")
