"""Dense decoders: forward and backward FLOPs against traces, windows by hand, heads, sections, paths and errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.models.traced_decoders import FALCON, GPT, MANY, NEO, OPT, SMALL, TRACED, WIDE
from ullage.errors import UllageError
from ullage.models.blocks import embedding
from ullage.models.config import Config
from ullage.models.decoders import moved, two_sided
from ullage.models.model import MODELS, find
from ullage.models.passes import Training, booked
from ullage.models.sample import CAUSAL, FULL, Convention, Sample
from ullage.models.work import Work

DATA = Path(__file__).parents[3] / "shared" / "data" / "flops_traced.json"


def works(values: dict[str, Any]) -> list[Work]:
    """The work of a configuration, as its family yields it."""
    model, name = find(Config(values))
    return list(model.function(Config(values, architecture=name)))


def forward(values: dict[str, Any], sample: Sample, batch: int = 1, attention: Convention = FULL) -> int:
    return batch * sum(w.flops * len(w.layers) * w.quantity.of(sample, attention) for w in works(values))


@pytest.mark.parametrize(("name", "base", "changes", "flops"), TRACED)
def test_the_formula_equals_the_trace_to_the_integer(name: str, base: dict[str, Any], changes: dict[str, Any], flops: int):
    values = {**base, **changes, "architectures": [name]}
    assert forward(values, Sample(text=13), batch=2) == flops


@pytest.mark.parametrize(("name", "base", "changes", "flops"), TRACED)
def test_exact_backward_is_twice_forward_where_all_weights_train(name: str, base: dict[str, Any], changes: dict[str, Any], flops: int):
    rows = booked(works({**base, **changes, "architectures": [name]}), Training(backward="exact"))
    assert 2 * sum(row.coefficient * row.quantity.of(Sample(text=13), FULL) for row in rows) == 3 * flops


@pytest.mark.parametrize(
    ("changes", "flops"),
    [
        ({**SMALL, "head_dim": 10}, 4_976_400),  # traced as above; backward does not run on the meta device
        ({**WIDE, "num_attention_heads": 8, "num_key_value_heads": 4}, 12_923_248),
    ],
)
def test_diffllama_scores_twice_where_once_would_do(changes: dict[str, Any], flops: int):
    values = {**changes, "architectures": ["DiffLlamaForCausalLM"]}
    assert forward(values, Sample(text=13), batch=2) == flops
    scores = next(w for w in works(values) if w.name == "attention.scores")
    assert scores.least is not None and scores.flops == 2 * scores.least


@pytest.mark.parametrize(
    "case",
    ["llama3-8b_b1_s2048", "llama3-70b_b1_s4096", "qwen2.5-0.5b_tied_b4_s512", "mistral-7b_b1_s8192", "phi3-mini_b1_s4096"],
)
def test_released_sizes_equal_their_traces(case: str):
    traced = _shared(case)
    shapes, values = traced["shapes"], traced["config"]
    assert forward(values, Sample(text=shapes["seq"]), shapes["batch"]) == traced["fwd_flops"]
    rows = booked(works(values), Training())
    training = sum(row.coefficient * row.quantity.of(Sample(text=shapes["seq"]), FULL) for row in rows) * shapes["batch"]
    assert training == traced["fwd_bwd_flops"]


def test_a_decode_step_sees_its_cache():
    traced = _shared("llama3-8b-decode_b32_ctx4096")
    shapes = traced["shapes"]
    sample = Sample(text=shapes["q_len"], context=shapes["kv_len"] - shapes["q_len"])
    assert forward(traced["config"], sample, shapes["batch"]) == traced["fwd_flops"]


def _shared(case: str) -> dict[str, Any]:
    if not DATA.exists():
        pytest.skip("the shared traces are not here")
    return next(c for c in json.loads(DATA.read_text())["cases"] if c["id"] == case)


def causal_pairs(values: dict[str, Any], tokens: int) -> int:
    """Pairs of all layers under the causal convention."""
    scores = [w for w in works(values) if w.name == "attention.scores"]
    return sum(len(w.layers) * w.quantity.of(Sample(text=tokens), CAUSAL) for w in scores)


# Six tokens see 1+2+3+4+5+6 = 21 keys, with a window of 4 they see 1+2+3+4+4+4 = 18
TWELVE = {**SMALL, "num_hidden_layers": 12, "sliding_window": 4}


@pytest.mark.parametrize(
    ("values", "full"),
    [
        ({"model_type": "llama"}, 12),  # Llama's class has no windows, whatever the file says
        ({"model_type": "mistral"}, 0),
        ({"model_type": "mistral", "sliding_window": None}, 12),
        ({"model_type": "starcoder2"}, 0),
        ({"model_type": "phi3"}, 0),
        ({"model_type": "qwen2"}, 12),  # use_sliding_window is off by default
        ({"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 5}, 5),
        ({"model_type": "qwen3", "use_sliding_window": True}, 12),  # the first 28 layers are full by default
        ({"model_type": "gemma2"}, 6),
        ({"model_type": "gemma3_text"}, 2),
        ({"model_type": "gemma3_text", "sliding_window_pattern": 4}, 3),
        ({"model_type": "gemma3_text", "layer_types": ["full_attention"] * 7 + ["sliding_attention"] * 5}, 7),
        ({"model_type": "olmo3"}, 3),
        ({"model_type": "olmo2"}, 12),
        ({"model_type": "cohere2"}, 3),
        ({"model_type": "cohere2", "sliding_window_pattern": 2}, 6),
        ({"model_type": "exaone4", "sliding_window_pattern": "LLLG"}, 3),
        ({"model_type": "exaone4", "sliding_window_pattern": "LG"}, 6),
        ({"model_type": "exaone4", "sliding_window": None}, 12),
        ({"model_type": "cwm"}, 3),
        ({"model_type": "granite_swa"}, 3),
        ({"model_type": "smollm3"}, 12),
        ({"model_type": "smollm3", "use_sliding_window": True}, 9),
        ({"model_type": "modernbert-decoder", "local_attention": 8}, 4),
        ({"model_type": "gemma4_text"}, 2),
        ({"model_type": "gemma3n_text", "num_kv_shared_layers": 0}, 2),
    ],
)
def test_windows_lie_where_the_class_puts_them(values: dict[str, Any], full: int):
    assert causal_pairs({**TWELVE, **values}, 6) == full * 21 + (12 - full) * 18


def test_mistral_has_a_window_by_default_and_none_where_the_file_says_null():
    values = {**SMALL, "model_type": "mistral", "num_hidden_layers": 1}
    # 5000 tokens, window 4096: 4096 × 4097 / 2 + 904 × 4096; without: 5000 × 5001 / 2
    assert causal_pairs(values, 5000) == 8_390_656 + 3_702_784
    assert causal_pairs({**values, "sliding_window": None}, 5000) == 12_502_500


def test_gpt_neo_has_local_layers():
    # window 5, 6 tokens: 1+2+3+4+5+5 = 20 in two layers, 21 in the two others
    assert causal_pairs({**NEO, "model_type": "gpt_neo"}, 6) == 2 * 20 + 2 * 21


def test_embedding_gemma_sees_both_sides():
    # window 4 means less than 4 / 2 + 1 = 3 apart: of 6 tokens 3+4+5+5+4+3 = 24 pairs; without a window all 36
    values = {**TWELVE, "architectures": ["Gemma3TextModel"], "use_bidirectional_attention": True}
    assert causal_pairs(values, 6) == 2 * 36 + 10 * 24
    assert two_sided(3).of(Sample(text=6), CAUSAL) == 24
    assert two_sided(3).of(Sample(text=6), FULL) == 36


def test_an_exact_window_needs_a_positive_width():
    with pytest.raises(UllageError, match="sliding_window of the configuration is -1"):
        works({**SMALL, "model_type": "mistral", "sliding_window": -1})


def test_the_head_of_a_prompt_can_be_one_token():
    values = {**SMALL, "model_type": "llama"}
    # 12 of 13 tokens without 2 × 60 × 131
    assert forward(values, Sample(text=13)) - forward(values, Sample(text=13, logits=1)) == 12 * 15_720


def test_multi_query_projects_one_head_of_keys():
    fused = next(w for w in works({**GPT, "model_type": "gpt_bigcode"}) if w.name == "attention.qkv")
    assert fused.shape == (96, 96 + 2 * 24)


def test_a_classifier_scores_its_labels_at_each_token():
    values = {**SMALL, "architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "bad", "1": "fair", "2": "good"}}
    last = works(values)[-1]
    assert (last.name, last.module, last.shape) == ("head", "score", (60, 3))
    assert works({**values, "id2label": None, "num_labels": 1})[-1].shape == (60, 1)


def test_a_bare_model_has_no_head_and_no_prefix():
    listed = works({**SMALL, "architectures": ["Qwen2Model"]})
    assert "head" not in [w.name for w in listed]
    assert {w.stack for w in listed} == {"", "layers"}
    assert listed[0].module == "embed_tokens"
    assert works({**GPT, "architectures": ["GPT2Model"]})[0].module == "wte"


@pytest.mark.parametrize(
    ("values", "paths"),
    [
        ({**SMALL, "model_type": "llama"}, {"self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "lm_head"}),
        ({**SMALL, "model_type": "phi3"}, {"self_attn.qkv_proj", "mlp.gate_up_proj", "mlp.down_proj"}),
        ({**SMALL, "model_type": "phi"}, {"self_attn.dense", "mlp.fc1", "mlp.fc2"}),
        ({**MANY, "model_type": "gpt_neox"}, {"attention.query_key_value", "attention.dense", "mlp.dense_h_to_4h"}),
        ({**GPT, "model_type": "gpt2"}, {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "transformer.wte", "transformer.wpe"}),
        ({**OPT, "model_type": "opt"}, {"self_attn.out_proj", "fc1", "fc2", "model.decoder.embed_tokens"}),
        ({**FALCON, "model_type": "falcon"}, {"self_attention.query_key_value", "mlp.dense_4h_to_h"}),
    ],
)
def test_weights_are_found_where_the_checkpoint_has_them(values: dict[str, Any], paths: set[str]):
    assert paths <= {w.module for w in works(values)}


def test_a_section_lists_what_differs_from_its_class():
    # LLaVA 1.5 gives of Llama 7B no more than this
    section = Config({"text_config": {"model_type": "llama", "vocab_size": 32064}}).section("text_config")
    sizes = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32}
    assert list(MODELS["llama"].function(section)) == works({**sizes, "model_type": "llama", "vocab_size": 32064})


def test_gemma_3_in_a_larger_file_is_read_from_its_section():
    # what Gemma 3 4B's file says of its text model; heads, head width and vocabulary are the class's
    given = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    section = Config({"text_config": given}, architecture="Gemma3ForConditionalGeneration").section("text_config")
    listed = list(moved(MODELS["gemma"].function(section), "model.language_model.layers"))
    named = {w.name: w for w in listed}
    assert named["attention.q"].shape == (2560, 8 * 256) and named["attention.k"].shape == (2560, 4 * 256)
    assert named["head"].shape == (2560, 262_208)
    assert listed[0].module == "model.language_model.embed_tokens"
    assert {w.stack for w in listed} == {"", "model.language_model.layers"}


@pytest.mark.parametrize(
    ("text", "says"),
    [({"model_type": "gpt_oss"}, "no formula for the architecture 'gpt_oss'"), ({}, "has no field text_config.model_type")],
)
def test_a_section_of_another_type_is_refused(text: dict[str, Any], says: str):
    section = Config({"text_config": {**SMALL, **text}}).section("text_config")
    with pytest.raises(UllageError, match=says):
        list(MODELS["llama"].function(section))


def test_the_top_of_a_file_is_never_filled_with_sizes():
    with pytest.raises(UllageError, match="has no field hidden_size"):
        works({"model_type": "llama", "vocab_size": 32000, "num_hidden_layers": 2})


def test_a_language_model_can_be_moved_into_a_larger_one():
    moving = list(moved(works({**SMALL, "model_type": "llama"}), "model.language_model.layers"))
    assert moving[0] == replace(embedding(), module="model.language_model.embed_tokens")
    assert moving[1].stack == "model.language_model.layers"
    assert moving[-1].module == "lm_head"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_attention_heads": 7, "num_key_value_heads": None}, "hidden_size of the configuration is 60, which 7 heads do not divide"),
        ({"num_key_value_heads": 4}, "num_key_value_heads of the configuration is 4, which does not divide 6 heads"),
        ({"hidden_size": None}, "has no field hidden_size"),
        ({"intermediate_size": "wide"}, "intermediate_size of the configuration is 'wide'"),
        ({"num_hidden_layers": -2}, "num_hidden_layers of the configuration is -2"),
        ({"model_type": "olmo3", "layer_types": ["full_attention"]}, "layer_types of the configuration has 1 entries for 3 layers"),
        ({"model_type": "olmo3", "layer_types": ["full"] * 3}, "which is none of full_attention, sliding_attention"),
    ],
)
def test_a_contradiction_names_the_field(changes: dict[str, Any], says: str):
    with pytest.raises(UllageError) as error:
        works({**SMALL, "model_type": "llama", **changes})
    assert says in error.value.problem


def test_gpt_neo_says_which_layers_its_types_leave_out():
    with pytest.raises(UllageError, match="attention_types of the configuration names 2 of 4 layers"):
        works({**NEO, "model_type": "gpt_neo", "attention_types": [[["global", "local"], 1]]})


@pytest.mark.parametrize("name", ["YiForCausalLM", "InternLM2ForCausalLM", "InternLM3ForCausalLM", "ExaoneForCausalLM", "MiMoForCausalLM"])
def test_decoders_with_their_own_code_cost_what_llama_does(name: str):
    sample = Sample(text=13)
    assert forward({**SMALL, "architectures": [name]}, sample) == forward({**SMALL, "model_type": "llama"}, sample)


def test_baichuan_has_as_many_heads_of_keys_as_of_queries():
    sample = Sample(text=13)
    assert forward({**MANY, "model_type": "baichuan"}, sample) == forward({**MANY, "model_type": "llama"}, sample)


def test_qwen_1_counts_gate_and_up_together():
    values = {**MANY, "architectures": ["QWenLMHeadModel"], "intermediate_size": 184}
    assert forward(values, Sample(text=13)) == forward({**MANY, "model_type": "llama"}, Sample(text=13))


def test_chatglm_has_its_own_words():
    given = {
        "hidden_size": 60,
        "ffn_hidden_size": 92,
        "num_layers": 3,
        "num_attention_heads": 6,
        "kv_channels": 10,
        "multi_query_attention": True,
        "multi_query_group_num": 2,
        "padded_vocab_size": 131,
    }
    for name in ("ChatGLMModel", "ChatGLMForConditionalGeneration"):
        assert forward({**given, "architectures": [name]}, Sample(text=13)) == forward({**SMALL, "model_type": "llama"}, Sample(text=13))


def test_gemma_4_reads_the_sections_of_layers_whose_numbers_are_padded():
    # transformers writes the keys of twelve layers as "05" and "11"
    own = {"head_dim": 28, "num_key_value_heads": 2}
    base = {**SMALL, "model_type": "gemma4_text", "head_dim": 20, "num_hidden_layers": 12, "hidden_size_per_layer_input": 7}
    plain, padded = ({**base, "per_layer_config": keys} for keys in ({"5": own, "11": own}, {"05": own, "11": own}))
    assert works(padded) == works(plain)
    assert {w.shape for w in works(padded) if w.name == "attention.q" and 5 in w.layers} == {(60, base["num_attention_heads"] * 28)}
