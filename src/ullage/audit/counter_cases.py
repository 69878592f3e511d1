"""The models on which a FLOPs counter is tried, each for one feature; what is right for them is computed, not kept here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ullage.models.sample import Sample
from ullage.models.step import together


@dataclass(frozen=True)
class Example:
    """A model and a step of training: the lengths of its sequences (a diffusion model's: its latent tokens).

    `patches` are the patch grids (rows, columns) of the images, one a sequence; `prompts` the tokens that condition generation.
    """

    feature: str
    name: str
    config: Mapping[str, Any]
    seqlens: Sequence[int]
    patches: Sequence[tuple[int, int]] = ()
    prompts: Sequence[int] = ()

    @property
    def samples(self) -> tuple[tuple[Sample, int], ...]:
        """The samples of the step, equal ones together."""
        if self.prompts:
            return together(Sample(latent_tokens=s, prompt=p) for s, p in zip(self.seqlens, self.prompts, strict=True))
        grids: list[tuple[tuple[int, int, int], ...]] = [((1, rows, columns),) for rows, columns in self.patches]
        grids = grids or [()] * len(self.seqlens)
        return together(Sample(text=s, encoder=s, grids=g) for s, g in zip(self.seqlens, grids, strict=True))


def _sizes(width: int, layers: int, heads: int, inner: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    return {
        "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads,
        "intermediate_size": inner, "vocab_size": vocabulary, "tie_word_embeddings": False, **more,
    }  # fmt: skip


def _named(architecture: str, model_type: str, config: dict[str, Any]) -> dict[str, Any]:
    return {"architectures": [architecture], "model_type": model_type, **config}


_LLAMA_3 = _named("LlamaForCausalLM", "llama", _sizes(4096, 32, 32, 14336, 128_256, num_key_value_heads=8, head_dim=128, hidden_act="silu"))
_QWEN3_TEXT = _sizes(2048, 28, 16, 6144, 151_936, num_key_value_heads=8, head_dim=128)
_NEMOTRON = {
    "mlp_hidden_act": "relu2", "ssm_state_size": 128, "mamba_num_heads": 128, "n_groups": 8, "conv_kernel": 4, "expand": 2,
    "chunk_size": 128, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688,
}  # fmt: skip
_LATENT_ATTENTION = {
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_group": 8,
    "topk_group": 4, "first_k_dense_replace": 3, "max_position_embeddings": 4096,
}  # fmt: skip
_VISION = {
    "depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16, "in_channels": 3, "patch_size": 16,
    "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 2048, "num_position_embeddings": 2304,
    "deepstack_visual_indexes": [5, 11, 17],
}  # fmt: skip
_EVERY_SIXTH = [("full_attention" if (i + 1) % 6 == 0 else "sliding_attention") for i in range(48)]
_IN_TURN = ["sliding_attention", "full_attention"] * 12
_LINEAR = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
_HYBRID = ["linear_attention", "mlp", "linear_attention", "mlp", "full_attention", "mlp"] * 4
_SPARSE = ["linear_attention", "moe", "linear_attention", "moe", "full_attention", "moe"] * 4

EXAMPLES = (
    Example("multi-head attention", "Llama-2-7B", _named("LlamaForCausalLM", "llama", _sizes(4096, 32, 32, 11008, 32_000)), (4096,)),
    Example("grouped queries", "Llama-3-8B", _LLAMA_3, (8192,)),
    Example("packed sequences", "Llama-3-8B", _LLAMA_3, (512, 1024, 2048, 4608)),
    Example("tied head", "Qwen2.5-0.5B", _named(
        "Qwen2ForCausalLM", "qwen2", _sizes(896, 24, 14, 4864, 151_936, num_key_value_heads=2, tie_word_embeddings=True)
    ), (2048, 2048)),
    Example("heads wider than hidden/heads", "Qwen3-0.6B", _named(
        "Qwen3ForCausalLM", "qwen3", _sizes(1024, 28, 16, 3072, 151_936, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True)
    ), (2048, 2048)),
    Example("MLP without a gate", "GPT-2", _named(
        "GPT2LMHeadModel", "gpt2",
        {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50_257, "tie_word_embeddings": True},
    ), (1024,)),
    Example("sliding window", "Mistral-7B", _named(
        "MistralForCausalLM", "mistral", _sizes(4096, 32, 32, 14336, 32_000, num_key_value_heads=8, head_dim=128, sliding_window=4096)
    ), (16_384,)),
    Example("windows in some layers", "Gemma-3-12B", _named(
        "Gemma3ForCausalLM", "gemma3_text",
        _sizes(3840, 48, 16, 15360, 262_208, num_key_value_heads=8, head_dim=256, sliding_window=1024, layer_types=_EVERY_SIXTH,
               tie_word_embeddings=True),
    ), (16_384,)),
    Example("experts and windows", "gpt-oss-20b", _named(
        "GptOssForCausalLM", "gpt_oss",
        _sizes(2880, 24, 64, 2880, 201_088, num_key_value_heads=8, head_dim=64, num_local_experts=32, num_experts_per_tok=4,
               sliding_window=128, layer_types=_IN_TURN),
    ), (8192,)),
    Example("routed experts", "Mixtral-8x7B", _named(
        "MixtralForCausalLM", "mixtral",
        _sizes(4096, 32, 32, 14336, 32_000, num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2),
    ), (4096,)),
    Example("many routed experts", "Qwen3-30B-A3B", _named(
        "Qwen3MoeForCausalLM", "qwen3_moe",
        _sizes(2048, 48, 32, 6144, 151_936, num_key_value_heads=4, head_dim=128, num_experts=128, num_experts_per_tok=8,
               moe_intermediate_size=768, decoder_sparse_step=1, mlp_only_layers=[]),
    ), (4096,)),
    Example("shared expert", "Qwen1.5-MoE-A2.7B", _named(
        "Qwen2MoeForCausalLM", "qwen2_moe",
        _sizes(2048, 24, 16, 5632, 151_936, num_experts=60, num_experts_per_tok=4, moe_intermediate_size=1408,
               shared_expert_intermediate_size=5632, decoder_sparse_step=1, mlp_only_layers=[]),
    ), (4096,)),
    Example("latent attention (MLA)", "DeepSeek-V3", _named(
        "DeepseekV3ForCausalLM", "deepseek_v3", _sizes(7168, 61, 128, 18432, 129_280, **_LATENT_ATTENTION)
    ), (4096,)),
    Example("sparse attention (DSA)", "DeepSeek-V3.2, 8 layers", _named(
        "DeepseekV32ForCausalLM", "deepseek_v32",
        _sizes(7168, 8, 128, 18432, 129_280, **_LATENT_ATTENTION, index_topk=2048, index_head_dim=128, index_n_heads=64,
               mlp_layer_types=["dense"] * 3 + ["sparse"] * 5, layer_types=["indexed_attention"] * 8),
    ), (8192,)),
    Example("latent experts", "a Nemotron-3-Super of 24 layers", _named(
        "NemotronHForCausalLM", "nemotron_h",
        _sizes(4096, 24, 32, 2688, 131_072, **{
            **_NEMOTRON, "num_key_value_heads": 2, "head_dim": 128, "mamba_head_dim": 64, "n_routed_experts": 512,
            "num_experts_per_tok": 22, "moe_intermediate_size": 2688, "moe_shared_expert_intermediate_size": 5376, "moe_latent_size": 1024,
            "layers_block_type": _SPARSE,
        }),
    ), (4096,)),
    Example("hybrid with Mamba 2", "a Nemotron-Nano-v2 of 24 layers", _named(
        "NemotronHForCausalLM", "nemotron_h",
        _sizes(4480, 24, 40, 15680, 131_072, **{
            **_NEMOTRON, "num_key_value_heads": 8, "head_dim": 128, "mamba_head_dim": 80, "layers_block_type": _HYBRID,
        }),
    ), (4096,)),
    Example("hybrid with delta networks", "Qwen3-Next, 8 layers", _named(
        "Qwen3NextForCausalLM", "qwen3_next",
        _sizes(2048, 8, 16, 5632, 151_936, num_key_value_heads=2, head_dim=256, linear_conv_kernel_dim=4, linear_key_head_dim=128,
               linear_value_head_dim=128, linear_num_key_heads=16, linear_num_value_heads=32, moe_intermediate_size=512,
               shared_expert_intermediate_size=512, num_experts=512, num_experts_per_tok=10, layer_types=_LINEAR * 2,
               decoder_sparse_step=1, mlp_only_layers=[]),
    ), (4096,)),
    Example("Mamba 1", "Mamba-130M", _named(
        "MambaForCausalLM", "mamba",
        {"hidden_size": 768, "num_hidden_layers": 24, "state_size": 16, "expand": 2, "conv_kernel": 4, "intermediate_size": 1536,
         "time_step_rank": 48, "vocab_size": 50_280, "tie_word_embeddings": True},
    ), (2048,)),
    Example("images in text", "a Qwen3-VL of 2B", {
        "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "tie_word_embeddings": False,
        "text_config": {"model_type": "qwen3_vl_text", **_QWEN3_TEXT}, "vision_config": {"model_type": "qwen3_vl", **_VISION},
    }, (2048, 2048), patches=((64, 64), (32, 48))),
    Example("encoder", "BERT-large", _named(
        "BertForMaskedLM", "bert",
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 30_522,
         "tie_word_embeddings": True},
    ), (512, 512)),
    Example("encoder and decoder", "T5-base, gated", _named(
        "T5ForConditionalGeneration", "t5",
        {"d_model": 768, "d_ff": 2048, "d_kv": 64, "num_heads": 12, "num_layers": 12, "num_decoder_layers": 12, "vocab_size": 32_128,
         "feed_forward_proj": "gated-gelu", "is_encoder_decoder": True, "tie_word_embeddings": False},
    ), (512, 512)),
    Example("diffusion transformer", "Qwen-Image", {
        "architectures": ["QwenImagePipeline"], "_class_name": "QwenImageTransformer2DModel", "num_layers": 60, "num_attention_heads": 24,
        "attention_head_dim": 128, "in_channels": 64, "out_channels": 16, "patch_size": 2, "joint_attention_dim": 3584,
        "guidance_embeds": False,
    }, (4096,), prompts=(256,)),
)  # fmt: skip
