"""The waterfall of simulated jobs: every planted factor is found again within its stated error, whatever sources there are."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from ullage import flops as ledger_of
from ullage.asking.step import step_question
from ullage.gpus.chip import find
from ullage.intake import opened
from ullage.metrics.clocks import SamplingNoise, sampling_noise
from ullage.metrics.steps import TIME
from ullage.metrics.waterfall import Waterfall
from ullage.models.reading import read_config
from ullage.profiles import profile
from ullage.questions.fleet import fleet
from ullage.questions.waterfall import WaterfallQuestion, job_sources
from ullage.reports.fleet.series import gauge_evidence
from ullage.reports.flops import flops
from ullage.reports.gemms.file import read_gemms
from ullage.reports.trace.trace import TraceRequest, trace
from ullage.reports.waterfall.known import GivenByHand, SourceReports, with_gpus
from ullage.reports.waterfall.sources import read
from ullage.reports.waterfall.waterfall import WaterfallReport, waterfall
from ullage.simulate.job import GPU, PIECES, JobPlan, SimulatedJob, job, sampled
from ullage.simulate.job_files import config, name, scenario, telemetry, uuid, write
from ullage.simulate.traces import kineto
from ullage.sums.gauges import gauge_sums

ROUNDING = 1e-6  # what float32 gauges and whole nanoseconds leave
FAST = 15  # a seed whose clock lies above the tensor clock


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Return the jobs of some seeds with the reports on all their sources, read once each."""
    kept: dict[int, tuple[SimulatedJob, SourceReports]] = {}

    def of(seed: int) -> tuple[SimulatedJob, SourceReports]:
        if seed not in kept:
            simulated = job(JobPlan(ranks=1 + seed % 4, steps=1, seed=seed))
            made = write(simulated, tmp_path_factory.mktemp("job"))
            question = WaterfallQuestion(sources=tuple(str(path) for path in (made.telemetry, made.traces, made.config, made.gemms)))
            places = job_sources(question)
            kept[seed] = simulated, read(places)
        return kept[seed]

    return of


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Return the same for many seeds; the telemetry of all of them is read at once, as a fleet's."""

    def of(seeds: range) -> list[tuple[SimulatedJob, SourceReports]]:
        folder = tmp_path_factory.mktemp("jobs")
        jobs = [job(JobPlan(ranks=1 + seed % 4, steps=1, seed=seed)) for seed in seeds]
        table = pa.Table.from_batches([telemetry(simulated) for simulated in jobs]).unify_dictionaries()
        parquet.write_table(table, folder / "fleet.parquet")
        whole = fleet(str(folder / "fleet.parquet"), by="job")
        with opened((str(folder / "fleet.parquet"),)) as taken:
            clocked = gauge_evidence(taken.samples, gauge_sums(taken.samples).to_pyarrow())
        groups = {group.key: group for group in whole.groups}
        found = []
        for simulated in jobs:
            group, noise = groups[name(simulated)], sampling(simulated)
            own = replace(whole, tree=group.tree, ofu=group.ofu, gpus=group.gpus, gpu_hours=group.gpu_hours, noise=noise)
            edges = [clocked[uuid(simulated, rank), None].ofu_bounds for rank in range(simulated.plan.ranks)]
            own = replace(own, ofu_bounds=tuple(np.mean(edges, axis=0) / find(GPU).tensor_clock))
            found.append((simulated, with_gpus(replace(others(simulated, folder / name(simulated)), telemetry=own), None)))
        return found

    return of


def sampling(simulated: SimulatedJob) -> list[SamplingNoise]:
    """Return what the samples of a job's clocks say of the error of sampling them."""
    kernel, fill = np.array(simulated.kernel)[:, None] / simulated.elapsed, np.array(simulated.fills)[:, None]
    ofu = kernel * fill * simulated.tensor_issue * simulated.wobble * sampled(simulated) / find(GPU).tensor_clock
    return [max((sampling_noise(row, 30.0, every) for row in ofu), key=lambda noise: noise.bound) for every in (2, 4, 8)]


def others(simulated: SimulatedJob, folder: Path) -> SourceReports:
    """Return the reports on a job's trace, step and matrix products."""
    kineto.write(scenario(simulated), folder)
    read_in = profile([str(folder)])
    fields = config(simulated)
    step = step_question(**fields.pop("step"), gpu=GPU, gpus=simulated.plan.ranks)
    rows = [gemm | {"tile": list(gemm["tile"]), "cluster": list(gemm["cluster"])} for gemm in simulated.model.gemms(simulated.plan.ranks)]
    (folder / "gemms.json").write_text(json.dumps(rows))
    return SourceReports(
        trace=trace(read_in, "first-last", TraceRequest(mode="ai")),
        flops=flops(read_config(fields), step),
        gemms=read_gemms(folder / "gemms.json"),
    )


def planted(names: tuple[str, ...], simulated: SimulatedJob) -> float:
    """Return the product of planted factors."""
    return math.prod(simulated.truth["factors"][name] for name in names)


def misses(report: WaterfallReport, simulated: SimulatedJob) -> list[str]:
    """Return the steps whose planted product lies outside the error that they state."""
    return [
        step.name
        for step in report.chain.steps
        if step.factor.low is not None and not step.factor.low - ROUNDING <= planted(step.names, simulated) <= step.factor.high + ROUNDING
    ]


def check(found: list[tuple[SimulatedJob, SourceReports]]) -> None:
    missed = []
    for simulated, reports in found:
        report = waterfall(reports)
        assert report.chain.closure is not None and report.chain.closure.closes
        assert report.headline.value == pytest.approx(simulated.truth["mfu"], rel=1e-6)
        assert report.gpu_hours == pytest.approx(simulated.truth["gpu_hours"], rel=1e-3)
        wrong = misses(report, simulated)
        assert set(wrong) <= {"clock"}, simulated.plan
        missed += wrong
    # the error of the clock is that of 95 % of samplings
    assert len(missed) <= 0.05 * len(found)


def test_every_planted_factor_is_found_within_its_stated_error(many):
    check(many(range(32)))


@pytest.mark.full
def test_every_planted_factor_is_found_within_its_stated_error_for_many_seeds(many):
    check(many(range(32, 320)))


def test_every_planted_factor_is_found_from_the_files_alone(drawn):
    check([drawn(seed) for seed in (3, 4)])


def test_factors_that_one_source_gives_exactly_are_exact(drawn):
    for seed in (3, 4):
        simulated, reports = drawn(seed)
        chain = waterfall(reports).chain
        for factor in ("load_balance", "communication", "orchestration", "tile", "model"):
            step = chain.step(factor)
            assert step is not None and step.factor.value == pytest.approx(planted((factor,), simulated), rel=1e-6)


def test_the_split_of_sm_fill_and_tensor_issue_is_as_wide_as_collectives_may_share_an_sm_with_kernels(drawn):
    for seed in (3, 7, 11):  # four ranks
        simulated, reports = drawn(seed)
        fill = waterfall(reports).chain.step("sm_fill")
        assert fill is not None and fill.factor.low is not None and fill.factor.high is not None
        beside = sum(
            max(0, min(kernel * (n + 1) // PIECES, simulated.hidden) - kernel * n // PIECES)
            for kernel in simulated.kernel
            for n in range(3, PIECES, 4)  # the small kernels
        )
        widest = beside * simulated.grids.held / sum(simulated.kernel)
        assert fill.factor.high - fill.factor.low <= widest + ROUNDING
        if not beside:
            assert fill.factor.value == pytest.approx(planted(("sm_fill",), simulated), rel=1e-5)


def ends_where_planted(chain: Waterfall, names: tuple[str, ...], simulated: SimulatedJob) -> None:
    """What the steps stand for together is known better than how it is split, unless the clock follows the work."""
    truth, end = planted(names, simulated), chain.end
    if simulated.resting == 1.0 or "clock" not in names:
        assert end.value == pytest.approx(truth, rel=0.01)
    else:  # then the sampled clock is too high, which its bounds say
        assert end.low is not None and end.low - ROUNDING <= truth <= end.value * 1.01


def test_a_clock_that_follows_the_work_makes_ofu_too_high_and_its_bounds_say_so(drawn):
    simulated, reports = next((one, all_of_it) for one, all_of_it in map(drawn, range(3, 40)) if one.resting > 1.1)
    clock, truth = waterfall(reports).chain.step("clock"), planted(("clock",), simulated)
    assert clock is not None and clock.factor.low is not None
    assert clock.factor.low <= truth < clock.factor.value * 0.995


SOURCES = ("telemetry", "trace", "flops", "gemms")


@pytest.mark.parametrize("dropped", [(s,) for s in SOURCES] + [("telemetry", "gemms"), ("telemetry", "trace"), ("flops", "gemms")])
def test_without_a_source_the_product_is_the_same_and_merged_factors_are_products_of_the_planted(dropped, drawn):
    for seed in (3, 4, 6):
        simulated, reports = drawn(seed)
        report = waterfall(replace(reports, **dict.fromkeys(dropped)))
        assert set(misses(report, simulated)) <= {"clock"}
        names = tuple(name for step in report.chain.steps for name in step.names)
        assert len(names) == len(set(names))
        ends_where_planted(report.chain, names, simulated)
        if "flops" not in dropped:  # MFU is known, so nothing is left out
            assert not report.chain.missing
            assert report.headline.value == pytest.approx(simulated.truth["mfu"], rel=1e-6)


def test_without_telemetry_what_is_done_while_computing_is_one_step(drawn):
    simulated, reports = drawn(3)
    step = waterfall(replace(reports, telemetry=None)).chain.step("sm_fill", "tensor_issue", "clock")
    assert step is not None
    assert step.factor.value == pytest.approx(planted(("sm_fill", "tensor_issue", "clock"), simulated), rel=1e-6)


def test_without_the_model_the_chain_ends_at_ofu_times_tile(drawn):
    simulated, reports = drawn(3)
    chain = waterfall(replace(reports, flops=None)).chain
    assert chain.reaches == "OFU × tile"
    assert chain.missing == ("model",)
    ends_where_planted(chain, (*TIME, "tile"), simulated)


def test_telemetry_of_several_gpus_does_not_claim_to_know_what_collectives_cost(drawn):
    simulated, reports = drawn(3)
    report = waterfall(SourceReports(telemetry=reports.telemetry, gpus=4))
    names = [step.names for step in report.chain.steps]
    assert names == [("load_balance",), ("orchestration",), ("communication", "sm_fill"), ("tensor_issue",), ("clock",)]
    assert all(step.factor.low is None for step in report.chain.steps[:4])
    issue = report.chain.steps[3]  # tensor activity itself is known: its level has bounds
    assert issue.after.value == pytest.approx(
        planted(("load_balance", "communication", "orchestration", "sm_fill", "tensor_issue"), simulated), rel=1e-5
    )
    assert any("running collective" in note for note in report.notes)


def test_telemetry_of_one_gpu_knows_its_idle_time_as_communication_and_orchestration(drawn):
    _, reports = drawn(4)  # one rank, which has nobody to talk to
    names = [step.names for step in waterfall(SourceReports(telemetry=reports.telemetry, gpus=1)).chain.steps]
    assert names[:3] == [("load_balance",), ("communication", "orchestration"), ("sm_fill",)]


def test_a_trace_of_some_of_the_ranks_does_not_claim_a_load_balance(drawn):
    _, reports = drawn(3)
    chain = waterfall(replace(reports, gpus=16, telemetry=None)).chain
    assert chain.steps[0].names == ("load_balance", "communication")


def test_both_sources_say_how_much_of_the_time_a_kernel_runs(drawn):
    simulated, reports = drawn(3)
    busy = {d.what: d for d in waterfall(reports).chain.disagreements}["share of time with a kernel"]
    truth = (simulated.active - simulated.copies) / simulated.elapsed
    assert busy.used.value == pytest.approx(truth, rel=1e-6)
    assert busy.other.value == pytest.approx(truth, rel=1e-4)
    assert busy.agree


def test_a_clock_above_the_tensor_clock_is_shown_and_not_cut(drawn):
    _, reports = drawn(FAST)
    assert job(JobPlan(ranks=1 + FAST % 4, steps=1, seed=FAST)).truth["factors"]["clock"] > 1.01
    report = waterfall(reports)
    clock = next(cost for cost in report.costs if cost.step.names == ("clock",))
    assert clock.step.factor.value > 1
    assert clock.points < 0
    assert any(note.startswith("clock comes to") for note in report.notes)


def test_an_ofu_that_is_said_beside_the_telemetry_is_held_against_it(drawn):
    _, reports = drawn(3)
    report = waterfall(reports, GivenByHand(ofu=0.9))
    said = next(d for d in report.chain.disagreements if d.what == "OFU")
    assert (said.used.source, said.other.value, said.agree) == ("telemetry", 0.9, False)


def test_the_simulated_flops_by_hand_are_those_of_the_ledger(tmp_path):
    # two implementations: the simulator's arithmetic, and the formula of the architecture
    for seed in range(12):
        simulated = job(JobPlan(seed=seed))
        made = write(simulated, tmp_path / str(seed))
        fields = dict(read_config(made.config).values)
        step = fields.pop("step")
        ledger = ledger_of(fields, batch=step["batch"], seq=step["seq"], recompute=step["recompute"]).ledger
        assert (ledger.training, ledger.executed) == simulated.model.flops


def test_the_same_seed_writes_the_same_files(tmp_path):
    one, two = (write(job(JobPlan(seed=5)), tmp_path / name) for name in ("one", "two"))
    for a, b in ((one.telemetry, two.telemetry), (one.config, two.config), (one.gemms, two.gemms)):
        assert a.read_bytes() == b.read_bytes()


def test_rank_times_add_up_in_the_simulated_job():
    simulated = job(JobPlan(ranks=3, seed=2))
    for kernel, collective in zip(simulated.kernel, simulated.collective, strict=True):
        assert kernel + collective + simulated.copies == simulated.active
        assert collective > 0
