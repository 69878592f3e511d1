"""State spaces, linear attention and hybrids, small and odd, to be certified on."""

# fmt: off
from __future__ import annotations

from typing import Any

CONFIGS: dict[str, list[dict[str, Any]]] = {
    "mamba": [
        {"architectures": ["MambaForCausalLM"], "model_type": "mamba", "hidden_size": 48, "state_size": 6, "num_hidden_layers": 3,
         "time_step_rank": 5, "expand": 2, "intermediate_size": 96, "conv_kernel": 4, "vocab_size": 101},
        {"architectures": ["FalconMambaForCausalLM"], "model_type": "falcon_mamba", "hidden_size": 48, "state_size": 6,
         "num_hidden_layers": 2, "time_step_rank": 5, "expand": 2, "intermediate_size": 96, "conv_kernel": 3, "vocab_size": 101},
    ],
    "mamba2": [
        {"architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "hidden_size": 48, "num_heads": 6, "head_dim": 16, "state_size":
         10, "n_groups": 2, "expand": 2, "num_hidden_layers": 3, "chunk_size": 16, "conv_kernel": 4, "vocab_size": 101},
    ],
    "nemotron_h": [
        {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": 48, "intermediate_size": 80,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0, "mamba_num_heads": 6,
         "mamba_head_dim": 14, "ssm_state_size": 10, "n_groups": 2, "chunk_size": 16, "conv_kernel": 4, "n_routed_experts": 5,
         "num_experts_per_tok": 2, "moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 40, "expand": 2,
         "n_shared_experts": 1, "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp", "linear_attention"]},
        {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": 48, "intermediate_size": 80,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0, "mamba_num_heads": 6,
         "mamba_head_dim": 14, "ssm_state_size": 10, "n_groups": 2, "chunk_size": 16, "conv_kernel": 4, "n_routed_experts": 5,
         "num_experts_per_tok": 2, "moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 40, "expand": 2,
         "n_shared_experts": 1, "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp", "linear_attention"],
         "moe_latent_size": 32},
    ],
    "bamba": [
        {"architectures": ["BambaForCausalLM"], "model_type": "bamba", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "pad_token_id": 0, "mamba_n_heads": 6, "mamba_d_head": 16,
         "mamba_n_groups": 2, "mamba_d_state": 10, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 16, "attn_layer_indices":
         [1]},
    ],
    "falcon_h1": [
        {"architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "pad_token_id": 0,
         "mamba_n_heads": 6, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 10, "mamba_d_conv": 4, "mamba_expand": 2,
         "mamba_chunk_size": 16, "mamba_d_ssm": 96},
    ],
    "granitemoehybrid": [
        {"architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "pad_token_id": 0,
         "mamba_n_heads": 6, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 10, "mamba_d_conv": 4, "mamba_expand": 2,
         "mamba_chunk_size": 16, "layer_types": ["linear_attention", "full_attention", "linear_attention"], "num_local_experts": 5,
         "num_experts_per_tok": 2, "shared_intermediate_size": 56},
    ],
    "jamba": [
        {"architectures": ["JambaForCausalLM"], "model_type": "jamba", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "pad_token_id": 0, "num_experts": 5,
         "num_experts_per_tok": 2, "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 4, "attn_layer_offset": 2,
         "mamba_d_state": 6, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 5},
    ],
    "qwen3_next": [
        {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0,
         "linear_conv_kernel_dim": 4, "linear_key_head_dim": 10, "linear_value_head_dim": 14, "linear_num_key_heads": 2,
         "linear_num_value_heads": 4, "layer_types": ["linear_attention", "linear_attention", "full_attention"], "moe_intermediate_size":
         24, "shared_expert_intermediate_size": 40, "num_experts_per_tok": 2, "num_experts": 5},
    ],
    "qwen3_5_text": [
        {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0,
         "linear_conv_kernel_dim": 4, "linear_key_head_dim": 10, "linear_value_head_dim": 14, "linear_num_key_heads": 2,
         "linear_num_value_heads": 4, "layer_types": ["linear_attention", "linear_attention", "full_attention"]},
    ],
    "qwen3_5_moe_text": [
        {"architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0,
         "linear_conv_kernel_dim": 4, "linear_key_head_dim": 10, "linear_value_head_dim": 14, "linear_num_key_heads": 2,
         "linear_num_value_heads": 4, "layer_types": ["linear_attention", "linear_attention", "full_attention"], "moe_intermediate_size":
         24, "shared_expert_intermediate_size": 40, "num_experts_per_tok": 2, "num_experts": 5},
    ],
    "olmo_hybrid": [
        {"architectures": ["OlmoHybridForCausalLM"], "model_type": "olmo_hybrid", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "pad_token_id": 0,
         "linear_conv_kernel_dim": 4, "linear_key_head_dim": 10, "linear_value_head_dim": 14, "linear_num_key_heads": 2,
         "linear_num_value_heads": 2, "layer_types": ["linear_attention", "linear_attention", "full_attention"]},
    ],
    "minimax": [
        {"architectures": ["MiniMaxForCausalLM"], "model_type": "minimax", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0,
         "num_local_experts": 5, "num_experts_per_tok": 2, "block_size": 16, "layer_types": ["linear_attention", "full_attention",
         "linear_attention"]},
    ],
    "lfm2": [
        {"architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "pad_token_id": 0, "conv_L_cache": 3, "layer_types":
         ["conv", "full_attention", "conv"], "block_auto_adjust_ff_dim": False},
    ],
    "lfm2_moe": [
        {"architectures": ["Lfm2MoeForCausalLM"], "model_type": "lfm2_moe", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "pad_token_id": 0, "conv_L_cache":
         3, "layer_types": ["conv", "full_attention", "conv"], "block_auto_adjust_ff_dim": False, "moe_intermediate_size": 24,
         "num_dense_layers": 1, "num_experts": 5, "num_experts_per_tok": 2},
    ],
    "lfm3": [
        {"architectures": ["Lfm3ForCausalLM"], "model_type": "lfm3", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0, "conv_L_cache": 5,
         "layer_types": ["conv", "full_attention", "sliding_attention"], "sliding_window": 6},
    ],
    "zamba": [
        {"architectures": ["ZambaForCausalLM"], "model_type": "zamba", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 5,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 4, "pad_token_id": 0, "attn_layer_period": 3,
         "attn_layer_offset": 1, "layers_block_type": ["linear_attention", "hybrid", "linear_attention", "linear_attention", "hybrid"],
         "attention_hidden_size": 96, "attention_head_dim": 24, "n_mamba_heads": 2, "mamba_d_state": 6, "mamba_dt_rank": 5,
         "mamba_expand": 2, "mamba_d_conv": 4},
    ],
    "zamba2": [
        {"architectures": ["Zamba2ForCausalLM"], "model_type": "zamba2", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers":
         5, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 4, "pad_token_id": 0, "hybrid_layer_ids": [1, 3],
         "mamba_d_state": 10, "n_mamba_heads": 6, "mamba_expand": 2, "mamba_d_conv": 4, "mamba_ngroups": 2, "chunk_size": 16,
         "num_mem_blocks": 1, "adapter_rank": 7, "attention_hidden_size": 96, "attention_head_dim": 24, "layers_block_type":
         ["linear_attention", "hybrid", "linear_attention", "hybrid", "linear_attention"]},
    ],
    "recurrent_gemma": [
        {"architectures": ["RecurrentGemmaForCausalLM"], "model_type": "recurrent_gemma", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0,
         "lru_width": 56, "attention_window_size": 6, "conv1d_width": 4, "block_types": ["recurrent", "recurrent", "attention"]},
    ],
    "rwkv": [
        {"architectures": ["RwkvForCausalLM"], "model_type": "rwkv", "hidden_size": 48, "attention_hidden_size": 56, "intermediate_size":
         80, "num_hidden_layers": 2, "vocab_size": 101},
    ],
    "xlstm": [
        {"architectures": ["xLSTMForCausalLM"], "model_type": "xlstm", "hidden_size": 64, "num_heads": 2, "num_hidden_layers": 2,
         "vocab_size": 101, "chunk_size": 16, "qk_dim_factor": 0.5, "v_dim_factor": 1.0, "ffn_proj_factor": 2.667,
         "ffn_round_up_to_multiple_of": 8},
    ],
    "kimi_linear": [
        {"architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 4, "moe_intermediate_size": 24,
         "num_shared_experts": 1, "kv_lora_rank": 20, "qk_rope_head_dim": 8, "v_head_dim": 10, "qk_nope_head_dim": 12,
         "num_experts_per_token": 2, "num_experts": 5, "linear_head_dim": 10, "linear_num_heads": 4, "linear_conv_kernel_dim": 4,
         "first_k_dense_replace": 1, "pad_token_id": 0, "layer_types": ["linear_attention", "full_attention", "linear_attention"]},
    ],
    "bailing_hybrid": [
        {"architectures": ["BailingHybridForCausalLM"], "model_type": "bailing_hybrid", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 4, "moe_intermediate_size": 24,
         "num_shared_experts": 1, "kv_lora_rank": 20, "qk_rope_head_dim": 8, "v_head_dim": 10, "qk_nope_head_dim": 12,
         "num_experts_per_token": 2, "num_experts": 5, "num_expert_group": 1, "topk_group": 1, "linear_head_dim": 10, "linear_num_heads":
         4, "linear_conv_kernel_dim": 4, "short_conv_kernel_size": 4, "first_k_dense_replace": 1, "pad_token_id": 0,
         "num_nextn_predict_layers": 0, "layer_types": ["linear_attention", "full_attention", "linear_attention"]},
    ],
}
