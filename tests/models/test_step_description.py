"""A step as it is described: by options, by a file, and by a configuration's own section."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ullage
from tests.command_line import ask
from ullage.asking.step import StepDescription, question_in_words, step_question, words_of_file, words_of_section
from ullage.errors import UllageError

TINY = {
    "model_type": "llama",
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 10,
}
TOML = """
batch = 2
seq = 4
precision = "fp8"
lora_targets = ["q_proj", "v_proj"]
image = [[64, 32]]
layout = {tp = 2}
"""


def test_a_step_in_toml_and_in_json_is_the_same(tmp_path: Path) -> None:
    toml, plain, section = (tmp_path / name for name in ("step.toml", "step.json", "config.json"))
    toml.write_text(TOML)
    words = {
        "batch": 2,
        "seq": 4,
        "precision": {"*": "fp8"},
        "lora_targets": ["q_proj", "v_proj"],
        "image": [[64, 32]],
        "layout": {"tp": 2},
    }
    plain.write_text(json.dumps(words))
    section.write_text(json.dumps({**TINY, "step": words}))
    read = [words_of_file(str(path)) for path in (toml, plain, section)]
    assert read[0] == read[1] == read[2]
    question = question_in_words(read[0])
    assert (question.shapes.batch, question.precisions, question.layout.tp) == (2, {"*": "fp8"}, 2)
    assert question.training.lora_targets == ("q_proj", "v_proj")


def test_what_is_given_goes_before_the_file(tmp_path: Path) -> None:
    file, config = tmp_path / "step.toml", tmp_path / "config.json"
    file.write_text("batch = 2\nseq = 4\nforward_only = true")
    config.write_text(json.dumps(TINY))
    alone, beside = ullage.flops(TINY, step=str(file)), ullage.flops(TINY, step=file, batch=6, forward_only=False)
    assert alone.training == ullage.flops(TINY, batch=2, seq=4, forward_only=True).training
    assert beside.training == ullage.flops(TINY, batch=6, seq=4).training
    assert ask("flops", config, "--step", file, "--batch", 6, "--json").json["forward"] == beside.forward


def test_a_section_a_file_and_words_of_a_waterfall(tmp_path: Path) -> None:
    file, config = tmp_path / "step.toml", {**TINY, "step": {"batch": 2, "seq": 4, "step_time": 1.0, "layout": {"tp": 4, "dp": 2}}}
    file.write_text("batch = 3\nstep_time = 2.0")
    said = {"peak_tflops": 1e-6, "ofu": 0.5}
    known = [ullage.waterfall(config=config, **said, **more) for more in ({}, {"step": file}, {"step": file, "step_time": 4.0})]
    assert known[0].gpus == 8
    assert [one.chain.mfu.value / known[0].chain.mfu.value for one in known] == pytest.approx([1, 3 / 2 / 2, 3 / 2 / 4])
    assert ullage.waterfall(config=config, dp=1, **said).gpus == 4  # the section's tensor parallelism stays


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("batches = 2", "'step' of step.toml has no 'batches'"),
        ("batch = 'many'", "step.toml: batch must be a whole number, not 'many'"),
        ("batch = 2.5", "'batch' of step.toml is 2.5, and must be a whole number"),
        ("batch = true", "'batch' of step.toml is True, and must be a whole number"),
        ("step_time = [1]", "'step_time' of step.toml is [1], and must be a number"),
        ("forward_only = 1", "'forward_only' of step.toml is 1, and must be true or false"),
        ("gpu = 5", "'gpu' of step.toml is 5, and must be a text"),
        ("latent = {a = 1}", "'latent' of step.toml is {'a': 1}, and must be written as [T,]H,W"),
        ("seqlens = [1, 2.5]", "'seqlens' of step.toml is [1, 2.5], and must be written as N,N…"),
        ("precision = ['bf16']", "'precision' of step.toml is ['bf16'], and must be written as [WORK=]NAME"),
        ("image = [[64]]", "'image' of step.toml is [[64]], and must be written as H,W"),
        ("step = 5", "'step' of step.toml is no section of fields"),
        ("layout = {tq = 2}", "a layout has no 'tq'"),
        ("batch = ", "step.toml is not TOML"),
    ],
)
def test_a_file_that_describes_no_step_is_refused_by_name(text: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("step.toml").write_text(text)
    with pytest.raises(UllageError) as refused:
        ullage.flops(TINY, step="step.toml")
    assert refused.value.problem.startswith(problem)


def test_a_file_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(UllageError, match=r"the step nowhere\.toml can't be read"):
        ullage.flops(TINY, step="nowhere.toml")


def test_every_word_of_a_step_asks_something() -> None:
    said = StepDescription(
        batch=1, seq=4, step_time=2.0, gpus=4, gpu="H100", precision={"*": "fp8"}, logits="last", mtp=True, freeze=("embedding",),
        recompute=("attention.scores",), attention="full", imitate="verl", backward="exact", tp=4, config_kind="llama",
    )  # fmt: skip
    question = said.question()
    assert (question.kind, question.imitated, question.mtp, question.layout.world) == ("llama", "verl", True, 4)
    assert (question.training.frozen, question.training.recompute) == (("embedding",), ("attention.scores",))
    assert said.words() == {name: value for name, value in vars(said).items() if value is not None}
    assert step_question(**said.words()) == question


def test_sizes_of_parallelism_are_said_together_or_one_by_one() -> None:
    together, apart = step_question(layout="tp=4,dp=2"), step_question(tp=4, dp=2)
    assert together == apart == step_question(layout={"tp": 8, "dp": 2}, tp=4)
    for bad in ({"dp": 0}, {"layout": {"cp": -1}}):
        with pytest.raises(UllageError, match="can't be"):
            step_question(**bad)
    with pytest.raises(UllageError, match="is not a name and its size"):
        step_question(layout="tp")


def test_a_section_may_hold_texts_as_the_command_takes_them() -> None:
    assert words_of_section({"latent": "21,60,104", "seq": "8"}, "a.json") == {"latent": (21, 60, 104), "seq": 8}
