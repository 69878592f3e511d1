"""Cost per token: a rank with longer sequences is no slow worker. Held against sums over the simulated events."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.render.forms import plain
from tests.traces.kineto_events import call, kernel, on_host, reading, written
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.render.trace import view
from ullage.render.trace_json import record
from ullage.reports.trace.sequences import Sequences
from ullage.simulate.traces import kineto
from ullage.simulate.traces.scenario import Scenario
from ullage.simulate.traces.training import TrainingPlan, training
from ullage.traced import read_trace
from ullage.views.html import html


def embedding(ts: float, *shape: int, table: tuple[int, int] = (32_000, 4096)) -> dict:
    return on_host(ts, 1.0, "aten::embedding", "cpu_op", **{"Input Dims": [list(table), list(shape), [], [], []]})


def found(scenario: Scenario, folder: Path) -> Sequences | None:
    return read_trace(kineto.write(scenario, folder)).report().sequences


def brute_force(scenario: Scenario) -> tuple[list[list[int]], list[list[int]]]:
    """Return each rank's tokens and its kernels' ns in each step: of kernels whose call lies in the step."""
    tokens, times = [], []
    for process in sorted(scenario.ranks, key=scenario.ranks.__getitem__):
        mine = scenario.of(process)
        calls = {e.correlation: e for e in mine if e.kind == "api"}
        steps = [e for e in mine if e.kind == "step"]
        tokens.append([sum(e.tokens or 0 for e in mine if step.start <= e.start < step.end) for step in steps])
        ran = [(calls[e.correlation].start, e.end - e.start) for e in mine if e.kind == "kernel"]
        times.append([sum(lasted for start, lasted in ran if step.start <= start < step.end) for step in steps])
    return tokens, times


PLANS = [
    TrainingPlan(ranks=4, lengths="ranks", layers=4),
    TrainingPlan(ranks=3, lengths="steps", layers=4, steps=4),
    TrainingPlan(ranks=4, lengths="ranks", straggler=2, layers=4),
    TrainingPlan(ranks=3, lengths="steps", straggler=0, layers=4, graph="kernels"),
]


@pytest.mark.parametrize("plan", PLANS)
def test_tokens_and_times_are_what_brute_force_says(plan: TrainingPlan, tmp_path: Path) -> None:
    scenario = training(plan)
    tokens, times = brute_force(scenario)
    report = found(scenario, tmp_path)
    assert report is not None and report.steps == plan.steps
    for rank, row in enumerate(report.ranks):
        assert (row.label, row.tokens, row.time) == (f"rank {rank}", sum(tokens[rank]), sum(times[rank]))
    mean = [sum(of_step) / plan.ranks for of_step in zip(*tokens, strict=True)]
    equal = [[t / n * m for t, n, m in zip(times[r], tokens[r], mean, strict=True)] for r in range(plan.ranks)]
    for value, by_rank in ((report.imbalance, times), (report.at_equal_tokens, equal)):
        longest = sum(max(of_step) for of_step in zip(*by_rank, strict=True))
        assert value == pytest.approx(longest / (sum(map(sum, by_rank)) / plan.ranks))


def test_a_rank_with_longer_sequences_is_told_as_such(tmp_path: Path) -> None:
    report = found(training(PLANS[0]), tmp_path)
    assert report is not None
    longest = max(report.ranks, key=lambda row: row.tokens)
    assert longest.finding == "longer sequences"
    assert "slower" not in " ".join(row.finding for row in report.ranks)


def test_a_slow_rank_is_told_whatever_its_sequences(tmp_path: Path) -> None:
    report = found(training(PLANS[2]), tmp_path)
    assert report is not None
    assert [row.label for row in report.ranks if "slower per token" in row.finding] == ["rank 2"]
    assert report.ranks[2].relative_cost == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize(
    ("plan", "says"),
    [(0, "unequal sequences, no slow rank"), (1, ""), (2, "a slow rank"), (3, "a slow rank, not its")],
)
def test_text_page_and_data_say_what_unbalances_the_steps(plan: int, says: str, tmp_path: Path) -> None:
    report = read_trace(kineto.write(training(PLANS[plan]), tmp_path)).report()
    data = record(report)["sequences"]
    assert data["verdict"].startswith(says) and bool(data["verdict"]) == bool(says)
    for form in (str(report), plain(str(html(view(report))))):
        assert data["verdict"] in form and f"{data['ranks'][0]['tokens']:,}" in form


def test_without_embeddings_or_with_one_rank_nothing_is_compared(tmp_path: Path) -> None:
    assert found(training(TrainingPlan(layers=2)), tmp_path / "a") is None
    assert found(training(TrainingPlan(ranks=1, lengths="ranks", layers=2)), tmp_path / "b") is None


def test_a_lookup_tells_its_table_and_how_many_tokens(tmp_path: Path) -> None:
    path = written(tmp_path, call(0, 9), kernel(10, 5), embedding(1, 16, 559), on_host(3, 1, "aten::embedding", "cpu_op"))
    rows, _, _ = reading(path)
    looked = [(row["name"], row["tokens"]) for row in rows if row["kind"] == "lookup"]
    assert looked == [("32000x4096", 16 * 559)]


@pytest.mark.parametrize(
    "shapes", [[], [[5, 4]], [[5, 4], []], [[5, 4], [0]], [[5, 4], [-1]], [[5, 4], [2**60, 2**60]], [[5, 4], ["a"]], "x", 7, None]
)
def test_shapes_that_are_none_are_no_tokens(shapes: object, tmp_path: Path) -> None:
    rows, _, _ = reading(written(tmp_path, call(0, 9), kernel(10, 5), on_host(3, 1, "aten::embedding", "cpu_op", **{"Input Dims": shapes})))
    assert not any(row["kind"] == "lookup" for row in rows)


def test_of_several_tables_the_one_looked_up_most_counts_and_without_steps_all_is_one(tmp_path: Path) -> None:
    # words, positions and types of 2 x 100 tokens, of which positions are looked up once for both; kernels take 5 us and 15 us
    for number, lasted in enumerate((5, 15)):
        looked = [embedding(1, 2, 100), embedding(2, 1, 100, table=(512, 4096))]
        metadata = {"distributedInfo": {"rank": number, "world_size": 2}}
        written(tmp_path, call(0, 9), kernel(10, lasted), *looked, name=f"r{number}.json", **metadata)
    report = read_trace(tmp_path).report().sequences
    assert report is not None
    assert [(row.tokens, row.time) for row in report.ranks] == [(200, 5000), (200, 15_000)]
    assert [row.per_token for row in report.ranks] == pytest.approx([25e-9, 75e-9])
    assert (report.steps, report.imbalance, report.at_equal_tokens) == (0, 1.5, 1.5)


@pytest.mark.parametrize(("lengths", "form"), [("ranks", "operations"), ("microbatches", "kineto")])
def test_lengths_that_a_format_does_not_have_are_refused(lengths: str, form: str, tmp_path: Path) -> None:
    asked = ["simulate", "trace", "--lengths", lengths, "--format", form, "--out", str(tmp_path / "job")]
    with pytest.raises(UllageError, match="can't differ by"):
        CliRunner().invoke(cli, asked, catch_exceptions=False)
