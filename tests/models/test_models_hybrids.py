"""Recurrent and hybrid decoders against traces: every forward and exact backward pass to the integer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.model import find
from ullage.models.passes import Training, booked
from ullage.models.sample import Sample
from ullage.models.work import Work

SHARED = Path(__file__).parents[3] / "shared" / "data" / "flops_traced.json"


def works(config: dict[str, Any]) -> list[Work]:
    model, name = find(Config(config))
    return list(model.function(Config(config, architecture=name)))


def forward(config: dict[str, Any], sample: Sample, batch: int = 1) -> int:
    return batch * sum(w.flops * len(w.layers) * w.quantity.of(sample, "full") for w in works(config))


def trained(config: dict[str, Any], sample: Sample, batch: int) -> int:
    rows = booked(works(config), Training(backward="exact"))
    return batch * sum(row.coefficient * row.quantity.of(sample, "full") for row in rows)


# fmt: off
SIDES = {"vocab_size": 997, "hidden_size": 96, "num_attention_heads": 6, "intermediate_size": 136}
MAMBA = {"mamba_n_heads": 12, "mamba_n_groups": 3, "mamba_d_state": 10, "mamba_d_conv": 5, "mamba_chunk_size": 8}
DELTA = {
    "linear_conv_kernel_dim": 5, "linear_key_head_dim": 12, "linear_value_head_dim": 18, "linear_num_key_heads": 3,
    "linear_num_value_heads": 6,
}
EXPERTS = {"moe_intermediate_size": 40, "shared_expert_intermediate_size": 52, "num_experts_per_tok": 3, "num_experts": 7}
LATENT = {
    "kv_lora_rank": 22, "qk_rope_head_dim": 6, "v_head_dim": 18, "qk_nope_head_dim": 10, "moe_intermediate_size": 40,
    "num_experts_per_tok": 3,
}
NANO = {
    "num_key_value_heads": 2, "head_dim": 20, "mamba_num_heads": 12, "mamba_head_dim": 14, "ssm_state_size": 18, "n_groups": 3,
    "conv_kernel": 5, "chunk_size": 8,
}
NANO_EXPERTS = {"moe_intermediate_size": 40, "moe_shared_expert_intermediate_size": 52, "n_routed_experts": 10, "num_experts_per_tok": 3}

# (class, config, [(batch, tokens, forward, forward + backward)]), traced: torch 2.13, transformers 5.23, meta device, eager
# attention, grouped_mm experts. No two sides are equal, and lengths below, at and above a chunk are tried.
TRACED: list[tuple[str, dict[str, Any], list[tuple[int, int, int, int | None]]]] = [
    ("MambaForCausalLM",
     {"vocab_size": 997, "hidden_size": 80, "state_size": 6, "num_hidden_layers": 3, "conv_kernel": 5, "expand": 2, "time_step_rank":
     7},
     [(2, 11, 9398080, 28194240), (3, 7, 8991840, 26975520)]),
    ("FalconMambaForCausalLM",
     {"vocab_size": 991, "hidden_size": 72, "state_size": 6, "num_hidden_layers": 2, "conv_kernel": 3, "expand": 3},
     [(2, 11, 7844832, 23534496)]),
    ("Mamba2ForCausalLM",
     {"vocab_size": 997, "hidden_size": 84, "num_heads": 6, "head_dim": 28, "state_size": 10, "num_hidden_layers": 3, "n_groups": 3,
     "conv_kernel": 5, "expand": 2, "chunk_size": 8},
     [(2, 21, 21258144, 63774432), (3, 5, 7873776, 23621328), (1, 16, 8001600, 24004800)]),
    ("NemotronHForCausalLM",
     {**SIDES, **NANO, **NANO_EXPERTS, "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp", "linear_attention"]},
     [(2, 21, 28569696, 85709088), (3, 5, 10395792, 31187376)]),
    ("NemotronHForCausalLM",
     {**SIDES, **NANO, **NANO_EXPERTS, "moe_latent_size": 24, "layers_block_type": ["moe", "linear_attention", "full_attention", "moe",
     "mlp"]},
     [(2, 21, 23056464, 69169392)]),
    ("JambaForCausalLM",
     {**SIDES, "num_hidden_layers": 5, "num_key_value_heads": 2, "num_experts_per_tok": 3, "num_experts": 5, "attn_layer_period": 3,
     "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 7, "mamba_d_conv": 5, "mamba_expand":
     3, "mamba_dt_rank": 11},
     [(2, 11, 34955136, 104865408)]),
    ("JambaForCausalLM",
     {**SIDES, "num_hidden_layers": 4, "num_key_value_heads": 3, "num_experts": 1, "attn_layer_period": 4, "attn_layer_offset": 2},
     [(1, 9, 8735040, 26205120)]),
    ("BambaForCausalLM",
     {**SIDES, **MAMBA, "num_hidden_layers": 5, "num_key_value_heads": 2, "attn_layer_indices": [1, 4], "mamba_expand": 2},
     [(2, 21, 47544336, 142633008), (1, 6, 6781392, 20344176)]),
    ("GraniteMoeHybridForCausalLM",
     {**MAMBA, "vocab_size": 997, "hidden_size": 96, "intermediate_size": 40, "num_hidden_layers": 4, "num_attention_heads": 6,
     "num_key_value_heads": 2, "num_local_experts": 7, "num_experts_per_tok": 3, "shared_intermediate_size": 52, "layer_types":
     ["linear_attention", "full_attention", "linear_attention", "linear_attention"], "mamba_expand": 2},
     [(2, 21, 45560592, 136681776)]),
    ("GraniteMoeHybridForCausalLM",
     {"vocab_size": 997, "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 6, "num_local_experts": 0,
     "shared_intermediate_size": 52, "layer_types": ["mamba", "attention", "mamba"], "mamba_n_heads": 8, "mamba_d_state": 10,
     "mamba_chunk_size": 16},
     [(2, 21, 27388544, 82165632)]),
    ("FalconH1ForCausalLM",
     {**SIDES, **MAMBA, "num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 20, "mamba_d_ssm": 72},
     [(2, 21, 35082288, 105246864)]),
    ("FalconH1ForCausalLM",
     {**SIDES, "num_hidden_layers": 2, "num_key_value_heads": 3, "mamba_d_ssm": None, "mamba_expand": 2, "mamba_n_heads": 8,
     "mamba_d_state": 12, "mamba_chunk_size": 16},
     [(1, 33, 25718976, 77156928)]),
    ("ZambaForCausalLM",
     {**SIDES, "num_hidden_layers": 5, "num_key_value_heads": 2, "attention_head_dim": 32, "n_mamba_heads": 2, "mamba_d_state": 7,
     "mamba_d_conv": 5, "mamba_expand": 2, "mamba_dt_rank": 11, "layers_block_type": ["mamba", "mamba", "hybrid", "mamba", "hybrid"]},
     [(2, 11, 30139008, 90417024)]),
    ("Zamba2ForCausalLM",
     {**SIDES, "num_hidden_layers": 5, "n_mamba_heads": 4, "mamba_ngroups": 2, "mamba_d_state": 10, "mamba_d_conv": 5, "chunk_size": 8,
     "adapter_rank": 9, "num_mem_blocks": 2, "use_shared_attention_adapter": True, "layers_block_type": ["mamba", "hybrid", "mamba",
     "hybrid", "hybrid"], "use_mem_rope": True},
     [(2, 21, 87152992, 261458976)]),
    ("Lfm2ForCausalLM",
     {"vocab_size": 997, "hidden_size": 96, "intermediate_size": 700, "num_hidden_layers": 4, "num_attention_heads": 6,
     "num_key_value_heads": 2, "conv_L_cache": 5, "block_multiple_of": 12, "block_ffn_dim_multiplier": 1.3, "full_attn_idxs": [1, 3]},
     [(2, 11, 40882560, 122647680)]),
    ("Lfm2ForCausalLM",
     {**SIDES, "num_hidden_layers": 3, "num_key_value_heads": 3, "block_auto_adjust_ff_dim": False, "layer_types": ["conv",
     "full_attention", "conv"]},
     [(1, 9, 5706432, 17119296)]),
    ("Lfm2MoeForCausalLM",
     {**SIDES, "moe_intermediate_size": 40, "num_hidden_layers": 4, "num_key_value_heads": 2, "conv_L_cache": 5, "num_dense_layers": 1,
     "num_experts": 7, "num_experts_per_tok": 3, "layer_types": ["conv", "full_attention", "conv", "full_attention"]},
     [(2, 11, 16235520, 48706560)]),
    ("Lfm3ForCausalLM",
     {**SIDES, "num_hidden_layers": 6, "num_key_value_heads": 2, "head_dim": 20, "conv_L_cache": 5, "sliding_window": 4},
     [(2, 11, 24141312, 72423936)]),
    ("Qwen3NextForCausalLM",
     {**SIDES, **DELTA, **EXPERTS, "num_hidden_layers": 5, "num_key_value_heads": 2, "head_dim": 20, "decoder_sparse_step": 2},
     [(2, 150, 392948352, 1208926080), (1, 30, 41689152, 128311488), (1, 128, 160571520, 490856832)]),
    ("Qwen3NextForCausalLM",
     {**SIDES, "num_hidden_layers": 3, "num_key_value_heads": 3, "head_dim": 24, "linear_key_head_dim": 8, "linear_value_head_dim": 10,
     "linear_num_key_heads": 2, "linear_num_value_heads": 4, "moe_intermediate_size": 40, "shared_expert_intermediate_size": 52,
     "num_experts_per_tok": 2, "num_experts": 5, "mlp_only_layers": [1], "layer_types": ["full_attention", "linear_attention",
     "linear_attention"]},
     [(2, 70, 97074176, 295285760)]),
    ("Qwen3_5ForCausalLM",
     {**SIDES, **DELTA, "num_hidden_layers": 5, "num_key_value_heads": 2, "head_dim": 20},
     [(2, 70, 184092288, 570561408)]),
    ("Qwen3_5MoeForCausalLM",
     {**DELTA, **EXPERTS, "vocab_size": 997, "hidden_size": 96, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads":
     2, "head_dim": 20},
     [(2, 70, 199682688, 617332608)]),
    ("MiniMaxForCausalLM",
     {"vocab_size": 997, "hidden_size": 96, "intermediate_size": 40, "num_hidden_layers": 5, "num_attention_heads": 6,
     "num_key_value_heads": 2, "head_dim": 20, "num_experts_per_tok": 3, "num_local_experts": 7, "block_size": 8},
     [(2, 21, 42625728, 127531584), (1, 6, 5952384, 17684352)]),
    ("KimiLinearForCausalLM",
     {**SIDES, **LATENT, "num_hidden_layers": 5, "num_key_value_heads": 6, "n_shared_experts": 2, "num_local_experts": 7,
     "linear_head_dim": 14, "linear_num_heads": 5, "linear_conv_kernel_dim": 5},
     [(2, 150, 384447360, 1149328000), (1, 30, 40357440, 119065280)]),
    ("KimiLinearForCausalLM",
     {**SIDES, **LATENT, "num_hidden_layers": 3, "num_key_value_heads": 6, "q_lora_rank": 26, "num_local_experts": 7,
     "linear_attn_config": {"full_attn_layers": [2], "kda_layers": [1, 3], "head_dim": 10, "num_heads": 4, "short_conv_kernel_size": 3},
     "first_k_dense_replace": 2},
     [(1, 70, 45775520, 136916960)]),
    ("BailingHybridForCausalLM",
     {**SIDES, **LATENT, "num_hidden_layers": 5, "num_key_value_heads": 6, "n_shared_experts": 2, "num_local_experts": 8, "n_group": 2,
     "topk_group": 2, "head_dim": 14, "short_conv_kernel_size": 5, "layer_group_size": 3},
     [(2, 70, 205775808, 612510528)]),
    ("OlmoHybridForCausalLM",
     {**SIDES, "num_hidden_layers": 5, "num_key_value_heads": 2, "linear_num_key_heads": 6, "linear_num_value_heads": 6,
     "linear_key_head_dim": 10, "linear_value_head_dim": 18, "linear_conv_kernel_dim": 5},
     [(2, 70, 179177856, 555129984)]),
    ("OlmoHybridForCausalLM",
     {**SIDES, "num_hidden_layers": 3},
     [(1, 30, 28321920, 86735232)]),
    ("RwkvForCausalLM",
     {"vocab_size": 997, "hidden_size": 96, "attention_hidden_size": 72, "intermediate_size": 136, "num_hidden_layers": 3},
     [(2, 11, 12524160, 37572480)]),
    ("RwkvForCausalLM",
     {"vocab_size": 991, "hidden_size": 80, "num_hidden_layers": 2},
     [(1, 7, 3439520, 10318560)]),
    ("RecurrentGemmaForCausalLM",
     {**SIDES, "num_hidden_layers": 5, "num_key_value_heads": 2, "lru_width": 72, "attention_window_size": 4, "conv1d_width": 5},
     [(2, 11, 13734144, 41202432)]),
    ("RecurrentGemmaForCausalLM",
     {"vocab_size": 997, "hidden_size": 80, "intermediate_size": 120, "num_hidden_layers": 3, "num_attention_heads": 5, "block_types":
     ["attention", "recurrent"]},
     [(1, 7, 2780640, 8341920)]),
    ("xLSTMForCausalLM",
     {"vocab_size": 997, "hidden_size": 128, "num_hidden_layers": 3, "num_heads": 4, "qk_dim_factor": 0.5, "v_dim_factor": 1.5,
     "ffn_proj_factor": 2.4, "ffn_round_up_to_multiple_of": 24, "chunk_size": 8},
     [(2, 21, 65835264, None), (1, 5, 7790720, 23372160)]),
    ("xLSTMForCausalLM",
     {"vocab_size": 997, "hidden_size": 192, "num_hidden_layers": 2, "num_heads": 2, "qk_dim_factor": 0.3334, "weight_mode": "fused",
     "chunk_size": 8},
     [(1, 7, 15089536, 45268608), (2, 16, 69242880, None)]),
]
# fmt: on


@pytest.mark.parametrize(("kind", "config", "traces"), TRACED, ids=[f"{kind}-{i}" for i, (kind, _, _) in enumerate(TRACED)])
def test_the_formula_equals_the_trace(kind: str, config: dict[str, Any], traces: list[tuple[int, int, int, int | None]]) -> None:
    named = {**config, "architectures": [kind]}
    for batch, tokens, once, both in traces:
        assert forward(named, Sample(text=tokens), batch) == once
        if both is not None:  # the torch path of xLSTM has no backward over several chunks
            assert trained(named, Sample(text=tokens), batch) == both


@pytest.mark.parametrize("model_type", ["mamba", "nemotron_h", "zamba2", "qwen3_next", "minimax"])
def test_released_sizes_equal_the_shared_traces(model_type: str) -> None:
    if not SHARED.exists():
        pytest.skip("the shared traces are not here")
    cases = [c for c in json.loads(SHARED.read_text())["cases"] if isinstance(c["config"], dict)]
    chosen = [c for c in cases if c["config"].get("model_type") == model_type]
    assert chosen
    for case in chosen:
        sample, batch = Sample(text=case["shapes"]["seq"]), case["shapes"]["batch"]
        assert forward(case["config"], sample, batch) == case["fwd_flops"]
        assert trained(case["config"], sample, batch) == case["fwd_bwd_flops"]


PATTERNED = {"model_type": "nemotron_h", **SIDES, **NANO}


def test_the_older_pattern_means_the_same_layers_as_the_list() -> None:
    # "M-*M" is Mamba, MLP, attention, Mamba
    listed = {**PATTERNED, "layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention"]}
    older = {**PATTERNED, "layers_block_type": ["mamba", "mlp", "attention", "mamba"]}
    pattern = {**PATTERNED, "hybrid_override_pattern": "M-*M", "num_hidden_layers": 4}
    sample = Sample(text=21)
    assert forward(listed, sample) == forward(older, sample) == forward(pattern, sample)


def test_a_latent_narrows_the_experts_and_not_the_shared_one() -> None:
    # 2 of 8 experts of width 40 on 24 instead of 96, ungated: 2·2·2·40·(96 − 24) fewer FLOPs a token; the two projections
    # cost 2·2·96·24 more
    moe = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "moe_shared_expert_intermediate_size": 52}
    full = {**PATTERNED, **moe, "hybrid_override_pattern": "E"}
    saved = forward(full, Sample(text=1)) - forward({**full, "moe_latent_size": 24}, Sample(text=1))
    assert saved == 2 * 2 * 2 * 40 * (96 - 24) - 2 * 2 * 96 * 24


MAMBA2 = {
    "model_type": "mamba2",
    "vocab_size": 100,
    "hidden_size": 8,
    "num_heads": 2,
    "head_dim": 8,
    "state_size": 4,
    "n_groups": 1,
    "num_hidden_layers": 1,
    "conv_kernel": 4,
    "chunk_size": 16,
}


def scan(config: dict[str, Any], sample: Sample) -> tuple[int, int]:
    parts = [w for w in works(config) if w.name.startswith("mamba.ssd")]
    counts = [(w, w.quantity.of(sample, "causal") * len(w.layers)) for w in parts]
    return sum(w.flops * n for w, n in counts), sum((w.flops if w.least is None else w.least) * n for w, n in counts)


def test_a_chunked_scan_states_what_the_recurrence_would_need() -> None:
    # 20 tokens are 2 chunks of 16, 12 of padding; H = 2, P = 8, N = 4
    # within chunks: 2·16² pairs × 2·2·(4 + 8); states and outputs: 32 × 4·2·8·4; borders: 3² × 2·2·8·4
    # the recurrence: 20 × 4·2·8·4
    assert scan(MAMBA2, Sample(text=20)) == (512 * 48 + 32 * 256 + 9 * 128, 20 * 256)


def test_one_token_upon_a_state_is_one_step_of_the_recurrence() -> None:
    # 4·H·P·N = 256 FLOPs, however long the context: nothing grows with it but attention
    assert scan(MAMBA2, Sample(text=1, context=9)) == scan(MAMBA2, Sample(text=1, context=9000)) == (256, 256)


def test_the_uncertainty_of_a_hybrid_is_a_few_percent() -> None:
    if not SHARED.exists():
        pytest.skip("the shared traces are not here")
    cases = {c["id"]: c["config"] for c in json.loads(SHARED.read_text())["cases"]}
    config, sample = cases["nemotron-nano-9b-v2_b1_s2048"], Sample(text=2048)
    chunked, least = scan(config, sample)
    # 27 layers, 128 heads of 80, state 128, 2,048 tokens, 4 FLOPs each
    assert least == 27 * 128 * 80 * 128 * 2048 * 4
    assert 0.01 < (chunked - least) / forward(config, sample) < 0.02


def test_a_released_kimi_config_counts_its_layers_from_one() -> None:
    released = {
        "architectures": ["KimiLinearForCausalLM"], "vocab_size": 997, "hidden_size": 96, "intermediate_size": 136,
        "moe_intermediate_size": 40, "num_hidden_layers": 4, "num_attention_heads": 6, "kv_lora_rank": 22, "qk_rope_head_dim": 6,
        "qk_nope_head_dim": 10, "v_head_dim": 18, "num_experts": 7, "num_experts_per_token": 3, "num_shared_experts": 1,
        "first_k_dense_replace": 1,
        "linear_attn_config": {
            "full_attn_layers": [4], "kda_layers": [1, 2, 3], "head_dim": 14, "num_heads": 5, "short_conv_kernel_size": 4
        },
    }  # fmt: skip
    named = {w.name: list(w.layers) for w in works(released)}
    assert named["attention.q"] == [3]
    assert named["linear_attention.q"] == [0, 1, 2]
    assert named["moe.router"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({**PATTERNED, "hybrid_override_pattern": "M?"}, "hybrid_override_pattern of the configuration has '?'"),
        (PATTERNED, "no field hybrid_override_pattern"),
        ({**MAMBA2, "head_dim": 5}, "num_heads of the configuration times head_dim is 10, and expand × hidden_size 16"),
        ({"model_type": "zamba2", "num_hidden_layers": 2, "hidden_size": 8}, "no field layers_block_type (nor hybrid_layer_ids)"),
        ({"model_type": "lfm2", "num_hidden_layers": 2, "hidden_size": 8}, "no field layer_types (nor full_attn_idxs)"),
        (
            {"model_type": "jamba", "num_hidden_layers": 2, "hidden_size": 8, "attn_layer_period": 3, "attn_layer_offset": 3},
            "attn_layer_offset of the configuration is 3, and must be smaller than attn_layer_period, 3",
        ),
    ],
)
def test_a_contradiction_names_its_field(config: dict[str, Any], says: str) -> None:
    with pytest.raises(UllageError) as raised:
        works(config)
    assert says in str(raised.value)
