"""What counters by parameters multiply tokens with: weights of products, of all experts, and of norms and biases."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ullage.models.conventions.outline import Outline, outline, text
from ullage.models.formula import Formula
from ullage.models.work import Work

# Architectures whose LM head is the embedding's matrix unless the configuration says otherwise (transformers 5.24)
TIED = frozenset(
    {
        "aya_vision", "bart", "bert", "biogpt", "blenderbot", "blenderbot-small", "bloom", "camembert", "cohere",
        "cohere2", "cohere2_moe", "cohere2_vision", "ctrl", "deepseek_vl", "distilbert", "electra", "ernie4_5",
        "ernie4_5_moe", "falcon", "falcon_mamba", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n",
        "gemma3n_text", "gemma4", "gemma4_text", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox_japanese", "granite_swa",
        "hyperclovax_vision_v2", "internvl", "jetmoe", "kimi_k25", "lfm2", "lfm2_moe", "lfm2_vl", "lfm3",
        "lighton_ocr", "m2m_100", "mamba", "marian", "mbart", "mistral3", "modernbert", "modernbert-decoder", "mpt",
        "mt5", "openai-gpt", "opt", "paligemma", "pegasus", "plbart", "recurrent_gemma", "roberta", "smollm3",
        "starcoder2", "t5", "umt5", "vaultgemma", "whisper", "xglm", "xlm-roberta", "zamba", "zamba2",
    }
)  # fmt: skip
_KNOWN = (
    *("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "phi3", "gemma", "gemma2", "gemma3_text"),
    *("deepseek_v3", "gpt_oss"),
)


def tied(formula: Formula) -> bool:
    """Return whether the head and the embedding are one matrix."""
    default = any(name in TIED for name in _names(formula))
    return formula.config.flag("tie_word_embeddings", text(formula.config).flag("tie_word_embeddings", default))


def weights(formula: Formula) -> Iterator[tuple[Work, int]]:
    """Yield each work that has weights, and how many of them stand in all its layers: those of every expert."""
    experts = {(w.stack, layer): w.shape[1] for w in formula.works if w.name.endswith("moe.router") and w.shape for layer in w.layers}
    for work in formula.works:
        if work.shape is None:
            continue
        one = work.shape[0] * work.shape[1]
        routed = ".experts." in work.name
        yield work, sum(one * (experts.get((work.stack, layer), 1) if routed else 1) for layer in work.layers)


def vectors(formula: Formula, *, active: bool) -> int:
    """Return the parameters of norms and biases, `active` ones or with those of all experts; 0 where they aren't known here."""
    for name in _names(formula):
        if name in _KNOWN:
            return _vectors(name, outline(formula.config), active)
    return 0


def _names(formula: Formula) -> list[str]:
    said = formula.config.values.get("model_type")
    return [said] if isinstance(said, str) else [formula.name, *formula.model.names]


def _vectors(name: str, model: Outline, active: bool) -> int:
    query, key = model.heads * model.head_dim, model.key_heads * model.head_dim
    biases = query + 2 * key
    asked = biases + model.width if model.config.flag("attention_bias") else 0
    extra: dict[str, Callable[[], int]] = {
        "llama": lambda: asked,
        "qwen2": lambda: biases,
        "qwen2_moe": lambda: biases,
        "qwen3": lambda: 2 * model.head_dim + asked,
        "qwen3_moe": lambda: 2 * model.head_dim + asked,
        "gemma2": lambda: 2 * model.width,
        "gemma3_text": lambda: 2 * model.width + 2 * model.head_dim,
        "deepseek_v3": lambda: sum(model.config.integer(f) for f in ("q_lora_rank", "kv_lora_rank") if model.config.has(f)),
        "gpt_oss": lambda: biases + model.width + model.heads + _gpt_oss(model, active),
    }
    layer = 2 * model.width + extra.get(name, lambda: 0)()
    return model.layers * layer + model.width


def _gpt_oss(model: Outline, active: bool) -> int:
    """Return the biases of the router and of the experts."""
    experts = model.field("num_local_experts", "num_experts")
    counted = model.field("num_experts_per_tok") if active else experts
    return experts + counted * (2 * model.field("intermediate_size") + model.width)
