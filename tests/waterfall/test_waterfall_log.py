"""A trainer's log in the waterfall: what it reports stands beside the model's step, whose time it tells."""

from __future__ import annotations

import json

import pytest

import ullage
from tests.command_line import ask
from tests.test_opening import LLAMA
from tests.trainlogs.trackers import event_file

AT = 1_786_320_000.0
STEP = ("--batch", "8", "--seq", "512", "--gpus", "2", "--gpu", "H100 SXM")


@pytest.fixture
def job(tmp_path):
    """A model and an event file: 3 lines of 2 s a step, 1 line of 4 s; MFU 30 % and 15 %."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    told = [(1, 2.0, 0.30), (2, 2.0, 0.30), (3, 2.0, 0.30), (4, 4.0, 0.15)]
    points = [(step, AT + 10 * step, {"train/mfu": mfu, "step_time": seconds}) for step, seconds, mfu in told]
    (tmp_path / "events.out.tfevents.1.host").write_bytes(b"".join(event_file(points)))
    return tmp_path


def test_the_logs_mean_stands_beside_the_mfu_of_the_step_whose_time_it_tells(job):
    # (3 × 2 s × 30 % + 4 s × 15 %) / 10 s = 24 %; 4 steps in 10 s are 2.5 s each
    asked = ask("waterfall", job / "config.json", job / "events.out.tfevents.1.host", *STEP)
    assert asked.code == 0
    assert "log: 4 lines, MFU 24 %, 2.5 s a step (events.out.tfevents.1.host)" in asked.out
    assert "note: the step's time is the mean of the trainer's log, 2.5 s" in asked.out
    answer = json.loads(ask("waterfall", job / "config.json", job / "events.out.tfevents.1.host", *STEP, "--json").out)
    ledger = ullage.flops(str(job / "config.json"), batch=8, seq=512, gpus=2, gpu="H100 SXM", step_time=2.5)
    assert answer["value"] == pytest.approx(ledger.mfu)


def test_a_log_alone_is_a_chain_and_open_knows_it(job):
    asked = ask("open", job / "events.out.tfevents.1.host", "--json")
    assert asked.code == 0 and "a trainer's log: ullage waterfall" in asked.err
    assert json.loads(asked.out)["value"] == pytest.approx(0.24)


def test_a_folder_of_a_job_has_its_log_too(job):
    assert "log: 4 lines" in ask("waterfall", job, *STEP).out


def test_flops_a_second_are_an_mfu_where_the_gpu_is_known(tmp_path):
    (tmp_path / "e").write_bytes(b"".join(event_file([(1, AT, {"tflops_per_gpu": 494.715})])))
    # 494.715 of 989.43 TFLOP/s
    assert json.loads(ask("waterfall", tmp_path / "e", "--gpu", "H100 SXM", "--json").out)["value"] == pytest.approx(0.5, abs=1e-5)
    asked = ask("waterfall", tmp_path / "e")
    assert asked.code == 1 and "--gpu 'H100 SXM'" in asked.err


def test_a_torn_log_gives_a_part_and_says_so(job):
    file = job / "events.out.tfevents.1.host"
    file.write_bytes(file.read_bytes()[:-3])
    asked = ask("waterfall", file)
    assert asked.code == 3 and "last records that end early" in asked.out


def test_two_logs_are_refused_and_a_run_is_chosen_by_the_job(job):
    for name in ("a", "b"):
        (job / "runs" / name).mkdir(parents=True)
        (job / "runs" / name / "e.tfevents").write_bytes((job / "events.out.tfevents.1.host").read_bytes())
    assert "there are 2 trainers' logs" in ask("waterfall", job / "runs" / "a", job / "runs" / "b").err
    assert "holds 2 runs: 'a', 'b'" in ask("waterfall", job / "runs").err
    assert ask("waterfall", job / "runs", "--job", "b").code == 0
