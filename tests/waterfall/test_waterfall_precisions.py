"""A job of several precisions has the peak of its own mixture, told by the names of the kernels that its trace shows."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

import ullage
from ullage.errors import UllageError
from ullage.product import Product
from ullage.simulate.job import GPU, KERNEL, JobPlan, SimulatedJob, job
from ullage.simulate.job_files import config, scenario, write
from ullage.simulate.traces import kineto

FP8 = "nvjet_sm90_qqtst_128x256_128x4_2x1_v_bz_coopA_TNT"
PEAKS = {"bf16": 989_429_760_000_000, "fp8": 1_978_859_520_000_000}  # 132 × 4096 and × 8192 FLOP × 1.83 GHz


def written(folder: Path, eighths: int) -> tuple[SimulatedJob, Path, Path]:
    """Write traces of a job of which so many of eight products of a step are FP8, and its configuration."""
    simulated = job(JobPlan(ranks=2, steps=2, seed=3))
    run = scenario(simulated)
    seen: dict[int, int] = {}
    events = []
    for event in run.events:
        if event.name == KERNEL:
            number = seen[event.process] = seen.get(event.process, -1) + 1
            if number % 9 == 8:  # one of nine is of no known size
                events.append(event)
                continue
            a_product = _linear(simulated) / (2 * 8 * 2 * 4096 * 4096)
            asked = Product(1, 4096, 4096, round(a_product), "fp8" if number % 9 < eighths else "bf16").word
            events.append(replace(event, name=FP8 if number % 9 < eighths else KERNEL, product=asked))
        else:
            events.append(event)
    kineto.write(replace(run, events=tuple(events)), folder / "traces")
    (folder / "config.json").write_text(json.dumps(config(simulated)))
    return simulated, folder / "traces", folder / "config.json"


def _attention(simulated: SimulatedJob) -> int:
    """Return the FLOPs of scores and values of a step: forward, twice backward, and again where layers are computed twice."""
    model = simulated.model
    forward = 2 * 2 * (model.seq * (model.seq + 1) // 2) * model.width * model.batch * model.layers
    return forward * (4 if model.recomputed else 3)


def _linear(simulated: SimulatedJob) -> int:
    return simulated.model.flops[1] - _attention(simulated)


def by_hand(simulated: SimulatedJob, eighths: int) -> Fraction:
    """Return eq. 12 of the OFU paper in fractions: all FLOPs over the time they would take at their peaks."""
    fp8 = Fraction(_linear(simulated) * eighths, 8)
    bf16 = _linear(simulated) - fp8 + _attention(simulated)
    return (fp8 + bf16) / (fp8 / PEAKS["fp8"] + bf16 / PEAKS["bf16"])


@pytest.mark.parametrize("eighths", [0, 1, 5, 8])
def test_the_peak_of_a_step_is_that_of_the_precisions_that_the_trace_shows(eighths, tmp_path):
    simulated, traces, model = written(tmp_path, eighths)
    report = ullage.waterfall(str(traces), config=str(model))
    assert report.peak == pytest.approx(float(by_hand(simulated, eighths)), rel=1e-6)
    assert report.chain.mfu is not None
    needed = simulated.model.flops[0] / (simulated.elapsed / 1e9 * 2)
    assert report.chain.mfu.value == pytest.approx(needed / float(by_hand(simulated, eighths)), rel=1e-6)
    said = [note for note in report.notes if note.startswith("the trace's matrix products ran in")]
    assert len(said) == (eighths > 0)


def test_what_is_said_goes_before_what_the_trace_shows_and_a_note_says_both(tmp_path):
    _, traces, model = written(tmp_path, 5)
    report = ullage.waterfall(str(traces), config=str(model), precision={"*": "bf16"})
    assert report.peak == pytest.approx(PEAKS["bf16"], rel=1e-6)
    assert any("FP8" in note and "--precision" in note for note in report.notes)


def missed(folder: Path, seed: int) -> set[str]:
    """Return which planted figures of a mixed job the waterfall does not find again in the job's files."""
    simulated = job(JobPlan(ranks=1 + seed % 4, steps=1, seed=seed, mixed=True))
    made = write(simulated, folder / str(seed))
    report = ullage.waterfall(*map(str, (made.telemetry, made.traces, made.config, made.gemms)))
    factors = {name: report.chain.step(name) for name in simulated.truth["factors"]}
    wrong = {
        name
        for name, planted in simulated.truth["factors"].items()
        if (step := factors[name]) is None
        or step.factor.low is None
        or step.factor.high is None
        or not step.factor.low - 1e-6 <= planted <= step.factor.high + 1e-6
    }
    assert report.peak == pytest.approx(mixture_by_hand(simulated), rel=1e-5)  # sizes of products are whole numbers
    assert report.headline.value == pytest.approx(simulated.truth["mfu"], rel=1e-5)
    return wrong


def mixture_by_hand(simulated: SimulatedJob) -> float:
    """Return eq. 12 of the OFU paper for the planted share, by this file's own count of attention."""
    assert simulated.mixture is not None
    share, peaks = Fraction(simulated.mixture.share), PEAKS | {"tf32": PEAKS["bf16"] // 2}
    other = _linear(simulated) * share
    bf16 = _linear(simulated) - other + _attention(simulated)
    return float((other + bf16) / (other / peaks[simulated.mixture.other] + bf16 / peaks["bf16"]))


def test_a_planted_mixture_of_precisions_is_found_in_the_names_of_kernels(tmp_path):
    others = {job(JobPlan(seed=seed, mixed=True)).mixture.other for seed in (2, 3)}  # type: ignore[union-attr]
    assert others == {"fp8", "tf32"}
    assert missed(tmp_path, 2) | missed(tmp_path, 3) <= {"clock"}


@pytest.mark.full
def test_planted_mixtures_of_precisions_are_found_for_many_seeds(tmp_path):
    wrong = [missed(tmp_path, seed) for seed in range(64)]
    assert set().union(*wrong) <= {"clock"} and sum(map(bool, wrong)) <= 0.05 * len(wrong)


def test_a_mixed_job_without_its_names_has_another_peak(tmp_path):
    simulated = job(JobPlan(ranks=1, steps=1, seed=3, mixed=True))
    made = write(simulated, tmp_path / "job")
    report = ullage.waterfall(*map(str, (made.telemetry, made.config)), gpu=GPU)
    assert report.peak == pytest.approx(PEAKS["bf16"], rel=1e-6)


def test_short_kernels_and_several_precisions_are_not_simulated_together():
    with pytest.raises(UllageError, match="several precisions"):
        JobPlan(shapes=True, mixed=True)


def test_the_gpu_of_these_tests_has_these_peaks():
    assert {name: round(ullage.peak(GPU, name)) for name in PEAKS} == PEAKS
