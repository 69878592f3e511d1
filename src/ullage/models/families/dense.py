"""Dense decoders: Llama and the many that follow its plan, and those in the words of GPT-2, Falcon, BLOOM and BART."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ullage.models.config import Config
from ullage.models.decoders import (
    ALL,
    BARE,
    CLASSIFIER,
    FULL_ATTENTION,
    LM,
    SLIDING_ATTENTION,
    TAGGER,
    CheckpointLayout,
    DensePlan,
    Spans,
    documented,
    every_head,
    family,
    key_heads,
    patterned,
    windows,
)
from ullage.models.model import in_transformers, model, table, transformers_model
from ullage.models.sample import LOGITS
from ullage.models.work import Work, matmul

# Llama's plan

UNGATED = CheckpointLayout(mlp=("mlp.up_proj", "mlp.down_proj"))
QWEN = {"num_key_value_heads": 32, "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
MISTRAL = {"num_key_value_heads": 8, "sliding_window": 4096}
LLAMA_SIZES, MISTRAL_SIZES, QWEN_SIZES = (4096, 11008, 32, 32, 32000), (4096, 14336, 32, 32, 32000), (4096, 22016, 32, 32, 151936)

table(
    "llama",
    """Llama, Mistral, Qwen 2 and 3, Seed-OSS, Granite, EXAONE 4, StableLM, Nemotron, Apertus and their like.

    A step of T tokens costs 2T[L(h(n+2k)d + ndh + ghf) + Vh] + 4ndL × pairs FLOPs forward, with g = 3 for a gated MLP, 2
    without a gate (Nemotron, Arcee, Apertus, Jais 2, nanochat). Grouped-query attention, head width d free of h/n, tied or
    untied head; windows where layers have them. Classifiers score each token's labels in place of the vocabulary.
    """,
    in_transformers("models/llama, mistral, qwen2, qwen3, nemotron, …"),
    DensePlan("Llama", "llama", ALL, sizes=LLAMA_SIZES),
    DensePlan("Mistral", "mistral", ALL, MISTRAL, MISTRAL_SIZES, window="all"),
    DensePlan("Ministral", "ministral", ALL, MISTRAL, MISTRAL_SIZES, window="typed"),
    DensePlan(
        "Ministral3", "ministral3", ALL, {"num_key_value_heads": 8, "head_dim": 128},
        (4096, 14336, 34, 32, 131072), window="all",
    ),
    DensePlan("Qwen2", "qwen2", ALL, QWEN, QWEN_SIZES, window="typed"),
    DensePlan("Qwen3", "qwen3", ALL, {**QWEN, "head_dim": 128}, QWEN_SIZES, window="typed"),
    DensePlan("SeedOss", "seed_oss", ALL, {"num_key_value_heads": 8, "head_dim": 128}),
    DensePlan("Granite", "granite", sizes=LLAMA_SIZES),
    DensePlan(
        "GraniteSWA", "granite_swa", fields={"num_key_value_heads": 4, "sliding_window": 128}, window="typed",
        every=4, first=True,
    ),
    DensePlan(
        "Exaone4", "exaone4", ALL, {"num_key_value_heads": 32, "sliding_window": 4096}, window="typed",
        every=4,
    ),
    DensePlan("Helium", "helium", ALL, {"num_key_value_heads": 20, "head_dim": 128}),
    DensePlan("HunYuanDenseV1", "hunyuan_v1_dense", (LM, CLASSIFIER, BARE)),
    DensePlan("HyperCLOVAX", "hyperclovax"),
    DensePlan(
        "Ernie4_5", "ernie4_5", (LM, BARE, "_ForCausalLM"), {"num_key_value_heads": 2, "head_dim": 128},
        (1024, 3072, 18, 16, 103424),
    ),
    DensePlan("BitNet", "bitnet", fields={"num_key_value_heads": 5}),
    DensePlan(
        "Cwm", "cwm", (LM, BARE), {"num_key_value_heads": 8, "head_dim": 128, "sliding_window": 8192},
        window="typed", every=4, first=True,
    ),
    DensePlan("StableLm", "stablelm", ALL, {"num_key_value_heads": 32}),
    DensePlan("Arcee", "arcee", ALL, gated=False, layout=UNGATED),
    DensePlan("Apertus", "apertus", (LM, TAGGER, BARE), gated=False, layout=UNGATED),
    DensePlan("Nemotron", "nemotron", ALL, gated=False, layout=UNGATED),
    DensePlan("Jais2", "jais2", gated=False, layout=UNGATED),
    DensePlan("NanoChat", "nanochat", gated=False, layout=CheckpointLayout(mlp=("mlp.fc1", "mlp.fc2"))),
    DensePlan("IQuestCoder", "iquestcoder", ()),
)  # fmt: skip

OLMO_SIZES = (4096, 11008, 32, 32, 50304)
table(
    "olmo",
    "OLMo 1, 2 and 3: multi-head or grouped-query attention, gated MLP; norms, clipping and their places cost nothing.",
    in_transformers("models/olmo, olmo2, olmo3"),
    DensePlan("Olmo", "olmo", (LM, CLASSIFIER, BARE), sizes=OLMO_SIZES),
    DensePlan("Olmo2", "olmo2", (LM, CLASSIFIER, BARE), sizes=OLMO_SIZES),
    DensePlan(
        "Olmo3", "olmo3", (LM, CLASSIFIER, BARE), {"sliding_window": 4096}, OLMO_SIZES, window="typed",
        every=4,
    ),
)  # fmt: skip

GLM_FIELDS, GLM_SIZES = {"num_key_value_heads": 2, "head_dim": 128}, (4096, 13696, 40, 32, 151552)
GLM_LAYOUT = CheckpointLayout(mlp=("mlp.gate_up_proj", "mlp.down_proj"))
table(
    "glm",
    "GLM 4 and GLM 4 0414 (9B, 32B), GLM-Edge: grouped-query attention, gated MLP, norms around both; the text of GLM-V and GLM-OCR.",
    in_transformers("models/glm, glm4"),
    DensePlan("Glm", "glm", ALL, GLM_FIELDS, GLM_SIZES, layout=GLM_LAYOUT),
    DensePlan("Glm4", "glm4", ALL, GLM_FIELDS, GLM_SIZES, layout=GLM_LAYOUT),
    DensePlan("", "glm4v_text", (), {"num_key_value_heads": 2}, GLM_SIZES, layout=GLM_LAYOUT, words={"head_dim": ()}),
    DensePlan("", "glm_ocr_text", (), {"num_key_value_heads": 8}, (1024, 4096, 16, 16, 59392), layout=GLM_LAYOUT),
)

PHI = CheckpointLayout(
    attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.dense"), mlp=("mlp.fc1", "mlp.fc2")
)
PHI3 = CheckpointLayout(attention=("self_attn.qkv_proj", "self_attn.o_proj"), mlp=("mlp.gate_up_proj", "mlp.down_proj"))
table(
    "phi",
    "Phi 1, 1.5 and 2; Phi 3, 3.5 and 4 (dense): one window for all layers where the file names one.",
    in_transformers("models/phi, phi3"),
    DensePlan("Phi", "phi", ALL, sizes=(2048, 8192, 24, 32, 51200), gated=False, layout=PHI),
    DensePlan("Phi3", "phi3", ALL, sizes=(3072, 8192, 32, 32, 32064), window="all", layout=PHI3),
)

COHERE_SIZES = (8192, 22528, 40, 64, 256000)
table(
    "cohere",
    """Command R and R+, Aya (Cohere); Command R7B and A, with windows in three of four layers (Cohere 2).

    The parallel block needs the same products as a sequential one.
    """,
    in_transformers("models/cohere, cohere2"),
    DensePlan("Cohere", "cohere", sizes=COHERE_SIZES),
    DensePlan(
        "Cohere2", "cohere2", (LM, BARE), {"sliding_window": 4096}, COHERE_SIZES, window="typed", every=4,
    ),
)  # fmt: skip

table(
    "starcoder2",
    "StarCoder 2 (3B, 7B, 15B): one window for all layers where the file names one, an MLP of two products.",
    in_transformers("models/starcoder2"),
    DensePlan(
        "Starcoder2", "starcoder2", ALL, {"num_key_value_heads": 2}, gated=False, window="all",
        layout=CheckpointLayout(mlp=("mlp.c_fc", "mlp.c_proj")),
    ),
)  # fmt: skip

GEMMA2 = {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096}
GEMMA3 = {"num_attention_heads": 8, "vocab_size": 262_208, **GEMMA2}
TYPED: Mapping[str, Any] = {"window": "typed", "both_ways": True}
table(
    "gemma",
    """Gemma, CodeGemma, Gemma 2, VaultGemma, the text model of Gemma 3, and EmbeddingGemma, which sees both sides.

    Llama's closed form with head width 256, free of h/n. Capping logits, norms and local rotary bases cost nothing.
    """,
    in_transformers("models/gemma, gemma2, gemma3, vaultgemma"),
    DensePlan(
        "Gemma", "gemma", ALL, {"num_key_value_heads": 16, "head_dim": 256}, (3072, 24576, 28, 16, 256_000),
        both_ways=True,
    ),
    DensePlan("Gemma2", "gemma2", ALL, GEMMA2, (2304, 9216, 26, 8, 256_000), every=2, **TYPED),
    DensePlan("VaultGemma", "vaultgemma", (LM, BARE), GEMMA2, (2304, 9216, 26, 8, 256_000), every=2, **TYPED),
    DensePlan(
        "Gemma3", "gemma3_text", (LM, "TextForSequenceClassification", "TextModel"), GEMMA3,
        (2304, 9216, 26, 8, 262_208), every=6, **TYPED,
    ),
)  # fmt: skip


def _rotary_typed(config: Config) -> Config:
    """Return SmolLM 3's configuration with `layer_types`: where there is a window, layers without rotary positions have it."""
    if not config.flag("use_sliding_window") or not config.has("sliding_window") or config.has("layer_types"):
        return config
    layers, every = config.layers(), config.integer("no_rope_layer_interval", default=4)
    rotary = config.integers("no_rope_layers", len(layers)) or [int((i + 1) % every != 0) for i in layers]
    return config.replaced(layer_types=[FULL_ATTENTION if r else SLIDING_ATTENTION for r in rotary])


SMOLLM3 = {"num_key_value_heads": 4, "use_sliding_window": False}
table(
    "smollm3",
    """SmolLM 3: grouped-query attention, gated MLP; rotary positions or none cost the same.

    With `use_sliding_window` (not as released) the layers without rotary positions have the window.
    """,
    in_transformers("models/smollm3"),
    DensePlan(
        "SmolLM3", "smollm3", ALL, SMOLLM3, (2048, 11008, 36, 16, 128256), window="typed",
        prepared=_rotary_typed,
    ),
)  # fmt: skip

DIFFLLAMA = DensePlan("DiffLlama", "diffllama", ALL)


@transformers_model("models/diffllama", *DIFFLLAMA.names)
def diffllama(config: Config) -> Iterator[Work]:
    """DiffLlama: Llama's products, and values twice as wide.

    Each map of weights meets both halves of the values. The library calls attention once for each half and so computes the
    scores twice; the mathematics needs them once, which `least` says.
    """
    for work in DIFFLLAMA.works(config):
        if work.name == "attention.scores":
            yield replace(work, flops=2 * work.flops, least=work.flops)
        else:
            yield replace(work, flops=2 * work.flops) if work.name == "attention.values" else work


def _locally(config: Config, layers: range) -> Spans:
    """Return the windows of ModernBERT's decoder: half of `local_attention`, but in every third layer, the first of three."""
    config = documented(config, local_attention=128, global_attn_every_n_layers=3)
    local = config.integer("local_attention") // 2 if config.has("local_attention") else None
    every = config.integer("global_attn_every_n_layers")
    return windows(patterned(config.replaced(sliding_window=local), layers, every, first=True), layers)


MODERNBERT_DECODER = DensePlan(
    "ModernBertDecoder", "modernbert-decoder", (LM,), window=_locally,
    layout=CheckpointLayout(
        "model.layers", "model.embeddings.tok_embeddings", "",
        ("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.Wo"), ("mlp.Wi", "mlp.Wo"), "decoder",
    ),
    words={"head_dim": ()}, keys=every_head,
)  # fmt: skip


@transformers_model("models/modernbert_decoder", *MODERNBERT_DECODER.names)
def modernbert_decoder(config: Config) -> Iterator[Work]:
    """ModernBERT decoder, Ettin: Llama's products with multi-head attention, and h² more for each token that reaches the head.

    A window is half of `local_attention`; every third layer, the first of three, has none.
    """
    *body, head = MODERNBERT_DECODER.works(config)
    yield from body
    width = config.integer("hidden_size")
    yield matmul("head.dense", LOGITS, width, width, module="lm_head.dense")
    yield head


# Multi-head attention and an MLP without a gate, in words of their own

MULTI_HEAD: Mapping[str, Any] = {"gated": False, "keys": every_head}


def _widths(**fields: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    """Return the fields of the widths, by Llama's names; heads are width / heads wide whatever the configuration says."""
    names = {"width": "hidden_size", "heads": "num_attention_heads", "layers": "num_hidden_layers", "inner": "intermediate_size"}
    return {"head_dim": (), **{names.get(name, name): words for name, words in fields.items()}}


QUERY_KEY_VALUE = ("attention.query_key_value", "attention.dense")
FOUR_FOLD = ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h")


def _multiplied(config: Config) -> Config:
    inner = config.integer("intermediate_multiple_size", default=4) * config.integer("hidden_size")
    return config.replaced(intermediate_size=inner)


table(
    "gpt_neox",
    "GPT-NeoX, Pythia, Dolly, RedPajama-INCITE, Persimmon: multi-head attention; parallel blocks cost what sequential ones do.",
    in_transformers("models/gpt_neox, gpt_neox_japanese, persimmon"),
    DensePlan(
        "GPTNeoX", "gpt_neox", (LM, CLASSIFIER, BARE),
        layout=CheckpointLayout("gpt_neox.layers", "gpt_neox.embed_in", attention=QUERY_KEY_VALUE, mlp=FOUR_FOLD),
        words=_widths(), **MULTI_HEAD,
    ),
    DensePlan(
        "GPTNeoXJapanese", "gpt_neox_japanese",
        layout=CheckpointLayout(
            "gpt_neox_japanese.layers", "gpt_neox_japanese.embed_in", attention=QUERY_KEY_VALUE,
            mlp=FOUR_FOLD,
        ),
        words=_widths(), prepared=_multiplied, **MULTI_HEAD,
    ),
    DensePlan(
        "Persimmon", "persimmon", ALL, sizes=(4096, 16384, 36, 64, 262144),
        layout=CheckpointLayout(attention=("self_attn.query_key_value", "self_attn.dense"), mlp=FOUR_FOLD),
        words=_widths(), **MULTI_HEAD,
    ),
)  # fmt: skip

FUSED, CONV = ("attn.c_attn", "attn.c_proj"), ("mlp.c_fc", "mlp.c_proj")
SEPARATE = ("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.out_proj")
IN_OUT = ("mlp.fc_in", "mlp.fc_out")
GPT2 = {"width": ("n_embd", "hidden_size"), "heads": ("n_head", "num_attention_heads"), "layers": ("n_layer", "num_hidden_layers")}
GPT2_LAYOUT = CheckpointLayout("transformer.h", "transformer.wte", "transformer.wpe", FUSED, CONV)
GPT2_WORDS = _widths(**GPT2, inner=("n_inner",))


def _one_head(config: Config, heads: int) -> int:
    return 1 if config.flag("multi_query", True) else heads


table(
    "gpt2",
    """GPT-2, Cerebras-GPT, GPT-SW3 (multi-head); StarCoder and SantaCoder (GPT-BigCode, one head of keys and values).

    A step of T tokens costs 2T[L(4h² + 2hf) + Vh] + 4hL × pairs FLOPs forward; multi-query attention 2h² + 2hd for 4h².
    """,
    in_transformers("models/gpt2, gpt_bigcode"),
    DensePlan(
        "GPT2", "gpt2", ("LMHeadModel", CLASSIFIER, BARE), layout=GPT2_LAYOUT, words=GPT2_WORDS, inner=4,
        **MULTI_HEAD,
    ),
    DensePlan(
        "GPTBigCode", "gpt_bigcode", ("LMHeadModel", LM, CLASSIFIER, BARE), gated=False, layout=GPT2_LAYOUT,
        words=GPT2_WORDS, inner=4, keys=_one_head,
    ),
)  # fmt: skip
table(
    "openai_gpt",
    "GPT, the first: GPT-2's products, with an MLP that is always four times as wide.",
    in_transformers("models/openai"),
    DensePlan(
        "OpenAIGPT", "openai-gpt", ("LMHeadModel", CLASSIFIER, BARE),
        layout=CheckpointLayout(
            "transformer.h", "transformer.tokens_embed", "transformer.positions_embed", FUSED, CONV,
        ),
        words=_widths(**GPT2, inner=()), inner=4, **MULTI_HEAD,
    ),
)  # fmt: skip
table(
    "gptj",
    "GPT-J: attention and MLP side by side, GPT-2's products.",
    in_transformers("models/gptj"),
    DensePlan(
        "GPTJ", "gptj", (LM, CLASSIFIER, BARE),
        layout=CheckpointLayout("transformer.h", "transformer.wte", "", SEPARATE, IN_OUT), words=GPT2_WORDS, inner=4,
        **MULTI_HEAD,
    ),
)  # fmt: skip
table(
    "codegen",
    "CodeGen: GPT-J's block with one projection to queries, keys and values.",
    in_transformers("models/codegen"),
    DensePlan(
        "CodeGen", "codegen",
        layout=CheckpointLayout("transformer.h", "transformer.wte", "", ("attn.qkv_proj", "attn.out_proj"), IN_OUT),
        words=GPT2_WORDS, inner=4, **MULTI_HEAD,
    ),
)  # fmt: skip
table(
    "ctrl",
    "CTRL: GPT-2's products; `dff` is the width of the MLP.",
    in_transformers("models/ctrl"),
    DensePlan(
        "CTRL", "ctrl", ("LMHeadModel", BARE),
        layout=CheckpointLayout(
            "transformer.h", "transformer.w", "",
            tuple(f"multi_head_attention.{name}" for name in ("Wq", "Wk", "Wv", "dense")), ("ffn.0", "ffn.2"),
        ),
        words=_widths(**GPT2, inner=("dff",)), **MULTI_HEAD,
    ),
)  # fmt: skip


def _by_attention_types(config: Config, layers: range) -> Spans:
    """Return GPT-Neo's windows: of `attention_layers`, or of `attention_types`, pairs of words and how often they repeat."""
    kinds = config.words("attention_layers", len(layers), {"global", "local"})
    if kinds is None:
        kinds = []
        try:
            for words, times in config.values.get("attention_types") or [[["global", "local"], (len(layers) + 1) // 2]]:
                kinds += list(words) * min(int(times), len(layers))
        except (TypeError, ValueError):
            raise config.error(("attention_types",), "must be a list of [words, times]") from None
        if config.has("attention_types") and len(kinds) != len(layers):
            raise config.error(("attention_types",), f"names {len(kinds)} of {len(layers)} layers")
    local = [i for i in layers if kinds[i] == "local"]
    parts = [(None, [i for i in layers if i not in local]), (config.integer("window_size", default=256), local)]
    return [(window, members) for window, members in parts if members]


table(
    "gpt_neo",
    "GPT-Neo: GPT-2's products with a window of 256 tokens in every other layer, or as `attention_types` says.",
    in_transformers("models/gpt_neo"),
    DensePlan(
        "GPTNeo", "gpt_neo", (LM, CLASSIFIER, BARE), window=_by_attention_types,
        layout=CheckpointLayout(
            "transformer.h", "transformer.wte", "transformer.wpe",
            tuple(path.replace("attn.", "attn.attention.") for path in SEPARATE), CONV,
        ),
        words=_widths(heads=("num_heads", "num_attention_heads"), layers=("num_layers", "num_hidden_layers")),
        inner=4, **MULTI_HEAD,
    ),
)  # fmt: skip


def _falcon_keys(config: Config, heads: int) -> int:
    """Return `num_kv_heads` heads of keys in the newer architecture; in the older one a single one, or as many as queries."""
    older = _one_head(config, heads)
    return key_heads(config, heads, "num_kv_heads", "n_head_kv") if config.flag("new_decoder_architecture") else older


BLOOM_LAYOUT = CheckpointLayout(
    "transformer.h", "transformer.word_embeddings", "",
    ("self_attention.query_key_value", "self_attention.dense"), FOUR_FOLD,
)  # fmt: skip
table(
    "falcon",
    """Falcon 7B (one head of keys and values), 40B and 180B (`num_kv_heads` of them), Falcon-RW (all), 11B.

    A step of T tokens costs 2T[L(h(n+2k)d + h² + 2hf) + Vh] + 4hL × pairs FLOPs forward. Falcon 3 is Llama's plan.
    """,
    in_transformers("models/falcon"),
    DensePlan(
        "Falcon", "falcon", ALL, gated=False, layout=BLOOM_LAYOUT,
        words=_widths(
            width=("n_embed", "hidden_size"), heads=("num_attention_heads", "n_head"),
            layers=("num_hidden_layers", "n_layer"), inner=("ffn_hidden_size",),
        ),
        inner=4, keys=_falcon_keys, aliases=(*family("RW", LM, BARE), "RefinedWeb", "RefinedWebModel"),
    ),
)  # fmt: skip
table(
    "bloom",
    "BLOOM, BLOOMZ: 2T[12Lh² + Vh] + 4hL × pairs FLOPs forward for T tokens; the MLP is always four times as wide.",
    in_transformers("models/bloom"),
    DensePlan(
        "Bloom", "bloom", (LM, CLASSIFIER, BARE), layout=BLOOM_LAYOUT,
        words=_widths(
            width=("n_embed", "hidden_size"), heads=("n_head", "num_attention_heads"),
            layers=("n_layer", "num_hidden_layers"), inner=(),
        ),
        inner=4, **MULTI_HEAD,
    ),
)  # fmt: skip


def _expanded(config: Config) -> Config:
    width = config.integer("d_model", "hidden_size")
    return config.replaced(intermediate_size=config.integer("expansion_ratio", default=4) * width)


def _mpt_keys(config: Config, heads: int) -> int:
    attention = config.section("attn_config", optional=True)
    kind = attention.word("attn_type", default="multihead_attention")
    return {"multihead_attention": heads, "multiquery_attention": 1}.get(kind) or attention.integer("kv_n_heads")


table(
    "mpt",
    """MPT: the same products; `expansion_ratio` widens the MLP, `attn_config` may give several queries fewer keys.

    transformers itself builds only multi-head attention and a ratio of 4; other values were read from the published code.
    """,
    in_transformers("models/mpt"),
    DensePlan(
        "Mpt", "mpt", ALL, gated=False,
        layout=CheckpointLayout(
            "transformer.blocks", "transformer.wte", "", ("attn.Wqkv", "attn.out_proj"),
            ("ffn.up_proj", "ffn.down_proj"),
        ),
        words=_widths(
            width=("d_model", "hidden_size"), heads=("n_heads", "num_attention_heads"),
            layers=("n_layers", "num_hidden_layers"),
        ),
        keys=_mpt_keys, prepared=_expanded, aliases=("MPTForCausalLM",),
    ),
)  # fmt: skip

# BART's words

BART = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj")
FC = ("fc1", "fc2")
table(
    "opt",
    """OPT, Galactica: 2T[L(4h² + 2hf) + Ve + 2he] + 4hL × pairs FLOPs forward for T tokens.

    The term 2he only where embeddings are e wide and e is not h: a projection in, and one out (OPT-350M, e = 512).
    """,
    in_transformers("models/opt"),
    DensePlan(
        "OPT", "opt", (LM, CLASSIFIER, BARE),
        layout=CheckpointLayout(
            "model.decoder.layers", "model.decoder.embed_tokens", "model.decoder.embed_positions", BART, FC,
        ),
        words=_widths(layers=("num_hidden_layers",), inner=("ffn_dim",)), narrow="word_embed_proj_dim",
        **MULTI_HEAD,
    ),
)  # fmt: skip
table(
    "biogpt",
    "BioGPT: OPT's block under its own paths.",
    in_transformers("models/biogpt"),
    DensePlan(
        "BioGpt", "biogpt", (LM, CLASSIFIER, BARE),
        layout=CheckpointLayout(
            "biogpt.layers", "biogpt.embed_tokens", "biogpt.embed_positions", BART, FC, "output_projection",
        ),
        words=_widths(layers=("num_hidden_layers",)), **MULTI_HEAD,
    ),
)  # fmt: skip
table(
    "xglm",
    "XGLM: OPT's block, with positions that are not learned.",
    in_transformers("models/xglm"),
    DensePlan(
        "XGLM", "xglm", layout=CheckpointLayout(attention=BART, mlp=FC),
        words=_widths(
            width=("d_model", "hidden_size"), heads=("attention_heads", "num_attention_heads"),
            layers=("num_layers", "num_hidden_layers"), inner=("ffn_dim",),
        ),
        **MULTI_HEAD,
    ),
)  # fmt: skip

# Files that bring their own code: no library here builds them, so that they are read from published implementations and not traced

READ = "the published implementations, as in vLLM's model_executor/models; read, not traced"
BAICHUAN = CheckpointLayout(attention=("self_attn.W_pack", "self_attn.o_proj"))
INTERNLM2 = CheckpointLayout(
    "model.layers", "model.tok_embeddings", "", ("attention.wqkv", "attention.wo"),
    ("feed_forward.w1", "feed_forward.w3", "feed_forward.w2"), "output",
)  # fmt: skip
EXAONE3 = CheckpointLayout(
    "transformer.h", "transformer.wte", "",
    tuple(f"attn.attention.{name}" for name in ("q_proj", "k_proj", "v_proj", "out_proj")),
    ("mlp.c_fc_0", "mlp.c_fc_1", "mlp.c_proj"),
)  # fmt: skip
OWN: Mapping[str, Any] = {"heads": (LM,)}
table(
    "own_code",
    """Yi, InternLM 1 to 3, Baichuan 1 and 2, MiMo, MiniCPM 1 and 2, Aquila, Orion, XVERSE, StableLM Epoch, EXAONE 3.

    Llama's closed form. MiMo's layers for multi-token prediction, which its code does not run, are left out.
    """,
    READ,
    *(DensePlan(stem, kind, **OWN) for stem, kind in (("Yi", "Yi"), ("InternLM", "internlm"), ("InternLM3", "internlm3"))),
    DensePlan("InternLM2", "internlm2", layout=INTERNLM2, **OWN),
    DensePlan("Baichuan", "baichuan", layout=BAICHUAN, **OWN),
    DensePlan("BaiChuan", "", layout=BAICHUAN, **OWN),
    DensePlan("MiMo", "mimo", fields=QWEN, window="typed", **OWN),
    DensePlan("MiniCPM", "minicpm", **OWN),
    DensePlan("Aquila", "aquila", **OWN),
    DensePlan("Orion", "orion", **OWN),
    DensePlan("Xverse", "xverse", **OWN),
    DensePlan("StableLMEpoch", "stablelm_epoch", **OWN),
    DensePlan("Exaone", "exaone", layout=EXAONE3, **OWN),
)


def _halved(config: Config) -> Config:
    return config.replaced(intermediate_size=config.integer("intermediate_size", "ffn_hidden_size") // 2)


table(
    "qwen1",
    "Qwen 1: Llama's products; `intermediate_size` counts gate and up together, so that each is half as wide.",
    READ,
    DensePlan(
        "QWen", "qwen", ("LMHeadModel",),
        layout=CheckpointLayout(
            "transformer.h", "transformer.wte", "", ("attn.c_attn", "attn.c_proj"),
            ("mlp.w2", "mlp.w1", "mlp.c_proj"),
        ),
        keys=every_head, prepared=_halved,
    ),
)  # fmt: skip


def _query_groups(config: Config, heads: int) -> int:
    return key_heads(config, heads, "multi_query_group_num") if config.flag("multi_query_attention") else heads


CHATGLM = DensePlan(
    "ChatGLM", "chatglm",
    layout=CheckpointLayout(
        "transformer.encoder.layers", "transformer.embedding.word_embeddings", "",
        ("self_attention.query_key_value", "self_attention.dense"), FOUR_FOLD, "transformer.output_layer",
    ),
    words={
        "head_dim": ("kv_channels", "head_dim"), "intermediate_size": ("ffn_hidden_size",),
        "vocab_size": ("padded_vocab_size", "vocab_size"),
        "num_hidden_layers": ("num_layers", "num_hidden_layers"),
    },
    keys=_query_groups,
)  # fmt: skip


@model("ChatGLMModel", "chatglm", "ChatGLMForConditionalGeneration", *family("ChatGLM", LM, CLASSIFIER), source=READ)
def chatglm(config: Config) -> Iterator[Work]:
    """ChatGLM 2 and 3, CodeGeeX 2, GLM 4 (9B) as first published: grouped attention from one projection, a gated MLP.

    ChatGLM 1 (`inner_hidden_size`) has another plan and is refused by its missing fields. The architecture's name without a
    head ("ChatGLMModel") stands in the files of the language model, which is what is counted.
    """
    yield from CHATGLM.works(replace(config, architecture=config.architecture.removesuffix(BARE)))
