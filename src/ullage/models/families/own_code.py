"""Decoders whose files bring their own code, in Llama's plan: Baichuan, InternLM, Qwen 1, ChatGLM 2 and 3, EXAONE 3, Yi and more.

No library here builds them, so that they are read from published implementations and not traced.
"""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, Layout, Shape, dense, family, head_dim, key_heads
from ullage.models.families.llama import QWEN
from ullage.models.model import model
from ullage.models.plans import Plan, chosen, names, planned
from ullage.models.work import Work

SOURCE = "the published implementations, as in vLLM's model_executor/models; read, not traced"
BAICHUAN = Layout(attention=("self_attn.W_pack", "self_attn.o_proj"))
INTERNLM2 = Layout(
    *("model.layers", "model.tok_embeddings", ""),
    ("attention.wqkv", "attention.wo"),
    ("feed_forward.w1", "feed_forward.w3", "feed_forward.w2"),
    "output",
)
QWEN1 = Layout("transformer.h", "transformer.wte", "", ("attn.c_attn", "attn.c_proj"), ("mlp.w2", "mlp.w1", "mlp.c_proj"))
EXAONE3 = Layout(
    *("transformer.h", "transformer.wte", ""),
    tuple(f"attn.attention.{name}" for name in ("q_proj", "k_proj", "v_proj", "out_proj")),
    ("mlp.c_fc_0", "mlp.c_fc_1", "mlp.c_proj"),
)
CHATGLM = Layout(
    *("transformer.encoder.layers", "transformer.embedding.word_embeddings", ""),
    ("self_attention.query_key_value", "self_attention.dense"),
    ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    "transformer.output_layer",
)
PLANS = (
    Plan("Yi", "Yi", (LM,)),
    Plan("InternLM", "internlm", (LM,)),
    Plan("InternLM3", "internlm3", (LM,)),
    Plan("InternLM2", "internlm2", (LM,), layout=INTERNLM2),
    Plan("Baichuan", "baichuan", (LM,), layout=BAICHUAN),
    Plan("BaiChuan", "", (LM,), layout=BAICHUAN),
    Plan("MiMo", "mimo", (LM,), QWEN, window="typed"),
    Plan("MiniCPM", "minicpm", (LM,)),
    Plan("Aquila", "aquila", (LM,)),
    Plan("Orion", "orion", (LM,)),
    Plan("Xverse", "xverse", (LM,)),
    Plan("StableLMEpoch", "stablelm_epoch", (LM,)),
    Plan("Exaone", "exaone", (LM,), layout=EXAONE3),
)


@model(*names(PLANS), source=SOURCE)
def own_code(config: Config) -> Iterator[Work]:
    """Yi, InternLM 1 to 3, Baichuan 1 and 2, MiMo, MiniCPM 1 and 2, Aquila, Orion, XVERSE, StableLM Epoch, EXAONE 3.

    Llama's closed form. MiMo's layers for multi-token prediction, which its code does not run, are left out.
    """
    if not config.has("num_hidden_layers") and config.has("num_layers"):
        config = config.replaced(num_hidden_layers=config.values["num_layers"])  # EXAONE 3's word
    yield from planned(config, chosen(config, PLANS))


@model("QWenLMHeadModel", "qwen", source=SOURCE)
def qwen1(config: Config) -> Iterator[Work]:
    """Qwen 1: Llama's products; `intermediate_size` counts gate and up together, so that each is half as wide."""
    both = config.integer("intermediate_size", "ffn_hidden_size")
    yield from planned(config.replaced(intermediate_size=both // 2, num_key_value_heads=None), Plan("QWen", "qwen", layout=QWEN1))


@model(
    *("ChatGLMModel", "chatglm", "ChatGLMForConditionalGeneration"),
    *family("ChatGLM", LM, CLASSIFIER),
    shapes=("seq",),
    source=SOURCE,
)
def chatglm(config: Config) -> Iterator[Work]:
    """ChatGLM 2 and 3, CodeGeeX 2, GLM 4 (9B) as first published: grouped attention from one projection, a gated MLP.

    ChatGLM 1 (`inner_hidden_size`) has another plan and is refused by its missing fields. The architecture's name without a
    head ("ChatGLMModel") stands in the files of the language model, which is what is counted.
    """
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    grouped = config.flag("multi_query_attention")
    shape = Shape(
        width=width,
        heads=heads,
        key_heads=key_heads(config, heads, "multi_query_group_num") if grouped else heads,
        dim=config.integer("kv_channels", default=head_dim(config, width, heads)),
        inner=config.integer("ffn_hidden_size"),
        vocabulary=config.integer("padded_vocab_size", "vocab_size"),
        layers=config.layers("num_layers", "num_hidden_layers"),
        gated=True,
    )
    named = Config(config.values, config.place, config.path, config.architecture.removesuffix(BARE))
    yield from dense(named, shape, CHATGLM)
