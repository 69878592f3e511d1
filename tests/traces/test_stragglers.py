"""What stragglers cost a training job: published answers of real jobs, and generated jobs whose cause is known."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.command_line import ask
from ullage.errors import UllageError
from ullage.questions.trace.stragglers import trace_stragglers as stragglers
from ullage.reports.trace.stragglers import MOSTLY, STRAGGLING
from ullage.simulate.traces.pipeline import PipelinePlan, write

PUBLISHED = {"forward transfer": "forward-pp-comm", "backward transfer": "backward-pp-comm"}


def generated(tmp_path, **plan):
    return write(PipelinePlan(**plan), tmp_path / "trace.parquet")


def edited(path, change):
    """Write a generated file again with its columns (lists) changed."""
    columns = pq.read_table(path).to_pydict()
    change(columns)
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(("job", "kind", "name", "certain"), [("AR", "worker", "0", "mw"), ("ST", "stage", "3", "ms")])
def test_a_published_job_comes_out_as_published(shared_data: Path, job, kind, name, certain):
    folder = shared_data / "straggler"
    truth = json.loads((folder / f"result-{job}.json").read_text())
    report = stragglers(str(folder / f"trace-{job}.parquet"), peers="job")
    assert report.slowdown == pytest.approx(truth["blocking_slowdown"], abs=1e-3)
    assert report.gaps == pytest.approx(truth["launch_slowdown"], abs=1e-3)
    for rows, key in ((report.replicas, "dp_rank"), (report.stages, "stage"), (report.operations, "optype")):
        found = {PUBLISHED.get(row.name, row.name): row.slowdown for row in rows}
        assert found == pytest.approx(truth[f"blocking_decompose_by_{key}"], abs=1e-3)
    assert {str(s.step): s.slowdown for s in report.steps} == pytest.approx(truth["blocking_step_slowdown"], abs=1e-3)
    for word, key in (("recorded", "base"), ("replayed", "nodelay"), ("ideal", "noblk")):
        assert {str(s.step): getattr(s, word) for s in report.steps} == pytest.approx(truth[f"step_t_{key}"], rel=1e-3)
    shares = {cause.kind if cause.kind != "stage" else f"stage {cause.name}": cause.share for cause in report.causes}
    last = report.stages[-1].name
    assert shares["worker"] == pytest.approx(json.loads((folder / f"mw-{job}.json").read_text())["rem"], abs=1e-3)
    assert shares[f"stage {last}"] == pytest.approx(json.loads((folder / f"ms-{job}.json").read_text())["rem"], abs=1e-3)
    assert (report.cause.kind, report.cause.name) == (kind, name)


@pytest.mark.parametrize("job", ["AR", "ST"])
def test_the_cause_is_the_same_within_steps(shared_data: Path, job):
    path = str(shared_data / "straggler" / f"trace-{job}.parquet")
    assert stragglers(path, peers="step").cause.kind == stragglers(path, peers="job").cause.kind


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("lengths", ["equal", "steps", "microbatches"])
def test_the_replay_of_a_generated_job_is_the_job(tmp_path, seed, lengths):
    # the generator walks through the passes by itself and leaves no gaps, so the replay must give its times back
    rng = np.random.default_rng(seed)
    shape = {word: int(rng.integers(1, most)) for word, most in (("replicas", 4), ("stages", 5), ("microbatches", 7), ("steps", 4))}
    report = stragglers(str(generated(tmp_path, **shape, lengths=lengths, seed=seed, straggler=int(rng.integers(0, 4)))))
    for step in report.steps:
        assert step.replayed == pytest.approx(step.recorded, abs=1e-7 * shape["microbatches"])  # float seconds in the file


def test_a_slow_rank_is_named(tmp_path):
    report = stragglers(str(generated(tmp_path, straggler=5)))
    assert (report.cause.kind, report.cause.name) == ("worker", "5")
    assert report.cause.share > 0.95 and report.workers[0].rank == 5 and report.workers[0].dp_rank == 1


def test_a_long_last_stage_is_named(tmp_path):
    report = stragglers(str(generated(tmp_path, long_stage=True)))
    assert (report.cause.kind, report.cause.name) == ("stage", "3")


def test_a_longer_step_is_no_straggler_within_its_step_and_is_one_beside_the_job(tmp_path):
    path = str(generated(tmp_path, lengths="steps", steps=8))
    within, beside = stragglers(path), stragglers(path, peers="job")
    assert within.cause is None and max(step.slowdown for step in within.steps) < 1.03
    assert max(step.slowdown for step in beside.steps) > STRAGGLING


def test_a_slow_rank_is_named_though_steps_differ_in_length(tmp_path):
    report = stragglers(str(generated(tmp_path, lengths="steps", steps=8, straggler=2)))
    assert (report.cause.kind, report.cause.name) == ("worker", "2")


@pytest.mark.parametrize("seed", range(5))
def test_unequal_microbatches_are_told_from_slow_ranks(tmp_path, seed):
    report = stragglers(str(generated(tmp_path, lengths="microbatches", replicas=4, steps=6, seed=seed)))
    assert report.slowdown > STRAGGLING and report.cause.kind == "microbatches"


@pytest.mark.parametrize("seed", range(5))
def test_a_slow_rank_is_told_from_unequal_microbatches(tmp_path, seed):
    plan = {"replicas": 4, "steps": 6, "lengths": "microbatches", "seed": seed}
    report = stragglers(str(generated(tmp_path, **plan, straggler=9, slowdown=4.0)))
    assert (report.cause.kind, report.cause.name) == ("worker", "9")


def test_slow_communication_is_named(tmp_path):
    def slow(columns):  # one step's reduction takes 4 s longer
        for row, word in enumerate(columns["optype"]):
            if columns["step"][row] == 3 and word in ("grads-reduce-scatter", "optimizer-clip-main-grad", "optimizer"):
                columns["duration" if word == "grads-reduce-scatter" else "start_ts"][row] += 4.0

    report = stragglers(str(edited(generated(tmp_path), slow)), peers="job")
    assert (report.cause.kind, report.cause.name) == ("communication", "grads-reduce-scatter")


def test_a_slow_replica_is_named(tmp_path):
    def slow(columns):  # replica 1 takes twice as long for all; laid out by the replay, whatever the times say
        for row in range(len(columns["step"])):
            if columns["dp_rank"][row] == 1 and columns["optype"][row].endswith("compute"):
                columns["duration"][row] *= 2

    report = stragglers(str(edited(generated(tmp_path, noise=0.0, replicas=3), slow)))
    assert (report.cause.kind, report.cause.name) == ("replica", "1")


@pytest.mark.parametrize(("slowdown", "straggles"), [(1.05, False), (1.5, True)])
def test_a_job_straggles_from_ten_percent_on(tmp_path, slowdown, straggles):
    report = stragglers(str(generated(tmp_path, straggler=0, slowdown=slowdown, noise=0.0)))
    assert (report.slowdown >= STRAGGLING) == straggles == (report.cause is not None)


def test_a_cause_has_half_of_the_loss(tmp_path):
    for lengths in ("equal", "microbatches"):
        report = stragglers(str(generated(tmp_path, straggler=1, lengths=lengths)))
        assert report.cause is next((c for c in report.causes if c.share >= MOSTLY), None)


def test_a_job_of_equals_loses_nothing(tmp_path):
    report = stragglers(str(generated(tmp_path, noise=0.0)))
    assert report.slowdown == pytest.approx(1, abs=1e-6) and report.cause is None


@pytest.mark.parametrize("shape", [{"replicas": 1}, {"stages": 1}, {"replicas": 1, "stages": 1}])
def test_what_can_t_be_told_apart_is_said(tmp_path, shape):
    report = stragglers(str(generated(tmp_path, **shape, straggler=0)))
    assert any(note.startswith("there is one") for note in report.notes)


def test_an_incomplete_step_is_left_out(tmp_path):
    def lose(columns):
        row = next(r for r, word in enumerate(columns["optype"]) if word == "forward-recv" and columns["step"][r] == 1)
        for values in columns.values():
            del values[row]

    report = stragglers(str(edited(generated(tmp_path), lose)))
    assert [step.step for step in report.steps] == [0, 2, 3] and report.partial
    assert "1 steps of which something is missing left out" in report.notes


def test_a_step_without_one_rank_is_left_out(tmp_path):
    def lose(columns):
        keep = [not (step == 2 and rank == 7) for step, rank in zip(columns["step"], columns["rank"], strict=True)]
        for name, values in columns.items():
            columns[name] = [value for value, kept in zip(values, keep, strict=True) if kept]

    assert [step.step for step in stragglers(str(edited(generated(tmp_path), lose))).steps] == [0, 1, 3]


def test_rows_that_can_t_be_used_are_counted(tmp_path):
    def spoil(columns):
        columns["optype"][0] = "<script>"
        columns["start_ts"][1] = float("nan")

    report = stragglers(str(edited(generated(tmp_path), spoil)))
    assert report.partial
    assert any("types that no dependency is known of" in n for n in report.notes) and any(
        "without a time or place" in n for n in report.notes
    )


def test_nothing_whole_is_refused_in_words(tmp_path):
    def lose(columns):
        columns["optype"] = ["forward-compute" if word == "forward-recv" else word for word in columns["optype"]]

    with pytest.raises(UllageError, match="no step is whole"):
        stragglers(str(edited(generated(tmp_path), lose)))


def test_tensor_parallel_ranks_count_once(tmp_path):
    def double(columns):
        copies = {name: list(values) for name, values in columns.items()}
        columns["rank"] = [2 * rank for rank in columns["rank"]]
        copies["rank"] = [2 * rank + 1 for rank in copies["rank"]]
        for name, values in copies.items():
            columns[name] = columns[name] + values

    plain = stragglers(str(generated(tmp_path, straggler=5)))
    report = stragglers(str(edited(generated(tmp_path, straggler=5), double)))
    assert report.slowdown == plain.slowdown and report.cause.name == "10" and not report.partial


def test_absolute_times_give_the_same_answer(tmp_path):
    before = stragglers(str(generated(tmp_path, straggler=3)))

    def later(columns):
        columns["start_ts"] = [start + 100.0 * step for start, step in zip(columns["start_ts"], columns["step"], strict=True)]

    after = stragglers(str(edited(generated(tmp_path, straggler=3), later)))
    assert after.slowdown == pytest.approx(before.slowdown, abs=1e-6)


def test_another_trace_is_refused_by_its_kind(tmp_path):
    path = tmp_path / "kineto.json"
    path.write_text('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 0, "dur": 1, "args": {"device": 0}}]}')
    with pytest.raises(UllageError, match="trace of another kind"):
        stragglers(str(path))


def test_the_command_answers_in_every_form(tmp_path):
    folder = tmp_path / "t"
    made = ask("simulate", "trace", "--format", "operations", "--straggler", 5, "--ranks", 8, "--out", folder)
    assert made.code == 0 and "ullage trace stragglers" in made.out
    shown, data = ask("trace", "stragglers", folder), ask("trace", "stragglers", folder, "--json").json
    assert shown.code == 0 and shown.out.startswith(f"Slowdown {data['slowdown']:.3f}") and "slow: rank 5" in shown.out
    assert data["cause"]["name"] == "5"
    out = tmp_path / "report.html"
    assert ask("trace", "stragglers", folder, "--out", out).code == 0
    page = out.read_text()
    assert f"Slowdown {data['slowdown']:.3f}" in page and "slow: rank 5" in page


def test_ranks_that_stages_don_t_divide_are_refused(tmp_path):
    said = ask("simulate", "trace", "--format", "operations", "--ranks", 6, "--stages", 4, "--out", tmp_path / "t")
    assert said.code == 1 and "--ranks 8" in said.err


def test_the_tree_of_the_same_file_has_ranks_as_devices(tmp_path):
    import ullage

    tree = ullage.read_trace(str(generated(tmp_path, straggler=5, noise=0.0))).tree("ai")
    # rank 5 computes twice as long as the seven others: the mean over the longest is 9/16, less the optimizer, the same for all
    assert tree["device_load_balance"] == pytest.approx((9 * 8 * 180 + 8 * 30) / (8 * (16 * 180 + 30)), abs=1e-6)
    assert tree.host is None
