"""A trainer's log beside OFU in the course of time, against a loop over seconds."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.command_line import ask
from tests.seeds import some

START = 1_786_320_000  # a whole hour
CLOCK = 1830  # MHz: that of the tensor peak of an H100
MINUTE = 60
HEAD = "timestamp,gpu,model,host,job,user,tensor_active,sm_clock,sm_active\n"


def written(folder: Path, steps: list[tuple[int, int, float]], activity: list[float], job: str = "4711") -> tuple[Path, Path]:
    """Write steps (start and end in s, MFU) as JSON lines, and the activity of two GPUs by minute as samples."""
    log, samples = folder / "train.jsonl", folder / "samples.csv"
    lines = [
        json.dumps({"step": n, "time": datetime.fromtimestamp(end, UTC).isoformat(), "step_time": end - start, "mfu": mfu})
        for n, (start, end, mfu) in enumerate(steps, 1)
    ]
    log.write_text("\n".join(lines) + "\n")
    rows = [
        f"{START + MINUTE * n},GPU-{gpu},H100 SXM,n1,{job},ann,{active},{CLOCK},0.9\n"
        for n, active in enumerate(activity, 1)
        for gpu in (0, 1)
    ]
    samples.write_text(HEAD + "".join(rows))
    return log, samples


def by_minute(steps: list[tuple[int, int, float]], activity: list[float]) -> dict[int, tuple[float, float, float]]:
    """Return of each minute its share of steps, their mean MFU and OFU, by a loop over the seconds from the first to the last step."""
    first, last = steps[0][0], steps[-1][1]
    found = {}
    for minute in range(len(activity)):
        seconds = [s for s in range(START + MINUTE * minute, START + MINUTE * (minute + 1)) if first <= s < last]
        told = [mfu for s in seconds for start, end, mfu in steps if start <= s < end]
        if told:
            found[START + MINUTE * minute] = (len(told) / len(seconds), sum(told) / len(told), activity[minute])
    return found


@pytest.mark.parametrize("seed", some(range(300), quick=2))
def test_every_span_has_what_its_seconds_have(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    activity = [rng.choice([0.125, 0.25, 0.5, 0.75]) for _ in range(rng.randint(4, 12))]
    at, steps = START + rng.randint(0, 100), []
    while at < START + MINUTE * (len(activity) - 1):
        end = at + rng.randint(5, 90)
        steps.append((at, end, rng.randint(5, 95) / 100))
        at = end + rng.choice([0, 0, 0, 40])
    steps = [one for one in steps if one[1] <= START + MINUTE * len(activity)]
    log, samples = written(tmp_path, steps, activity)
    data = ask("audit", "mfu", "--reported", f"{log}=4711", "--telemetry", samples, "--json").json
    expected = by_minute(steps, activity)
    shown = {round(datetime.fromisoformat(one["start"]).timestamp()) // MINUTE * MINUTE: one for one in data["course"]}
    assert set(shown) == {minute for minute, (logged, *_) in expected.items() if logged >= 0.01}
    for minute, one in shown.items():
        assert (one["logged"], one["mfu"], one["ofu"]) == pytest.approx(expected[minute], rel=1e-6)
    taken = [
        (sum(min(end, minute + MINUTE) - max(start, minute) for start, end, _ in steps if start < minute + MINUTE and end > minute), minute)
        for minute in expected
    ]
    whole = sum(seconds for seconds, _ in taken)
    assert data["mfu"] == pytest.approx(sum(seconds * expected[minute][1] for seconds, minute in taken) / whole, rel=1e-6)
    assert data["ofu"] == pytest.approx(sum(seconds * expected[minute][2] for seconds, minute in taken) / whole, rel=1e-6)


def test_a_log_is_set_beside_ofu_span_by_span_in_every_form(tmp_path: Path) -> None:
    # two minutes at 0.5, two at 0.25; the log says 0.6 all the time: on the mean 0.6 beside 0.375
    log, samples = written(tmp_path, [(START + 30 * n, START + 30 * (n + 1), 0.6) for n in range(8)], [0.5, 0.5, 0.25, 0.25])
    words = ("audit", "mfu", "--reported", f"{log}=4711", "--telemetry", samples)
    said = ask(*words)
    assert said.code == 0 and said.out.startswith("1.60 times OFU: reported MFU 60.00 %, OFU 37.50 %, over 8 steps")
    assert "1–2" in said.out and "7–8" in said.out and "2.4" in said.out
    for name in ("page.html", "page.md", "page.csv", "page.json"):
        ask(*words, "--out", tmp_path / name)
        assert "2.4" in (tmp_path / name).read_text()


def test_with_a_model_the_means_are_audited_and_the_gate_is_that_of_an_audit(tmp_path: Path) -> None:
    log, samples = written(tmp_path, [(START, START + 240, 0.9)], [0.1] * 4)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
                                  "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 96}))  # fmt: skip
    said = ask("audit", "mfu", "--reported", f"{log}=4711", "--telemetry", samples, "--config", config, "--seq", "64")
    assert said.code == 3 and "9.00 times OFU" in said.out and "mistake" in said.out


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ([], "--telemetry is missing"),
        (["--telemetry", "samples.csv", "--ofu", "30"], "--ofu plays no part beside a log"),
        (["--telemetry", "samples.csv", "--seq", "64"], "name the model with --config"),
    ],
)
def test_what_makes_no_question_is_usage(more: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, [(START, START + 60, 0.5)], [0.5])
    monkeypatch.chdir(tmp_path)
    said = ask("audit", "mfu", "--reported", "train.jsonl", *more)
    assert said.code == 2 and problem in said.err


def test_a_log_without_times_can_not_be_set_beside_anything(tmp_path: Path) -> None:
    _, samples = written(tmp_path, [(START, START + 60, 0.5)], [0.5])
    log = tmp_path / "bare.jsonl"
    log.write_text('{"step": 1, "mfu": 0.5}\n{"step": 2, "mfu": 0.5}\n')
    said = ask("audit", "mfu", "--reported", f"{log}=4711", "--telemetry", samples)
    assert said.code == 1 and "does not say when its steps were" in said.err


def test_samples_that_name_no_job_are_all_the_logs(tmp_path: Path) -> None:
    log, samples = written(tmp_path, [(START, START + 240, 0.5)], [0.25] * 4, job="")
    data = ask("audit", "mfu", "--reported", log, "--telemetry", samples, "--json").json
    assert (data["job"], data["mfu"], data["ofu"]) == ("train", pytest.approx(0.5), pytest.approx(0.25))
