"""Decoders with routed experts: each formula equals the trace of the model to the integer, forward and backward."""

import json
from pathlib import Path
from typing import Any

import pytest

from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.model import MODELS, find
from ullage.models.passes import Training, booked, path
from ullage.models.sample import Convention, Sample
from ullage.models.work import Work

TRACED = Path(__file__).parents[3] / "shared" / "data" / "flops_traced.json"
BATCH, TOKENS = 2, 11

# All widths differ, so that two swapped ones show. head_dim of BASE and FLAT is width / heads where it is missing.
# fmt: off
BASE = {"vocab_size": 97, "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 4,
        "num_attention_heads": 6, "num_key_value_heads": 3}
WIDE = {"vocab_size": 113, "hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 5,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 12}
FLAT = {**{k: v for k, v in WIDE.items() if k != "head_dim"}, "num_attention_heads": 4}
LATENT: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 104, "moe_intermediate_size": 24, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 6, "n_shared_experts": 2, "n_routed_experts": 8, "num_experts_per_tok": 3,
    "kv_lora_rank": 14, "q_lora_rank": 22, "qk_rope_head_dim": 4, "qk_nope_head_dim": 10, "v_head_dim": 7}
DIRECT = {**LATENT, "hidden_size": 40, "num_attention_heads": 5, "num_key_value_heads": 5, "num_hidden_layers": 5,
          "q_lora_rank": None, "n_shared_experts": 1, "num_experts_per_tok": 2, "v_head_dim": 9, "first_k_dense_replace": 2}
MIX = {"num_local_experts": 7, "num_experts_per_tok": 3}
QWEN = {"num_experts": 7, "num_experts_per_tok": 3}
GLM = {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "n_shared_experts": 2}
HUGE = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "num_shared_experts": 2}
TOGETHER = {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 28}
TYPES = ["full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"]

# traced: torch 2.13, transformers 5.23, meta device (JetMoE and DBRX on the CPU, which routes by data), eager attention,
# experts as grouped products, batch 2 of 11 tokens: model_type, configuration, FLOPs of forward, of forward and backward
CASES: list[tuple[str, dict[str, Any], int, int]] = [
    ("mixtral", {**BASE, **MIX}, 5_924_160, 17_772_480),
    ("mixtral", {**WIDE, **MIX, "sliding_window": 5}, 8_539_520, 25_618_560),
    ("phimoe", {**BASE, **MIX, "num_experts_per_tok": 2}, 4_504_896, 13_514_688),
    ("phimoe", {**FLAT, **MIX, "num_experts_per_tok": 2, "sliding_window": 5}, 5_311_680, 15_935_040),
    ("minimax_m2", {**BASE, **MIX, "head_dim": 10}, 6_274_752, 18_824_256),
    ("minimax_m2", {**WIDE, **MIX}, 8_539_520, 25_618_560),
    ("olmoe", {**BASE, **QWEN}, 5_924_160, 17_772_480),
    ("olmoe", {**FLAT, **QWEN, "num_experts_per_tok": 2}, 5_311_680, 15_935_040),
    ("flex_olmo", {**BASE, **QWEN}, 5_924_160, 17_772_480),
    ("flex_olmo", {**FLAT, **QWEN, "num_experts_per_tok": 2}, 5_311_680, 15_935_040),
    ("qwen2_moe", {**BASE, **QWEN, **TOGETHER}, 4_209_216, 12_627_648),
    ("qwen2_moe", {**FLAT, **QWEN, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 26, "decoder_sparse_step": 2,
     "mlp_only_layers": [3], "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 3}, 3_627_360, 10_882_080),
    ("qwen3_moe", {**BASE, **QWEN, "moe_intermediate_size": 24, "head_dim": 10}, 3_841_728, 11_525_184),
    ("qwen3_moe", {**WIDE, **QWEN, "moe_intermediate_size": 32, "decoder_sparse_step": 2, "mlp_only_layers": [3],
     "use_sliding_window": True, "sliding_window": 5}, 4_815_360, 14_446_080),
    ("mellum", {**BASE, **QWEN, "moe_intermediate_size": 24, "head_dim": 10}, 3_841_728, 11_525_184),
    ("mellum", {**WIDE, **QWEN, "moe_intermediate_size": 32, "sliding_window": 5, "layer_types": TYPES, "mlp_layer_types": ["dense",
     "sparse", "sparse", "sparse", "sparse"]}, 5_232_480, 15_697_440),
    ("gpt_oss", {**BASE, **MIX, "head_dim": 10}, 6_274_752, 18_824_256),
    ("gpt_oss", {**WIDE, **MIX, "num_experts_per_tok": 2}, 6_638_720, 19_916_160),
    ("glm4_moe", {**BASE, **GLM, "head_dim": 10}, 4_644_288, 13_932_864),
    ("glm4_moe", {**WIDE, **GLM, "n_shared_experts": 1, "first_k_dense_replace": 3}, 4_957_920, 14_873_760),
    ("dots1", {**BASE, **GLM}, 4_716_096, 14_148_288),
    ("dots1", {**FLAT, **GLM, "first_k_dense_replace": 2, "sliding_window": 5, "max_window_layers": 3}, 4_151_840, 12_455_520),
    ("solar_open", {**BASE, **GLM, "head_dim": 10}, 5_066_688, 15_200_064),
    ("solar_open", {**WIDE, **GLM, "n_shared_experts": 1}, 5_380_320, 16_140_960),
    ("exaone_moe", {**BASE, **HUGE, "sliding_window": 5}, 4_293_696, 12_881_088),
    ("exaone_moe", {**FLAT, **HUGE, "sliding_window": 5, "first_k_dense_replace": 2, "sliding_window_pattern": 3}, 4_151_840, 12_455_520),
    ("hy_v3", {**BASE, **HUGE, "head_dim": 10}, 4_644_288, 13_932_864),
    ("hy_v3", {**WIDE, **HUGE, "mlp_layer_types": ["dense", "dense", "sparse", "sparse", "sparse"]}, 5_478_880, 16_436_640),
    ("deepseek_v2", LATENT, 4_826_976, 14_480_928),
    ("deepseek_v2", DIRECT, 4_192_980, 12_578_940),
    ("deepseek_v3", {**LATENT, "first_k_dense_replace": 1}, 4_708_704, 14_126_112),
    ("deepseek_v3", DIRECT, 4_192_980, 12_578_940),
    ("mistral4", LATENT, 4_826_976, 14_480_928),
    ("mistral4", DIRECT, 4_192_980, 12_578_940),
    ("glm4_moe_lite", LATENT, 4_708_704, 14_126_112),
    ("glm4_moe_lite", {**{k: v for k, v in DIRECT.items() if k != "first_k_dense_replace"}, "mlp_layer_types": ["dense", "dense",
     "sparse", "sparse", "sparse"]}, 4_192_980, 12_578_940),
    ("deepseek_v32", {**LATENT, "index_topk": 3, "index_head_dim": 6, "index_n_heads": 5, "first_k_dense_replace": 1}, 4_985_552,
     14_402_960),
    ("deepseek_v32", {**DIRECT, "q_lora_rank": 18, "index_topk": 4, "index_head_dim": 8, "index_n_heads": 3}, 4_269_760, 12_294_920),
    ("glm_moe_dsa", {**LATENT, "index_topk": 3, "index_head_dim": 6, "index_n_heads": 5, "first_k_dense_replace": 1}, 4_985_552,
     14_402_960),
    ("glm_moe_dsa", {**DIRECT, "q_lora_rank": 18, "index_topk": 4, "index_head_dim": 8, "index_n_heads": 3, "index_topk_freq": 2},
     4_166_888, 12_192_048),
    ("axk1", LATENT, 4_708_704, 14_126_112),
    ("axk1", {**DIRECT, "q_lora_rank": 18, "moe_layer_freq": 2}, 4_167_460, 12_502_380),
    ("kolibri1", {**BASE, **QWEN, **TOGETHER, "head_dim": 10, "sliding_window": 5}, 4_551_360, 13_654_080),
    ("kolibri1", {**WIDE, **QWEN, "num_hidden_layers": 6, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 20,
     "sliding_window": 4}, 7_039_648, 21_118_944),
    ("flint", {**BASE, **QWEN, **TOGETHER, "head_dim": 10, "sliding_window": 5}, 3_964_224, 11_892_672),
    ("flint", {**WIDE, **QWEN, "num_hidden_layers": 7, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 20,
     "sliding_window": 4, "mlp_only_layers": [1]}, 7_935_136, 23_805_408),
    ("granitemoe_swa", {**FLAT, **MIX, "num_hidden_layers": 6, "sliding_window": 4}, 8_615_200, 25_845_600),
    ("dbrx", {"d_model": 48, "n_heads": 6, "n_layers": 3, "vocab_size": 97, "attn_config": {"kv_n_heads": 3},
     "ffn_config": {"ffn_hidden_size": 56, "moe_num_experts": 7, "moe_top_k": 3}}, 4_494_336, 13_483_008),
    ("dbrx", {"d_model": 40, "n_heads": 10, "n_layers": 2, "vocab_size": 113, "attn_config": {"kv_n_heads": 5},
     "ffn_config": {"ffn_hidden_size": 72, "moe_num_experts": 5, "moe_top_k": 2}}, 2_236_960, 6_710_880),
    ("jetmoe", {**BASE, **MIX, "kv_channels": 10}, 6_956_928, 20_870_784),
    ("jetmoe", {**WIDE, **MIX, "num_experts_per_tok": 2, "kv_channels": 12}, 5_623_200, 16_869_600),
    ("granitemoe", {**BASE, **MIX}, 5_924_160, 17_772_480),
    ("granitemoe", {**FLAT, **MIX}, 7_212_480, 21_637_440),
    ("granitemoeshared", {**BASE, **MIX, "shared_intermediate_size": 28}, 6_633_792, 19_901_376),
    ("granitemoeshared", {**FLAT, **MIX}, 7_212_480, 21_637_440),
    ("granitemoe_swa", {**BASE, **MIX, "shared_intermediate_size": 28, "sliding_window": 5}, 6_633_792, 19_901_376),
    ("ernie4_5_moe", {**BASE, "moe_num_experts": 7, "moe_k": 3, "moe_intermediate_size": 24, "moe_num_shared_experts": 2}, 4_287_360,
     12_862_080),
    ("ernie4_5_moe", {**FLAT, "moe_num_experts": 7, "moe_k": 3, "moe_intermediate_size": 24, "moe_num_shared_experts": 1,
     "moe_layer_start_index": 1, "moe_layer_end_index": 3, "moe_layer_interval": 2}, 3_627_360, 10_882_080),
    ("hunyuan_v1_moe", {**BASE, "num_experts": 7, "moe_topk": 3, "head_dim": 10}, 7_694_016, 23_082_048),
    ("hunyuan_v1_moe", {**WIDE, "num_experts": 5, "moe_topk": [1, 2, 2, 3, 1]}, 8_141_760, 24_425_280),
    ("afmoe", {**BASE, **HUGE, "num_experts": 7, "head_dim": 10, "sliding_window": 5}, 5_144_832, 15_434_496),
    ("afmoe", {**WIDE, **HUGE, "num_experts": 7, "num_shared_experts": 1, "num_dense_layers": 2, "global_attn_every_n_layers": 3,
     "sliding_window": 5}, 5_938_240, 17_814_720),
    ("laguna", {**BASE, **QWEN, **TOGETHER, "head_dim": 10, "sliding_window": 5}, 4_308_480, 12_925_440),
    ("laguna", {**WIDE, **QWEN, **TOGETHER, "gating": "per-element", "num_attention_heads_per_layer": [8, 4, 8, 2, 4],
     "sliding_window": 5, "layer_types": TYPES}, 5_112_096, 15_336_288),
    ("mimo_v2_flash", {**BASE, "num_attention_heads": 12, "head_dim": 10, "v_head_dim": 8, "n_routed_experts": 8,
     "num_experts_per_tok": 3, "moe_intermediate_size": 24, "sliding_window": 5}, 5_020_224, 15_060_672),
    ("mimo_v2_flash", {**WIDE, "v_head_dim": 10, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
     "sliding_window": 5}, 4_320_800, 12_962_400),
    ("cohere2_moe", {**BASE, **QWEN, "head_dim": 10, "sliding_window": 5}, 6_274_752, 18_824_256),
    ("cohere2_moe", {**WIDE, **QWEN, "first_k_dense_replace": 2, "prefix_dense_intermediate_size": 64, "num_shared_experts": 2,
     "sliding_window": 5}, 9_190_720, 27_572_160),
]
# traced as above; the model ran every expert on every token
LLAMA4: list[tuple[dict[str, Any], int, int]] = [
    ({**BASE, **MIX, "intermediate_size_mlp": 88, "head_dim": 10, "attention_chunk_size": 4}, 13_371_072, 40_113_216),
    ({**WIDE, **MIX, "num_experts_per_tok": 1, "intermediate_size_mlp": 64, "interleave_moe_layer_step": 2, "attention_chunk_size": 4},
     9_896_480, 29_689_440),
]
VISION = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128, "vision_output_dim": 48,
          "image_size": 56, "patch_size": 14, "pixel_shuffle_ratio": 0.5, "projector_input_dim": 48, "projector_output_dim": 48}

# (query, key) pairs that the model's own masks leave open, layer by layer, for one sample of 11 tokens
# counted: transformers 5.23 on the CPU. 11 × 12 / 2 = 66 without a window; a window of 5 leaves 1+2+3+4+7×5 = 45, of 4 leaves
# 1+2+3+8×4 = 38, the best 3 of all earlier keys 1+2+9×3 = 30, chunks of 4 leave 10+10+6 = 26
MASKS: list[tuple[str, dict[str, Any], list[int]]] = [
    ("mixtral", {**WIDE, **MIX, "sliding_window": 5}, [45] * 5),
    ("qwen2_moe", {**WIDE, **QWEN, **TOGETHER, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 3},
     [45, 66, 45, 66, 66]),
    ("qwen2_moe", {**WIDE, **QWEN, **TOGETHER, "sliding_window": 5}, [66] * 5),
    ("qwen3_moe", {**WIDE, **QWEN, **TOGETHER, "use_sliding_window": True, "sliding_window": 5}, [45] * 5),
    ("mellum", {**WIDE, **QWEN, **TOGETHER, "sliding_window": 5, "layer_types": TYPES}, [66, 45, 66, 45, 66]),
    ("gpt_oss", {**WIDE, **MIX, "sliding_window": 5}, [45, 66, 45, 66, 45]),
    ("dots1", {**FLAT, **GLM, "sliding_window": 5, "max_window_layers": 3}, [66, 66, 66, 45, 45]),
    ("exaone_moe", {**BASE, **HUGE, "sliding_window": 5}, [45, 45, 45, 66]),
    ("exaone_moe", {**FLAT, **HUGE, "sliding_window": 5, "sliding_window_pattern": 3}, [45, 45, 66, 45, 45]),
    ("kolibri1", {**WIDE, **QWEN, **TOGETHER, "num_hidden_layers": 6, "sliding_window": 4}, [38, 38, 38, 38, 66, 38]),
    ("flint", {**WIDE, **QWEN, **TOGETHER, "num_hidden_layers": 7, "sliding_window": 4}, [66, 66, 38, 38, 38, 66, 66]),
    ("granitemoe_swa", {**FLAT, **MIX, "num_hidden_layers": 6, "sliding_window": 4}, [66, 38, 38, 38, 66, 38]),
    ("afmoe", {**WIDE, **HUGE, "global_attn_every_n_layers": 3, "sliding_window": 5}, [45, 45, 66, 45, 45]),
    ("laguna", {**WIDE, **QWEN, **TOGETHER, "sliding_window": 5, "layer_types": TYPES}, [66, 45, 66, 45, 66]),
    ("mimo_v2_flash", {**WIDE, **GLM, "v_head_dim": 10, "sliding_window": 5}, [66, 45, 45, 45, 45]),
    ("mimo_v2_flash", {**WIDE, **GLM, "v_head_dim": 10, "sliding_window_size": 4, "sliding_window": 4}, [66, 45, 45, 45, 45]),
    ("cohere2_moe", {**WIDE, **QWEN, "first_k_dense_replace": 2, "sliding_window": 5}, [66, 66, 45, 45, 45]),
    ("llama4_text", LLAMA4[0][0], [26, 26, 26, 66]),
    ("llama4_text", LLAMA4[1][0], [26, 26, 26, 66, 26]),
    ("deepseek_v3", {**LATENT, "first_k_dense_replace": 1}, [66] * 4),
    ("deepseek_v32", {**LATENT, "index_topk": 3, "index_head_dim": 6, "index_n_heads": 5}, [30] * 4),
    ("glm_moe_dsa", {**LATENT, "index_topk": 3, "index_head_dim": 6, "index_n_heads": 5, "index_topk_freq": 2}, [30] * 4),
]
# fmt: on


def works(fields: dict[str, Any]) -> list[Work]:
    model, name = find(Config(fields))
    return list(model.function(Config(fields, architecture=name)))


def forward(fields: dict[str, Any], sample: Sample, batch: int = BATCH, convention: Convention = "full") -> int:
    return sum(w.flops * len(w.layers) * w.quantity.of(sample, convention) for w in works(fields)) * batch


def forward_and_backward(fields: dict[str, Any], sample: Sample, batch: int = BATCH) -> int:
    return sum(row.coefficient * row.quantity.of(sample, "full") for row in booked(works(fields), Training(backward="exact"))) * batch


@pytest.mark.parametrize(("kind", "fields", "flops", "both"), CASES)
def test_forward_and_exact_backward_equal_the_trace(kind: str, fields: dict[str, Any], flops: int, both: int) -> None:
    described = {"model_type": kind, **fields}
    assert forward(described, Sample(text=TOKENS)) == flops
    assert forward_and_backward(described, Sample(text=TOKENS)) == both


@pytest.mark.parametrize(("kind", "fields", "pairs"), MASKS)
def test_each_layer_sees_the_pairs_that_the_models_mask_leaves_open(kind: str, fields: dict[str, Any], pairs: list[int]) -> None:
    scores = [w for w in works({"model_type": kind, **fields}) if w.name == "attention.scores"]
    seen = {layer: w.quantity.of(Sample(text=TOKENS), "causal") for w in scores for layer in w.layers}
    assert [seen[layer] for layer in sorted(seen)] == pairs


@pytest.mark.parametrize(("fields", "flops", "both"), LLAMA4)
def test_llama4_counts_the_chosen_experts_and_the_trace_all_of_them(fields: dict[str, Any], flops: int, both: int) -> None:
    described = {"model_type": "llama4_text", **fields}
    sparse = next(w for w in works(described) if w.name == "moe.router").layers
    idle = fields["num_local_experts"] - fields["num_experts_per_tok"]
    executed = 6 * fields["hidden_size"] * fields["intermediate_size"] * idle * len(sparse) * BATCH * TOKENS
    assert forward(described, Sample(text=TOKENS)) + executed == flops
    assert forward_and_backward(described, Sample(text=TOKENS)) + 3 * executed == both


def test_llama4_reads_images_by_tiles() -> None:
    # traced: torch 2.13, transformers 5.23, CPU, eager attention: two tiles of 4 x 4 patches among 11 tokens of text.
    # The trace has 2,280,960 FLOPs of experts that no token chose: 6·h·e·(E - t) x 2 sparse layers x 11 tokens.
    fields = {"architectures": ["Llama4ForConditionalGeneration"], "text_config": LLAMA4[1][0], "vision_config": VISION}
    sample = Sample(text=TOKENS, grids=((2, 4, 4),))
    assert 6 * 40 * 72 * 6 * 2 * 11 == 2_280_960
    assert forward(fields, sample, batch=1) + 2_280_960 == 9_047_056
    assert forward_and_backward(fields, sample, batch=1) + 3 * 2_280_960 == 25_936_944
    text = {"model_type": "llama4_text", **LLAMA4[1][0]}
    assert forward(fields, Sample(text=TOKENS)) == forward(text, Sample(text=TOKENS))


@pytest.mark.parametrize(
    "case",
    [
        "mixtral-8x7b_grouped_mm_b1_s2048",
        "qwen1.5-moe-a2.7b_b2_s2048",
        "deepseek-v3-671b_b1_s4096",
        "deepseek-v3.2-mini4L_b1_s4096",
    ],
)
def test_published_sizes_equal_their_traces(case: str) -> None:
    if not TRACED.exists():
        pytest.skip("the traced figures of whole models are not here")
    traced = next(c for c in json.loads(TRACED.read_text())["cases"] if c["id"] == case)
    sample = Sample(text=traced["shapes"]["seq"])
    assert forward(traced["config"], sample, traced["shapes"]["batch"]) == traced["fwd_flops"]
    assert forward_and_backward(traced["config"], sample, traced["shapes"]["batch"]) == traced["fwd_bwd_flops"]


def test_the_indexer_scores_all_earlier_keys_while_attention_sees_the_best() -> None:
    fields = {"model_type": "deepseek_v32", **LATENT, "index_topk": 3, "index_head_dim": 6, "index_n_heads": 5}
    by_name = {w.name: w for w in works(fields)}
    sample = Sample(text=TOKENS)
    # 66 pairs x 2 x (5 heads x 6 wide) and x 2 x 5; attention 30 pairs x 2 x 6 heads x 14 wide; masks execute 121 pairs
    assert by_name["indexer.scores"].flops * by_name["indexer.scores"].quantity.of(sample, "causal") == 66 * 60
    assert by_name["indexer.sum"].flops * by_name["indexer.sum"].quantity.of(sample, "causal") == 66 * 10
    assert by_name["attention.scores"].flops * by_name["attention.scores"].quantity.of(sample, "causal") == 30 * 168
    assert by_name["attention.scores"].quantity.of(sample, "full") == 121
    assert not any(w.gradient for w in by_name.values() if w.group == "indexer")


def test_layers_that_share_a_choice_of_keys_have_no_indexer() -> None:
    fields = {"model_type": "glm_moe_dsa", **LATENT, "index_topk": 3, "index_head_dim": 6, "index_n_heads": 5}
    own = {"indexer_types": ["full", "shared", "shared", "full"]}
    for said in (own, {"index_topk_pattern": "FSSF"}, {"index_topk_freq": 3, "index_skip_topk_offset": 1}):
        assert next(w for w in works({**fields, **said}) if w.name == "indexer.q").layers == [0, 3]
    with pytest.raises(UllageError, match="4 letters F or S"):
        works({**fields, "index_topk_pattern": "FS"})


def test_multi_token_prediction_is_counted_when_asked() -> None:
    plain = {"model_type": "deepseek_v3", **LATENT, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1}
    # a sparse layer more: one of five instead of one of four; a projection of 2 x 48 to 48; logits over 97
    longer = {**plain, "num_hidden_layers": 5}
    sample = Sample(text=TOKENS)
    more = forward(longer, sample) - forward(plain, sample) + 2 * BATCH * TOKENS * (96 * 48 + 48 * 97)
    assert forward({**plain, "count_mtp": True}, sample) == forward(plain, sample) + more
    added = [w for w in works({**plain, "count_mtp": True}) if w.name.startswith("mtp.")]
    assert {w.group for w in added} == {"mtp", "mtp.attention", "mtp.moe", "mtp.moe.experts", "mtp.moe.shared"}
    assert path(added[0], 4) == "model.layers.4.eh_proj"
    assert forward({**plain, "count_mtp": True, "num_nextn_predict_layers": 0}, sample) == forward(plain, sample)


def test_a_classifier_scores_labels_and_a_bare_model_has_no_head() -> None:
    fields = {**BASE, **MIX, "num_labels": 5, "model_type": "mixtral"}
    # traced: torch 2.13, transformers 5.23, meta device; the head is 2 x 22 tokens x 48 x 97 = 204,864, of 5 labels 10,560
    sample, full = Sample(text=TOKENS), 5_924_160
    assert forward({**fields, "architectures": ["MixtralForSequenceClassification"]}, sample) == full - 204_864 + 10_560
    assert forward({**fields, "architectures": ["MixtralForTokenClassification"]}, sample) == full - 204_864 + 10_560
    assert forward({**fields, "architectures": ["MixtralModel"]}, sample) == full - 204_864
    assert {w.stack for w in works({**fields, "architectures": ["MixtralModel"]}) if w.stack} == {"layers"}


@pytest.mark.parametrize(
    ("kind", "fields", "name", "where"),
    [
        ("mixtral", {**BASE, **MIX}, "moe.experts.up", "model.layers.1.block_sparse_moe.experts.w3"),
        ("qwen2_moe", {**BASE, **QWEN, **TOGETHER}, "moe.shared_gate", "model.layers.1.mlp.shared_expert_gate"),
        ("gpt_oss", {**BASE, **MIX}, "moe.experts.gate_up", "model.layers.1.mlp.experts.gate_up_proj"),
        ("deepseek_v3", {**LATENT, "first_k_dense_replace": 1}, "attention.kv_down", "model.layers.1.self_attn.kv_a_proj_with_mqa"),
        ("deepseek_v3", {**LATENT, "first_k_dense_replace": 1}, "moe.shared.down", "model.layers.1.mlp.shared_experts.down_proj"),
        ("afmoe", {**BASE, **HUGE}, "attention.gate", "model.layers.1.self_attn.gate_proj"),
    ],
)
def test_weights_are_found_under_the_checkpoints_names(kind: str, fields: dict[str, Any], name: str, where: str) -> None:
    work = next(w for w in works({"model_type": kind, **fields}) if w.name == name)
    assert path(work, 1) == where


def test_kimi_and_moonlight_are_deepseek_v3_under_other_names() -> None:
    fields = {**LATENT, "first_k_dense_replace": 1}
    sample = Sample(text=TOKENS)
    assert forward({"model_type": "kimi_k2", **fields}, sample) == forward({"model_type": "deepseek_v3", **fields}, sample)
    # Moonlight has no latent for queries: 48 x 84 in place of 48 x 22 + 22 x 84, in four layers
    direct = forward({"model_type": "deepseek_v3", **fields, "q_lora_rank": None}, sample)
    assert forward({"model_type": "deepseek_v3", **fields}, sample) - direct == 2 * 22 * 4 * (48 * 22 + 22 * 84 - 48 * 84)


def test_decoding_with_a_cache_counts_new_tokens_and_all_pairs() -> None:
    fields = {"model_type": "mixtral", **BASE, **MIX}
    # one new token after ten: products with weights as for one token, and 11 pairs a layer, 4 x 6 heads x 8 wide each
    alone = forward(fields, Sample(text=1), batch=1, convention="causal")
    assert forward(fields, Sample(text=1, context=10), batch=1, convention="causal") == alone + 10 * 4 * 48 * 4


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"model_type": "mixtral", **BASE, **MIX, "num_experts_per_tok": 8}, "num_experts_per_tok of the configuration is 8"),
        ({"model_type": "mixtral", **BASE, "num_experts_per_tok": 2}, "no field num_local_experts"),
        ({"model_type": "mixtral", **BASE, **MIX, "num_key_value_heads": 4}, "num_key_value_heads of the configuration is 4"),
        ({"model_type": "phimoe", **BASE, **MIX}, "must be 2"),
        ({"model_type": "deepseek_v3", **{k: v for k, v in LATENT.items() if k != "q_lora_rank"}}, "no field q_lora_rank"),
        ({"model_type": "hunyuan_v1_moe", **BASE, "num_experts": [4, 4, 4, 4], "moe_topk": [2, 2, 2, 5]}, "takes 5 of 4 experts"),
        ({"model_type": "hunyuan_v1_moe", **BASE, "num_experts": 4, "moe_topk": 2, "num_shared_expert": 2}, "must be 1 in every layer"),
        ({"model_type": "glm4_moe", **BASE, **GLM, "mlp_layer_types": ["dense", "other", "sparse", "sparse"]}, "'other'"),
    ],
)
def test_a_contradictory_field_is_named(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(UllageError, match=says):
        works(fields)


def test_fields_of_hub_files_are_read_like_those_of_the_library() -> None:
    sample = Sample(text=TOKENS)
    listed = {"model_type": "hunyuan_v1_moe", **BASE, "num_experts": 7, "moe_topk": [3] * 4, "num_shared_expert": [1] * 4}
    assert forward(listed, sample) == forward({**listed, "moe_topk": 3, "num_shared_expert": 1, "moe_intermediate_size": [56] * 4}, sample)
    ernie = {"model_type": "ernie4_5_moe", **BASE, "moe_num_experts": 7, "moe_k": 3}
    ernie |= {"moe_intermediate_size": 24, "moe_num_shared_experts": 2}
    assert forward({**ernie, "moe_layer_end_index": -1}, sample) == forward({**ernie, "moe_layer_end_index": 3}, sample)
    exaone = {"model_type": "exaone_moe", **BASE, **HUGE, "sliding_window": 5}
    letters = forward({**exaone, "sliding_window_pattern": "LLLG"}, sample, convention="causal")
    assert letters == forward({**exaone, "sliding_window_pattern": 4}, sample, convention="causal")


def test_every_quantity_of_these_families_has_one_meaning() -> None:
    sample = Sample(text=TOKENS, context=3)
    meanings: dict[str, int] = {}
    for kind, fields, *_ in [*CASES, *MASKS]:
        for work in works({"model_type": kind, **fields}):
            value = work.quantity.of(sample, "causal")
            assert meanings.setdefault(work.quantity.name, value) == value


def test_all_these_families_have_a_source_and_a_summary() -> None:
    for kind in {kind for kind, *_ in CASES}:
        member = MODELS[kind]
        assert member.source.startswith("transformers 5.24, ")
        assert member.summary.endswith((".", ":"))
        assert (member.kind, member.causal) == ("decoder", True)
