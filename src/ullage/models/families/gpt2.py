"""GPT-2 and the decoders written in its words (n_embd, n_layer, n_head): multi-head or multi-query attention, an MLP without a gate."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, Layout, Shape, dense, family, head_dim
from ullage.models.model import model
from ullage.models.work import Work

CONV = Layout("transformer.h", "transformer.wte", "transformer.wpe", ("attn.c_attn", "attn.c_proj"), ("mlp.c_fc", "mlp.c_proj"))
FIRST = Layout(
    *("transformer.h", "transformer.tokens_embed", "transformer.positions_embed"),
    ("attn.c_attn", "attn.c_proj"),
    ("mlp.c_fc", "mlp.c_proj"),
)
SEPARATE = ("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.out_proj")
GPTJ = Layout("transformer.h", "transformer.wte", "", SEPARATE, ("mlp.fc_in", "mlp.fc_out"))
CODEGEN = Layout("transformer.h", "transformer.wte", "", ("attn.qkv_proj", "attn.out_proj"), ("mlp.fc_in", "mlp.fc_out"))
CTRL_LAYOUT = Layout(
    *("transformer.h", "transformer.w", ""),
    tuple(f"multi_head_attention.{name}" for name in ("Wq", "Wk", "Wv", "dense")),
    ("ffn.0", "ffn.2"),
)
MULTI_QUERY = ("GPTBigCodeLMHeadModel", *family("GPTBigCode", LM, CLASSIFIER, BARE, kind="gpt_bigcode"))


@model(
    *family("GPT2", "LMHeadModel", CLASSIFIER, BARE, kind="gpt2"),
    *MULTI_QUERY,
    source="transformers 5.23, models/gpt2, gpt_bigcode; verified to the integer against traces",
)
def gpt2(config: Config) -> Iterator[Work]:
    """GPT-2, Cerebras-GPT, GPT-SW3 (multi-head); StarCoder and SantaCoder (GPT-BigCode, one head of keys and values).

    A step of T tokens costs 2T[L(4h² + 2hf) + Vh] + 4hL × pairs FLOPs forward; multi-query attention 2h² + 2hd for 4h².
    """
    single = config.flag("multi_query", True) if _called(config, MULTI_QUERY) else False
    yield from dense(config, _shape(config, single=single), CONV)


@model(
    *family("OpenAIGPT", "LMHeadModel", CLASSIFIER, BARE, kind="openai-gpt"),
    source="transformers 5.23, models/openai; verified against traces",
)
def openai_gpt(config: Config) -> Iterator[Work]:
    """GPT, the first: GPT-2's products, with an MLP that is always four times as wide."""
    yield from dense(config, _shape(config.replaced(n_inner=None)), FIRST)


@model(*family("GPTJ", LM, CLASSIFIER, BARE, kind="gptj"), source="transformers 5.23, models/gptj; verified to the integer against traces")
def gptj(config: Config) -> Iterator[Work]:
    """GPT-J: attention and MLP side by side, GPT-2's products."""
    yield from dense(config, _shape(config), GPTJ)


@model(*family("CodeGen", LM, BARE, kind="codegen"), source="transformers 5.23, models/codegen; verified to the integer against traces")
def codegen(config: Config) -> Iterator[Work]:
    """CodeGen: GPT-J's block with one projection to queries, keys and values."""
    yield from dense(config, _shape(config), CODEGEN)


@model(*family("CTRL", "LMHeadModel", BARE, kind="ctrl"), source="transformers 5.23, models/ctrl; verified to the integer against traces")
def ctrl(config: Config) -> Iterator[Work]:
    """CTRL: GPT-2's products; `dff` is the width of the MLP."""
    yield from dense(config, _shape(config.replaced(n_inner=config.integer("dff"))), CTRL_LAYOUT)


@model(*family("GPTNeo", LM, CLASSIFIER, BARE, kind="gpt_neo"), source="transformers 5.23, models/gpt_neo; verified against traces")
def gpt_neo(config: Config) -> Iterator[Work]:
    """GPT-Neo: GPT-2's products with a window of 256 tokens in every other layer, or as `attention_types` says."""
    separate = tuple(path.replace("attn.", "attn.attention.") for path in SEPARATE)
    layout = Layout("transformer.h", "transformer.wte", "transformer.wpe", separate, ("mlp.c_fc", "mlp.c_proj"))
    layers = config.layers("num_layers", "num_hidden_layers")
    width, heads = config.integer("hidden_size"), config.integer("num_heads", "num_attention_heads")
    local = _local(config, layers)
    parts = [(None, [i for i in layers if i not in local]), (config.integer("window_size", default=256), sorted(local))]
    yield from dense(
        config,
        Shape(
            width=width,
            heads=heads,
            key_heads=heads,
            dim=head_dim(config.replaced(head_dim=None), width, heads),
            inner=config.integer("intermediate_size", default=4 * width),
            vocabulary=config.integer("vocab_size"),
            layers=layers,
            gated=False,
            spans=[(window, members) for window, members in parts if members],
        ),
        layout,
    )


def _shape(config: Config, single: bool = False) -> Shape:
    """Return the widths of a decoder in GPT-2's words."""
    width = config.integer("n_embd", "hidden_size")
    heads = config.integer("n_head", "num_attention_heads")
    return Shape(
        width=width,
        heads=heads,
        key_heads=1 if single else heads,
        dim=head_dim(config.replaced(head_dim=None), width, heads),
        inner=config.integer("n_inner", default=4 * width),
        vocabulary=config.integer("vocab_size"),
        layers=config.layers("n_layer", "num_hidden_layers"),
        gated=False,
    )


def _called(config: Config, names: tuple[str, ...]) -> bool:
    return config.architecture in names or (not config.architecture and config.values.get("model_type") in names)


def _local(config: Config, layers: range) -> set[int]:
    """Return GPT-Neo's layers with a window: of `attention_layers`, or of `attention_types`, pairs of words and how often they repeat."""
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
    return {i for i in layers if kinds[i] == "local"}
