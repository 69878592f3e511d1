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
        (["--telemetry", "samples.csv", "--ofu", "30"], "leave --ofu out: with a log"),
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


def flops_log(folder: Path) -> Path:
    """Write a log of two steps of a minute that gives 494.7 TFLOP/s a GPU, half of an H100's peak, and no MFU."""
    log = folder / "train.jsonl"
    lines = [
        json.dumps({"step": n, "time": datetime.fromtimestamp(START + MINUTE * n, UTC).isoformat(), "step_time": 60, "tflops": 494.7})
        for n in (1, 2)
    ]
    log.write_text("\n".join(lines) + "\n")
    return log


def readings(folder: Path, models: list[str]) -> Path:
    """Write two minutes of a GPU of each model, all at half of their tensor peak."""
    samples = folder / "samples.csv"
    rows = [f"{START + MINUTE * n},GPU-{gpu},{model},n1,4711,ann,0.5,{CLOCK},0.9\n" for n in (1, 2) for gpu, model in enumerate(models)]
    samples.write_text(HEAD + "".join(rows))
    return samples


def test_flops_of_a_log_are_set_over_the_peak_of_the_gpu_that_samples_or_the_question_names(tmp_path: Path) -> None:
    words = ("audit", "mfu", "--reported", f"{flops_log(tmp_path)}=4711", "--telemetry")
    for models, gpu, mfu in ((["H100 SXM"], (), 0.5), ([""], ("--gpu", "H100 SXM"), 0.5), (["H100 SXM"], ("--gpu", "A100"), 0.5)):
        data = ask(*words, readings(tmp_path, models), *gpu, "--json").json
        assert data["mfu"] == pytest.approx(mfu, rel=1e-3), (models, gpu)
    # one GPU that samples name and one that the question names are of one kind
    assert ask(*words, readings(tmp_path, ["H100 SXM", ""]), "--gpu", "H100", "--json").json["mfu"] == pytest.approx(0.5, rel=1e-3)


def test_flops_without_one_peak_say_what_to_do(tmp_path: Path) -> None:
    words = ("audit", "mfu", "--reported", f"{flops_log(tmp_path)}=4711", "--telemetry")
    unnamed = ask(*words, readings(tmp_path, [""]))
    assert unnamed.code == 1 and "no GPU of this fleet is known" in unnamed.err and "--gpu" in unnamed.err
    several = ask(*words, readings(tmp_path, ["H100 SXM", "A100"]))
    assert several.code == 1 and "reports FLOP/s without an MFU" in several.err and "have no one peak" in several.err


def test_steps_outside_the_window_are_not_counted(tmp_path: Path) -> None:
    # 8 steps of 30 s; the window from the second minute to the end of the third holds steps 3 to 6
    log, samples = written(tmp_path, [(START + 30 * n, START + 30 * (n + 1), 0.6) for n in range(8)], [0.5] * 4)
    words = ("audit", "mfu", "--reported", f"{log}=4711", "--telemetry", samples)
    said = ask(*words, "--since", START + MINUTE, "--until", START + 3 * MINUTE)
    assert "over 4 steps" in said.out.split("\n")[0]
    # steps without an MFU say nothing about its mean
    log.write_text(log.read_text() + json.dumps({"step": 9, "time": datetime.fromtimestamp(START + 230, UTC).isoformat()}) + "\n")
    assert ask(*words, "--json").json["steps"] == 8


def test_an_answer_never_takes_the_place_of_the_log(tmp_path: Path) -> None:
    folder = tmp_path / "lr=3e-4"
    folder.mkdir()
    log, samples = written(folder, [(START, START + 240, 0.5)], [0.25] * 4, job="train")
    kept = folder / "train.json"
    log.rename(kept)
    for words in (("audit", "mfu", "--reported", kept, "--telemetry", samples), ("fleet", samples, "--reported", kept),
                  ("job", "train", samples, "--reported", kept)):  # fmt: skip
        before = kept.read_text()
        said = ask(*words, "--out", kept)
        assert said.code == 1 and "would take its place" in said.err and kept.read_text() == before, words
