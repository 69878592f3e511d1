"""`ullage waterfall` and `ullage simulate job`: the answer first, every form, and one clear error for what can't be."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import ullage.questions
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.metrics.evidence import Measured
from ullage.render.svg.waterfall import waterfall as picture
from ullage.reports.gemms.file import read_gemms
from ullage.reports.waterfall.evidence import tile
from ullage.reports.waterfall.inputs import kind
from ullage.reports.waterfall.known import GivenByHand, SourceReports
from ullage.reports.waterfall.waterfall import waterfall
from ullage.simulate.job import JobPlan, job
from ullage.simulate.job_files import write

SHARED = Path(__file__).parents[3] / "shared" / "data" / "kineto"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write(job(JobPlan(ranks=2, steps=2, seed=3)), tmp_path_factory.mktemp("job"))


def run(*words: object) -> str:
    result = CliRunner().invoke(cli, ["waterfall", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def problem(*words: object) -> str:
    with pytest.raises(UllageError) as raised:
        CliRunner().invoke(cli, ["waterfall", *map(str, words)], catch_exceptions=False)
    return str(raised.value)


def test_the_first_line_is_the_answer_and_the_chain_closes(made):
    out = run(made.telemetry, made.traces, made.config, made.gemms, "--price", "2", "--ceiling", "750e12")
    truth = json.loads(made.truth.read_text())
    assert out.startswith(f"MFU {truth['mfu']:.1%} of peak: ".replace("%", " %"))
    for words in ("the chain closes", "measured ceiling 750.0 TFLOP/s (given): 75.8 % of the peak", "what is usually done", "money"):
        assert words in out


def test_json_has_every_step_with_its_bounds_owner_and_remedies(made):
    data = json.loads(run(made.telemetry, made.traces, made.config, made.gemms, "--price", "2", "--json"))
    assert [step["name"] for step in data["steps"]] == list(json.loads(made.truth.read_text())["factors"])
    assert data["closure"]["closes"] is True
    assert data["gpu_hours"] == pytest.approx(2.0, rel=1e-3)  # two GPUs for an hour
    assert sum(step["points"] for step in data["steps"]) == pytest.approx(100 * (1 - data["end"]["value"]))
    assert sum(step["money"] for step in data["steps"]) == pytest.approx(2 * 2.0 * (1 - data["end"]["value"]), rel=1e-3)
    assert all(step["whose"] and step["remedies"] and step["factor"]["source"] for step in data["steps"])


@pytest.mark.parametrize("form", ["svg", "html", "json", "txt"])
def test_every_form_is_written_whole(made, tmp_path, form):
    file = tmp_path / f"chain.{form}"
    run(made.traces, made.config, "--out", file)
    written = file.read_text()
    assert "orchestration" in written
    if form == "svg":
        ElementTree.fromstring(written)
    if form == "json":
        assert json.loads(written)["reaches"] == "MFU"


def test_places_are_told_by_content_whatever_they_are_called(made, tmp_path):
    for number, (path, expected) in enumerate(((made.telemetry, "telemetry"), (made.config, "config"), (made.gemms, "gemms"))):
        plain = tmp_path / f"file{number}"
        plain.write_bytes(path.read_bytes())
        assert kind(str(plain)) == expected
    assert kind(str(made.traces)) == "trace"
    assert kind(str(next(made.traces.iterdir()))) == "trace"
    assert kind("http://prometheus:9090") == "telemetry"


def test_what_is_asked_goes_before_the_configurations_own_step(made):
    slow = json.loads(run(made.config, "--step-time", "1", "--gpus", "2", "--gpu", "H100 SXM", "--json"))
    slower = json.loads(run(made.config, "--step-time", "2", "--gpus", "2", "--gpu", "H100 SXM", "--json"))
    assert slow["mfu"]["value"] == pytest.approx(2 * slower["mfu"]["value"])


def test_the_traces_steps_give_the_time_that_nobody_said(made, tmp_path):
    config = json.loads(made.config.read_text())
    expected = config["step"].pop("step_time")
    (tmp_path / "config.json").write_text(json.dumps(config))
    out = run(made.traces, tmp_path / "config.json")
    assert "the step's time is the mean of the trace's steps" in out
    assert f"in {expected:.4g} s on 2 GPUs" in out


def test_numbers_by_hand_are_enough():
    # OFU paper, section VI-C: 34 × 0.75 = 25.5, and 26 was reported
    out = run("--ofu", "34", "--mfu", "26", "--tile-efficiency", "100%", "--model-efficiency", "0.75")
    assert out.startswith("MFU 26.0 % of peak: 66.0 points are lost to load balance … clock")
    assert "the chain closes: OFU × tile × model allow 25.5 %" in out


def test_a_report_that_the_counters_do_not_allow_is_unexplained_and_points_to_the_audit():
    # section V-C: 54.27 reported, 25.58 measured
    out = run("--ofu", "25.58", "--mfu", "54.27", "--tile-efficiency", "98%", "--model-efficiency", "1")
    assert "the chain does not close" in out
    assert "ullage audit mfu" in out
    assert any(line.startswith("unexplained ") and "+29.2" in line for line in out.splitlines())


def test_two_sources_that_differ_are_both_shown(made):
    out = run(made.telemetry, made.traces, made.config, made.gemms, "--mfu", "60")
    [line] = [line for line in out.splitlines() if line.startswith("MFU  ")]
    assert "step" in line and "given" in line and line.endswith("differ")


def test_hours_by_hand_are_of_all_gpus():
    data = json.loads(run("--mfu", "50%", "--hours", "3", "--gpus", "8", "--json"))
    assert data["gpu_hours"] == 24
    assert data["steps"][0]["gpu_hours"] == 12


def test_steps_and_their_time_give_the_hours(made):
    data = json.loads(run(made.config, "--step-time", "36", "--gpus", "4", "--gpu", "H100 SXM", "--steps", "100", "--json"))
    assert data["gpu_hours"] == pytest.approx(4.0)  # 100 × 36 s × 4 GPUs


def test_nothing_known_is_a_usage_error_that_teaches():
    result = CliRunner().invoke(cli, ["waterfall"])
    assert result.exit_code == 2
    assert "ullage simulate job" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere.json",), "there is no file or folder 'nowhere.json'"),
        (("--mfu", "1.5e3"), "an MFU of 15 (1500 %) can't be"),
        (("--ofu", "34", "--batch", "8"), "--batch describes a model's step"),
        (("--ofu", "34", "--ceiling", "fast"), "the ceiling 'fast' is neither a number nor a file"),
        (("--ofu", "34", "--ceiling", "-1"), "a ceiling of -1 can't be"),
        (("--ofu", "abc"), "--ofu 'abc' is not a number"),
        (("--ofu", "34", "--out", "a.png"), "cannot write 'a.png': this report has no .png format"),
    ],
)
def test_what_cannot_be_is_one_clear_error(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert problem(*words).startswith(said)


def test_a_job_that_nobody_reported_is_named_with_those_that_are(made):
    assert problem(made.telemetry, "--job", "simulated-33").startswith(
        "no sample is of the job 'simulated-33'\n  did you mean 'simulated-3'"
    )


def test_a_model_without_its_time_says_what_is_missing(made, tmp_path):
    config = json.loads(made.config.read_text())
    del config["step"]["step_time"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    data = json.loads(run(tmp_path / "config.json", "--json"))
    assert data["reaches"] == "what is known"  # how much of what is executed is the model's
    assert [step["name"] for step in data["steps"]] == ["model"]


def test_two_models_for_one_job_are_refused(made):
    assert problem(made.config, "--config", made.config).startswith("there are 2 configurations")


def test_a_file_that_is_nothing_of_this_is_named(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"\x00\x01\x02")
    assert problem(tmp_path / "a.bin").startswith("no reader recognises what")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("[]", "lists no matrix products"),
        ("{", "is not JSON"),
        ('[{"m": 1, "n": 2}]', "product 1 of"),
        ('[{"m": 0, "n": 2, "k": 3}]', "'m' of product 1"),
        ('[{"m": 1, "n": 2, "k": 3, "tile": [1]}]', "'tile' of product 1"),
        ('[{"theoretical_flops": 9, "executed_flops": 3}]', "executes fewer FLOPs than it needs"),
    ],
)
def test_a_list_of_products_that_cannot_be_is_refused(tmp_path, rows, said):
    (tmp_path / "g.json").write_text(rows)
    with pytest.raises(UllageError) as raised:
        read_gemms(tmp_path / "g.json")
    assert said in str(raised.value)


def test_products_without_a_tile_are_not_covered_and_widen_the_error(tmp_path):
    # 256³ in tiles of 128 fills them; the other half of the work is of an unknown kernel
    rows = [{"m": 256, "n": 256, "k": 256, "tile": [128, 128]}, {"m": 256, "n": 256, "k": 256, "kernel": "mystery"}]
    (tmp_path / "g.json").write_text(json.dumps(rows))
    found = read_gemms(tmp_path / "g.json")
    assert (found.tile_efficiency, found.covered) == (1.0, 0.5)
    assert tile(found, "products") == Measured(1.0, 0.95, 1.0, "products")


XMMA = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize2x1x1_execute_segment_k_off_kernel"


@pytest.mark.parametrize(
    ("more", "low"),
    [
        ({"kernel": XMMA}, 300 / 512),  # 3 tiles of 128 rows, 4 in clusters of 2: the name does not say
        ({"kernel": XMMA, "cluster": [1, 1]}, 300 / 384),
        ({"tile": [128, 128]}, 300 / 384),
        ({"kernel": XMMA.replace("sm90", "sm80").replace("warpgroupsize2x1x1", "warpsize2x2x1")}, 300 / 384),  # Ampere has no clusters
    ],
)
def test_a_kernel_that_is_silent_on_clusters_may_lose_as_much_as_the_worst_cluster(tmp_path, more, low):
    (tmp_path / "g.json").write_text(json.dumps([{"m": 300, "n": 4096, "k": 4096} | more]))
    found = tile(read_gemms(tmp_path / "g.json"), "products")
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((300 / 384, low, 300 / 384))


def test_sums_that_may_be_more_keep_it(tmp_path):
    sums = {"theoretical_flops": 60, "executed_flops": 80, "executed_at_most": 100, "covered": 1.0}
    (tmp_path / "g.json").write_text(json.dumps(sums))
    assert tile(read_gemms(tmp_path / "g.json"), "products") == Measured(0.75, 0.6, 0.75, "products")
    (tmp_path / "g.json").write_text(json.dumps(sums | {"executed_at_most": 79}))
    with pytest.raises(UllageError, match="executes at most fewer FLOPs than it executes"):
        read_gemms(tmp_path / "g.json")


def test_sums_of_a_trace_are_taken_as_they_are(tmp_path):
    sums = {"theoretical_flops": 90, "executed_flops": 100, "covered": 0.8, "gemms": [{"count": 7, "theoretical_flops": 90}]}
    (tmp_path / "g.json").write_text(json.dumps(sums))
    found = read_gemms(tmp_path / "g.json")
    assert (found.tile_efficiency, found.covered) == (0.9, 0.8)


def test_the_picture_marks_what_is_merged_uncertain_and_contradicted():
    report = waterfall(SourceReports(), GivenByHand(ofu=0.3, tile=0.9, ceiling=5e14))
    drawn = str(picture(report))
    assert "url(#merged-880)" in drawn and "whisker" in drawn
    assert "measured ceiling" not in drawn  # the peak is not known, so it has no height
    ElementTree.fromstring(drawn)


@pytest.mark.parametrize("width", [360, 880])
def test_the_picture_fits_its_width_and_is_the_same_each_time(made, width):
    report = ullage.waterfall(str(made.traces), str(made.config), ceiling=7e14)
    drawn = str(picture(report, width=width, standalone=False))
    assert drawn == str(picture(report, width=width, standalone=False))
    assert "measured ceiling, 70.7 % of peak" in drawn
    for line in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}line"):
        assert -1 <= float(line.get("x1", 0)) <= width + 1 and -1 <= float(line.get("x2", 0)) <= width + 1


def test_foreign_names_are_made_harmless(tmp_path):
    result = CliRunner().invoke(cli, ["waterfall", "bad\x1b[31mname"])
    assert "\x1b" not in str(result.exception)


QWEN = SHARED / "tracelens_h100_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"


@pytest.mark.skipif(not QWEN.exists(), reason="the public traces are not here")
def test_a_real_forward_pass_of_qwen_ends_at_the_mfu_of_its_step():
    config = {"architectures": ["Qwen2Model"], "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    config |= {"num_key_value_heads": 16, "intermediate_size": 2816, "vocab_size": 151936}
    report = ullage.waterfall(str(QWEN), config=config, window="0.01447:", batch=16, seq=559, forward_only=True, step_time=0.03519)
    # 24 layers of 2 × 8944 tokens × (4 × 1024² + 3 × 1024 × 2816) and causal attention 4 × 559 × 560 / 2 × 1024 × 16
    flops = 24 * (2 * 16 * 559 * (4 * 1024**2 + 3 * 1024 * 2816) + 4 * (559 * 560 // 2) * 1024 * 16)
    assert report.headline.value == pytest.approx(flops / 0.03519 / 989.4e12, rel=1e-3)
    # 8944 rows in tiles of 128 are 70 tiles, 8960 rows
    tiles = report.chain.step("tile")
    assert tiles is not None and tiles.factor.value == pytest.approx(8944 / 8960, abs=1e-4)
    assert report.chain.step("sm_fill", "tensor_issue", "clock") is not None


def test_simulate_job_prints_the_command_that_reads_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = CliRunner().invoke(cli, ["simulate", "job", "--ranks", "2", "--seed", "7"], catch_exceptions=False).output
    line = out.splitlines()[-1]
    assert line.startswith("next: ullage waterfall ")
    assert CliRunner().invoke(cli, line.split()[2:], catch_exceptions=False).exit_code == 0
    with pytest.raises(UllageError, match="can't simulate a job with ranks = 0"):
        CliRunner().invoke(cli, ["simulate", "job", "--ranks", "0"], catch_exceptions=False)
