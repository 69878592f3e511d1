"""A step that can't be the traced one is found by its FLOPs, on both sides of what the trace allows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from ullage.asking.step import step_question
from ullage.cli import cli
from ullage.models.reading import read_config
from ullage.product import Product
from ullage.profiles import profile
from ullage.render.waterfall import headline, record
from ullage.reports.flops import flops
from ullage.reports.trace.trace import TraceRequest, trace
from ullage.reports.waterfall.known import SourceReports, with_gpus
from ullage.reports.waterfall.waterfall import waterfall
from ullage.simulate.job import GPU, KERNEL, JobPlan, job
from ullage.simulate.job_files import config, scenario
from ullage.simulate.traces import kineto

DATA = Path(__file__).parents[3] / "shared" / "data"
STEPS, PRODUCTS = 3, 9  # of each rank in a step


def found(folder: Path, shown: float, gpus: int | None = None) -> SourceReports:
    """Return what is known of a job of 2 GPUs and 3 traced steps whose products are `shown` times the FLOPs of its step."""
    simulated = job(JobPlan(ranks=2, steps=STEPS, seed=3))
    wide = shown * simulated.model.flops[1] / (simulated.plan.ranks * PRODUCTS * 2 * 4096 * 4096)
    asked = Product(1, 4096, 4096, round(wide), "bf16").word
    run = scenario(simulated)
    run = replace(run, events=tuple(replace(e, product=asked) if e.name == KERNEL else e for e in run.events))
    kineto.write(run, folder)
    fields = config(simulated)
    step = step_question(**fields.pop("step"), gpu=GPU, gpus=2)
    report = trace(profile([str(folder)]), "first-last", TraceRequest(mode="ai"))
    assert report.gemms is not None and report.gemms.flops > 0
    return with_gpus(SourceReports(trace=report, flops=flops(read_config(fields), step)), gpus)


@pytest.mark.parametrize(
    ("shown", "contradicts"),
    [
        (1.0, False),
        # a fourth step may be in the recording of three: its products are 3/4 of what they show, and 5 % is allowed
        (1.38, False),
        (1.42, True),
        # and one of the three may lie outside of it: the step is at most 3/2 of what they show, for pointwise kernels multiply nothing
        (0.65, False),
        (0.62, True),
        (17.0, True),
    ],
)
def test_a_step_is_held_against_the_products_of_the_trace(shown, contradicts, tmp_path):
    report = waterfall(found(tmp_path, shown))
    assert (report.contradiction is not None) is contradicts
    if not contradicts:
        assert report.chain.step("model") is not None
        return
    assert report.contradiction.shown == pytest.approx(report.contradiction.asked * (shown if shown > 1 else shown * 1.5), rel=1e-3)
    assert report.chain.step("model") is None and report.chain.mfu is None  # neither is known any more
    assert str(headline(report)).startswith("the step is said to be ")
    assert json.loads(json.dumps(record(report)))["contradiction"]["most"] is (shown < 1)
    assert any("batch, sequence" in note for note in report.notes)


def test_ranks_that_were_not_traced_may_have_done_less_or_more(tmp_path):
    # the job is said to have 4 GPUs and 2 were traced: the others' products are taken to be as many, within a factor of two
    assert waterfall(found(tmp_path / "a", 1.3, gpus=4)).contradiction is None  # 2.6 × 3/4 < 2
    assert waterfall(found(tmp_path / "b", 1.4, gpus=4)).contradiction is not None  # 2.8 × 3/4 > 2


@pytest.mark.parametrize(("step", "status"), [(("--batch", "1", "--seq", "512"), 3), (("--batch", "16", "--seq", "559"), 0)])
def test_a_wrong_batch_is_the_first_line_of_a_real_trace(step, status):
    file = DATA / "kineto" / "tracelens_h100_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
    if not file.exists():
        pytest.skip("needs the project's data")
    model = Path(__file__).parents[2] / "docs" / "examples" / "qwen1.5-0.5b.json"
    result = CliRunner().invoke(cli, ["waterfall", "--trace", str(file), "--config", str(model), *step, "--forward-only"])
    assert result.exit_code == status
    # the last step's kernels reach over its end: what lies within the steps is a little less than all of it
    assert ("15.6 times as much" in result.stdout.splitlines()[0]) is (status == 3)


def test_attention_kernels_have_no_tile_model_and_widen_the_bounds_of_tile_by_their_time():
    file = DATA / "kineto" / "tracelens_h100_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
    if not file.exists():
        pytest.skip("needs the project's data")
    report = trace(profile([str(file)]), "first-last", TraceRequest(mode="ai"))
    assert report.gemms is not None and report.kernels is not None
    attention = sum(row.time for row in report.kernels.families if row.family == "attention")
    share = attention / (attention + report.gemms.time)
    chain = waterfall(with_gpus(SourceReports(trace=report), None))
    tile = chain.chain.step("tile")
    assert share > 0.05 and tile is not None and tile.factor.low is not None and tile.factor.high is not None
    known = report.gemms.covered * (1 - share)
    least = report.gemms.theoretical_flops / report.gemms.executed_at_most
    assert tile.factor.low == pytest.approx(min(least * known + 0.9 * (1 - known), tile.factor.value))
    assert tile.factor.high == pytest.approx(max(tile.factor.value * known + 1 - known, tile.factor.value))
    assert any(f"attention and convolution kernels ({share * 100:.0f} % " in note for note in chain.notes)
